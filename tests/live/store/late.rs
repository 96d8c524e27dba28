//! A `complete` without a lease: whether the same job may be published twice.

use std::time::Duration;

use dwell::job::{Action, DeadReason, Verdict};
use dwell::store::jobs::claim::ClaimedJob;
use dwell::store::jobs::settle::{Bury, Completion, Retry, SettleResult};

use super::fixture::{Fixture, MAIN, PAST, action, request, retry};

/// A job under a lease, scheduled by this message.
async fn claimed(fixture: &Fixture, message: u64) -> ClaimedJob {
    fixture.put(request("a", message, PAST)).await;
    fixture.claim_one().await
}

async fn complete(fixture: &Fixture, lease: &ClaimedJob) -> SettleResult {
    fixture.store.jobs.complete(0, &[lease.token()], Completion::Fired).await.unwrap()[0]
}

#[tokio::test]
async fn a_job_that_was_replaced_has_landed_once() {
    let fixture = Fixture::new().await;
    let before = claimed(&fixture, 0).await;
    assert_eq!(complete(&fixture, &before).await, SettleResult::Settled);
    let old = claimed(&fixture, 1).await;
    fixture.put(request("a", 2, PAST)).await;
    assert_eq!(complete(&fixture, &old).await, SettleResult::Lost);
    let new = fixture.claim_one().await;
    assert_eq!(complete(&fixture, &old).await, SettleResult::Lost, "claimed");
    assert_eq!(complete(&fixture, &new).await, SettleResult::Settled);
    assert_eq!(complete(&fixture, &old).await, SettleResult::Lost, "fired");
}

#[tokio::test]
async fn a_job_that_was_cancelled_or_finished_has_landed_once() {
    let fixture = Fixture::new().await;
    for (word, verdict, message) in
        [(Action::Cancel, Verdict::InFlight, 1), (Action::Finish, Verdict::Finished, 3)]
    {
        let lease = claimed(&fixture, message).await;
        assert_eq!(fixture.act(&action(word, "a", message + 1)).await, verdict);
        assert_eq!(complete(&fixture, &lease).await, SettleResult::Lost);
    }
}

#[tokio::test]
async fn a_job_that_dies_makes_no_attempt_any_more() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let owner = fixture.claim_for(Duration::ZERO).await.jobs.remove(0);
    let rescued = fixture.rescue_one().await;
    let dies = Retry { dies: Some(DeadReason::Crashed), ..retry(&rescued, 0) };
    assert_eq!(fixture.store.jobs.retry(0, MAIN, &[dies]).await.unwrap(), [SettleResult::Settled]);
    assert_eq!(complete(&fixture, &owner).await, SettleResult::Lost);
    let bury = Bury {
        job: fixture.claim_one().await.token(),
        reason: DeadReason::Crashed,
        error: String::new(),
    };
    assert_eq!(fixture.store.jobs.bury(0, &[bury]).await.unwrap(), [SettleResult::Settled]);
    assert_eq!(complete(&fixture, &owner).await, SettleResult::Lost);
}

#[tokio::test]
async fn a_job_that_was_taken_over_goes_on() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let owner = fixture.claim_for(Duration::ZERO).await.jobs.remove(0);
    let rescued = fixture.rescue_one().await;
    assert_eq!(complete(&fixture, &owner).await, SettleResult::TakenOver);
    assert!(fixture.release(&rescued, false).await);
    assert_eq!(complete(&fixture, &owner).await, SettleResult::TakenOver, "due again");
    let next = fixture.claim_one().await;
    assert_eq!(complete(&fixture, &owner).await, SettleResult::TakenOver, "claimed");
    assert_eq!(complete(&fixture, &next).await, SettleResult::Settled);
    assert_eq!(complete(&fixture, &owner).await, SettleResult::TakenOver, "fired by another");
}
