//! Damage to jobs: their records, states and indexes.

use std::collections::{BTreeMap, BTreeSet};

use dwell::job::Action;
use dwell::store::admin::fsck::Problem as P;
use dwell::store::jobs::settle::{Completion, SettleResult};

use super::{Damaged, findings, healthy_part};
use crate::store::fixture::{LEASE, MAIN, PAST, action, held, request};

#[tokio::test]
async fn every_damage_to_a_job_is_found_named_and_repaired() {
    let mut d = Damaged::new().await;
    d.healthy().await;
    let before = healthy_part(&d.dump().await);

    // All jobs before any damage: a job that is due where it should not be would be claimed in
    // place of another.
    d.scheduled("no-index").await;
    d.scheduled("no-index-moved").await;
    d.listed.fixture.act(&action(Action::Reschedule, "no-index-moved", 907)).await;
    d.dead("no-index-dead").await;
    let out = d.claimed("no-index-out").await;
    d.claimed("lost-record").await;
    d.claimed("run-and-due").await;
    d.dead("dead-and-due").await;
    d.scheduled("due-twice").await;
    d.scheduled("other-broker").await;
    d.scheduled("cut").await;
    d.dead("garbled").await;
    d.scheduled("state-cut").await;
    d.held("no-fence").await;
    let expired = d.claimed("expired").await;
    d.held("fenced").await;
    let no_text = d.claimed("no-text").await;
    let no_deadline = d.claimed("no-deadline").await;
    d.scheduled("never").await;
    d.retried("at-once").await;
    d.dead("dies-later").await;
    d.scheduled("early").await;
    d.listed.fixture.act(&action(Action::Reschedule, "early", 906)).await;
    d.dead("old").await;
    d.dead("why").await;
    d.scheduled("not-over").await;
    d.scheduled("stray").await;

    d.hurt("no-index", P::RecordWithoutIndex, "ZREM", "due:main", "no-index").await;
    d.hurt("no-index-moved", P::RecordWithoutIndex, "ZREM", "due:main", "no-index-moved").await;
    d.hurt("no-index-dead", P::RecordWithoutIndex, "ZREM", "dead", "no-index-dead").await;
    d.hurt_lease(&out, "HDEL", "settled").await;
    d.expect("no-index-out", P::RecordWithoutIndex);
    d.hurt_lease(&no_text, "HDEL", "claims").await;
    d.expect("no-text", P::RecordWithoutIndex);
    d.hurt_lease(&no_deadline, "ZREM", "claim_deadlines").await;
    d.expect("no-deadline", P::LeaseExpired);

    d.hurt("no-record", P::IndexWithoutRecord, "ZADD", "due:other", ("5", "no-record")).await;
    d.hurt("lost-record", P::IndexWithoutRecord, "HDEL", "jobs", "lost-record").await;
    d.hurt("no-job", P::StateWithoutRecord, "HSET", "state", ("no-job", "x")).await;

    d.hurt("run-and-due", P::InTwoSets, "ZADD", "due:main", ("5", "run-and-due")).await;
    d.hurt("dead-and-due", P::InTwoSets, "ZADD", "due:main", ("5", "dead-and-due")).await;
    d.hurt("due-twice", P::InTwoSets, "ZADD", "due:other", ("5", "due-twice")).await;

    d.redis("ZREM", &d.key("other-broker", "due:main"), "other-broker").await;
    d.hurt("other-broker", P::WrongBroker, "ZADD", "due:other", ("4000000000000", "other-broker"))
        .await;

    d.hurt("cut", P::UnreadableRecord, "HSET", "jobs", ("cut", &b"\x01\x00\x00"[..])).await;
    let mut garbled = d.bytes("garbled", "jobs").await;
    garbled[40..].fill(0xc1);
    d.hurt("garbled", P::UnreadableRecord, "HSET", "jobs", ("garbled", garbled.clone())).await;
    d.hurt("state-cut", P::UnreadableState, "HSET", "state", ("state-cut", &b"\x01\x00"[..])).await;

    d.hurt("no-fence", P::LeaseWithoutOwner, "HDEL", "state", "no-fence").await;
    d.hurt(
        "expired",
        P::LeaseExpired,
        "ZADD",
        "claim_deadlines",
        ("1000000000000", &expired.token.lease.nonce[..]),
    )
    .await;
    d.redis("ZREM", &d.key("fenced", "held"), "fenced").await;
    d.hurt("fenced", P::FenceWithoutLease, "ZADD", "due:main", ("4000000000000", "fenced")).await;

    d.hurt("never", P::BadScore, "ZADD", "due:main", ("+inf", "never")).await;
    d.hurt("at-once", P::BadScore, "ZADD", "due:main", ("-inf", "at-once")).await;
    d.hurt("dies-later", P::BadScore, "ZADD", "dead", ("4000000000000", "dies-later")).await;
    d.hurt("early", P::EarlyScore, "ZADD", "due:main", ("3000000000000", "early")).await;

    d.hurt("old", P::DeadPastRetention, "ZADD", "dead", ("1000000000000", "old")).await;
    d.hurt("why", P::DeadWithoutReason, "HDEL", "state", "why").await;
    let now_ms = dwell::clock::wall_ms().to_string();
    d.redis("HSET", &d.key("not-over", "completed_old"), ("", now_ms)).await;
    d.hurt(
        "not-over",
        P::GoneButLive,
        "HSET",
        "completed_old",
        ("not-over", &b"f\x00fingerpr\x00\x00\x00\x00\x00\x00\x00\x05"[..]),
    )
    .await;

    // A job of another bucket, and one under an id that is none.
    let (record, stray) = (d.bytes("stray", "jobs").await, (d.bucket("stray") + 1) % 4);
    d.redis("HDEL", &d.key("stray", "jobs"), "stray").await;
    d.redis("ZREM", &d.key("stray", "due:main"), "stray").await;
    d.redis("HSET", &d.key_in(stray, "jobs"), ("stray", record.clone())).await;
    d.redis("ZADD", &d.key_in(stray, "due:main"), ("4000000000000", "stray")).await;
    d.expect("stray", P::WrongBucket);
    d.redis("HSET", &d.key_in(2, "jobs"), (&b"b\xffd"[..], record.clone())).await;
    d.redis("ZADD", &d.key_in(2, "due:main"), ("4000000000000", &b"b\xffd"[..])).await;
    d.expect("b\u{fffd}d", P::BadId);

    let damage = d.dump().await;
    let said = d.fsck(&[]);
    assert_eq!(said.code, 1, "{}", said.err);
    let expected: BTreeSet<(String, String)> =
        d.expected.iter().map(|(id, problem)| (id.clone(), (*problem).to_owned())).collect();
    assert_eq!(findings(&said), expected);
    assert!(
        said.lines()
            .iter()
            .all(|finding| finding["repaired"] == false && finding["bucket"].is_u64())
    );
    assert!(
        said.lines()[0].as_object().unwrap().keys().eq(["bucket", "id", "problem", "repaired"])
    );
    assert_eq!(d.dump().await, damage, "without --repair nothing changes");

    let said = d.fsck(&["--repair"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    assert!(said.lines().iter().all(|finding| finding["repaired"] == true), "{}", said.out);
    // The job of a repaired lease is in its place again before the job is looked at.
    let mended =
        |(id, _): &&(String, String)| !["no-index-out", "no-deadline"].contains(&id.as_str());
    let expected: BTreeSet<(String, String)> = expected.iter().filter(mended).cloned().collect();
    assert!(findings(&said).is_superset(&expected), "{}", said.out);
    assert_eq!(healthy_part(&d.dump().await), before, "healthy jobs are as they were");
    let again = d.fsck(&[]);
    assert_eq!((again.code, again.out.as_str()), (0, ""));

    // Dead, because its due time is lost; at its due time; dead again; under a lease again, which
    // its owner may settle.
    d.is_in("no-index", &["dead", "jobs", "state"]).await;
    d.is_in("no-index-moved", &["due:main", "jobs", "state"]).await;
    assert_eq!(d.score("no-index-moved", "due:main").await, Some(4e12));
    d.is_in("no-index-dead", &["dead", "jobs", "state"]).await;
    // As the owner crashed; the owner's token does not fit.
    d.is_in("no-index-out", &["held", "jobs", "state"]).await;
    let queue = &d.listed.fixture.store.jobs;
    assert_ne!(
        queue.complete(out.bucket, &[held(&out)], Completion::Fired).await.unwrap(),
        [SettleResult::Settled]
    );
    d.is_in("no-text", &["dead", "jobs", "state"]).await;
    d.is_in("no-deadline", &["jobs", "lease"]).await;
    assert_eq!(
        queue.complete(no_deadline.bucket, &[held(&no_deadline)], Completion::Fired).await.unwrap(),
        [SettleResult::Settled]
    );
    for id in ["no-record", "lost-record", "no-job", "cut", "garbled", "old"] {
        d.is_in(id, &[]).await;
    }
    d.is_in("run-and-due", &["jobs", "lease"]).await;
    d.is_in("dead-and-due", &["dead", "jobs", "state"]).await;
    d.is_in("due-twice", &["due:main", "jobs"]).await;
    assert_eq!(
        d.score("due-twice", "due:main").await,
        Some(4e12),
        "at its own time, not at the other"
    );
    d.is_in("other-broker", &["due:main", "jobs"]).await;
    d.is_in("stray", &["due:main", "jobs"]).await;
    assert_eq!(
        (d.bytes("stray", "jobs").await, d.score("stray", "due:main").await),
        (record.clone(), Some(4e12))
    );
    d.is_in("state-cut", &["due:main", "jobs", "state"]).await;
    assert_eq!(d.score("state-cut", "due:main").await, Some(4e12));
    for id in ["no-fence", "expired", "at-once", "fenced", "early"] {
        assert!(d.place(id).await.contains("due:main"), "{id}");
    }
    assert_eq!(
        (d.score("at-once", "due:main").await, d.score("early", "due:main").await),
        (Some(1e12), Some(4e12))
    );
    for (id, reason) in [
        ("never", "invalid"),
        ("dies-later", "late"),
        ("why", "invalid"),
        ("no-index-dead", "late"),
    ] {
        let shown = d.listed.run(&["show", id]).out;
        assert!(shown.contains(&format!("\nstate       dead, {reason}\n")), "{shown}");
    }
    d.is_in("not-over", &["due:main", "jobs"]).await;
    assert_eq!(
        d.listed.run(&["requeue", "no-index", "-o", "json"]).object()["verdict"],
        "requeued"
    );
    // A job that may have been published is not `cancelled`.
    for id in ["no-index-moved", "no-fence", "expired", "fenced"] {
        assert_eq!(
            d.listed.run(&["cancel", id, "-o", "json"]).object()["verdict"],
            "cancelled_after_attempt",
            "{id}"
        );
    }

    // Records that could not be read are kept to the byte.
    let dump = d.dump().await;
    let aside: BTreeMap<&[u8], &Vec<u8>> = dump
        .iter()
        .filter(|(key, _)| key.ends_with("}:quarantine"))
        .flat_map(|(_, kept)| kept.iter().map(|(at, kept)| (&at[17..], kept)))
        .collect();
    assert_eq!(
        aside.keys().copied().collect::<Vec<_>>(),
        [&b"b\xffd"[..], b"cut", b"garbled", b"state-cut"]
    );
    assert!(aside[&b"garbled"[..]].ends_with(&garbled) && aside[&b"b\xffd"[..]].ends_with(&record));
    assert_eq!(aside[&b"cut"[..]], b"1 unreadable_record due:main 4000000000000 0 3\n\x01\x00\x00");
}

#[tokio::test]
async fn any_number_of_damaged_leases_is_repaired() {
    let d = Damaged::new().await;
    let fixture = &d.listed.fixture;
    for batch in 0..50 {
        let batch: Vec<_> = (0..100)
            .map(|n| 100 * batch + n)
            .map(|n| request(&format!("job-{n}"), n, PAST))
            .collect();
        fixture.store.jobs.schedule(&batch).await.unwrap();
    }
    for bucket in 0..4 {
        while fixture.store.jobs.claim(bucket, MAIN, LEASE, 128, 1 << 20).await.unwrap().more {}
        fixture.redis(&["DEL", &d.key_in(bucket, "settled")]).await;
    }
    let said = d.fsck(&["--repair"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    assert_eq!(
        (
            d.fsck(&[]).code,
            fixture.store.reader.counts(&[]).await.unwrap().reserved.iter().sum::<u64>()
        ),
        (0, 5000)
    );
}
