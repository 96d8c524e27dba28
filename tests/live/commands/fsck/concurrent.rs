//! Changes while `fsck` runs, and cases that it must not repair: instances that join, newer
//! versions, leases that only a retry array ends.

use std::collections::BTreeSet;

use dwell::store::admin::fsck::{self, Finding, FsckRules, Problem as P};
use dwell::store::jobs::settle::SettleResult;
use dwell::store::record;
use redis::Commands as _;

use super::{Damaged, findings};
use crate::store::fixture::{FAR, Fixture, KEEP, MAIN, RETRY, held, id, request, target_on};

/// A job of this broker in bucket 1, of two.
fn schedule_in_bucket_1(fixture: &Fixture, broker: &str) -> (String, Vec<u8>) {
    let name = (0..)
        .map(|n| format!("late-{n}"))
        .find(|name| fixture.store.keys().bucket_of(name) == 1)
        .unwrap();
    let mut schedule = request(&name, 1, FAR);
    schedule.job.target = target_on(broker);
    (name, record::encode(&schedule, [7; 8]))
}

#[tokio::test]
async fn a_broker_that_joins_meanwhile_is_no_damage() {
    for repair in [false, true] {
        let fixture = Fixture::with(2, &[MAIN]).await;
        let (name, encoded) = schedule_in_bucket_1(&fixture, "late");
        fixture.redis(&["ZADD", &fixture.key("held"), "5", "nobody"]).await;
        let client = redis::Client::open(fixture.settings.urls[0].as_str()).unwrap();
        let namespace = fixture.settings.namespace.clone();
        let mut told: Vec<(String, P)> = Vec::new();
        let rules = FsckRules { lease_ms: 20_000, retry_ms: RETRY.to_vec(), sweep: KEEP, repair };
        // The finding in bucket 0 is told before bucket 1 is looked at: then an instance joins and
        // stores a job.
        let mut found = |finding: Finding| {
            let mut raw = client.get_connection().unwrap();
            let () = raw.hset(format!("{namespace}:meta"), "broker:late", "1").unwrap();
            let () = raw.hset(format!("{{{namespace}:01}}:jobs"), &name, &encoded).unwrap();
            let () = raw
                .zadd(format!("{{{namespace}:01}}:due:late"), &name, 4_000_000_000_000_i64)
                .unwrap();
            told.push((finding.id, finding.problem));
        };
        assert_eq!(fsck::run(&fixture.settings, rules, &mut found).await.unwrap(), 1);
        assert_eq!(told, [("nobody".to_owned(), P::IndexWithoutRecord)], "repair: {repair}");
    }
}

#[tokio::test]
async fn a_newer_version_without_the_fields_of_this_one_is_refused_and_left_as_it_is() {
    let d = Damaged::new().await;
    d.healthy().await;
    let meta = format!("{}:meta", d.listed.fixture.settings.namespace);
    d.redis("HSET", &meta, ("schema", "1000")).await;
    d.redis("HDEL", &meta, "buckets").await;
    let instances = format!("{}:instances", d.listed.fixture.settings.namespace);
    d.redis("DEL", &instances, &[] as &[&str]).await;
    d.redis("SET", &instances, "of another type by now").await;
    let before = d.dump_strings_too().await;
    let said = d.fsck(&["--repair", "--set", "redis.buckets=4"]);
    assert_eq!((said.code, said.out.as_str()), (78, ""), "{}", said.err);
    assert_eq!(d.dump_strings_too().await, before);
}

/// ClaimToken for a consumer whose TTR is over for long.
async fn forgotten(d: &Damaged, name: &str, retry_ms: &[u64]) {
    let mut schedule = request(name, super::number(name), crate::store::fixture::PAST);
    schedule.job.retry = Some(retry_ms.to_vec());
    d.listed.fixture.put(schedule).await;
    let bucket = d.bucket(name);
    let lease = crate::store::fixture::one_of(
        d.listed
            .fixture
            .store
            .jobs
            .claim(bucket, MAIN, crate::store::fixture::LEASE, 1, 1 << 20)
            .await
            .unwrap(),
    );
    assert_eq!(lease.id, id(name));
    assert_eq!(
        d.listed.fixture.store.jobs.hold(bucket, &[(held(&lease), 1)]).await.unwrap(),
        [SettleResult::Settled]
    );
    d.redis("ZADD", &d.key(name, "held"), ("1000000000000", name)).await;
}

#[tokio::test]
async fn a_consumer_that_did_not_answer_waits_its_retry_array_also_when_fsck_finds_it() {
    let d = Damaged::new().await;
    forgotten(&d, "waits", &[3_600_000]).await;
    forgotten(&d, "used-up", &[]).await;
    let before = dwell::clock::wall_ms();
    let said = d.fsck(&["--repair"]);
    let expected: BTreeSet<(String, String)> = ["waits", "used-up"]
        .map(|name| (name.to_owned(), P::LeaseExpired.as_str().to_owned()))
        .into();
    assert_eq!((said.code, findings(&said)), (0, expected), "{}", said.err);
    d.is_in("waits", &["due:main", "jobs", "state"]).await;
    #[allow(clippy::cast_precision_loss, reason = "ms of this century are exact")]
    let soonest = (before + 3_500_000) as f64;
    assert!(
        d.score("waits", "due:main").await.unwrap() > soonest,
        "not before the wait that follows a failed attempt"
    );
    // At the end of its array: on its way to the dead letters, not out for another attempt.
    let state = record::StateRecord::decode(&d.bytes("used-up", "state").await).unwrap();
    assert_eq!((state.reason, state.attempt), (Some(dwell::job::DeadReason::RetriesExhausted), 1));
    assert_eq!((d.fsck(&[]).code, d.fsck(&[]).out.as_str()), (0, ""));
}

/// As a repair leaves it that is cut off after it put the job aside, in a bucket that is not its
/// own.
async fn put_aside(d: &Damaged, name: &str, set: &str) -> String {
    d.listed.fixture.put(request(name, super::number(name), crate::store::fixture::PAST)).await;
    let (record, wrong) = (d.bytes(name, "jobs").await, (d.bucket(name) + 1) % 4);
    d.redis("HDEL", &d.key(name, "jobs"), name).await;
    d.redis("ZREM", &d.key(name, "due:main"), name).await;
    let entry =
        [format!("1 wrong_bucket {set} 1000000000000 0 {}\n", record.len()).as_bytes(), &record]
            .concat();
    let field = format!("1700000000000000 {name}");
    d.redis("HSET", &d.key_in(wrong, "quarantine"), (&field, entry)).await;
    field
}

#[tokio::test]
async fn a_repair_that_was_cut_off_is_finished_by_the_next_and_never_twice() {
    let d = Damaged::new().await;
    put_aside(&d, "stray", "due:main").await;
    // Of this one the job was taken in, and is over by now: only its source is left.
    let field = put_aside(&d, "over", "due:main").await;
    d.redis(
        "HSET",
        &d.key("over", "quarantine"),
        (format!("taken_in {field}"), "1 taken_in - - 0 0\n"),
    )
    .await;
    let expected: BTreeSet<(String, String)> =
        ["stray", "over"].map(|name| (name.to_owned(), P::WrongBucket.as_str().to_owned())).into();
    let said = d.fsck(&[]);
    assert_eq!((said.code, findings(&said)), (1, expected.clone()), "{}", said.err);
    let said = d.fsck(&["--repair"]);
    assert_eq!((said.code, findings(&said)), (0, expected), "{}", said.err);
    d.is_in("stray", &["due:main", "jobs"]).await;
    d.is_in("over", &[]).await;
    assert!(d.dump().await.keys().all(|key| !key.ends_with("quarantine")));
    assert_eq!((d.fsck(&[]).code, d.fsck(&[]).out.as_str()), (0, ""));
}

#[tokio::test]
async fn a_job_of_a_claim_in_a_wrong_bucket_is_due_again_in_its_own() {
    let d = Damaged::new().await;
    for set in ["claim", "held"] {
        put_aside(&d, set, set).await;
    }
    assert_eq!(d.fsck(&["--repair"]).code, 0);
    for set in ["claim", "held"] {
        // Held, and past its time at once.
        d.is_in(set, &["due:main", "jobs", "state"]).await;
    }
}
