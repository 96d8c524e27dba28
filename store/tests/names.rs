//! Names of queues that look like the words of scripts, and many requests for one id.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use dwell_store::config::Redis;
use dwell_store::job::{Action, Due, Job, JobId, Verdict};
use dwell_store::request::{Act, NewJob};
use dwell_store::store::error::{Class, StoreError};
use dwell_store::store::jobs::batch::{Answer, RequestRef};
use dwell_store::store::scripts::Name;
use dwell_store::store::{CallObserver, Store};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use parking_lot::Mutex;

const FAR: Due = Due::At(4_000_000_000_000);

/// The number of script calls.
#[derive(Default)]
struct Calls(Mutex<usize>);

impl CallObserver for Calls {
    fn called(&self, _: Name, _: Duration) {
        *self.0.lock() += 1;
    }

    fn failed(&self, _: Class) {}
}

async fn store(server: &RedisServer) -> (Store, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let settings = Redis { buckets: 1, ..Redis::new(server.url()) };
    (Store::open(&settings, &["main".to_owned()], calls.clone()).await.unwrap(), calls)
}

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

fn verdicts(answers: Vec<Result<Answer, StoreError>>) -> Vec<Verdict> {
    answers.into_iter().map(|answer| answer.unwrap().verdict).collect()
}

#[tokio::test]
async fn a_queue_may_have_any_name() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let (store, _) = store(&server).await;
    for word in [
        "DWELL_BROKER",
        "DWELL_AGAIN",
        "DWELL_LATE",
        "DWELL_LATE.1",
        "DWELL_VERSION",
        "DWELL_BROKER.DWELL_AGAIN",
        "1.script",
        "READONLY",
    ] {
        let queue = format!("mine.{word}");
        let to = |queue: &str| NewJob::new(Job::for_queue(queue, "x"), FAR).id(id(word));
        let apply =
            async |asked: &[RequestRef<'_>]| verdicts(store.jobs.apply(asked, &[]).await.answers);
        // Each request learns the queue of the job from the answer of the script.
        assert_eq!(apply(&[RequestRef::NewJob(&to(&queue))]).await, [Verdict::Added], "{queue}");
        for (action, verdict) in [
            (Action::Fail, Verdict::NotFound),
            (Action::Fire, Verdict::Firing),
            (Action::Cancel, Verdict::Cancelled),
        ] {
            assert_eq!(
                apply(&[RequestRef::Act(&Act::new(action, id(word)))]).await,
                [verdict],
                "{queue} {action:?}"
            );
        }
        assert_eq!(apply(&[RequestRef::NewJob(&to(&queue))]).await, [Verdict::Added], "{queue}");
        assert_eq!(
            apply(&[RequestRef::NewJob(&to("other"))]).await,
            [Verdict::Replaced],
            "{queue}"
        );
        let clock = store.now_ms();
        assert!(
            clock > 1_700_000_000_000 && clock < 4_000_000_000_000,
            "{queue}: the clock of Redis is {clock}"
        );
    }
}

#[tokio::test]
async fn many_requests_for_one_id_need_no_more_rounds_than_one() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let (store, calls) = store(&server).await;
    let to = |queue: &str| NewJob::new(Job::for_queue(queue, "x"), FAR).id(id("one"));
    store.jobs.schedule(&[to("first")]).await.unwrap();
    let reschedules: Vec<Act> = (0..100)
        .map(|_| Act { due: Some(FAR), ..Act::new(Action::Reschedule, id("one")) })
        .collect();
    let schedules: Vec<NewJob> = (0..100).map(|n| to(if n % 2 == 0 { "a" } else { "b" })).collect();
    let asked = reschedules
        .iter()
        .map(RequestRef::Act)
        .chain(schedules.iter().map(RequestRef::NewJob))
        .collect::<Vec<_>>();
    *calls.0.lock() = 0;
    let told = verdicts(store.jobs.apply(&asked, &[]).await.answers);
    assert_eq!(
        (&told[..100], &told[100..]),
        (&[Verdict::Rescheduled; 100][..], &[Verdict::Replaced; 100][..])
    );
    // Each script is observed once a round.
    let rounds = *calls.0.lock();
    assert!(rounds <= 4, "{rounds} calls were observed");
}
