//! Recurring schedules of a program without a sidecar, on a private Redis.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::convert::Infallible;
use std::time::Duration;

use dwell_engine::worker::{Context, Outcome};
use dwell_engine::{Client, ErrorKind, Job, JobId, Recurring, Redis, Value, Verdict, Worker};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

/// The longest wait for a job.
const JOB_TIMEOUT: Duration = Duration::from_secs(60);

fn every(name: &str, schedule: &str) -> Recurring {
    let id: JobId = name.parse().unwrap();
    Recurring::new(id, schedule, Job::for_queue("reports", "x")).unwrap()
}

#[tokio::test]
async fn a_worker_makes_the_jobs_of_the_schedules_of_its_queue() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let client = Client::connect(&Redis::new(server.url()), &[]).await.unwrap();
    let twice = every("twice", "@every 1s").count(2);
    assert_eq!(client.put_schedule(&twice).await.unwrap().verdict, Verdict::Added);
    let again = every("twice", "@every 1s").count(2);
    assert_eq!(client.put_schedule(&again).await.unwrap().verdict, Verdict::Duplicate);
    let (handled, mut jobs) = unbounded_channel();
    let handler = move |job: Job, _: Context| {
        let sent = handled.send(job);
        async move {
            sent.unwrap();
            Ok::<_, Infallible>(Outcome::Finish)
        }
    };
    let stop = CancellationToken::new();
    let worker = Worker::new(client.clone()).queue("reports", handler).run(stop.clone());
    let running = tokio::spawn(worker);
    for number in 1..=2 {
        let job = dwell_store::clock::timeout(JOB_TIMEOUT, jobs.recv()).await;
        let headers = job.expect("a job in time").unwrap().headers;
        assert_eq!(headers.get("delayed-schedule"), Some(&Value::Text("twice".to_owned())));
        assert_eq!(headers.get("delayed-occurrence"), Some(&Value::I64(number)));
        assert_eq!(headers.get("delayed-next").is_some(), number == 1);
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(client.cancel(twice.id()).await.unwrap(), Verdict::NotFound);
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_and_ended_by_its_id() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let client = Client::connect(&Redis::new(server.url()), &[]).await.unwrap();
    let daily = every("daily", "0 9 * * MON-FRI").time_zone("Europe/Berlin").unwrap();
    client.put_schedule(&daily).await.unwrap();
    assert!(client.pause_schedule(daily.id(), Some("release")).await.unwrap());
    assert!(client.resume_schedule(daily.id()).await.unwrap());
    assert_eq!(client.cancel(daily.id()).await.unwrap(), Verdict::Cancelled);
    assert!(!client.pause_schedule(daily.id(), None).await.unwrap());
}

#[test]
fn what_cannot_be_read_is_rejected() {
    let rejected = |why: dwell_engine::Error| why.kind() == ErrorKind::Rejected;
    let id = || "bad".parse().unwrap();
    let job = || Job::for_queue("reports", "x");
    assert!(rejected(Recurring::new(id(), "0 25 * * *", job()).unwrap_err()));
    assert!(rejected(every("bad", "@daily").time_zone("Europe/Nowhere").unwrap_err()));
}
