//! `schedule`: each verdict, redelivery after every later event, and batches.

use dwell::job::{Action, Conflict, Due, Verdict};
use dwell::request::{Act, NewJob};
use dwell::store::jobs::batch::Answer;
use dwell::store::jobs::settle::{Bury, SettleResult};
use dwell::store::record;
use dwell::store::wake_up::WakeUp;

use super::fixture::{
    FAR, Fixture, MAIN, PAST, action, held, id, open, origin, request, target_on,
};

fn answer(verdict: Verdict, due: Due) -> Answer {
    let Due::At(ms) = due else { panic!("a time is needed") };
    Answer { verdict, due_ms: Some(ms), is_due: due != FAR }
}

/// Delivered again, the message answers this and changes nothing.
async fn redelivered(fixture: &Fixture, request: &NewJob, expected: Answer) {
    let before = fixture.dump().await;
    assert_eq!(fixture.one(request.clone()).await, expected);
    assert_eq!(fixture.dump().await, before);
}

#[tokio::test]
async fn a_new_job_is_added_and_waits() {
    let fixture = Fixture::new().await;
    let scheduled = fixture.store.jobs.schedule(&[request("a", 1, FAR)]).await.unwrap();
    assert_eq!(scheduled.answers, [answer(Verdict::Added, FAR)]);
    assert_eq!(
        scheduled.wake_ups,
        [WakeUp { bucket: 0, broker: MAIN.to_owned(), due_ms: 4_000_000_000_000 }]
    );
    assert_eq!(fixture.place("a").await, "due:main");
    let found = fixture.store.reader.find(&id("a")).await.unwrap().unwrap();
    assert_eq!((found.score_ms, found.state_record), (4_000_000_000_000, None));
    assert_eq!(found.record.job, request("a", 1, FAR).job);
    redelivered(&fixture, &request("a", 1, FAR), answer(Verdict::Added, FAR)).await;
}

#[tokio::test]
async fn only_a_new_head_is_told() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, Due::At(3_000_000_000_000))).await;
    assert_eq!(fixture.store.jobs.schedule(&[request("b", 2, FAR)]).await.unwrap().wake_ups, []);
    let wake_ups = fixture
        .store
        .jobs
        .schedule(&[
            request("c", 3, Due::At(2_000_000_000_001)),
            request("d", 4, Due::At(2_000_000_000_000)),
        ])
        .await
        .unwrap()
        .wake_ups;
    assert_eq!(
        wake_ups,
        [WakeUp { bucket: 0, broker: MAIN.to_owned(), due_ms: 2_000_000_000_000 }]
    );
}

#[tokio::test]
async fn a_duration_counts_from_redis_now() {
    let fixture = Fixture::new().await;
    let before = fixture.store.read_clock().await.unwrap();
    let due = fixture.one(request("a", 1, Due::In(60_000))).await.due_ms.unwrap();
    let after = fixture.store.read_clock().await.unwrap();
    assert!((before + 60_000_000..after + 60_001_000).contains(&(due * 1000)));
    // Redelivered later, it stays where it is.
    let again = fixture.one(request("a", 1, Due::In(60_000))).await;
    assert_eq!(again, Answer { verdict: Verdict::Added, due_ms: Some(due), is_due: false });
}

#[tokio::test]
async fn no_delay_is_over_before_its_time() {
    let fixture = Fixture::new().await;
    let mut early = Vec::new();
    for number in 0..100 {
        let name = format!("job-{number}");
        let received = fixture.store.read_clock().await.unwrap();
        let due = match number % 3 {
            0 => fixture.one(request(&name, number, Due::In(5))).await.due_ms.unwrap(),
            1 => fixture
                .one(request(&name, number, Due::Earlier { at_ms: received, in_ms: 5 }))
                .await
                .due_ms
                .unwrap(),
            _ => {
                fixture.put(request(&name, number, FAR)).await;
                let act = Act {
                    due: Some(Due::In(5)),
                    ..action(Action::Reschedule, &name, 1000 + number)
                };
                fixture.store.jobs.act(&act, &[]).await.unwrap().due_ms.unwrap()
            }
        };
        early.extend((due * 1000 < received + 5000).then_some(received + 5000 - due * 1000));
    }
    assert_eq!(early, [0; 0], "us too early");
}

#[tokio::test]
async fn of_a_time_and_a_duration_redis_takes_the_earlier() {
    let fixture = Fixture::new().await;
    let before = fixture.store.read_clock().await.unwrap() / 1000;
    // A request that was held on its way: the time that it was to be due stands.
    let held =
        fixture.one(request("a", 1, Due::Earlier { at_ms: before - 500, in_ms: 1000 })).await;
    assert_eq!(held.due_ms, Some(before - 500));
    // A message of a clock that is ahead: it counts as sent now.
    let due = fixture
        .one(request("b", 2, Due::Earlier { at_ms: before + 3_600_000, in_ms: 60_000 }))
        .await
        .due_ms
        .unwrap();
    let after = fixture.store.read_clock().await.unwrap() / 1000;
    assert!((before + 60_000..=after + 60_001).contains(&due));
    let act = Act {
        due: Some(Due::Earlier { at_ms: before + 7, in_ms: 60_000 }),
        ..action(Action::Reschedule, "b", 3)
    };
    assert_eq!(fixture.store.jobs.act(&act, &[]).await.unwrap().due_ms, Some(before + 7));
}

#[tokio::test]
async fn a_time_before_1970_is_due_at_once_and_remembered_as_it_is() {
    let fixture = Fixture::new().await;
    let old = Due::At(-86_400_000);
    assert_eq!(fixture.one(request("a", 1, old)).await, answer(Verdict::Added, old));
    let lease = fixture.claim_one().await;
    assert_eq!(lease.state.due_ms, -86_400_000);
    assert_eq!(fixture.one(request("a", 2, FAR)).await.verdict, Verdict::Replaced);
    redelivered(&fixture, &request("a", 1, old), answer(Verdict::Added, old)).await;
}

#[tokio::test]
async fn the_same_again_in_another_message_is_a_duplicate() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, FAR)).await;
    let twin = NewJob { origin: origin(2), ..request("a", 1, FAR) };
    let before = fixture.jobs().await;
    assert_eq!(fixture.one(twin.clone()).await, answer(Verdict::Duplicate, FAR));
    assert_eq!(fixture.jobs().await, before);
    redelivered(&fixture, &twin, answer(Verdict::Duplicate, FAR)).await;
    redelivered(&fixture, &request("a", 1, FAR), answer(Verdict::Added, FAR)).await;
    // Another time or another key is no duplicate.
    assert_eq!(
        fixture
            .put(NewJob { origin: origin(3), ..request("a", 1, Due::At(4_000_000_000_001)) })
            .await,
        Verdict::Replaced
    );
    redelivered(&fixture, &twin, answer(Verdict::Duplicate, FAR)).await;
}

#[tokio::test]
async fn replace_keep_and_reject() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, FAR)).await;
    for (policy, verdict) in
        [(Conflict::Keep, Verdict::Kept), (Conflict::Reject, Verdict::Conflict)]
    {
        let other = NewJob { conflict: policy, ..request("a", 2 + verdict as u64, PAST) };
        let before = fixture.jobs().await;
        assert_eq!(fixture.one(other.clone()).await, answer(verdict, FAR));
        assert_eq!(fixture.jobs().await, before);
        redelivered(&fixture, &other, answer(verdict, FAR)).await;
    }
    let second = request("a", 9, PAST);
    assert_eq!(fixture.one(second.clone()).await, answer(Verdict::Replaced, PAST));
    redelivered(&fixture, &second, answer(Verdict::Replaced, PAST)).await;
    redelivered(&fixture, &request("a", 1, FAR), answer(Verdict::Added, FAR)).await;
    assert_eq!(fixture.claim_one().await.record.job.body, "body 9");
}

#[tokio::test]
async fn redelivery_answers_as_before_whatever_became_of_the_job() {
    let fixture = Fixture::new().await;
    let added = answer(Verdict::Added, PAST);
    for (at, name) in ["cancelled", "completed", "finished", "dead", "requeued", "retried", "held"]
        .into_iter()
        .enumerate()
    {
        let message = 100 * (at as u64 + 1);
        let first = request(name, message, PAST);
        assert_eq!(fixture.one(first.clone()).await, added);
        if name != "cancelled" {
            let lease = fixture.claim_one().await;
            redelivered(&fixture, &first, added).await;
            let bury = || Bury {
                job: held(&lease),
                reason: dwell::job::DeadReason::Invalid,
                error: "too large".to_owned(),
            };
            match name {
                "completed" => assert!(fixture.complete(&lease).await),
                "dead" | "requeued" => assert_eq!(
                    fixture.store.jobs.bury(0, &[bury()]).await.unwrap(),
                    [SettleResult::Settled]
                ),
                "retried" => assert!(fixture.retry(&lease, 1_000_000).await),
                _ => assert!(fixture.hold(&lease, 1_000_000).await),
            }
        }
        let word = match name {
            "cancelled" => Some(Action::Cancel),
            "finished" => Some(Action::Finish),
            "requeued" => Some(Action::Requeue),
            _ => None,
        };
        if let Some(word) = word {
            fixture.act(&action(word, name, message + 1)).await;
        }
        if name == "requeued" {
            // A new schedule, of the same message: its due time is the new one.
            let before = fixture.dump().await;
            assert_eq!(fixture.put(first.clone()).await, Verdict::Added);
            assert_eq!(fixture.dump().await, before);
            fixture.act(&action(Action::Cancel, name, message + 2)).await;
        } else {
            redelivered(&fixture, &first, added).await;
        }
        // A new message with the id of a job that is over or dead is a new job; the old one's
        // message is still known.
        let second = request(name, message + 50, FAR);
        let expected =
            if ["retried", "held"].contains(&name) { Verdict::Replaced } else { Verdict::Added };
        assert_eq!(fixture.put(second.clone()).await, expected, "{name}");
        assert_eq!(fixture.place(name).await, "due:main", "{name}");
        redelivered(&fixture, &second, answer(expected, FAR)).await;
        let before = fixture.dump().await;
        assert_eq!(fixture.put(first).await, Verdict::Added, "{name}");
        assert_eq!(fixture.dump().await, before);
    }
}

#[tokio::test]
async fn redelivery_after_a_reschedule_answers_the_verdict_and_the_new_time() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    assert_eq!(fixture.act(&action(Action::Reschedule, "a", 2)).await, Verdict::Rescheduled);
    redelivered(&fixture, &request("a", 1, PAST), answer(Verdict::Added, FAR)).await;
}

#[tokio::test]
async fn a_generated_id_never_replaces() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, FAR)).await;
    let generated = NewJob { generated: true, ..request("a", 2, PAST) };
    assert_eq!(fixture.one(generated).await, answer(Verdict::Duplicate, FAR));
    let first = NewJob { generated: true, ..request("g", 3, FAR) };
    assert_eq!(fixture.put(first.clone()).await, Verdict::Added);
    let unchecked = NewJob {
        origin: dwell::request::Origin { maybe_redelivered: false, ..origin(3) },
        ..first
    };
    assert_eq!(fixture.one(unchecked).await, answer(Verdict::Duplicate, FAR));
}

#[tokio::test]
async fn who_is_first_takes_no_id_that_another_has_or_had() {
    let fixture = Fixture::new().await;
    let first = |id: &str, number: u64, generation: &[u8; 8]| NewJob {
        generated: true,
        call_id: Some(*generation),
        is_new_message: true,
        ..request(id, number, FAR)
    };
    assert_eq!(fixture.put(first("g", 1, b"firstone")).await, Verdict::Added);
    assert_eq!(fixture.put(first("g", 1, b"anything")).await, Verdict::Duplicate);
    let sure = |generation| NewJob {
        origin: dwell::request::Origin { maybe_redelivered: true, ..origin(1) },
        ..first("g", 1, generation)
    };
    assert_eq!(
        fixture.put(sure(b"anything")).await,
        Verdict::Duplicate,
        "sent again, it is another still"
    );
    assert_eq!(fixture.put(sure(b"firstone")).await, Verdict::Added, "a copy");
    assert_eq!(fixture.act(&action(Action::Cancel, "g", 2)).await, Verdict::Cancelled);
    assert_eq!(fixture.put(first("g", 1, b"anything")).await, Verdict::Duplicate, "remembered");
    assert_eq!(fixture.put(first("h", 3, b"anything")).await, Verdict::Added);
}

#[tokio::test]
async fn an_unsure_fingerprint_is_never_dropped() {
    let fixture = Fixture::new().await;
    let unsure = NewJob {
        origin: dwell::request::Origin { maybe_redelivered: false, ..origin(1) },
        ..request("a", 1, PAST)
    };
    assert_eq!(fixture.put(unsure.clone()).await, Verdict::Added);
    let lease = fixture.claim_one().await;
    assert!(fixture.complete(&lease).await);
    assert_eq!(fixture.put(unsure).await, Verdict::Added);
    assert_eq!(fixture.place("a").await, "due:main");
}

#[tokio::test]
async fn requests_for_one_id_in_one_batch_are_applied_in_order() {
    let fixture = Fixture::with(4, &[MAIN]).await;
    // 100 ids, three times each: more than one call a bucket, and an id never twice in one call.
    let batch: Vec<NewJob> =
        (0..300).map(|n| request(&format!("id-{}", n % 100), n + 1, FAR)).collect();
    let answers = fixture.store.jobs.schedule(&batch).await.unwrap().answers;
    let expected: Vec<Answer> = (0..300)
        .map(|n| answer(if n < 100 { Verdict::Added } else { Verdict::Replaced }, FAR))
        .collect();
    assert_eq!(answers, expected);
    for n in 0..100 {
        assert_eq!(
            fixture
                .store
                .reader
                .find(&id(&format!("id-{n}")))
                .await
                .unwrap()
                .unwrap()
                .record
                .job
                .body,
            format!("body {}", n + 201)
        );
    }
    assert_eq!(fixture.store.jobs.schedule(&batch).await.unwrap().answers, expected);
}

#[tokio::test]
async fn a_request_is_not_applied_where_an_earlier_one_for_its_id_was_refused() {
    let fixture = Fixture::new().await;
    // Another instance brought a broker that this one meets only now: the call with the first of
    // the two requests for `x` is refused.
    let mut elsewhere = request("y", 1, FAR);
    elsewhere.job.target = target_on("other");
    open(&fixture.settings, &["other"]).await.jobs.schedule(&[elsewhere]).await.unwrap();
    let batch = [request("y", 2, FAR), request("x", 3, FAR), request("x", 4, FAR)];
    let verdicts: Vec<Verdict> = fixture
        .store
        .jobs
        .schedule(&batch)
        .await
        .unwrap()
        .answers
        .iter()
        .map(|answer| answer.verdict)
        .collect();
    assert_eq!(verdicts, [Verdict::Replaced, Verdict::Added, Verdict::Replaced]);
    assert_eq!(
        fixture.store.reader.find(&id("x")).await.unwrap().unwrap().record.job.body,
        "body 4"
    );
}

#[tokio::test]
async fn a_batch_of_large_bodies_and_of_many_jobs_goes_through() {
    let fixture = Fixture::new().await;
    let large: Vec<NewJob> = (0..5)
        .map(|n| {
            let mut large = request(&format!("large-{n}"), n, PAST);
            large.job.body = vec![b'x'; 700_000].into();
            large
        })
        .collect();
    assert!(
        fixture
            .store
            .jobs
            .schedule(&large)
            .await
            .unwrap()
            .answers
            .iter()
            .all(|answer| answer.verdict == Verdict::Added)
    );
    let many: Vec<NewJob> =
        (0..1000).map(|n| request(&format!("many-{n}"), 1000 + n, FAR)).collect();
    assert!(
        fixture
            .store
            .jobs
            .schedule(&many)
            .await
            .unwrap()
            .answers
            .iter()
            .all(|answer| answer.verdict == Verdict::Added)
    );
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().scheduled, [1005]);
    assert_eq!(fixture.store.jobs.schedule(&[]).await.unwrap().answers, []);
}

#[tokio::test]
async fn a_replace_moves_the_job_to_its_new_broker() {
    let fixture = Fixture::with(1, &[MAIN, "other"]).await;
    fixture.put(request("a", 1, PAST)).await;
    let mut moved = request("a", 2, PAST);
    moved.job.target = target_on("other");
    assert_eq!(fixture.put(moved).await, Verdict::Replaced);
    assert_eq!(fixture.place("a").await, "due:other");
    assert!(fixture.claim().await.jobs.is_empty());
    let taken =
        fixture.store.jobs.claim(0, "other", super::fixture::LEASE, 10, 1 << 20).await.unwrap();
    assert_eq!(taken.jobs[0].record.job.broker(), Some("other"));
    // Back again, out of a lease.
    assert_eq!(fixture.put(request("a", 3, PAST)).await, Verdict::Replaced);
    assert_eq!(fixture.place("a").await, "due:main");
}

#[tokio::test]
async fn brokers_of_other_instances_are_learned_when_they_are_met() {
    let fixture = Fixture::new().await;
    let elder = open(&fixture.settings, &[MAIN]).await;
    let younger = open(&fixture.settings, &["other"]).await;
    let mut other = request("a", 1, FAR);
    other.job.target = target_on("other");
    younger.jobs.schedule(std::slice::from_ref(&other)).await.unwrap();
    // An action, a replace of the job there, and a schedule of a job to there: each by an instance
    // that did not know that broker.
    assert_eq!(*elder.brokers(), ["main".to_owned()]);
    assert_eq!(
        elder.jobs.act(&action(Action::Fire, "a", 2), &[]).await.unwrap().verdict,
        Verdict::Firing
    );
    assert_eq!(*elder.brokers(), ["main".to_owned(), "other".to_owned()]);
    let elder = open(&fixture.settings, &[MAIN]).await;
    open(&fixture.settings, &["third"]).await;
    let mut third = request("b", 3, FAR);
    third.job.target = target_on("third");
    assert_eq!(elder.jobs.schedule(&[third]).await.unwrap().answers[0].verdict, Verdict::Added);
    open(&fixture.settings, &["fourth"])
        .await
        .jobs
        .schedule(&[{
            let mut fourth = request("c", 4, FAR);
            fourth.job.target = target_on("fourth");
            fourth
        }])
        .await
        .unwrap();
    assert_eq!(fixture.put(request("c", 5, FAR)).await, Verdict::Replaced);
    assert_eq!(fixture.place("c").await, "due:main");
}

#[tokio::test]
async fn a_job_in_flight_is_replaced_and_its_owner_has_lost_it() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    assert_eq!(fixture.put(request("a", 2, PAST)).await, Verdict::Replaced);
    assert!(!fixture.complete(&lease).await);
    let new = fixture.claim_one().await;
    assert_eq!((new.record.job.body.as_ref(), new.state.attempt), (&b"body 2"[..], 1));
    assert!(!fixture.complete(&lease).await);
    assert_ne!(new.state.generation, lease.state.generation);
    assert!(fixture.complete(&new).await);
}

#[tokio::test]
async fn a_record_says_that_it_replaced_another() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, FAR)).await;
    fixture.put(request("a", 2, FAR)).await;
    let bytes = fixture.redis(&["HGET", &fixture.key("jobs"), "a"]).await;
    let redis::Value::BulkString(bytes) = bytes else { panic!("{bytes:?}") };
    assert!(record::replaced(&bytes));
}
