//! Leases that are lost, workers that are killed, and jobs of others.

use dwell_engine::{Destination, Query, Verdict};
use dwell_store::store::{Store, Unobserved};

use super::*;

const SHORT_TTR: Duration = Duration::from_millis(300);
/// A lease that a slow machine prolongs in time, too.
const LONG_TTR: Duration = Duration::from_secs(4);

/// A worker whose handler sends its context, and waits until it is cancelled.
fn waiting(fixture: &Fixture) -> (Worker, UnboundedReceiver<Context>) {
    waiting_for(fixture, SHORT_TTR)
}

/// The same worker with this lease.
fn waiting_for(fixture: &Fixture, ttr: Duration) -> (Worker, UnboundedReceiver<Context>) {
    let (say, said) = unbounded_channel();
    let handler = move |_: Job, context: Context| {
        say.send(context.clone()).unwrap();
        async move {
            context.cancellation().cancelled().await;
            Err("cancelled")
        }
    };
    (fixture.worker().ttr(ttr).queue("q", handler), said)
}

#[tokio::test]
async fn a_lease_is_prolonged_while_its_handler_runs() {
    let fixture = Fixture::new().await;
    let id = fixture.add("q", NOW).await;
    let (worker, mut said) = waiting_for(&fixture, LONG_TTR);
    let running = Running::start(worker);
    let context = next(&mut said).await;
    let first = context.deadline();
    soon(async {
        while context.deadline() < first + 2 * LONG_TTR {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let held = fixture.get(&id).await.unwrap();
    assert_eq!(
        (held.state, held.attempts(), context.attempt()),
        (JobState::Reserved, 1, 1),
        "nobody else got it"
    );
    assert!(!context.cancellation().is_cancelled());
    // A cancel of the job cancels its handler.
    assert_eq!(fixture.client.cancel(&id).await.unwrap(), Verdict::CancelledAfterAttempt);
    soon(context.cancellation().cancelled()).await;
    running.stop().await;
    assert!(fixture.get(&id).await.is_none(), "its error changes nothing");
}

#[tokio::test]
async fn a_handler_is_cancelled_when_its_lease_ends_while_redis_is_away() {
    let mut fixture = Fixture::new().await;
    fixture.add("q", NOW).await;
    let (worker, mut said) = waiting(&fixture);
    let running = Running::start(worker);
    let context = next(&mut said).await;
    fixture.server.kill().unwrap();
    soon(context.cancellation().cancelled()).await;
    // A Redis that comes back empty is a namespace anew, and the worker goes on in it.
    fixture.server.restart().await.unwrap();
    soon(async {
        while fixture.client.schedule(&NewJob::new(Job::for_queue("q", "x"), NOW)).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(next(&mut said).await.attempt(), 1);
    running.kill().await;
}

#[tokio::test]
async fn another_worker_gets_the_job_of_one_that_was_killed() {
    let fixture = Fixture::new().await;
    let id = fixture.add("q", NOW).await;
    // A lease that ended before the kill would count as an attempt, too.
    let (worker, mut said) = waiting_for(&fixture, LONG_TTR);
    let killed = Running::start(worker);
    next(&mut said).await;
    let (worker, mut said) = waiting_for(&fixture, LONG_TTR);
    let other = Running::start(worker);
    killed.kill().await;
    let context = next(&mut said).await;
    assert_eq!((context.id(), context.attempt()), (&id, 2));
    let held = fixture.get(&id).await.unwrap();
    assert_eq!(held.last_error(), "the consumer did not finish it within the ttr");
    other.kill().await;
}

#[tokio::test]
async fn each_job_runs_once_with_two_workers() {
    let fixture = Fixture::new().await;
    let (say, mut said) = unbounded_channel();
    let start = || {
        let say = say.clone();
        let handler = move |_: Job, context: Context| {
            say.send(context.id().clone()).unwrap();
            std::future::ready(Ok::<_, String>(Outcome::Finish))
        };
        Running::start(fixture.worker().queue("q", handler))
    };
    let workers = [start(), start()];
    let mut ids = Vec::new();
    for _ in 0..500 {
        ids.push(fixture.add("q", NOW).await);
    }
    let mut ran = Vec::new();
    for _ in 0..500 {
        ran.push(next(&mut said).await);
    }
    for worker in workers {
        worker.stop().await;
    }
    assert!(said.try_recv().is_err());
    ids.sort();
    ran.sort();
    assert!(ids == ran);
}

#[tokio::test]
async fn a_worker_sends_the_jobs_of_brokers_back_and_never_delivers_them() {
    let fixture = Fixture::new().await;
    let brokers = Client::connect(&fixture.config, &["main"]).await.unwrap();
    let new_job = NewJob::new(Job::new("main", Destination::new("orders"), "x"), NOW);
    brokers.schedule(&new_job).await.unwrap();
    // A sidecar claims the job and crashes.
    let store = Store::open(&fixture.config, &["main".to_owned()], std::sync::Arc::new(Unobserved))
        .await
        .unwrap();
    let bucket = store.keys().bucket_of(new_job.id.as_str());
    assert_eq!(
        store.jobs.claim(bucket, "main", SHORT_TTR, 10, 1 << 20).await.unwrap().jobs.len(),
        1
    );
    let (worker, mut said) = waiting(&fixture);
    let running = Running::start(worker);
    let back = fixture.until_state(&new_job.id, Some(JobState::Scheduled)).await.unwrap();
    let state = back.state_record.unwrap();
    assert_eq!(
        (state.attempt, state.step, state.crashes),
        (1, 0, 1),
        "as the sidecar sends it back"
    );
    assert!(said.try_recv().is_err());
    assert_eq!(fixture.client.list(&Query::new(JobState::Scheduled)).await.unwrap().jobs.len(), 1);
    running.kill().await;
}

#[tokio::test]
async fn dead_jobs_past_their_retention_are_swept() {
    let fixture = Fixture::new().await;
    let new_job = NewJob::new(Job { retry: Some(vec![]), ..Job::for_queue("q", "x") }, NOW);
    fixture.client.schedule(&new_job).await.unwrap();
    let fails = |_: Job, _: Context| std::future::ready(Err("no"));
    let running =
        Running::start(fixture.worker().queue("q", fails).dead_retention(CONDITION_TIMEOUT));
    fixture.until_state(&new_job.id, Some(JobState::Dead)).await;
    running.stop().await;
    // The first sweep of a worker is at its start.
    let running = Running::start(fixture.worker().queue("q", fails).dead_retention(Duration::ZERO));
    fixture.until_state(&new_job.id, None).await;
    running.stop().await;
}
