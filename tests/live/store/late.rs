//! A `complete` whose lease is gone: whether the same job goes on, so that it may land twice.

use std::time::Duration;

use dwell::job::{Action, DeadReason, Verdict};
use dwell::store::lease::Lease;
use dwell::store::settle::{Bury, Over, Retry, Stood};

use super::bed::{Bed, MAIN, PAST, action, request, retry};

/// A job under a lease, scheduled by this message.
async fn claimed(bed: &Bed, message: u64) -> Lease {
    bed.put(request("a", message, PAST)).await;
    bed.claim_one().await
}

async fn complete(bed: &Bed, lease: &Lease) -> Stood {
    bed.store.complete(0, &[lease.held()], Over::Fired).await.unwrap()[0]
}

#[tokio::test]
async fn a_job_that_was_replaced_has_landed_once() {
    let bed = Bed::new().await;
    let before = claimed(&bed, 0).await;
    assert_eq!(complete(&bed, &before).await, Stood::Settled);
    let old = claimed(&bed, 1).await;
    bed.put(request("a", 2, PAST)).await;
    assert_eq!(complete(&bed, &old).await, Stood::Lost);
    let new = bed.claim_one().await;
    assert_eq!(complete(&bed, &old).await, Stood::Lost, "claimed");
    assert_eq!(complete(&bed, &new).await, Stood::Settled);
    assert_eq!(complete(&bed, &old).await, Stood::Lost, "fired");
}

#[tokio::test]
async fn a_job_that_was_cancelled_or_finished_has_landed_once() {
    let bed = Bed::new().await;
    for (word, verdict, message) in [(Action::Cancel, Verdict::InFlight, 1), (Action::Finish, Verdict::Finished, 3)] {
        let lease = claimed(&bed, message).await;
        assert_eq!(bed.act(&action(word, "a", message + 1)).await, verdict);
        assert_eq!(complete(&bed, &lease).await, Stood::Lost);
    }
}

#[tokio::test]
async fn a_job_that_dies_makes_no_attempt_any_more() {
    let bed = Bed::new().await;
    bed.put(request("a", 1, PAST)).await;
    let owner = bed.claim_for(Duration::ZERO).await.jobs.remove(0);
    let rescued = bed.rescue_one().await;
    let dies = Retry { dies: Some(DeadReason::Crashed), ..retry(&rescued, 0) };
    assert_eq!(bed.store.retry(0, MAIN, &[dies]).await.unwrap(), [Stood::Settled]);
    assert_eq!(complete(&bed, &owner).await, Stood::Lost);
    let bury = Bury { job: bed.claim_one().await.held(), reason: DeadReason::Crashed, error: String::new() };
    assert_eq!(bed.store.bury(0, &[bury]).await.unwrap(), [Stood::Settled]);
    assert_eq!(complete(&bed, &owner).await, Stood::Lost);
}

#[tokio::test]
async fn a_job_that_was_taken_over_goes_on() {
    let bed = Bed::new().await;
    bed.put(request("a", 1, PAST)).await;
    let owner = bed.claim_for(Duration::ZERO).await.jobs.remove(0);
    let rescued = bed.rescue_one().await;
    assert_eq!(complete(&bed, &owner).await, Stood::TakenOver);
    assert!(bed.release(&rescued, false).await);
    assert_eq!(complete(&bed, &owner).await, Stood::TakenOver, "due again");
    let next = bed.claim_one().await;
    assert_eq!(complete(&bed, &owner).await, Stood::TakenOver, "claimed");
    assert_eq!(complete(&bed, &next).await, Stood::Settled);
    assert_eq!(complete(&bed, &owner).await, Stood::TakenOver, "fired by another");
}
