//! Pops whose jobs share a memory.

use super::*;
use crate::budget::{Budget, UsedUp};

const MIB: usize = 1 << 20;

async fn add(fixture: &Fixture, bytes: usize) {
    let job = Job { retry: Some(vec![3_600_000]), ..Job::for_queue(QUEUE, vec![b'x'; bytes]) };
    fixture.schedule(NewJob::new(job, Due::In(0)).id("x".parse().unwrap())).await;
}

#[tokio::test]
async fn a_pop_without_memory_for_a_ready_job_says_so() {
    let (fixture, budget) = (Fixture::new().await, Budget::new(MIB));
    fixture.consumers.share(&budget);
    let held = budget.take(MIB).await.unwrap();
    add(&fixture, 100).await;
    let popped = fixture.consumers.pop(&request(1, Duration::ZERO)).await;
    assert_eq!(
        popped.map(|jobs| jobs.len()).map_err(|error| error.message),
        Err(UsedUp.to_string())
    );
    drop(held);
    assert_eq!(fixture.pop(1, Duration::from_secs(60)).await.len(), 1);
}

#[tokio::test]
async fn a_job_that_is_larger_than_the_memory_goes_out_alone() {
    let (fixture, budget) = (Fixture::new().await, Budget::new(MIB));
    fixture.consumers.share(&budget);
    add(&fixture, 2 * MIB).await;
    let jobs = fixture.pop(1, Duration::ZERO).await;
    assert_eq!((jobs.len(), budget.share().grow(1)), (1, false));
}

#[tokio::test]
async fn a_pop_waits_for_as_much_memory_as_its_job_needs() {
    let (fixture, budget) = (Fixture::new().await, Budget::new(4 * MIB));
    fixture.consumers.share(&budget);
    // The memory left is enough for most jobs.
    let held = budget.take(2 * MIB).await.unwrap();
    add(&fixture, 3 * MIB).await;
    let popped = fixture.consumers.pop(&request(1, Duration::from_secs(2))).await;
    assert_eq!(
        popped.map(|jobs| jobs.len()).map_err(|error| error.message),
        Err(UsedUp.to_string())
    );
    drop(held);
    let jobs = fixture.pop(1, Duration::from_secs(60)).await;
    // Each try counts as an attempt.
    assert!(jobs[0].state.attempt <= 4, "{} attempts", jobs[0].state.attempt);
}
