//! The actions on a job in every place: the verdict, the job afterwards, and redelivery.

use dwell::job::{Action, DeadReason, Due, Verdict};
use dwell::request::Act;
use dwell::store::jobs::claim::ClaimedJob;
use dwell::store::jobs::settle::{Bury, Completion, Retry, SettleResult};
use dwell::store::record::Generation;

use super::fixture::{
    FAR, Fixture, KEEP, LEASE, MAIN, PAST, RETRY, action, held, id, request, retry,
};

pub(crate) const PLACES: [&str; 14] = [
    "nowhere",
    "waiting",
    "returned",
    "retrying",
    "in_flight",
    "held",
    "taken_over",
    "held_over",
    "dying",
    "dead",
    "fired",
    "finished",
    "dropped",
    "cancelled",
];
pub(crate) const ACTIONS: [Action; 6] = [
    Action::Cancel,
    Action::Reschedule,
    Action::Fire,
    Action::Finish,
    Action::Fail,
    Action::Requeue,
];

/// Brings a job of this name to this place. A failed attempt is the job's first where there was
/// one.
pub(crate) async fn bring(fixture: &Fixture, place: &str, name: &str, message: u64) {
    if place == "nowhere" {
        return;
    }
    let waits = ["waiting", "cancelled"].contains(&place);
    fixture.put(request(name, message, if waits { FAR } else { PAST })).await;
    if place == "cancelled" {
        fixture.act(&action(Action::Cancel, name, message + 1)).await;
    }
    if waits {
        return;
    }
    let lease = if place == "taken_over" {
        fixture.claim_for(std::time::Duration::ZERO).await;
        fixture.rescue_one().await
    } else {
        fixture.claim_one().await
    };
    let bury =
        Bury { job: held(&lease), reason: DeadReason::Invalid, error: "too large".to_owned() };
    let dies = Retry { dies: Some(DeadReason::RetriesExhausted), ..retry(&lease, 1_000_000) };
    let done = match place {
        "in_flight" | "taken_over" => true,
        "returned" => {
            let release = dwell::store::jobs::settle::Release {
                job: held(&lease),
                pause_ms: 1_000_000,
                unpublished: true,
            };
            fixture.store.jobs.release(0, MAIN, &[release]).await.unwrap()[0]
                == SettleResult::Settled
        }
        "retrying" => fixture.retry(&lease, 1_000_000).await,
        "held" => fixture.hold(&lease, 1_000_000).await,
        "held_over" => {
            fixture.hold(&lease, 0).await;
            fixture.rescue_one().await.state.held
        }
        "dying" => {
            fixture.store.jobs.retry(0, MAIN, &[dies]).await.unwrap()[0] == SettleResult::Settled
        }
        "dead" => fixture.store.jobs.bury(0, &[bury]).await.unwrap()[0] == SettleResult::Settled,
        "fired" => fixture.complete(&lease).await,
        "finished" => {
            fixture.act(&action(Action::Finish, name, message + 1)).await == Verdict::Finished
        }
        "dropped" => {
            fixture.store.jobs.complete(0, &[held(&lease)], Completion::Dropped).await.unwrap()[0]
                == SettleResult::Settled
        }
        other => panic!("{other}"),
    };
    assert!(done, "{place}");
}

/// The expected verdict, and the place of the job afterwards.
pub(crate) fn expected(place: &str, action: Action) -> (Verdict, &'static str) {
    use Action as A;
    use Verdict as V;
    let stays = match place {
        "waiting" | "returned" | "retrying" | "dying" => "due:main",
        "in_flight" | "taken_over" | "held_over" => "lease",
        "held" => "held",
        "dead" => "dead",
        _ => "none",
    };
    match (place, action) {
        ("fired" | "finished", _) => (V::Fired, stays),
        ("nowhere" | "dropped" | "cancelled", _) => (V::NotFound, stays),
        ("waiting" | "returned", A::Cancel) => (V::Cancelled, "none"),
        ("in_flight" | "taken_over", A::Cancel) => (V::InFlight, "none"),
        (_, A::Cancel) => (V::CancelledAfterAttempt, "none"),
        ("dead" | "dying", A::Reschedule | A::Fire | A::Fail) => (V::Dead, stays),
        ("waiting" | "returned" | "retrying", A::Reschedule) => (V::Rescheduled, stays),
        ("waiting" | "returned" | "retrying", A::Fire) => (V::Firing, stays),
        (_, A::Reschedule | A::Fire) => (V::InFlight, stays),
        ("waiting" | "returned", A::Finish | A::Fail) => (V::NotFound, stays),
        (_, A::Finish) => (V::Finished, "none"),
        ("retrying", A::Fail) => (V::Waiting, stays),
        (_, A::Fail) => (V::Failed, "due:main"),
        ("dead", A::Requeue) => (V::Requeued, "due:main"),
        (_, A::Requeue) => (V::Waiting, stays),
        (_, A::Add) => unreachable!(),
    }
}

#[tokio::test]
async fn every_action_in_every_place_answers_its_verdict_also_again() {
    let fixture = Fixture::new().await;
    let mut message = 0;
    for place in PLACES {
        for what in ACTIONS {
            message += 100;
            let name = format!("{place}-{}", what.as_str());
            bring(&fixture, place, &name, message).await;
            let before = fixture.jobs().await;
            let word = action(what, &name, message + 50);
            let (verdict, after) = expected(place, what);
            let answer = fixture.store.jobs.act(&word, RETRY).await.unwrap();
            assert_eq!(answer.verdict, verdict, "{} of {place}", what.as_str());
            assert_eq!(fixture.place(&name).await, after, "{} of {place}", what.as_str());
            let changes = matches!(
                verdict,
                Verdict::Cancelled
                    | Verdict::CancelledAfterAttempt
                    | Verdict::Rescheduled
                    | Verdict::Firing
                    | Verdict::Finished
                    | Verdict::Failed
                    | Verdict::Requeued
            ) || (verdict, what) == (Verdict::InFlight, Action::Cancel);
            if !changes {
                assert_eq!(fixture.jobs().await, before, "{} of {place}", what.as_str());
            }
            // The message is redelivered, at once and after the job moved on.
            let once = fixture.dump().await;
            assert_eq!(
                fixture.store.jobs.act(&word, RETRY).await.unwrap(),
                answer,
                "{} of {place}",
                what.as_str()
            );
            assert_eq!(fixture.dump().await, once, "{} of {place}", what.as_str());
            fixture.put(request(&name, message + 60, FAR)).await;
            let anew = fixture.dump().await;
            assert_eq!(
                fixture.store.jobs.act(&word, RETRY).await.unwrap(),
                answer,
                "{} of {place}",
                what.as_str()
            );
            assert_eq!(fixture.dump().await, anew, "{} of {place}", what.as_str());
            // Out of the way of the next claim.
            fixture.act(&action(Action::Cancel, &name, message + 61)).await;
        }
    }
}

#[tokio::test]
async fn what_an_action_ended_is_lost_to_its_owner() {
    let fixture = Fixture::new().await;
    for (message, what) in [(100, Action::Cancel), (200, Action::Finish), (300, Action::Fail)] {
        let name = what.as_str();
        fixture.put(request(name, message, PAST)).await;
        let lease = fixture.claim_one().await;
        fixture.act(&action(what, name, message + 1)).await;
        assert!(
            !fixture.complete(&lease).await
                && !fixture.retry(&lease, 0).await
                && !fixture.hold(&lease, 0).await
                && !fixture.release(&lease, true).await
        );
    }
}

async fn generation(fixture: &Fixture, name: &str) -> Generation {
    let found = fixture.store.reader.find(&id(name)).await.unwrap().unwrap();
    found.state_record.map_or(found.record.generation, |state| state.generation)
}

#[tokio::test]
async fn a_reschedule_is_a_new_schedule_with_the_attempts_of_the_old() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    assert!(fixture.retry(&fixture.claim_one().await, 0).await);
    let before = generation(&fixture, "a").await;
    let again = Act { due: Some(Due::At(1_500_000_000_000)), ..action(Action::Reschedule, "a", 2) };
    assert_eq!(
        fixture.store.jobs.act(&again, RETRY).await.unwrap().due_ms,
        Some(1_500_000_000_000)
    );
    assert_ne!(generation(&fixture, "a").await, before);
    let lease = fixture.claim_one().await;
    assert_eq!(
        (lease.state.attempt, lease.state.step, lease.state.due_ms),
        (2, 0, 1_500_000_000_000)
    );
    assert!(fixture.retry(&lease, 0).await);
    let within = Act { due: Some(Due::In(60_000)), ..action(Action::Reschedule, "a", 3) };
    let due = fixture.store.jobs.act(&within, RETRY).await.unwrap().due_ms.unwrap();
    assert_eq!(fixture.claim().await.next_ms, Some(due));
    assert!((due - fixture.store.now_ms() - 60_000).abs() < 30_000);
}

#[tokio::test]
async fn a_fire_is_the_same_schedule_now() {
    let fixture = Fixture::new().await;
    fixture.put(request("new", 1, FAR)).await;
    let before = generation(&fixture, "new").await;
    let now = fixture.store.read_clock().await.unwrap() / 1000;
    let fired = fixture
        .store
        .jobs
        .act(&action(Action::Fire, "new", 2), RETRY)
        .await
        .unwrap()
        .due_ms
        .unwrap();
    assert!(fired >= now && fired <= fixture.store.read_clock().await.unwrap() / 1000);
    let lease = fixture.claim_one().await;
    assert_eq!(
        (lease.state.due_ms, lease.state.generation, lease.state.attempt),
        (fired, before, 1)
    );
    // A retry that is fired keeps the due time that its consumers know, and its step.
    assert!(fixture.retry(&lease, 1_000_000).await);
    fixture.act(&action(Action::Fire, "new", 3)).await;
    let lease = fixture.claim_one().await;
    assert_eq!(
        (lease.state.due_ms, lease.state.generation, lease.state.step, lease.state.attempt),
        (fired, before, 1, 2)
    );
    assert!(fixture.complete(&lease).await);
    // A job that was given back unpublished waits past its due time, and is not due later for it.
    fixture.put(request("back", 4, PAST)).await;
    let lease = fixture.claim_one().await;
    let pause = dwell::store::jobs::settle::Release {
        job: held(&lease),
        pause_ms: 1_000_000,
        unpublished: true,
    };
    assert_eq!(
        fixture.store.jobs.release(0, MAIN, &[pause]).await.unwrap(),
        [SettleResult::Settled]
    );
    let answer = fixture.store.jobs.act(&action(Action::Fire, "back", 5), RETRY).await.unwrap();
    let again = fixture.claim_one().await;
    assert_eq!(
        (answer.due_ms, again.state.due_ms, again.state.attempt),
        (Some(lease.state.due_ms), lease.state.due_ms, 1)
    );
}

#[tokio::test]
async fn a_requeue_is_a_new_schedule_with_attempts_from_one() {
    let fixture = Fixture::new().await;
    bring(&fixture, "dead", "a", 1).await;
    let before = generation(&fixture, "a").await;
    let due =
        fixture.store.jobs.act(&action(Action::Requeue, "a", 50), RETRY).await.unwrap().due_ms;
    let lease = fixture.claim_one().await;
    assert_ne!(lease.state.generation, before);
    assert_eq!(
        (
            lease.state.attempt,
            lease.state.step,
            lease.state.reason,
            lease.state.last_error.as_str()
        ),
        (1, 0, None, "")
    );
    assert_eq!(Some(lease.state.due_ms), due);
}

#[tokio::test]
async fn a_word_of_another_schedule_or_attempt_is_stale() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    assert!(fixture.hold(&lease, 1_000_000).await);
    let (due, other) = (Some(lease.state.due_ms), Some(lease.state.due_ms + 1));
    let word = |what, message, seen_due, seen_attempt| Act {
        seen_due,
        seen_attempt,
        ..action(what, "a", message)
    };
    assert_eq!(fixture.act(&word(Action::Finish, 2, other, None)).await, Verdict::Stale);
    assert_eq!(fixture.act(&word(Action::Fail, 3, other, None)).await, Verdict::Stale);
    assert_eq!(fixture.act(&word(Action::Fail, 4, due, Some(2))).await, Verdict::Stale);
    assert_eq!(fixture.place("a").await, "held");
    assert_eq!(fixture.act(&word(Action::Fail, 5, due, Some(1))).await, Verdict::Failed);
    // A finish is for the schedule, whatever the attempt.
    assert_eq!(fixture.act(&word(Action::Finish, 6, due, Some(9))).await, Verdict::Finished);
}

#[tokio::test]
async fn fail_waits_the_next_step_and_dies_at_the_end_of_the_array() {
    let fixture = Fixture::new().await;
    let mut own = request("own", 1, PAST);
    own.job.retry = Some(vec![0]);
    fixture.put(own).await;
    fixture.put(request("default", 2, PAST)).await;
    let taken = fixture.claim().await.jobs;
    let now = fixture.store.read_clock().await.unwrap() / 1000;
    let answer = fixture.store.jobs.act(&action(Action::Fail, "default", 3), RETRY).await.unwrap();
    assert!(answer.due_ms.unwrap() >= now + 1_000_000);
    assert_eq!(fixture.act(&action(Action::Fail, "own", 4)).await, Verdict::Failed);
    let lease: ClaimedJob = fixture.claim_one().await;
    assert_eq!((lease.id.as_str(), lease.state.step, lease.state.attempt), ("own", 1, 2));
    assert!(lease.state.last_error.contains("fail"), "{}", lease.state.last_error);
    // The array is used up: it dies, by way of the dead letters.
    assert_eq!(fixture.act(&action(Action::Fail, "own", 5)).await, Verdict::Failed);
    let lease = fixture.claim_one().await;
    assert_eq!((lease.state.reason, lease.state.attempt), (Some(DeadReason::Failed), 2));
    assert!(taken.iter().all(|lease| lease.state.attempt == 1));
}

#[tokio::test]
async fn a_schedule_is_no_action() {
    let fixture = Fixture::new().await;
    assert!(fixture.store.jobs.act(&action(Action::Add, "a", 1), RETRY).await.is_err());
}

#[tokio::test]
async fn after_a_change_of_master_what_was_due_before_it_may_have_been_published() {
    let fixture = Fixture::new().await;
    for (message, name) in [(1, "first"), (2, "swept"), (3, "returned"), (4, "moved")] {
        fixture.put(request(name, message, PAST)).await;
    }
    fixture.put(request("ahead", 5, FAR)).await;
    fixture.put(request("untouched", 6, PAST)).await;
    assert_eq!(fixture.act(&action(Action::Cancel, "untouched", 7)).await, Verdict::Cancelled);
    // Another server was seen before.
    fixture.redis(&["HSET", &fixture.key("state"), "", "0123456789abcdef:0"]).await;
    // The cancel itself sees the change; a sweep sees it no more.
    assert_eq!(
        fixture.act(&action(Action::Cancel, "first", 10)).await,
        Verdict::CancelledAfterAttempt
    );
    assert!(!fixture.store.admin.sweep(0, KEEP).await.unwrap().master_changed);
    fixture.redis(&["HSET", &fixture.key("state"), "", "0123456789abcdef:0"]).await;
    assert!(fixture.store.admin.sweep(0, KEEP).await.unwrap().master_changed);
    assert_eq!(
        fixture.act(&action(Action::Cancel, "swept", 11)).await,
        Verdict::CancelledAfterAttempt
    );
    // A later claim that was taken back, or a new time, does not make it sure.
    for lease in fixture.claim().await.jobs {
        let pause = dwell::store::jobs::settle::Release {
            job: held(&lease),
            pause_ms: 1_000_000,
            unpublished: true,
        };
        assert_eq!(
            fixture.store.jobs.release(0, MAIN, &[pause]).await.unwrap(),
            [SettleResult::Settled]
        );
    }
    assert_eq!(
        fixture.act(&action(Action::Cancel, "returned", 12)).await,
        Verdict::CancelledAfterAttempt
    );
    assert_eq!(fixture.act(&action(Action::Reschedule, "moved", 13)).await, Verdict::Rescheduled);
    assert_eq!(
        fixture.act(&action(Action::Cancel, "moved", 14)).await,
        Verdict::CancelledAfterAttempt
    );
    // Jobs that were not due then, and new jobs, cannot have been published.
    assert_eq!(fixture.act(&action(Action::Cancel, "ahead", 15)).await, Verdict::Cancelled);
    fixture.put(request("new", 16, FAR)).await;
    assert_eq!(fixture.act(&action(Action::Cancel, "new", 17)).await, Verdict::Cancelled);
}

#[tokio::test]
async fn a_bucket_that_lost_the_memory_of_its_master_doubts() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    fixture.redis(&["HDEL", &fixture.key("state"), ""]).await;
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 2)).await, Verdict::CancelledAfterAttempt);
}

#[tokio::test]
async fn actions_race_with_claims_and_settles_and_every_job_ends_once() {
    let fixture = Fixture::new().await;
    let batch: Vec<_> = (0..60).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    let words: Vec<Act> =
        (0..60).map(|n| action(Action::Fail, &format!("job-{n}"), 1000 + n)).collect();
    let cancels: Vec<Act> =
        (0..60).map(|n| action(Action::Cancel, &format!("job-{n}"), 2000 + n)).collect();
    let owner = async {
        let taken = fixture.store.jobs.claim(0, MAIN, LEASE, 60, 1 << 20).await.unwrap();
        let jobs: Vec<_> = taken.jobs.iter().map(|lease| (held(lease), 1_000_000)).collect();
        fixture.store.jobs.hold(0, &jobs).await.unwrap();
        for lease in &taken.jobs {
            fixture.complete(lease).await;
        }
    };
    let fails = futures_util::future::join_all(
        words.iter().map(|word| fixture.store.jobs.act(word, RETRY)),
    );
    let cancels = futures_util::future::join_all(
        cancels.iter().map(|word| fixture.store.jobs.act(word, RETRY)),
    );
    let ((), fails, cancels) = futures_util::join!(owner, fails, cancels);
    assert!(fails.iter().chain(&cancels).all(Result::is_ok));
    for n in 0..60 {
        assert_eq!(fixture.place(&format!("job-{n}")).await, "none");
    }
}

#[tokio::test]
async fn a_call_that_the_client_sends_twice_by_itself_answers_the_same() {
    // As that of a cluster does where an answer was lost with its connection.
    let fixture = Fixture::new().await;
    for (number, (action, verdict)) in [
        (Action::Cancel, Verdict::Cancelled),
        (Action::Fire, Verdict::Firing),
        (Action::Finish, Verdict::NotFound),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("job-{number}");
        fixture.put(request(&name, number as u64, FAR)).await;
        let act = dwell::request::act_on(action, id(&name), None);
        assert_eq!(
            (fixture.act(&act).await, fixture.act(&act).await),
            (verdict, verdict),
            "{name}"
        );
    }
    let act = dwell::request::act_on(Action::Cancel, id("job-1"), None);
    assert_eq!(
        (fixture.act(&act).await, fixture.act(&act).await),
        (Verdict::Cancelled, Verdict::Cancelled),
        "another call, another answer"
    );
}
