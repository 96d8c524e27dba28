//! `rescue`, and how a lease ends.

use std::time::Duration;

use dwell::job::DeadReason;
use dwell::store::jobs::settle::{
    Bury, ClaimName, ClaimToken, Completion, Release, Retry, SettleResult,
};
use dwell::store::reader::lookup::JobState;

use super::fixture::{Fixture, LEASE, MAIN, PAST, held, id, request, retry};

#[tokio::test]
async fn leases_of_a_later_version_stay_and_hide_nothing() {
    let fixture = Fixture::new().await;
    let batch: Vec<_> = (0..300).map(|n| request(&format!("job-{n:03}"), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    for _ in 0..3 {
        fixture.claim_for(Duration::ZERO).await;
    }
    for n in 0..299 {
        fixture.redis(&["HSET", &fixture.key("jobs"), &format!("job-{n:03}"), "\x03"]).await;
    }
    let taken = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
    assert_eq!((taken.jobs.len(), taken.unknown), (1, 299));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_handed_out_as_broken_and_can_be_buried() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let redis::Value::BulkString(mut bytes) =
        fixture.redis(&["HGET", &fixture.key("jobs"), "a"]).await
    else {
        panic!()
    };
    bytes.truncate(45);
    redis::cmd("HSET")
        .arg(fixture.key("jobs"))
        .arg("a")
        .arg(bytes)
        .exec_async(&mut fixture.raw.clone())
        .await
        .unwrap();
    let taken = fixture.claim().await;
    assert_eq!((taken.jobs.len(), taken.broken.len()), (0, 1));
    let broken = &taken.broken[0];
    let bury = Bury { job: broken.token(), reason: DeadReason::Invalid, error: broken.why.clone() };
    assert_eq!(fixture.store.jobs.bury(0, &[bury]).await.unwrap(), [SettleResult::Settled]);
    assert_eq!(fixture.place("a").await, "dead");
}

#[tokio::test]
async fn ids_without_a_record_are_taken_out() {
    let fixture = Fixture::new().await;
    fixture.put(request("due", 1, PAST)).await;
    fixture.put(request("run", 2, PAST)).await;
    let taken = fixture.claim_for(Duration::ZERO).await;
    assert!(fixture.release(&taken.jobs[0], true).await);
    fixture.redis(&["DEL", &fixture.key("jobs")]).await;
    let taken = fixture.claim().await;
    assert_eq!((taken.jobs.len(), taken.orphans), (0, 1));
    let taken = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
    assert_eq!((taken.jobs.len(), taken.orphans), (0, 1));
    assert_eq!(
        (fixture.place("due").await, fixture.place("run").await),
        ("none".to_owned(), "none".to_owned())
    );
}

/// Every way to end a lease, by name.
async fn settle(fixture: &Fixture, name: &str, job: ClaimToken) -> bool {
    let error = "no answer".to_owned();
    let answers = match name {
        "complete" => fixture.store.jobs.complete(0, &[job], Completion::Fired).await,
        "drop" => fixture.store.jobs.complete(0, &[job], Completion::Dropped).await,
        "hold" => fixture.store.jobs.hold(0, &[(job, 30_000)]).await,
        "release" => {
            fixture
                .store
                .jobs
                .release(0, MAIN, &[Release { job, pause_ms: 1000, unpublished: false }])
                .await
        }
        "undo" => {
            fixture
                .store
                .jobs
                .release(0, MAIN, &[Release { job, pause_ms: 1000, unpublished: true }])
                .await
        }
        "retry" => {
            fixture
                .store
                .jobs
                .retry(
                    0,
                    MAIN,
                    &[Retry { job, wait_ms: 1000, unpublished: false, dies: None, error }],
                )
                .await
        }
        "die" => {
            fixture
                .store
                .jobs
                .retry(
                    0,
                    MAIN,
                    &[Retry {
                        job,
                        wait_ms: 1000,
                        unpublished: false,
                        dies: Some(DeadReason::Late),
                        error,
                    }],
                )
                .await
        }
        "bury" => {
            fixture
                .store
                .jobs
                .bury(0, &[Bury { job, reason: DeadReason::RetriesExhausted, error }])
                .await
        }
        other => panic!("{other}"),
    };
    answers.unwrap()[0] == SettleResult::Settled
}

#[tokio::test]
async fn only_the_token_of_the_lease_ends_it_and_only_once() {
    let fixture = Fixture::new().await;
    let after = [
        ("complete", "none"),
        ("drop", "none"),
        ("hold", "held"),
        ("release", "due:main"),
        ("undo", "due:main"),
        ("retry", "due:main"),
        ("die", "due:main"),
        ("bury", "dead"),
    ];
    for (n, (name, place)) in after.into_iter().enumerate() {
        let n = n as u64;
        fixture.put(request(name, n, PAST)).await;
        let lease = fixture.claim_one().await;
        let claimed = fixture.dump().await;
        for wrong in [[0; 8], [0xff; 8], n.to_be_bytes()] {
            let right = held(&lease).lease;
            for lease_name in
                [ClaimName { nonce: wrong, ..right }, ClaimName { created: wrong, ..right }]
            {
                assert!(
                    !settle(&fixture, name, ClaimToken { lease: lease_name, ..held(&lease) }).await,
                    "{name}"
                );
            }
            assert!(
                !settle(&fixture, name, ClaimToken { position: 1, ..held(&lease) }).await,
                "{name}"
            );
        }
        assert_eq!(fixture.dump().await, claimed, "{name}");
        assert!(settle(&fixture, name, held(&lease)).await, "{name}");
        assert_eq!(fixture.place(name).await, place, "{name}");
        let settled = fixture.dump().await;
        assert!(!settle(&fixture, name, held(&lease)).await, "{name}");
        assert_eq!(fixture.dump().await, settled, "{name}");
        for other in ["complete", "hold", "release", "retry", "bury"] {
            assert!(!settle(&fixture, other, held(&lease)).await, "{name} then {other}");
        }
        assert_eq!(fixture.dump().await, settled, "{name}");
    }
}

#[tokio::test]
async fn batches_are_settled_job_by_job() {
    let fixture = Fixture::new().await;
    let batch: Vec<_> = (0..128).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    let taken = fixture.claim().await;
    assert_eq!(taken.jobs.len(), 128);
    let jobs: Vec<ClaimToken> = taken
        .jobs
        .iter()
        .enumerate()
        .map(|(n, lease)| {
            if n % 2 == 0 {
                held(lease)
            } else {
                ClaimToken {
                    lease: ClaimName { nonce: [7; 8], ..held(lease).lease },
                    ..held(lease)
                }
            }
        })
        .collect();
    let answers = fixture.store.jobs.complete(0, &jobs, Completion::Fired).await.unwrap();
    assert!(
        answers
            .iter()
            .enumerate()
            .all(|(n, stood)| (*stood == SettleResult::Settled) == (n % 2 == 0))
    );
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().reserved, [64]);
    assert_eq!(fixture.store.jobs.complete(0, &[], Completion::Fired).await.unwrap(), []);
}

#[tokio::test]
async fn a_release_that_undoes_keeps_the_attempt_and_any_other_counts_it() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    assert!(fixture.release(&lease, true).await);
    let lease = fixture.claim_one().await;
    assert_eq!(lease.state.attempt, 1);
    assert!(fixture.release(&lease, false).await);
    let lease = fixture.claim_one().await;
    assert_eq!(
        (lease.state.attempt, lease.state.step, lease.state.due_ms),
        (2, 0, 1_000_000_000_000)
    );
}

#[tokio::test]
async fn a_release_waits_out_its_pause() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    let before = fixture.store.read_clock().await.unwrap() / 1000;
    fixture
        .store
        .jobs
        .release(0, MAIN, &[Release { job: held(&lease), pause_ms: 60_000, unpublished: true }])
        .await
        .unwrap();
    let taken = fixture.claim().await;
    assert!(taken.jobs.is_empty());
    assert!(taken.next_ms.unwrap() >= before + 60_000);
}

#[tokio::test]
async fn a_retry_moves_the_step_and_remembers_why() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    for step in 0..3 {
        let lease = fixture.claim_one().await;
        assert_eq!((lease.state.step, lease.state.attempt), (step, u32::from(step) + 1));
        assert_eq!(lease.state.last_error, if step == 0 { "" } else { "no answer" });
        assert!(fixture.retry(&lease, 0).await);
    }
    let lease = fixture.claim_one().await;
    // A publish that was never begun counts no attempt, but the step is used.
    let unpublished = Retry { unpublished: true, error: "é".repeat(5000), ..retry(&lease, 0) };
    fixture.store.jobs.retry(0, MAIN, &[unpublished]).await.unwrap();
    let lease = fixture.claim_one().await;
    assert_eq!((lease.state.step, lease.state.attempt, lease.state.last_error.len()), (4, 4, 4400));
}

#[tokio::test]
async fn a_dying_job_makes_no_attempt_and_stays_dying_until_it_is_buried() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    fixture
        .store
        .jobs
        .retry(0, MAIN, &[Retry { dies: Some(DeadReason::RetriesExhausted), ..retry(&lease, 0) }])
        .await
        .unwrap();
    for _ in 0..2 {
        let lease = fixture.claim_one().await;
        assert_eq!(
            (lease.state.attempt, lease.state.step, lease.state.reason),
            (1, 0, Some(DeadReason::RetriesExhausted))
        );
        assert!(fixture.release(&lease, true).await);
    }
    // Not even a retry without a reason brings it back.
    let lease = fixture.claim_one().await;
    assert!(fixture.retry(&lease, 0).await);
    let lease = fixture.claim_one().await;
    assert_eq!((lease.state.attempt, lease.state.reason), (1, Some(DeadReason::RetriesExhausted)));
    fixture
        .store
        .jobs
        .bury(
            0,
            &[Bury {
                job: held(&lease),
                reason: DeadReason::RetriesExhausted,
                error: "the end".to_owned(),
            }],
        )
        .await
        .unwrap();
    let found = fixture.store.reader.find(&id("a")).await.unwrap().unwrap();
    assert_eq!(
        (found.state, found.state_record.unwrap().last_error.as_str()),
        (JobState::Dead, "the end")
    );
}

#[tokio::test]
async fn a_hold_waits_for_the_consumer_from_the_confirm_on() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let lease = fixture.claim_for(Duration::from_secs(1)).await.jobs.remove(0);
    assert!(fixture.hold(&lease, 3_600_000).await);
    let deadline = fixture.store.reader.find(&id("a")).await.unwrap().unwrap().score_ms;
    assert!(deadline > fixture.store.now_ms() + 3_000_000);
    let rescued = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
    assert_eq!((rescued.jobs.len(), rescued.next_ms), (0, Some(deadline)));
}

#[tokio::test]
async fn a_rescue_tells_crashed_from_held_and_counts_a_crash_once_a_lease() {
    let fixture = Fixture::new().await;
    fixture.put(request("held", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    assert!(fixture.hold(&lease, 0).await);
    let rescued = fixture.rescue_one().await;
    assert_eq!((rescued.state.held, rescued.state.crashes), (true, 0));
    assert!(!fixture.complete(&lease).await);
    assert!(fixture.complete(&rescued).await);

    fixture.put(request("crashed", 2, PAST)).await;
    for crash in 1..=5 {
        let lease = fixture.claim_for(Duration::ZERO).await.jobs.remove(0);
        assert_eq!((lease.state.attempt, lease.state.crashes), (u32::from(crash), crash - 1));
        // The first rescuer crashes as well: the second takes over from it, and counts nothing.
        let first = fixture
            .store
            .jobs
            .rescue(0, Duration::ZERO, 128, 1 << 20)
            .await
            .unwrap()
            .jobs
            .remove(0);
        let second = fixture.rescue_one().await;
        assert_eq!((first.state.crashes, second.state.crashes), (crash, crash));
        assert!(!fixture.release(&first, false).await);
        // The owner that slept past its lease has lost it.
        assert!(!fixture.complete(&lease).await);
        assert!(fixture.release(&second, false).await);
    }
    // An outcome ends the row.
    let lease = fixture.claim_one().await;
    assert_eq!(lease.state.crashes, 5);
    assert!(fixture.retry(&lease, 0).await);
    assert_eq!(fixture.claim_one().await.state.crashes, 0);
}

#[tokio::test]
async fn a_rescue_is_bounded_and_tells_of_more() {
    let fixture = Fixture::new().await;
    let batch: Vec<_> = (0..10).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    fixture.claim_for(Duration::ZERO).await;
    let taken = fixture.store.jobs.rescue(0, LEASE, 4, 1 << 20).await.unwrap();
    assert_eq!((taken.jobs.len(), taken.more), (4, true));
    let taken = fixture.store.jobs.rescue(0, LEASE, 128, 1).await.unwrap();
    assert_eq!((taken.jobs.len(), taken.more), (1, true));
    let taken = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
    assert_eq!((taken.jobs.len(), taken.more), (5, false));
    assert!(taken.next_ms.is_some());
}
