//! Cases that broke earlier designs, on the real scripts: redelivery from every position, leases,
//! verdicts and consumer confirms. The property test covers them at random.

use std::time::Duration;

use dwell::job::{Action, DeadReason, Verdict};
use dwell::request::{Act, NewJob};
use dwell::store::jobs::settle::{Retry, SettleResult};
use dwell::store::meta::SweepRules;

use super::fixture::{Fixture, KEEP, MAIN, PAST, RETRY, action, held, request, retry};

#[derive(Clone)]
enum Message {
    NewJob(Box<NewJob>),
    Act(Box<Act>),
}

/// The message schedules the job.
fn s(message: u64) -> Message {
    Message::NewJob(Box::new(request("a", message, PAST)))
}

fn act(what: Action, message: u64) -> Message {
    Message::Act(Box::new(action(what, "a", message)))
}

async fn deliver(fixture: &Fixture, messages: &[Message]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for message in messages {
        verdicts.push(match message {
            Message::NewJob(request) => fixture.put((**request).clone()).await,
            Message::Act(act) => fixture.act(act).await,
        });
    }
    verdicts
}

/// Every way in which the log can be read with one crash before an acknowledgement: up to `end`,
/// again from `start`, and on; with the job claimed and published at one point in between, or
/// never. `last`: the message whose schedule must stand or have been published at the end.
async fn with_one_redelivery(log: &[Message], last: Option<u64>) {
    for end in 1..=log.len() {
        for start in 0..end {
            for published_at in 0..=end {
                let fixture = Fixture::new().await;
                let mut published = Vec::new();
                let mut first = Vec::new();
                for at in 0..end {
                    if at == published_at {
                        for lease in fixture.claim().await.jobs {
                            published.push(lease.record.fingerprint);
                            assert!(fixture.complete(&lease).await);
                        }
                    }
                    first.extend(deliver(&fixture, &log[at..=at]).await);
                }
                let before = fixture.dump().await;
                let again = deliver(&fixture, &log[start..end]).await;
                assert_eq!(again, first[start..], "redelivered from {start} to {end}");
                assert_eq!(fixture.dump().await, before, "redelivered from {start} to {end}");
                deliver(&fixture, &log[end..]).await;
                let live: Vec<_> = fixture
                    .claim()
                    .await
                    .jobs
                    .iter()
                    .map(|lease| lease.record.fingerprint)
                    .collect();
                match last.map(u64::to_be_bytes) {
                    Some(last) => assert!(
                        live == [last] || (live.is_empty() && published.contains(&last)),
                        "{live:?} {published:?}"
                    ),
                    None => assert!(live.is_empty()),
                }
            }
        }
    }
}

#[tokio::test]
async fn schedule_cancel_schedule_with_one_redelivery() {
    with_one_redelivery(&[s(1), act(Action::Cancel, 2), s(3)], Some(3)).await;
}

#[tokio::test]
async fn schedule_replace_with_one_redelivery_never_publishes_the_stale_body() {
    with_one_redelivery(&[s(1), s(2)], Some(2)).await;
}

#[tokio::test]
async fn schedule_cancel_with_one_redelivery() {
    with_one_redelivery(&[s(1), act(Action::Cancel, 2)], None).await;
}

#[tokio::test]
async fn schedule_replace_cancel_schedule_with_one_redelivery() {
    with_one_redelivery(&[s(1), s(2), act(Action::Cancel, 3), s(4)], Some(4)).await;
}

#[tokio::test]
async fn cancel_of_nothing_then_schedule_with_one_redelivery() {
    with_one_redelivery(&[act(Action::Cancel, 1), s(2)], Some(2)).await;
}

#[tokio::test]
async fn cancel_by_a_call_then_redelivery_after_the_dedupe_window() {
    let fixture = Fixture::new().await;
    deliver(&fixture, &[s(1)]).await;
    let call = Act {
        origin: dwell::request::Origin {
            fingerprint: *b"a call's",
            maybe_redelivered: false,
            is_message: false,
        },
        ..action(Action::Cancel, "a", 0)
    };
    assert_eq!(fixture.act(&call).await, Verdict::Cancelled);
    for _ in 0..3 {
        fixture.store.admin.sweep(0, SweepRules { dedupe_window_ms: 0, ..KEEP }).await.unwrap();
    }
    assert_eq!(deliver(&fixture, &[s(1)]).await, [Verdict::Added]);
    assert_eq!(fixture.place("a").await, "none");
}

#[tokio::test]
async fn an_old_complete_does_not_end_a_new_schedule_claimed_at_once() {
    // A deadline as the name of a lease would be the same for claims within one millisecond.
    for _ in 0..50 {
        let fixture = Fixture::new().await;
        deliver(&fixture, &[s(1)]).await;
        let old = fixture.claim_one().await;
        deliver(&fixture, &[s(2)]).await;
        let new = fixture.claim_one().await;
        assert!(!fixture.complete(&old).await);
        assert!(fixture.complete(&new).await);
    }
}

#[tokio::test]
async fn cancelled_is_said_only_of_what_was_never_published() {
    let fixture = Fixture::new().await;
    let cancel = async |message| fixture.act(&action(Action::Cancel, "a", message)).await;
    deliver(&fixture, &[s(1)]).await;
    assert_eq!(cancel(2).await, Verdict::Cancelled);
    deliver(&fixture, &[s(3)]).await;
    let lease = fixture.claim_one().await;
    assert_eq!(cancel(4).await, Verdict::InFlight);
    assert!(!fixture.complete(&lease).await);
    deliver(&fixture, &[s(5)]).await;
    assert!(fixture.release(&fixture.claim_one().await, true).await);
    assert_eq!(cancel(6).await, Verdict::Cancelled);
    deliver(&fixture, &[s(7)]).await;
    assert!(fixture.release(&fixture.claim_one().await, false).await);
    assert_eq!(cancel(8).await, Verdict::CancelledAfterAttempt);
    deliver(&fixture, &[s(9)]).await;
    assert!(fixture.complete(&fixture.claim_one().await).await);
    assert_eq!(cancel(10).await, Verdict::Fired);
}

#[tokio::test]
async fn cancelled_after_attempt_where_the_owner_paused_past_its_lease() {
    let fixture = Fixture::new().await;
    deliver(&fixture, &[s(1)]).await;
    let owner = fixture.claim_for(Duration::ZERO).await.jobs.remove(0);
    // By its own clock it may publish no more.
    assert!(owner.deadline <= dwell::clock::now());
    assert!(fixture.release(&fixture.rescue_one().await, false).await);
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 2)).await, Verdict::CancelledAfterAttempt);
    deliver(&fixture, &[s(3)]).await;
    assert!(!fixture.complete(&owner).await && !fixture.retry(&owner, 0).await);
    assert_eq!(fixture.claim_one().await.record.job.body, "body 3");
}

#[tokio::test]
async fn late_finish_of_the_first_schedule_after_a_replace_by_the_second() {
    let fixture = Fixture::new().await;
    deliver(&fixture, &[s(1)]).await;
    assert!(fixture.hold(&fixture.claim_one().await, 1_000_000).await);
    let later = request("a", 2, dwell::job::Due::At(1_000_000_000_777));
    fixture.put(later).await;
    // Never attempted: the word cannot be of this schedule.
    assert_eq!(deliver(&fixture, &[act(Action::Finish, 3)]).await, [Verdict::NotFound]);
    let lease = fixture.claim_one().await;
    let of_the_first = Act { seen_due: Some(1_000_000_000_000), ..action(Action::Finish, "a", 4) };
    assert_eq!(fixture.act(&of_the_first).await, Verdict::Stale);
    let of_the_second =
        Act { seen_due: Some(lease.state.due_ms), ..action(Action::Finish, "a", 5) };
    assert_eq!(fixture.act(&of_the_second).await, Verdict::Finished);
}

#[tokio::test]
async fn fail_before_the_hold_counts() {
    let fixture = Fixture::new().await;
    deliver(&fixture, &[s(1)]).await;
    let lease = fixture.claim_one().await;
    assert_eq!(deliver(&fixture, &[act(Action::Fail, 2)]).await, [Verdict::Failed]);
    assert!(!fixture.hold(&lease, 1000).await);
    assert_eq!(fixture.place("a").await, "due:main");
}

#[tokio::test]
async fn fail_redelivered_fails_once() {
    let fixture = Fixture::new().await;
    let mut once_more = request("a", 1, PAST);
    once_more.job.retry = Some(vec![0]);
    fixture.put(once_more).await;
    assert!(fixture.hold(&fixture.claim_one().await, 1_000_000).await);
    assert_eq!(deliver(&fixture, &[act(Action::Fail, 2)]).await, [Verdict::Failed]);
    assert!(fixture.hold(&fixture.claim_one().await, 1_000_000).await);
    assert_eq!(deliver(&fixture, &[act(Action::Fail, 2)]).await, [Verdict::Failed]);
    assert_eq!(fixture.place("a").await, "held");
}

#[tokio::test]
async fn late_fail_of_the_first_attempt_during_the_second_is_stale() {
    let fixture = Fixture::new().await;
    deliver(&fixture, &[s(1)]).await;
    let first = fixture.claim_one().await;
    assert!(fixture.hold(&first, 0).await);
    let late = fixture.rescue_one().await;
    assert!(fixture.retry(&late, 0).await);
    assert!(fixture.hold(&fixture.claim_one().await, 1_000_000).await);
    let word = Act {
        seen_due: Some(first.state.due_ms),
        seen_attempt: Some(1),
        ..action(Action::Fail, "a", 2)
    };
    assert_eq!(fixture.store.jobs.act(&word, RETRY).await.unwrap().verdict, Verdict::Stale);
    assert_eq!(fixture.place("a").await, "held");
}

#[tokio::test]
async fn retry_none_killed_between_claim_and_publish_is_not_dead_unpublished() {
    let fixture = Fixture::new().await;
    let mut once = request("a", 1, PAST);
    once.job.retry = Some(Vec::new());
    fixture.put(once).await;
    for _ in 0..4 {
        fixture.claim_for(Duration::ZERO).await;
        let rescued = fixture.rescue_one().await;
        assert!(
            rescued.state.crashes > 0 && rescued.state.step == 0 && rescued.state.reason.is_none()
        );
        assert!(fixture.release(&rescued, false).await);
    }
    let lease = fixture.claim_one().await;
    assert_eq!((lease.state.step, lease.state.reason), (0, None));
    // Published and failed: now its only attempt is used up.
    let dies = Retry { dies: Some(DeadReason::RetriesExhausted), ..retry(&lease, 0) };
    assert_eq!(fixture.store.jobs.retry(0, MAIN, &[dies]).await.unwrap(), [SettleResult::Settled]);
    assert_eq!(held(&fixture.claim_one().await).id.as_str(), "a");
}
