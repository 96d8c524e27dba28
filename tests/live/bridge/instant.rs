//! Very many jobs due at one instant.

use dwell::clock;
use dwell_testkit::servers::RedisOptions;

use super::environment::{Environment, published};
use super::load::{Job, When};

const JOBS: usize = 20_000;

#[tokio::test]
async fn twenty_thousand_jobs_due_at_one_instant_arrive_exactly_once() {
    let env = Environment::new("instant", RedisOptions::default(), "").await;
    let dwell = env.dwell().await;
    let due_ms = clock::wall_ms() + 10_000;
    let jobs: Vec<Job> =
        (0..JOBS).map(|n| Job { id: format!("job-{n}"), when: When::At(due_ms) }).collect();
    env.producer().send(&jobs).await;
    env.settled().await;
    assert_eq!(published(&dwell, "confirmed").await, JOBS as u64);
    let ledger = env.ledger.lock();
    assert_eq!(
        (ledger.sound().len(), ledger.count(), ledger.total(), ledger.attempts_burned()),
        (0, JOBS, JOBS, 0)
    );
}
