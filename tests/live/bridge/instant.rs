//! Very many jobs due at one instant.

use dwell::clock;
use dwell_testkit::servers::RedisOptions;

use super::load::{Job, When};
use super::rig::{Rig, published};

const JOBS: usize = 20_000;

#[tokio::test]
async fn twenty_thousand_jobs_due_at_one_instant_arrive_exactly_once() {
    let rig = Rig::new("instant", RedisOptions::default(), "").await;
    let dwell = rig.dwell().await;
    let due_ms = clock::wall_ms() + 10_000;
    let jobs: Vec<Job> = (0..JOBS).map(|n| Job { id: format!("job-{n}"), when: When::At(due_ms) }).collect();
    rig.producer().send(&jobs).await;
    rig.settled().await;
    assert_eq!(published(&dwell, "confirmed").await, JOBS as u64);
    let book = rig.book.lock();
    assert_eq!((book.sound().len(), book.count(), book.total(), book.attempts_burned()), (0, JOBS, JOBS, 0));
}
