//! `claim` and `reclaim`: which jobs are taken, in which order and how many at once.

use std::time::Duration;

use dwell::clock;
use dwell::job::{Conflict, Due};
use dwell::request::NewJob;
use dwell::store::jobs::claim::{ClaimRequest, ClaimedJob};
use dwell::store::jobs::settle::{Release, Retry, SettleResult};
use dwell::store::reader::lookup::JobState;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::fixture::{FAR, Fixture, LEASE, MAIN, PAST, held, id, one_of, request};
use super::lossy::Lossy;
use crate::support::wait_until;

#[tokio::test]
async fn a_claim_takes_what_is_due_in_order_and_tells_what_is_next() {
    let fixture = Fixture::new().await;
    let before = fixture.store.read_clock().await.unwrap();
    for (n, due) in [
        (1, Due::At(3000)),
        (2, Due::At(1000)),
        (3, Due::At(2000)),
        (4, FAR),
        (5, Due::At(4_000_000_000_001)),
    ] {
        fixture.put(request(&format!("job-{n}"), n, due)).await;
    }
    let taken = fixture.claim().await;
    assert_eq!(
        taken.jobs.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(),
        ["job-2", "job-3", "job-1"]
    );
    assert_eq!(
        (taken.next_ms, taken.more, taken.unknown, taken.orphans),
        (Some(4_000_000_000_000), false, 0, 0)
    );
    assert!(taken.now_us >= before);
    let first = &taken.jobs[0];
    assert_eq!(
        (first.state.attempt, first.state.step, first.state.due_ms, first.state.crashes),
        (1, 0, 1000, 0)
    );
    assert_eq!((first.state.generation, first.state.attempt), (first.record.generation, 1));
    assert_eq!(fixture.place("job-1").await, "lease");
    let found = fixture.store.reader.find(&id("job-1")).await.unwrap().unwrap();
    assert_eq!(found.state, JobState::Reserved);
    assert!(found.score_ms >= before / 1000 + 600_000);

    let empty = fixture.claim().await;
    assert!(empty.jobs.is_empty() && empty.next_ms == Some(4_000_000_000_000));
    assert_eq!(Fixture::new().await.claim().await.next_ms, None);
}

/// A claim of jobs that are due within two minutes.
const SOON_CLAIM: ClaimRequest =
    ClaimRequest { lease: LEASE, most: 128, most_bytes: 1 << 20, ahead: Duration::from_secs(120) };

#[tokio::test]
async fn what_is_due_in_a_moment_is_taken_too_and_says_when() {
    let fixture = Fixture::new().await;
    fixture.put(request("soon", 1, Due::In(60_000))).await;
    fixture.put(request("now", 2, PAST)).await;
    fixture.put(request("later", 3, Due::In(180_000))).await;
    let due_ms = fixture.store.reader.find(&id("soon")).await.unwrap().unwrap().score_ms;
    let taken = fixture.store.jobs.claim_ahead(0, MAIN, SOON_CLAIM).await.unwrap();
    let now = clock::now();
    let [past, soon] = &taken.jobs[..] else { panic!("{taken:?}") };
    assert_eq!((past.id.as_str(), soon.id.as_str(), soon.state.due_ms), ("now", "soon", due_ms));
    assert!(
        past.ready <= now
            && soon.ready - now <= Duration::from_secs(60)
            && soon.ready - now > Duration::from_secs(50)
    );
    assert_eq!(
        taken.next_ms,
        Some(fixture.store.reader.find(&id("later")).await.unwrap().unwrap().score_ms)
    );
    // Not before it is due by Redis's clock, which is read after ours: that makes it look later by
    // the way there, never earlier.
    let left_us = i64::try_from((soon.ready - clock::now()).as_micros()).unwrap();
    assert!(fixture.store.read_clock().await.unwrap() + left_us >= due_ms * 1000);

    // Given back, it is due no sooner.
    let back = [Release { job: held(soon), pause_ms: 0, unpublished: true }];
    assert_eq!(fixture.store.jobs.release(0, MAIN, &back).await.unwrap(), [SettleResult::Settled]);
    let found = fixture.store.reader.find(&id("soon")).await.unwrap().unwrap();
    assert_eq!((found.score_ms, found.attempts()), (due_ms, 0));
    // After an attempt its due time is that of the next one, which its holder knows.
    let soon = one_of(fixture.store.jobs.claim_ahead(0, MAIN, SOON_CLAIM).await.unwrap());
    let retried = [Retry {
        job: held(&soon),
        wait_ms: 60_000,
        unpublished: false,
        dies: None,
        error: "x".to_owned(),
    }];
    assert_eq!(fixture.store.jobs.retry(0, MAIN, &retried).await.unwrap(), [SettleResult::Settled]);
    let next_ms = fixture.store.reader.find(&id("soon")).await.unwrap().unwrap().score_ms;
    let soon = one_of(fixture.store.jobs.claim_ahead(0, MAIN, SOON_CLAIM).await.unwrap());
    let pause_ms = clock::whole_ms(soon.ready - clock::now());
    let back = [Release { job: held(&soon), pause_ms, unpublished: true }];
    assert_eq!(fixture.store.jobs.release(0, MAIN, &back).await.unwrap(), [SettleResult::Settled]);
    let found = fixture.store.reader.find(&id("soon")).await.unwrap().unwrap();
    assert!(found.score_ms >= next_ms, "{} ms early", next_ms - found.score_ms);
}

#[tokio::test]
async fn what_a_lost_claim_took_early_is_not_early_when_it_is_given_back() {
    let fixture = Fixture::new().await;
    fixture.put(request("soon", 1, Due::In(60_000))).await;
    let due_ms = fixture.store.reader.find(&id("soon")).await.unwrap().unwrap().score_ms;
    let lossy = Lossy::beside(&fixture).await;
    lossy.lose_a_claim(&fixture, 128, SOON_CLAIM.ahead).await;
    assert_eq!(fixture.place("soon").await, "lease");
    assert!(lossy.store.jobs.claim(0, MAIN, LEASE, 128, 1 << 20).await.unwrap().jobs.is_empty());
    let found = fixture.store.reader.find(&id("soon")).await.unwrap().unwrap();
    assert_eq!((found.score_ms, found.state, found.attempts()), (due_ms, JobState::Scheduled, 0));
}

#[tokio::test]
async fn a_large_record_that_would_not_fit_is_not_fetched() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    for n in 1..=2 {
        let mut large = request(&format!("job-{n}"), n, PAST);
        large.job.body = vec![0; 600_000].into();
        fixture.put(large).await;
    }
    fixture.redis(&["CONFIG", "RESETSTAT"]).await;
    let taken = fixture.store.jobs.claim(0, MAIN, LEASE, 128, 1 << 20).await.unwrap();
    assert_eq!((taken.jobs.len(), taken.more), (1, true));
    let redis::Value::BulkString(stats) = fixture.redis(&["INFO", "commandstats"]).await else {
        panic!()
    };
    let stats = String::from_utf8(stats).unwrap();
    assert!(stats.contains("cmdstat_hmget:calls=1,"), "of the record: {stats}");
}

#[tokio::test]
async fn a_claim_is_bounded_in_jobs_and_bytes() {
    let fixture = Fixture::new().await;
    let batch: Vec<_> = (0..10)
        .map(|n| {
            let mut request = request(&format!("job-{n}"), n, Due::At(n.cast_signed()));
            request.job.body = vec![0; 1000].into();
            request
        })
        .collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    let claim = async |most, bytes| {
        let taken = fixture.store.jobs.claim(0, MAIN, LEASE, most, bytes).await.unwrap();
        (taken.jobs.len(), taken.more)
    };
    assert_eq!(claim(3, 1 << 20).await, (3, true));
    // At least one, be it larger than the budget.
    assert_eq!(claim(10, 1).await, (1, true));
    // Two records of 1100 bytes or so fit into 2500.
    assert_eq!(claim(10, 2500).await, (2, true));
    assert_eq!(claim(0, 2500).await.0, 0);
    assert_eq!(claim(128, 1 << 20).await, (4, false));
}

/// Due now, and not counted as overdue while the test runs.
const NOW: Due = Due::In(0);

#[tokio::test]
async fn what_is_due_now_does_not_wait_behind_a_backlog() {
    let fixture = Fixture::new().await;
    let overdue: Vec<_> =
        (0..40).map(|n| request(&format!("old-{n:02}"), n, Due::At(n.cast_signed()))).collect();
    fixture.store.jobs.schedule(&overdue).await.unwrap();
    let recent: Vec<_> =
        (0..6).map(|n| request(&format!("new-{n}"), 100 + n, Due::In(10 * n))).collect();
    fixture.store.jobs.schedule(&recent).await.unwrap();
    let claim = async |most| {
        let ask = ClaimRequest { most, ..SOON_CLAIM };
        let taken = fixture.store.jobs.claim_ahead(0, MAIN, ask).await.unwrap();
        (
            taken.jobs.iter().map(|lease| lease.id.as_str().to_owned()).collect::<Vec<_>>(),
            taken.more,
        )
    };
    let ids = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    // Half of the claim, the most overdue fill it, and both are served in their order.
    assert_eq!(
        claim(8).await,
        (ids(&["new-0", "new-1", "new-2", "new-3", "old-00", "old-01", "old-02", "old-03"]), true)
    );
    assert_eq!(
        claim(8).await,
        (
            ids(&["new-4", "new-5", "old-04", "old-05", "old-06", "old-07", "old-08", "old-09"]),
            true
        )
    );
    assert_eq!(claim(1).await, (ids(&["old-10"]), true));
    // All that is left fits.
    let (left, more) = claim(128).await;
    assert_eq!((left.len(), more), (29, false));
    assert_eq!(fixture.redis(&["ZCARD", &fixture.key("due:main")]).await, redis::Value::Int(0));
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().reserved, [46]);
}

#[tokio::test]
async fn large_recent_jobs_leave_half_of_the_bytes_to_a_backlog() {
    let fixture = Fixture::new().await;
    let of_size = |name: String, n: u64, due: Due, size: usize| {
        let mut request = request(&name, n, due);
        request.job.body = vec![0; size].into();
        request
    };
    for n in 0..6 {
        fixture.put(of_size(format!("old-{n}"), n, Due::At(n.cast_signed()), 100_000)).await;
        fixture.put(of_size(format!("new-{n}"), 100 + n, Due::In(10 * n), 400_000)).await;
    }
    // Larger than half of a claim: it waits for its turn.
    fixture.put(of_size("huge".to_owned(), 200, NOW, 600_000)).await;
    let claim = async || {
        let taken = fixture
            .store
            .jobs
            .claim_ahead(0, MAIN, ClaimRequest { most: 4, ..SOON_CLAIM })
            .await
            .unwrap();
        taken.jobs.iter().map(|lease| lease.id.as_str().to_owned()).collect::<Vec<_>>()
    };
    let first = claim().await;
    assert_eq!(
        first.iter().filter(|id| id.starts_with("old")).count(),
        first.len() - usize::from(first.iter().any(|id| id.starts_with("new"))),
        "{first:?}"
    );
    assert!(first.iter().any(|id| id == "old-0") && first.len() > 1, "{first:?}");
    let mut came = first;
    loop {
        let more = claim().await;
        if more.is_empty() {
            break;
        }
        came.extend(more);
    }
    came.sort();
    let all = ["huge".to_owned()]
        .into_iter()
        .chain((0..6).map(|n| format!("new-{n}")))
        .chain((0..6).map(|n| format!("old-{n}")));
    assert_eq!(came, all.collect::<Vec<_>>());
}

#[tokio::test]
async fn recent_jobs_that_cannot_be_read_hide_nothing_and_none_is_claimed_twice() {
    let fixture = Fixture::new().await;
    let overdue: Vec<_> =
        (0..20).map(|n| request(&format!("old-{n:02}"), n, Due::At(n.cast_signed()))).collect();
    fixture.store.jobs.schedule(&overdue).await.unwrap();
    let recent: Vec<_> = (0..8).map(|n| request(&format!("new-{n}"), 100 + n, NOW)).collect();
    fixture.store.jobs.schedule(&recent).await.unwrap();
    for id in ["new-0", "new-2", "old-00", "old-01", "old-03"] {
        fixture.redis(&["HSET", &fixture.key("jobs"), id, "\x03 of a later version"]).await;
    }
    fixture.redis(&["HDEL", &fixture.key("jobs"), "old-02"]).await;
    let (mut came, mut claims) = (Vec::new(), 0);
    loop {
        let taken = fixture.store.jobs.claim(0, MAIN, LEASE, 8, 1 << 20).await.unwrap();
        came.extend(taken.jobs.iter().map(|lease| lease.id.as_str().to_owned()));
        claims += 1;
        assert!(claims < 20, "no end: {came:?}");
        if !taken.more {
            break;
        }
    }
    came.sort();
    let (old, new) =
        ((4..20).map(|n| format!("old-{n:02}")), [1, 3, 4, 5, 6, 7].map(|n| format!("new-{n}")));
    assert_eq!(came, new.into_iter().chain(old).collect::<Vec<_>>());
    assert_eq!(fixture.redis(&["ZCARD", &fixture.key("due:main")]).await, redis::Value::Int(5));
}

#[tokio::test]
async fn each_job_is_claimed_once_in_order_whatever_its_size_and_what_stands_between() {
    let fixture = Fixture::new().await;
    let name = |n: usize| format!("job-{n:03}");
    // Mixed, so that slices grow, and meet what does not fit.
    let sizes = [100, 100, 40_000, 200, 400_000, 100, 300_000, 1_500_000, 100];
    let batch: Vec<_> = (0..120)
        .map(|n: usize| {
            let mut request = request(&name(n), n as u64, Due::At(n as i64));
            request.job.body = vec![0; sizes[n * 7 % sizes.len()]].into();
            request
        })
        .collect();
    for some in batch.chunks(8) {
        fixture.store.jobs.schedule(some).await.unwrap();
    }
    let (orphans, later): (Vec<usize>, Vec<usize>) =
        ((5..120).step_by(17).collect(), (0..120).step_by(13).collect());
    for &n in &orphans {
        fixture.redis(&["HDEL", &fixture.key("jobs"), &name(n)]).await;
    }
    for &n in later.iter().filter(|n| !orphans.contains(n)) {
        fixture.redis(&["HSET", &fixture.key("jobs"), &name(n), "\x03 of a later version"]).await;
    }
    let mut came = Vec::new();
    loop {
        let taken = fixture.claim().await;
        let bytes: usize = taken.jobs.iter().map(|lease| lease.record.job.body.len()).sum();
        assert!(
            bytes <= 1 << 20 || taken.jobs.len() == 1,
            "{bytes} bytes in {} jobs",
            taken.jobs.len()
        );
        came.extend(taken.jobs.iter().map(|lease| lease.id.as_str().to_owned()));
        if !taken.more {
            break;
        }
    }
    let healthy = |n: &usize| !orphans.contains(n) && !later.contains(n);
    assert_eq!(came, (0..120).filter(healthy).map(name).collect::<Vec<_>>());
    let left = (0..120).filter(|n| later.contains(n) && !orphans.contains(n)).count();
    assert_eq!(
        fixture.redis(&["ZCARD", &fixture.key("due:main")]).await,
        redis::Value::Int(left as i64)
    );
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().reserved, [came.len() as u64]);
}

#[tokio::test]
async fn what_many_claims_look_through_is_no_list() {
    let fixture = Fixture::new().await;
    let mut batch: Vec<_> = (0..16).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    // A producer may choose any id but one with control characters.
    batch.extend(
        ["-", " ", "0", "\u{ff}"]
            .map(|one| request(&one.repeat(65), 16 + u64::from(one.as_bytes()[0]), PAST)),
    );
    fixture.store.jobs.schedule(&batch).await.unwrap();
    assert_eq!(fixture.claim().await.jobs.len(), 20);
    let encoding = fixture.redis(&["OBJECT", "ENCODING", &fixture.key("claims")]).await;
    assert_eq!(encoding, redis::Value::BulkString(b"hashtable".to_vec()));
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().reserved, [20]);
}

#[tokio::test]
async fn jobs_of_a_later_version_stay_and_hide_nothing() {
    let fixture = Fixture::new().await;
    let batch: Vec<_> =
        (0..400).map(|n| request(&format!("later-{n:03}"), n, Due::At(n.cast_signed()))).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    for n in 0..400 {
        fixture
            .redis(&[
                "HSET",
                &fixture.key("jobs"),
                &format!("later-{n:03}"),
                "\x03 of a later version",
            ])
            .await;
    }
    fixture.put(request("known", 1000, Due::At(500))).await;
    let taken = fixture.claim().await;
    assert_eq!((taken.jobs.len(), taken.unknown), (1, 400));
    assert_eq!(taken.jobs[0].id.as_str(), "known");
    assert_eq!(fixture.place("later-399").await, "due:main");
    // An action on one of them is refused, and so is a new schedule: neither knows what it would
    // change.
    let error = fixture
        .store
        .jobs
        .act(&super::fixture::action(dwell::job::Action::Cancel, "later-000", 2000), &[])
        .await
        .unwrap_err();
    assert!(
        error.class == dwell::store::error::Class::Script
            && error.message.contains("DWELL_VERSION"),
        "{error}"
    );
    for conflict in [Conflict::Replace, Conflict::Keep, Conflict::Reject] {
        let error = fixture
            .store
            .jobs
            .schedule(&[NewJob { conflict, ..request("later-000", 2001, FAR) }])
            .await
            .unwrap_err();
        assert!(error.is_unreadable(), "{error}");
    }
    let before = fixture.redis(&["HGET", &fixture.key("jobs"), "later-000"]).await;
    assert_eq!(before, redis::Value::BulkString(b"\x03 of a later version".to_vec()));
    assert_eq!(fixture.place("later-000").await, "due:main");
}

#[tokio::test]
async fn any_number_of_jobs_of_a_later_version_hides_nothing_and_each_is_looked_at_once() {
    const LATER_JOBS: u64 = 2500;
    let fixture = Fixture::new().await;
    let later = |n: u64| format!("later-{n:04}");
    for n in 0..LATER_JOBS / 100 {
        let batch: Vec<_> = (100 * n..100 * (n + 1))
            .map(|n| request(&later(n), n, Due::At(1000 + n.cast_signed())))
            .collect();
        fixture.store.jobs.schedule(&batch).await.unwrap();
    }
    for n in 0..LATER_JOBS {
        fixture.redis(&["HSET", &fixture.key("jobs"), &later(n), "\x03 of a later version"]).await;
    }
    fixture.put(request("behind", 5000, Due::At(90_000))).await;
    let until_nothing = async || {
        let (mut ids, mut calls) = (Vec::new(), 0);
        loop {
            let taken = fixture.claim().await;
            ids.extend(taken.jobs.iter().map(|lease| lease.id.as_str().to_owned()));
            calls += 1;
            if !taken.more {
                return (ids, taken.unknown, calls);
            }
            assert!(calls < 10, "it comes to an end");
        }
    };
    assert_eq!(until_nothing().await, (vec!["behind".to_owned()], 2500, 3));
    // Behind them, on and on: one call.
    fixture.put(request("behind again", 5001, Due::At(90_001))).await;
    fixture.put(request("further behind", 5002, Due::At(90_002))).await;
    assert_eq!(
        until_nothing().await,
        (vec!["behind again".to_owned(), "further behind".to_owned()], 2500, 1)
    );
    // Among them, with a time that was over long ago.
    fixture.put(request("among", 5003, Due::At(1500))).await;
    assert_eq!(until_nothing().await.0, ["among"]);
    // An instance that can read these jobs took some, also the last.
    for n in (0..700).chain([LATER_JOBS - 1]) {
        fixture.redis(&["ZREM", &fixture.key("due:main"), &later(n)]).await;
    }
    fixture.put(request("behind fewer", 5004, Due::At(90_003))).await;
    let (ids, unknown, _) = until_nothing().await;
    assert_eq!((ids, unknown), (vec!["behind fewer".to_owned()], 1799));
    for n in 700..900 {
        fixture.redis(&["ZREM", &fixture.key("due:main"), &later(n)]).await;
    }
    fixture.put(request("behind fewer still", 5005, Due::At(90_004))).await;
    assert_eq!(until_nothing().await, (vec!["behind fewer still".to_owned()], 1599, 1));
    assert_eq!(fixture.place(&later(1000)).await, "due:main");
}

#[tokio::test]
async fn any_number_of_leases_of_a_later_version_hides_none_that_is_over() {
    let fixture = Fixture::new().await;
    for n in 0..12 {
        let batch: Vec<_> =
            (100 * n..100 * (n + 1)).map(|n| request(&format!("job-{n:04}"), n, PAST)).collect();
        fixture.store.jobs.schedule(&batch).await.unwrap();
    }
    while fixture.claim_for(Duration::ZERO).await.more {}
    for n in 0..1200 {
        fixture
            .redis(&[
                "HSET",
                &fixture.key("jobs"),
                &format!("job-{n:04}"),
                "\x03 of a later version",
            ])
            .await;
    }
    // Leases that end later.
    fixture.put(request("behind", 5000, PAST)).await;
    wait_until("its lease is over", async || {
        fixture.claim_for(Duration::from_millis(1)).await;
        let first = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
        let second = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
        first
            .jobs
            .iter()
            .chain(&second.jobs)
            .any(|lease| lease.id.as_str() == "behind")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_a_claim_took_without_our_hearing_of_it_is_given_back_unburned() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    fixture.put(request("other", 2, PAST)).await;
    // Taken by another instance, under another nonce: not touched.
    let other: ClaimedJob =
        fixture.store.jobs.claim(0, MAIN, LEASE, 1, 1).await.unwrap().jobs.remove(0);
    let lossy = Lossy::beside(&fixture).await;
    lossy.lose_a_claim(&fixture, 128, Duration::ZERO).await;
    assert_eq!(
        (fixture.place("a").await, fixture.place("other").await),
        ("lease".to_owned(), "lease".to_owned())
    );
    let lease = one_of(lossy.store.jobs.claim(0, MAIN, LEASE, 128, 1 << 20).await.unwrap());
    assert_ne!(lease.id, other.id);
    assert_eq!(lease.state.attempt, 1);
    assert!(fixture.complete(&lease).await && fixture.complete(&other).await);
}

#[tokio::test]
async fn a_lost_claim_is_found_among_many_leases() {
    let fixture = Fixture::new().await;
    let lossy = Lossy::beside(&fixture).await;
    for round in 0..12 {
        let batch: Vec<_> =
            (0..100).map(|n| request(&format!("job-{round}-{n}"), round * 100 + n, PAST)).collect();
        fixture.store.jobs.schedule(&batch).await.unwrap();
        if round == 8 {
            lossy.lose_a_claim(&fixture, 128, Duration::ZERO).await;
        } else {
            super::fixture::open(&fixture.settings, &[MAIN])
                .await
                .jobs
                .claim(0, MAIN, LEASE, 128, 1 << 20)
                .await
                .unwrap();
        }
    }
    let taken = lossy.store.jobs.claim(0, MAIN, LEASE, 128, 1 << 20).await.unwrap();
    assert_eq!(taken.jobs.len(), 100);
    assert!(
        taken
            .jobs
            .iter()
            .all(|lease| lease.id.as_str().starts_with("job-8-") && lease.state.attempt == 1)
    );
}

#[tokio::test]
async fn claims_at_once_take_different_jobs_under_different_leases() {
    let fixture = Fixture::new().await;
    let batch: Vec<_> = (0..20).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    let claims = (0..4).map(|_| fixture.store.jobs.claim(0, MAIN, LEASE, 5, 1 << 20));
    let taken = futures_util::future::try_join_all(claims).await.unwrap();
    let jobs: Vec<&ClaimedJob> = taken.iter().flat_map(|taken| &taken.jobs).collect();
    let ids: std::collections::HashSet<&str> = jobs.iter().map(|lease| lease.id.as_str()).collect();
    let leases: std::collections::HashSet<[u8; 8]> =
        jobs.iter().map(|lease| lease.token().lease.nonce).collect();
    assert_eq!((jobs.len(), ids.len(), leases.len()), (20, 20, 4));
}
