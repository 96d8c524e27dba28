//! Acknowledgements of many callers at a time, on a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dwell_testkit::servers::{RedisOptions, RedisServer};
use futures_util::future::{join, join_all};
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::joined::{Caller, CarriedOut, Joined};
use super::*;
use crate::config::{Durability, Redis};
use crate::job::{Due, Job};
use crate::request::NewJob;
use crate::store::jobs::pop::{PopLimits, Popped};
use crate::store::scripts::Name;
use crate::store::wake_up::WakeUp;
use crate::store::{CallObserver, Store};

/// Counts the calls of `acknowledge`, and panics at the next one if it is told to.
#[derive(Default)]
struct Counter(AtomicUsize, AtomicBool);

impl CallObserver for Counter {
    fn called(&self, script: Name, _: Duration) {
        if script == Name::Acknowledge {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1.swap(false, Ordering::Relaxed), "this call panics");
        }
    }

    fn failed(&self, _: Class) {}
}

struct Fixture {
    server: RedisServer,
    store: Store,
    counter: Arc<Counter>,
}

impl Fixture {
    async fn new(buckets: u16) -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        Fixture::of(server, buckets, Durability::Memory).await
    }

    async fn of(server: RedisServer, buckets: u16, durability: Durability) -> Fixture {
        let counter = Arc::new(Counter::default());
        let settings = Redis { buckets, durability, ..Redis::new(server.url()) };
        let store = Store::open(&settings, &[], counter.clone()).await.unwrap();
        Fixture { server, store, counter }
    }

    /// The number of WAIT calls that the server got.
    async fn waits(&self) -> usize {
        let stats = self.server.order(&["INFO", "commandstats"]).await.unwrap();
        let calls = stats.iter().find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
        calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    }

    /// Jobs of this queue that consumers hold.
    async fn held(&self, queue: &str, count: usize) -> Vec<Popped> {
        let jobs: Vec<NewJob> =
            (0..count).map(|_| NewJob::new(Job::for_queue(queue, "x"), Due::In(0))).collect();
        self.store.jobs.schedule(&jobs).await.unwrap();
        let limits = PopLimits {
            ttr_ms: Some(600_000),
            max_ttr_ms: 600_000,
            most: 128,
            most_bytes: 1 << 20,
            room: None,
        };
        let mut held = Vec::new();
        for bucket in 0..self.store.keys().buckets() {
            let nonce = rand::random();
            held.extend(self.store.jobs.pop(nonce, bucket, queue, limits).await.unwrap().jobs);
        }
        assert_eq!(held.len(), count);
        held
    }

    /// The verdict on one action of one caller.
    async fn say(&self, job: &Popped, action: LeaseAction) -> Result<LeaseVerdict, Class> {
        let acknowledgement =
            Acknowledgement { id: job.id.clone(), lease: job.lease.clone(), action };
        let answer = self.store.jobs.acknowledge(&[acknowledgement]).await.remove(0);
        answer.map(|answer| answer.verdict).map_err(|error| error.class)
    }

    async fn finish_all(&self, jobs: &[Popped]) -> Vec<Result<LeaseVerdict, Class>> {
        join_all(jobs.iter().map(|job| self.say(job, LeaseAction::Finish))).await
    }
}

#[tokio::test]
async fn callers_that_come_together_share_a_call_a_bucket() {
    let fixture = Fixture::new(16).await;
    let jobs = fixture.held("q", 64).await;
    assert_eq!(fixture.finish_all(&jobs).await, vec![Ok(LeaseVerdict::Finished); 64]);
    let calls = fixture.counter.0.load(Ordering::Relaxed);
    assert!(calls * 10 <= jobs.len() * 3, "{calls} calls for {} jobs", jobs.len());
    assert_eq!(fixture.finish_all(&jobs).await, vec![Ok(LeaseVerdict::Fired); 64], "a repeat");
}

#[tokio::test]
async fn what_is_wrong_with_one_caller_concerns_no_other() {
    let fixture = Fixture::new(1).await;
    let mut jobs = fixture.held("q", 8).await;
    let of_damaged = fixture.held("damaged", 1).await.remove(0);
    let mut raw = crate::raw_link::raw_link(fixture.server.url()).await;
    let () = redis::cmd("SET")
        .arg("{dwell:00}:due:=damaged")
        .arg("x")
        .query_async(&mut raw)
        .await
        .unwrap();
    let gone = jobs.remove(0);
    jobs[0].lease.seal[0] ^= 1;
    // Its future is dropped before its acknowledgement is sent, which takes effect all the same.
    assert!(fixture.say(&gone, LeaseAction::Finish).now_or_never().is_none());
    let mut expected = vec![Ok(LeaseVerdict::Finished); 7];
    expected[0] = Ok(LeaseVerdict::Stale);
    // Only what writes a key needs it.
    let fail = LeaseAction::Fail { wait_ms: Some(1000), error: String::new() };
    let (finished, failed) = join(fixture.finish_all(&jobs), fixture.say(&of_damaged, fail)).await;
    assert_eq!((finished, failed), (expected, Err(Class::Script)));
    assert_eq!(fixture.say(&of_damaged, LeaseAction::Finish).await, Ok(LeaseVerdict::Finished));
    assert_eq!(fixture.say(&gone, LeaseAction::Finish).await, Ok(LeaseVerdict::Fired));
}

/// Notes what it is told.
#[derive(Default)]
struct RecordingObserver(Mutex<Vec<String>>);

impl LeaseObserver for RecordingObserver {
    fn acknowledged(&self, queue: &str, id: &JobId, _: &LeaseAction, verdict: LeaseVerdict) {
        self.0.lock().push(format!("{queue} {} {}", id.as_str(), verdict.as_str()));
    }

    fn due_again(&self, head: &WakeUp) {
        self.0.lock().push(head.broker.clone());
    }
}

#[tokio::test]
async fn verdicts_and_wake_ups_do_not_need_the_caller() {
    let fixture = Fixture::new(1).await;
    let job = fixture.held("q", 1).await.remove(0);
    let client = redis::Client::open(fixture.server.url()).unwrap();
    let (mut link, mut messages) = client.get_async_pubsub().await.unwrap().split();
    link.subscribe(fixture.store.keys().wake()).await.unwrap();
    let told = Arc::new(RecordingObserver::default());
    let action = LeaseAction::Release { wait_ms: 0 };
    let release = [Acknowledgement { id: job.id.clone(), lease: job.lease.clone(), action }];
    let acknowledging = fixture.store.jobs.acknowledge_observed(&release, told.clone());
    // The future is dropped before the acknowledgement is sent.
    assert!(acknowledging.now_or_never().is_none());
    let message = clock::timeout(Duration::from_secs(60), messages.next()).await.flatten();
    let message: String = message.unwrap().get_payload().unwrap();
    assert!(message.starts_with("0 ") && message.ends_with(" =q"), "{message}");
    assert_eq!(*told.0.lock(), [format!("q {} released", job.id.as_str()), "=q".to_owned()]);
}

/// Panics at the first verdict.
struct Panics;

impl LeaseObserver for Panics {
    fn acknowledged(&self, _: &str, _: &JobId, _: &LeaseAction, _: LeaseVerdict) {
        panic!("an observer panics");
    }

    fn due_again(&self, _: &WakeUp) {}
}

#[tokio::test]
async fn an_observer_that_panics_changes_no_answer_and_no_wake_up() {
    let fixture = Fixture::new(1).await;
    let jobs = fixture.held("q", 2).await;
    let client = redis::Client::open(fixture.server.url()).unwrap();
    let (mut link, mut messages) = client.get_async_pubsub().await.unwrap().split();
    link.subscribe(fixture.store.keys().wake()).await.unwrap();
    let action = LeaseAction::Release { wait_ms: 0 };
    let [first, second] = [&jobs[0], &jobs[1]].map(|Popped { id, lease, .. }| {
        [Acknowledgement { id: id.clone(), lease: lease.clone(), action: action.clone() }]
    });
    let (queue, told) = (&fixture.store.jobs, Arc::new(RecordingObserver::default()));
    // Both come before the first batch is sent.
    let (panicked, other) = join(
        queue.acknowledge_observed(&first, Arc::new(Panics)),
        queue.acknowledge_observed(&second, told.clone()),
    )
    .await;
    for answers in [panicked, other] {
        assert_eq!(answers[0].as_ref().unwrap().verdict, LeaseVerdict::Released);
    }
    assert_eq!(fixture.counter.0.load(Ordering::Relaxed), 1, "they share a batch");
    assert_eq!(*told.0.lock(), [format!("q {} released", jobs[1].id.as_str()), "=q".to_owned()]);
    for _ in 0..2 {
        let message = clock::timeout(Duration::from_secs(60), messages.next()).await.flatten();
        let message: String = message.unwrap().get_payload().unwrap();
        assert!(message.ends_with(" =q"), "{message}");
    }
}

#[tokio::test]
async fn a_batch_that_panics_fails_its_callers_alone() {
    let fixture = Fixture::new(1).await;
    let jobs = fixture.held("q", 2).await;
    let Popped { id, lease, .. } = jobs[0].clone();
    let finish = [Acknowledgement { id, lease, action: LeaseAction::Finish }];
    fixture.counter.1.store(true, Ordering::Relaxed);
    let panics = fixture.store.jobs.acknowledge(&finish);
    let waits = async {
        // The batch of the first one is out.
        tokio::task::yield_now().await;
        fixture.say(&jobs[1], LeaseAction::Finish).await
    };
    let (panicked, waited) = tokio::join!(panics, waits);
    let error = panicked[0].as_ref().unwrap_err();
    assert!(error.message.contains("panicked"), "{error}");
    assert_eq!(waited, Ok(LeaseVerdict::Finished));
}

#[test]
fn a_runtime_that_ends_before_the_wake_ups_are_sent_loses_no_answer() {
    let (caller, mut answer) = oneshot::channel();
    let released = Acknowledged { verdict: LeaseVerdict::Released, ms: Some(0) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fixture = Fixture::new(1).await;
        let caller = Caller { count: 1, observer: Arc::new(()), answers: Some(caller) };
        let calls = Joined { callers: vec![caller], ..Joined::default() };
        let wake_up = WakeUp { bucket: 0, broker: "=q".to_owned(), due_ms: 0 };
        let carried_out = CarriedOut { answers: vec![Ok(released)], wake_ups: vec![wake_up] };
        // The task of the wake-ups has no turn before the end.
        calls.answer(&fixture.store.jobs.namespace, carried_out);
    });
    drop(runtime);
    let answers = answer.try_recv().unwrap();
    assert_eq!(answers[0].as_ref().unwrap(), &released);
}

#[tokio::test]
async fn each_caller_of_a_call_that_fails_has_its_error() {
    let mut fixture = Fixture::new(1).await;
    let jobs = fixture.held("q", 4).await;
    let read = fixture.store.reader.find(&jobs[0].id).await.unwrap().unwrap();
    fixture.server.kill().unwrap();
    for answer in fixture.finish_all(&jobs).await {
        assert!(matches!(answer, Err(Class::Io | Class::Timeout)), "{answer:?}");
    }
    let finished = fixture.store.jobs.finish_held(&read, Arc::new(())).await;
    assert!(finished.is_err(), "nobody knows whether the job is finished");
}

#[tokio::test]
async fn callers_do_not_wait_for_a_call_that_hangs() {
    let fixture = Fixture::new(1).await;
    let jobs = fixture.held("q", 2).await;
    fixture.server.freeze().unwrap();
    let began = clock::now();
    let first = fixture.say(&jobs[0], LeaseAction::Finish);
    let second = async {
        // The batch of the first one is out.
        tokio::task::yield_now().await;
        fixture.say(&jobs[1], LeaseAction::Finish).await
    };
    let answers = tokio::join!(first, second);
    let took = began.elapsed();
    fixture.server.thaw().unwrap();
    assert_eq!(answers, (Err(Class::Timeout), Err(Class::Timeout)));
    // A call has five seconds: the second one left before the first one failed.
    assert!(took < Duration::from_millis(9500), "{took:?}");
}

#[tokio::test]
async fn callers_share_a_wait_for_durability() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let _replica = RedisServer::start(RedisOptions {
        replica_of: Some(server.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let fixture = Fixture::of(server, 16, Durability::Replica).await;
    let jobs = fixture.held("q", 64).await;
    let before = fixture.waits().await;
    assert_eq!(fixture.finish_all(&jobs).await, vec![Ok(LeaseVerdict::Finished); 64]);
    let waits = fixture.waits().await - before;
    assert!((1..=16).contains(&waits), "{waits} waits for {} jobs", jobs.len());
}

#[test]
fn calls_with_an_id_of_another_or_a_forged_lease_go_apart() {
    let of = |is_sealed, id: &str| Proven {
        id: id.parse().unwrap(),
        queue: "q".to_owned(),
        proof: [0; 8],
        is_sealed,
        expires_ms: None,
        action: LeaseAction::Finish,
    };
    let call = |ids: &[&str]| ids.iter().map(|id| of(true, id)).collect::<Vec<_>>();
    let calls = [
        call(&["a"]),
        call(&["b", "c"]),
        call(&["b", "d"]),
        call(&["d"]),
        call(&["e", "e"]),
        vec![of(false, "f"), of(true, "g")],
        call(&["f"]),
        call(&["g"]),
    ];
    assert_eq!(lanes::go_apart(&calls), [false, false, true, true, true, true, false, true]);
}

#[tokio::test]
async fn acknowledgements_of_one_job_keep_their_order() {
    let fixture = Fixture::new(1).await;
    let jobs = fixture.held("q", 3).await;
    let touch = LeaseAction::Touch { ttr_ms: 60_000 };
    // All come before the first batch is sent.
    let answers = tokio::join!(
        fixture.say(&jobs[0], touch.clone()),
        fixture.say(&jobs[0], LeaseAction::Finish),
        fixture.say(&jobs[1], LeaseAction::Finish),
        fixture.say(&jobs[1], touch.clone()),
        fixture.say(&jobs[0], LeaseAction::Finish),
    );
    let [touched, finished, fired] =
        [LeaseVerdict::Touched, LeaseVerdict::Finished, LeaseVerdict::Fired].map(Ok);
    assert_eq!(answers, (touched, finished, finished, fired, fired), "of several callers");
    let of =
        |action| Acknowledgement { id: jobs[2].id.clone(), lease: jobs[2].lease.clone(), action };
    let own = [of(touch.clone()), of(LeaseAction::Finish), of(touch)];
    let answers = fixture.store.jobs.acknowledge(&own).await;
    let verdicts: Vec<LeaseVerdict> =
        answers.into_iter().map(|answer| answer.unwrap().verdict).collect();
    assert_eq!(
        verdicts,
        [LeaseVerdict::Touched, LeaseVerdict::Finished, LeaseVerdict::Fired],
        "of one caller"
    );
}

#[tokio::test]
async fn a_job_is_finished_without_its_lease_while_the_same_consumer_holds_it() {
    let fixture = Fixture::new(1).await;
    let job = fixture.held("q", 1).await.remove(0);
    let Store { jobs, reader, .. } = &fixture.store;
    let read = reader.find(&job.id).await.unwrap().unwrap();
    let release = LeaseAction::Release { wait_ms: 0 };
    assert_eq!(fixture.say(&job, release).await, Ok(LeaseVerdict::Released));
    let waits = reader.find(&job.id).await.unwrap().unwrap();
    assert!(!jobs.finish_held(&waits, Arc::new(())).await.unwrap(), "nobody holds the job");
    let limits = PopLimits {
        ttr_ms: Some(600_000),
        max_ttr_ms: 600_000,
        most: 1,
        most_bytes: 1 << 20,
        room: None,
    };
    assert_eq!(jobs.pop([7; 8], 0, "q", limits).await.unwrap().jobs.len(), 1);
    assert!(
        !jobs.finish_held(&read, Arc::new(())).await.unwrap(),
        "another consumer holds the job"
    );
    let read = reader.find(&job.id).await.unwrap().unwrap();
    assert!(jobs.finish_held(&read, Arc::new(())).await.unwrap());
    assert!(!jobs.finish_held(&read, Arc::new(())).await.unwrap(), "a repeat");
    assert!(reader.find(&job.id).await.unwrap().is_none());
}
