//! Layers before handlers, and the queue in memory that runs them.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use dwell_engine::testing::{Ran, TestQueue};
use dwell_engine::worker::{Context, Outcome, Routes};
use dwell_engine::{Due, Job, JobId, NewJob};
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;

const NOW: Due = Due::In(0);

fn queue(routes: Routes) -> (TestQueue, JobId) {
    let mut queue = TestQueue::new(routes).unwrap().default_retry([Duration::from_secs(5)]);
    let new_job = NewJob::new(Job::for_queue("q", "x"), NOW);
    queue.schedule(&new_job).unwrap();
    (queue, new_job.id)
}

async fn hangs(_: Job, _: Context) -> Result<Outcome, Infallible> {
    pending().await
}

async fn fails(_: Job, _: Context) -> Result<Outcome, &'static str> {
    Err("no mail server")
}

async fn finishes(_: Job, _: Context) -> Result<Outcome, Infallible> {
    Ok(Outcome::Finish)
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_rejects_goes_back_without_an_attempt_burned() {
    let (mut queue, id) =
        queue(Routes::new().queue("q", hangs).layer(TimeoutLayer::new(Duration::from_secs(1))));
    assert_eq!(queue.run_due().await, [(id.clone(), Ran::Released(Duration::from_secs(1)))]);
    let job = queue.get(&id).unwrap();
    assert_eq!(
        (job.attempts, job.last_error.as_str(), job.next_due()),
        (1, "", Some(queue.now() + Duration::from_secs(1)))
    );

    let (mut queue, id) = self::queue(
        Routes::new()
            .queue("q", finishes)
            .layer(ConcurrencyLimitLayer::new(0))
            .layer(LoadShedLayer::new()),
    );
    assert_eq!(queue.run_due().await, [(id, Ran::Released(Duration::from_secs(1)))]);
}

#[tokio::test]
async fn an_error_of_the_handler_is_a_failure_whatever_wraps_it() {
    let layers = |routes: Routes| {
        routes.layer(TimeoutLayer::new(Duration::from_secs(60))).layer(LoadShedLayer::new())
    };
    let (mut queue, id) = queue(layers(Routes::new().queue("q", fails)));
    let error = || "no mail server".to_owned();
    assert_eq!(
        queue.run_due().await,
        [(id.clone(), Ran::Failed { error: error(), next_in: Duration::from_secs(5) })]
    );
    queue.advance(Duration::from_secs(5));
    assert_eq!(queue.run_due().await, [(id.clone(), Ran::Dead { error: error() })]);
    assert_eq!((queue.get(&id).unwrap().next_due(), queue.get(&id).unwrap().attempts), (None, 2));
    assert!(queue.run_due().await.is_empty() && queue.cancel(&id) && !queue.cancel(&id));
    let (mut queue, id) = self::queue(layers(Routes::new().queue("q", finishes)));
    assert_eq!(queue.run_due().await, [(id, Ran::Finished)]);
}

#[tokio::test]
async fn an_inner_layer_that_rejects_is_no_failure_either() {
    let inner = Routes::new()
        .queue("q", finishes)
        .layer(ConcurrencyLimitLayer::new(0))
        .layer(LoadShedLayer::new());
    let (mut queue, id) = queue(inner.layer(TimeoutLayer::new(Duration::from_secs(60))));
    assert_eq!(queue.run_due().await, [(id, Ran::Released(Duration::from_secs(1)))]);
}
