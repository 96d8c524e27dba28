//! `schedule` with the rule `debounce`: one delivery for a burst of requests, and a bound for it.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::job::{Action, Conflict, Due, Verdict};
use dwell::request::NewJob;
use dwell::store::jobs::claim::ClaimedJob;

use super::fixture::{FAR, Fixture, action, id, one_of, request};
use crate::support::wait_until;

const HOUR: u64 = 3_600_000;

/// The `message`th message: due after `in_ms`, and at most `max_wait_ms` after the first.
fn debounce(message: u64, in_ms: u64, max_wait_ms: u64) -> NewJob {
    request("a", message, Due::In(in_ms)).on_conflict(Conflict::Debounce { max_wait_ms })
}

/// The time of the first request, as it is stored.
async fn first(fixture: &Fixture) -> Option<i64> {
    fixture.store.reader.find(&id("a")).await.unwrap().unwrap().record.job.debounced_ms
}

/// Waits until the job can be claimed.
async fn claimed(fixture: &Fixture) -> ClaimedJob {
    let mut claim = fixture.claim().await;
    let start = std::time::Instant::now();
    while claim.jobs.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "the job is not due");
        claim = fixture.claim().await;
    }
    one_of(claim)
}

#[tokio::test]
async fn each_request_replaces_within_the_bound_of_the_first() {
    let fixture = Fixture::new().await;
    let added = fixture.one(debounce(1, HOUR, HOUR)).await;
    assert_eq!(added.verdict, Verdict::Added);
    let first_ms = first(&fixture).await.unwrap();
    let bound = |ms: u64| Some(first_ms.saturating_add_unsigned(ms));
    assert_eq!(added.due_ms, bound(HOUR));
    // As late as the first request allows, and not later.
    let replaced = fixture.one(debounce(2, HOUR, HOUR)).await;
    assert_eq!((replaced.verdict, replaced.due_ms), (Verdict::Replaced, bound(HOUR)));
    let found = fixture.store.reader.find(&id("a")).await.unwrap().unwrap();
    assert_eq!(
        (found.record.job.body.as_ref(), found.score_ms),
        (&b"body 2"[..], bound(HOUR).unwrap())
    );
    // The same body is no duplicate at the bound: its own time is later.
    let mut again = debounce(3, 2 * HOUR, HOUR);
    again.job.body = "body 2".into();
    assert_eq!(fixture.put(again).await, Verdict::Replaced);
    // Earlier than the bound; the wait of the latest request counts; and a time is bounded too.
    assert!(fixture.one(debounce(4, 1_000, HOUR)).await.due_ms < bound(HOUR));
    assert_eq!(fixture.one(debounce(5, 60_000, 60_000)).await.due_ms, bound(60_000));
    let until = request("a", 6, FAR).on_conflict(Conflict::Debounce { max_wait_ms: 2 * HOUR });
    assert_eq!(fixture.one(until).await.due_ms, bound(2 * HOUR));
    assert_eq!(first(&fixture).await, Some(first_ms));
    // A message that comes again changes nothing.
    let before = fixture.dump().await;
    assert_eq!(fixture.one(debounce(1, HOUR, HOUR)).await, added);
    assert_eq!(fixture.dump().await, before);
}

#[tokio::test]
async fn a_job_given_back_unpublished_keeps_its_first_request() {
    let fixture = Fixture::new().await;
    fixture.put(debounce(1, 1, HOUR)).await;
    let first_ms = first(&fixture).await;
    let lease = claimed(&fixture).await;
    assert!(fixture.release(&lease, true).await);
    let answer = fixture.one(debounce(2, HOUR, HOUR)).await;
    assert_eq!(answer.verdict, Verdict::Replaced);
    assert_eq!(
        (first(&fixture).await, answer.due_ms),
        (first_ms, Some(first_ms.unwrap() + 3_600_000))
    );
}

#[tokio::test]
async fn any_other_job_makes_the_next_request_a_first_one() {
    let later = async |fixture: &Fixture, why: &str, verdict: Verdict| {
        let before = fixture.store.read_clock().await.unwrap() / 1000;
        let answer = fixture.one(debounce(9, HOUR, HOUR)).await;
        assert_eq!(answer.verdict, verdict, "{why}");
        assert!(first(fixture).await.unwrap() >= before, "{why}");
        assert!(answer.due_ms.unwrap() >= before + 3_600_000, "{why}");
    };
    let tick = async |fixture: &Fixture| {
        let before = fixture.store.read_clock().await.unwrap() / 1000;
        wait_until("a ms of Redis's clock", async || {
            (fixture.store.read_clock().await.unwrap() / 1000 > before + 1).then_some(())
        })
        .await;
    };

    let fixture = Fixture::new().await;
    fixture.put(debounce(1, HOUR, HOUR)).await;
    fixture.act(&action(Action::Reschedule, "a", 2)).await;
    tick(&fixture).await;
    later(&fixture, "rescheduled", Verdict::Replaced).await;

    let fixture = Fixture::new().await;
    fixture.put(debounce(1, HOUR, HOUR)).await;
    fixture.put(request("a", 2, FAR)).await;
    assert_eq!(first(&fixture).await, None);
    later(&fixture, "by another rule", Verdict::Replaced).await;

    let fixture = Fixture::new().await;
    fixture.put(debounce(1, 1, HOUR)).await;
    let lease = claimed(&fixture).await;
    tick(&fixture).await;
    later(&fixture, "out", Verdict::Replaced).await;
    assert!(!fixture.complete(&lease).await);

    let fixture = Fixture::new().await;
    fixture.put(debounce(1, 1, HOUR)).await;
    let lease = claimed(&fixture).await;
    assert!(fixture.retry(&lease, HOUR).await);
    tick(&fixture).await;
    later(&fixture, "attempted", Verdict::Replaced).await;

    let fixture = Fixture::new().await;
    fixture.put(debounce(1, 1, HOUR)).await;
    let lease = claimed(&fixture).await;
    assert!(fixture.complete(&lease).await);
    tick(&fixture).await;
    later(&fixture, "over", Verdict::Added).await;
}

#[tokio::test]
async fn a_storm_is_one_delivery_for_each_longest_wait() {
    let fixture = Fixture::new().await;
    let (mut message, mut deliveries, mut dues) = (0, 0, BTreeSet::new());
    let start = std::time::Instant::now();
    while message < 300 || deliveries < 3 {
        assert!(start.elapsed() < Duration::from_secs(20), "the bound passes");
        message += 1;
        dues.insert(fixture.one(debounce(message, 10, 10)).await.due_ms.unwrap());
        for job in fixture.claim().await.jobs {
            assert!(fixture.complete(&job).await);
            deliveries += 1;
        }
    }
    let waiting = usize::from(fixture.place("a").await != "none");
    assert_eq!(deliveries + waiting, dues.len(), "{message} requests");
    assert!(dues.len() < 300, "{dues:?}");
}
