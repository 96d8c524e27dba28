//! A worker on a cluster of which one master hangs (SIGSTOP).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use dwell_engine::{Act, Action, RedisMode};
use dwell_store::store::error::{Class, StoreError};
use dwell_store::store::jobs::acknowledge::{Acknowledgement, LeaseAction};
use dwell_store::store::jobs::batch::RequestRef;
use dwell_store::store::jobs::pop::PopLimits;
use dwell_store::store::{Store, Unobserved};
use dwell_testkit::servers::RedisCluster;

use super::*;

/// A lease that outlasts the test.
const ENDLESS_TTR: Duration = Duration::from_secs(600);
/// A lease that ends before a call to a master that hangs is given up, and that a slow machine
/// prolongs in time.
const SHORT_TTR: Duration = Duration::from_secs(4);

/// A cluster without failover, and a job due now in each bucket.
struct Masters {
    cluster: RedisCluster,
    client: Client,
    store: Store,
    /// The jobs on the first master.
    first: Vec<JobId>,
    /// The jobs on the other masters.
    others: Vec<JobId>,
}

impl Masters {
    async fn new() -> Masters {
        let more =
            [("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")];
        let more = more.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let options = RedisOptions { more, ..RedisOptions::default() };
        let cluster = RedisCluster::start(options).await.unwrap();
        let config =
            Redis { mode: RedisMode::Cluster, urls: cluster.urls(), ..Redis::new(String::new()) };
        let client =
            Client::connect(&config, &[]).await.unwrap().default_retry([Duration::ZERO; 8]);
        let store = Store::open(&config, &[], Arc::new(Unobserved)).await.unwrap();
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for bucket in 0..store.keys().buckets() {
            let new_job = std::iter::repeat_with(|| NewJob::new(Job::for_queue("q", "x"), NOW))
                .find(|new_job| store.keys().bucket_of(new_job.id.as_str()) == bucket)
                .unwrap();
            client.schedule(&new_job).await.unwrap();
            let slot = cluster.slot_of(store.keys().jobs(bucket)).await.unwrap();
            let is_first = cluster.master_of(slot).await.unwrap() == 0;
            (if is_first { &mut first } else { &mut others }).push(new_job.id);
        }
        Masters { cluster, client, store, first, others }
    }

    /// Checks that each request has an answer whose master answers, and that the others have the
    /// error of the first master.
    fn check_answers<'a, T>(
        &self,
        answers: impl Iterator<Item = (&'a JobId, Result<T, StoreError>)>,
    ) {
        for (id, answer) in answers {
            match answer {
                Ok(_) => assert!(self.others.contains(id), "{id} has an answer"),
                Err(error) => assert!(
                    self.first.contains(id) && matches!(error.class, Class::Timeout | Class::Io),
                    "{id}: {error:?}"
                ),
            }
        }
    }

    /// Waits until these jobs are removed.
    async fn until_removed(&self, ids: &[JobId]) {
        soon(async {
            for id in ids {
                // A master that was away is asked again.
                while !matches!(self.store.reader.find(id).await, Ok(None)) {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn what_handlers_answer_reaches_the_masters_that_answer_while_one_hangs() {
    let masters = Masters::new().await;
    let ids = || masters.first.iter().chain(&masters.others);
    let gates: Arc<BTreeMap<JobId, CancellationToken>> =
        Arc::new(ids().map(|id| (id.clone(), CancellationToken::new())).collect());
    let (say, mut said) = unbounded_channel();
    let handler = {
        let gates = gates.clone();
        move |_: Job, context: Context| {
            let gate = gates[context.id()].clone();
            say.send(context).unwrap();
            async move {
                gate.cancelled().await;
                Ok::<_, String>(Outcome::Finish)
            }
        }
    };
    let worker = Worker::new(masters.client.clone()).ttr(ENDLESS_TTR).concurrency(gates.len());
    let running = Running::start(worker.queue("q", handler));
    for _ in ids() {
        next(&mut said).await;
    }
    masters.cluster.nodes[0].freeze().unwrap();
    // More calls to the master that hangs than a worker has on their way, each with a job of
    // another master behind it.
    assert!(masters.first.len() > 2 && masters.others.len() > 2);
    for (hangs, answers) in masters.first.iter().zip(&masters.others) {
        gates[hangs].cancel();
        gates[answers].cancel();
        masters.until_removed(std::slice::from_ref(answers)).await;
    }
    gates.values().for_each(CancellationToken::cancel);
    masters.until_removed(&masters.others).await;
    // The answers for the jobs of that master wait for it.
    masters.cluster.nodes[0].thaw().unwrap();
    masters.until_removed(&masters.first).await;
    running.stop().await;
    assert!(said.try_recv().is_err(), "no job ran twice");
}

#[tokio::test]
async fn a_call_that_lacks_its_script_reaches_the_masters_that_answer_while_one_hangs() {
    let masters = Masters::new().await;
    let queue = &masters.store.jobs;
    let ttr_ms = 600_000;
    let limits = PopLimits {
        ttr_ms: Some(ttr_ms),
        max_ttr_ms: ttr_ms,
        most: 1,
        most_bytes: 1 << 20,
        room: None,
    };
    let mut acknowledgements = Vec::new();
    for bucket in 0..masters.store.keys().buckets() {
        let nonce = u64::from(bucket).to_be_bytes();
        let popped = queue.pop(nonce, bucket, "q", limits).await.unwrap();
        acknowledgements.extend(popped.jobs.into_iter().map(|job| Acknowledgement {
            id: job.id,
            lease: job.lease,
            action: LeaseAction::Finish,
        }));
    }
    assert_eq!(acknowledgements.len(), masters.first.len() + masters.others.len());
    masters.cluster.nodes[0].freeze().unwrap();
    // Nobody called `acknowledge` before: no master knows the script.
    let answers = queue.acknowledge(&acknowledgements).await;
    let ids = acknowledgements.iter().map(|acknowledgement| &acknowledgement.id);
    masters.check_answers(ids.zip(answers));
    masters.until_removed(&masters.others).await;

    for node in &masters.cluster.nodes[1..3] {
        node.order(&["SCRIPT", "FLUSH"]).await.unwrap();
    }
    let of = |id: &JobId| NewJob::new(Job::for_queue("r", "x"), NOW).id(id.clone());
    let jobs: Vec<NewJob> = masters.first.iter().chain(&masters.others).map(of).collect();
    let cancels: Vec<Act> =
        jobs.iter().map(|job| Act::new(Action::Cancel, job.id.clone())).collect();
    let asked: Vec<RequestRef<'_>> =
        jobs.iter().map(RequestRef::NewJob).chain(cancels.iter().map(RequestRef::Act)).collect();
    let answers = queue.apply(&asked, &[]).await.answers;
    masters.check_answers(jobs.iter().chain(&jobs).map(|job| &job.id).zip(answers));
}

#[tokio::test]
async fn leases_on_the_masters_that_answer_are_prolonged_while_one_hangs() {
    let masters = Masters::new().await;
    let (say, mut said) = unbounded_channel();
    let gate = CancellationToken::new();
    let handler = {
        let gate = gate.clone();
        move |_: Job, context: Context| {
            say.send(context.clone()).unwrap();
            let gate = gate.clone();
            async move {
                tokio::select! {
                    () = gate.cancelled() => Ok(Outcome::Finish),
                    () = context.cancellation().cancelled() => Err("cancelled"),
                }
            }
        }
    };
    let jobs = masters.first.len() + masters.others.len();
    let worker = Worker::new(masters.client.clone()).ttr(SHORT_TTR).concurrency(jobs);
    let running = Running::start(worker.queue("q", handler));
    let (mut hanging, mut answering) = (Vec::new(), Vec::new());
    for _ in 0..jobs {
        let context = next(&mut said).await;
        let is_first = masters.first.contains(context.id());
        (if is_first { &mut hanging } else { &mut answering }).push(context);
    }
    masters.cluster.nodes[0].freeze().unwrap();
    let until: Vec<SystemTime> =
        answering.iter().map(|context| context.deadline() + 3 * SHORT_TTR).collect();
    soon(async {
        for context in &hanging {
            context.cancellation().cancelled().await;
        }
        for (context, until) in answering.iter().zip(&until) {
            while context.deadline() < *until && !context.cancellation().is_cancelled() {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let lost = answering.iter().filter(|context| context.cancellation().is_cancelled());
    assert_eq!(lost.count(), 0, "handlers were cancelled whose master answers");
    gate.cancel();
    masters.until_removed(&masters.others).await;
    assert!(said.try_recv().is_err(), "no job ran twice");
    masters.cluster.nodes[0].thaw().unwrap();
    // The next attempts of the jobs whose leases ended finish at once.
    masters.until_removed(&masters.first).await;
    running.stop().await;
}
