//! A call that is repeated because its answer was lost, on a job that is over by then.

use dwell::apply::RequestBatch;
use dwell::job::{Action, Conflict, Due, Verdict};
use dwell::request::{NewJob, Origin, Request};
use dwell::store::jobs::batch::Answer;
use dwell::store::jobs::settle::{Bury, Completion};
use dwell_connectors::conformance::proxy::{Direction, Flow};

use super::fixture::{FAR, Fixture, PAST, RETRY, action, held, id, origin, request};
use super::lossy::Lossy;
use crate::support::wait_until;

/// The first delivery of a message whose id is made of its content.
fn first(number: u64, due: Due, generation: &[u8; 8]) -> NewJob {
    let origin = Origin { maybe_redelivered: false, ..origin(number) };
    NewJob {
        generated: true,
        call_id: Some(*generation),
        is_new_message: true,
        origin,
        ..request("a", number, due)
    }
}

/// The same call again answers as before; another delivery of equal content is another message
/// still.
async fn is_answered_as_before(fixture: &Fixture, call: &NewJob, verdict: Verdict) {
    for maybe_redelivered in [false, true] {
        let again = NewJob { origin: Origin { maybe_redelivered, ..call.origin }, ..call.clone() };
        assert_eq!(fixture.put(again).await, verdict, "redelivered: {maybe_redelivered}");
    }
    assert_eq!(fixture.place("a").await, "none");
    let other = NewJob { call_id: Some(*b"equalone"), ..call.clone() };
    assert_eq!(fixture.put(other).await, Verdict::Duplicate);
    assert_eq!(fixture.place("a").await, "none");
}

#[tokio::test]
async fn a_call_repeated_behind_a_cancel_stores_nothing() {
    let fixture = Fixture::new().await;
    let call = first(1, FAR, b"firstone");
    assert_eq!(fixture.put(call.clone()).await, Verdict::Added);
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 2)).await, Verdict::Cancelled);
    is_answered_as_before(&fixture, &call, Verdict::Added).await;
}

/// Of a message that names the id itself: another one takes it over.
#[tokio::test]
async fn a_copy_of_a_call_that_comes_late_behind_a_cancel_stores_nothing() {
    let fixture = Fixture::new().await;
    let call = NewJob { generated: false, is_new_message: false, ..first(1, FAR, b"firstone") };
    let again =
        NewJob { origin: Origin { maybe_redelivered: true, ..call.origin }, ..call.clone() };
    assert_eq!(fixture.put(again).await, Verdict::Added);
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 2)).await, Verdict::Cancelled);
    assert_eq!(fixture.put(call.clone()).await, Verdict::Added);
    assert_eq!(fixture.place("a").await, "none");
    let other = NewJob { call_id: Some(*b"equalone"), ..call };
    assert_eq!(fixture.put(other).await, Verdict::Added);
    assert_eq!(fixture.place("a").await, "due:main");
}

#[tokio::test]
async fn a_late_copy_of_a_call_that_changed_nothing_stores_nothing() {
    for conflict in [Conflict::Keep, Conflict::Reject, Conflict::Replace] {
        let fixture = Fixture::new().await;
        assert_eq!(fixture.put(request("a", 1, FAR)).await, Verdict::Added);
        let call = NewJob {
            generated: false,
            is_new_message: false,
            conflict,
            ..first(2, FAR, b"firstone")
        };
        let call = if conflict == Conflict::Replace {
            NewJob { job: request("a", 1, FAR).job, ..call }
        } else {
            call
        };
        let verdict = fixture.put(call.clone()).await;
        assert_eq!(
            verdict,
            match conflict {
                Conflict::Keep => Verdict::Kept,
                Conflict::Reject => Verdict::Conflict,
                Conflict::Replace | Conflict::Debounce { .. } => Verdict::Duplicate,
            }
        );
        assert_eq!(fixture.act(&action(Action::Cancel, "a", 3)).await, Verdict::Cancelled);
        assert_eq!(fixture.put(call).await, verdict);
        assert_eq!(fixture.place("a").await, "none");
    }
}

#[tokio::test]
async fn a_call_repeated_behind_its_delivery_stores_nothing() {
    for word in [None, Some(Action::Finish)] {
        let fixture = Fixture::new().await;
        let call = first(1, PAST, b"firstone");
        assert_eq!(fixture.put(call.clone()).await, Verdict::Added);
        let lease = fixture.claim_one().await;
        match word {
            Some(word) => assert_eq!(fixture.act(&action(word, "a", 2)).await, Verdict::Finished),
            None => assert!(fixture.complete(&lease).await),
        }
        is_answered_as_before(&fixture, &call, Verdict::Added).await;
    }
}

#[tokio::test]
async fn a_call_repeated_behind_a_new_schedule_of_its_job_stores_nothing() {
    for word in [Action::Reschedule, Action::Requeue] {
        let fixture = Fixture::new().await;
        let call = first(1, PAST, b"firstone");
        assert_eq!(fixture.put(call.clone()).await, Verdict::Added);
        if word == Action::Requeue {
            let job = held(&fixture.claim_one().await);
            let bury = Bury { job, reason: dwell::job::DeadReason::Invalid, error: String::new() };
            fixture.store.jobs.bury(0, &[bury]).await.unwrap();
        }
        let act = dwell::request::Act { due: Some(PAST), ..action(word, "a", 2) };
        assert!(matches!(fixture.act(&act).await, Verdict::Rescheduled | Verdict::Requeued));
        assert!(fixture.complete(&fixture.claim_one().await).await);
        is_answered_as_before(&fixture, &call, Verdict::Added).await;
    }
}

#[tokio::test]
async fn a_call_repeated_behind_a_job_that_took_its_id_stores_nothing() {
    for is_over in [false, true] {
        let fixture = Fixture::new().await;
        let call = first(1, PAST, b"firstone");
        assert_eq!(fixture.put(call.clone()).await, Verdict::Added);
        if is_over {
            assert!(fixture.complete(&fixture.claim_one().await).await);
        }
        let newer = fixture.put(request("a", 2, FAR)).await;
        assert_eq!(newer, if is_over { Verdict::Added } else { Verdict::Replaced });
        assert_eq!(fixture.put(call.clone()).await, Verdict::Added);
        assert_eq!(
            fixture.store.reader.find(&id("a")).await.unwrap().unwrap().record.job.body,
            "body 2"
        );
        assert_eq!(fixture.act(&action(Action::Cancel, "a", 3)).await, Verdict::Cancelled);
        is_answered_as_before(&fixture, &call, Verdict::Added).await;
    }
}

#[tokio::test]
async fn an_outcome_without_a_generation_still_answers() {
    let fixture = Fixture::new().await;
    let call = first(1, PAST, b"firstone");
    let plain = request("b", 2, PAST);
    fixture.store.jobs.schedule(&[call.clone(), plain.clone()]).await.unwrap();
    let jobs: Vec<_> = fixture.claim().await.jobs.iter().map(held).collect();
    fixture.store.jobs.complete(0, &jobs, Completion::Fired).await.unwrap();
    // As an instance of before writes it.
    const CUT: &str = "for _, id in ipairs(ARGV) do redis.call('HSET', KEYS[1], id, redis.call('HGET', KEYS[1], id):sub(1, 18)) end";
    fixture.redis(&["EVAL", CUT, "1", &fixture.key("completed"), "a", "b"]).await;
    assert_eq!(fixture.put(call.clone()).await, Verdict::Duplicate);
    let Due::At(due_ms) = PAST else { unreachable!() };
    let added = Answer { verdict: Verdict::Added, due_ms: Some(due_ms), is_due: true };
    assert_eq!(fixture.one(plain).await, added);
    assert_eq!(fixture.act(&action(Action::Fire, "a", 3)).await, Verdict::Fired);
    // The next job of this id moves it.
    assert_eq!(fixture.put(request("a", 4, FAR)).await, Verdict::Added);
    assert_eq!(
        (fixture.put(call.clone()).await, fixture.place("b").await),
        (Verdict::Duplicate, "none".to_owned())
    );
}

#[tokio::test]
async fn a_lost_answer_and_a_cancel_leave_one_job_which_is_cancelled() {
    let fixture = Fixture::new().await;
    let lossy = Lossy::beside(&fixture).await;
    // It opens the connection, and Redis knows the script.
    lossy.store.jobs.schedule(&[request("first", 9, FAR)]).await.unwrap();
    fixture.act(&action(Action::Cancel, "first", 10)).await;
    lossy.link.set(Direction::Down, Flow::Drop);
    let mut requests = [Request::NewJob(Box::new(first(1, FAR, b"firstone")))];
    let mut sent = RequestBatch::new(&mut requests);
    let cancelled = async {
        wait_until("the job is stored", async || {
            fixture.store.reader.find(&id("a")).await.unwrap()
        })
        .await;
        assert_eq!(fixture.act(&action(Action::Cancel, "a", 2)).await, Verdict::Cancelled);
        lossy.link.reset();
        lossy.link.heal();
    };
    tokio::join!(sent.send(&lossy.store, RETRY), cancelled);
    assert!(sent.failed().is_some());
    sent.send(&lossy.store, RETRY).await;
    let verdicts: Vec<Verdict> =
        sent.answers().into_iter().map(|answer| answer.unwrap().verdict).collect();
    assert_eq!(verdicts, [Verdict::Added]);
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().scheduled, [0]);
}
