//! One lease for all jobs of a claim: settled in pieces, taken over in pieces, and left by jobs
//! that somebody else takes out.

use std::time::Duration;

use dwell::job::{Action, Verdict};
use dwell::store::jobs::claim::ClaimedJob;
use dwell::store::jobs::settle::{ClaimToken, Completion, SettleResult};
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::fixture::{FAR, Fixture, LEASE, MAIN, PAST, action, held, request};

/// Claims this many jobs, named by their number, in one lease.
async fn claimed(fixture: &Fixture, count: u64, lease: Duration) -> Vec<ClaimedJob> {
    let batch: Vec<_> = (0..count).map(|n| request(&n.to_string(), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    let mut jobs = fixture.claim_for(lease).await.jobs;
    jobs.sort_by_key(|lease| lease.id.as_str().parse::<u64>().unwrap());
    assert_eq!(jobs.len() as u64, count);
    jobs
}

async fn complete(fixture: &Fixture, jobs: &[ClaimedJob]) -> Vec<bool> {
    let tokens: Vec<ClaimToken> = jobs.iter().map(held).collect();
    let results = fixture.store.jobs.complete(0, &tokens, Completion::Fired).await.unwrap();
    results.iter().map(|result| *result == SettleResult::Settled).collect()
}

async fn leases(fixture: &Fixture) -> usize {
    fixture
        .dump()
        .await
        .iter()
        .filter(|(key, _)| key.ends_with(":claims"))
        .map(|(_, leases)| leases.len())
        .sum()
}

#[tokio::test]
async fn one_slow_job_keeps_its_lease_and_no_other_job() {
    let fixture = Fixture::new().await;
    let jobs = claimed(&fixture, 128, LEASE).await;
    for piece in jobs[1..].chunks(5) {
        assert!(complete(&fixture, piece).await.iter().all(|done| *done));
    }
    assert_eq!((leases(&fixture).await, fixture.place("0").await.as_str()), (1, "lease"));
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().reserved, [1]);
    // The last one takes the lease with it.
    assert_eq!(complete(&fixture, &jobs[..1]).await, [true]);
    assert_eq!(leases(&fixture).await, 0);
}

#[tokio::test]
async fn a_small_settle_reads_nothing_of_the_rest_of_a_large_lease() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    let jobs = claimed(&fixture, 128, LEASE).await;
    // The server knows the script.
    complete(&fixture, &jobs[..1]).await;
    fixture.redis(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(complete(&fixture, &jobs[1..6]).await, [true; 5]);
    let redis::Value::BulkString(stats) = fixture.redis(&["INFO", "commandstats"]).await else {
        panic!()
    };
    let stats = String::from_utf8(stats).unwrap();
    assert!(stats.contains("cmdstat_hget:calls=1,"), "the bits: {stats}");
    for command in ["hgetall", "hmget", "zscore", "zrange"] {
        assert!(!stats.contains(&format!("cmdstat_{command}:")), "{stats}");
    }
}

#[tokio::test]
async fn jobs_of_several_leases_are_settled_in_one_call_in_their_order() {
    let fixture = Fixture::new().await;
    let first = claimed(&fixture, 3, LEASE).await;
    let batch: Vec<_> = (3..6).map(|n| request(&n.to_string(), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    let mut second = fixture.claim().await.jobs;
    second.sort_by_key(|lease| lease.id.as_str().to_owned());
    assert_eq!(fixture.act(&action(Action::Cancel, "4", 90)).await, Verdict::InFlight);
    let mixed: Vec<ClaimedJob> =
        second.into_iter().zip(first).flat_map(|(one, other)| [one, other]).collect();
    let names: Vec<&str> = mixed.iter().map(|lease| lease.id.as_str()).collect();
    assert_eq!(names, ["3", "0", "4", "1", "5", "2"]);
    assert_eq!(complete(&fixture, &mixed).await, [true, true, false, true, true, true]);
    assert_eq!(leases(&fixture).await, 0);
}

#[tokio::test]
async fn a_lease_that_was_half_settled_when_its_owner_died_is_taken_over_in_pieces() {
    let fixture = Fixture::new().await;
    let jobs = claimed(&fixture, 10, Duration::ZERO).await;
    assert!(complete(&fixture, &jobs[..5]).await.iter().all(|done| *done));
    let some = fixture.store.jobs.rescue(0, LEASE, 2, 1 << 20).await.unwrap();
    assert_eq!((some.jobs.len(), some.more), (2, true));
    let rest = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
    assert_eq!((rest.jobs.len(), rest.more, leases(&fixture).await), (3, false, 2));
    // The former owner has nothing left; each rescuer has its own.
    assert_eq!(complete(&fixture, &jobs).await, [false; 10]);
    assert_eq!(complete(&fixture, &some.jobs).await, [true; 2]);
    assert_eq!(complete(&fixture, &rest.jobs).await, [true; 3]);
    assert_eq!(leases(&fixture).await, 0);
}

#[tokio::test]
async fn a_job_that_was_replaced_while_out_is_settled_by_nobody_who_had_it_before() {
    let fixture = Fixture::new().await;
    let first = claimed(&fixture, 2, LEASE).await;
    assert_eq!(fixture.put(request("0", 50, PAST)).await, Verdict::Replaced);
    let second = fixture.claim().await.jobs;
    assert_eq!(fixture.put(request("0", 51, PAST)).await, Verdict::Replaced);
    assert_eq!(fixture.place("0").await, "due:main");
    assert_eq!(
        (complete(&fixture, &first[..1]).await, complete(&fixture, &second).await),
        (vec![false], vec![false])
    );
    assert_eq!(fixture.place("0").await, "due:main");
    // The lease of the second claim had no other job.
    assert_eq!(leases(&fixture).await, 1);
    assert_eq!(complete(&fixture, &first).await, [false, true]);
    assert_eq!(leases(&fixture).await, 0);
}

#[tokio::test]
async fn any_number_of_leases_that_end_is_taken_over() {
    let fixture = Fixture::new().await;
    for n in 0..40 {
        fixture.put(request(&n.to_string(), n, PAST)).await;
        fixture.claim_for(Duration::ZERO).await;
    }
    fixture.put(request("held", 40, PAST)).await;
    let lease = fixture.claim_one().await;
    assert!(fixture.hold(&lease, 0).await);
    let (mut ids, mut calls) = (std::collections::BTreeSet::new(), 0);
    loop {
        let taken = fixture.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap();
        ids.extend(taken.jobs.iter().map(|lease| lease.id.as_str().to_owned()));
        calls += 1;
        if !taken.more {
            break;
        }
        assert!(calls < 5, "{ids:?}");
    }
    assert_eq!(ids.len(), 41);
}

/// A script that fails is not rolled back: the repeat of a `complete` must not end the next
/// schedule.
#[tokio::test]
async fn a_complete_that_failed_at_its_last_write_ends_no_later_schedule() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    let jobs = claimed(&fixture, 1, LEASE).await;
    // As many as one bucket remembers, in parts: one script of all is longer than a call may take.
    for part in 0..50 {
        let fill = format!(
            "for n = 1, 20000 do redis.call('HSET', '{}', n + 20000 * {part}, '') end",
            fixture.key("completed")
        );
        fixture.redis(&["EVAL", &fill, "0"]).await;
    }
    fixture.redis(&["ACL", "SETUSER", "default", "-rename"]).await;
    let failed = fixture.store.jobs.complete(0, &[held(&jobs[0])], Completion::Fired).await;
    assert!(failed.is_err(), "the turn of gone is refused");
    assert_eq!(fixture.put(request("0", 50, FAR)).await, Verdict::Added);
    assert_eq!(complete(&fixture, &jobs).await, [false]);
    assert_ne!(fixture.redis(&["ZSCORE", &fixture.key("due:main"), "0"]).await, redis::Value::Nil);
}

#[tokio::test]
async fn a_lost_claim_of_which_some_was_cancelled_gives_back_the_rest() {
    let fixture = Fixture::new().await;
    let jobs = claimed(&fixture, 4, LEASE).await;
    assert_eq!(fixture.act(&action(Action::Cancel, "1", 90)).await, Verdict::InFlight);
    assert_eq!(fixture.store.jobs.reclaim(jobs[0].token.lease.nonce, 0, MAIN).await.unwrap(), 3);
    for (name, place) in [("0", "due:main"), ("1", "none"), ("2", "due:main"), ("3", "due:main")] {
        assert_eq!(fixture.place(name).await, place, "{name}");
    }
    assert_eq!(leases(&fixture).await, 0);
    assert!(
        fixture.claim().await.jobs.iter().all(|lease| lease.state.attempt == 1),
        "nothing is burned"
    );
}
