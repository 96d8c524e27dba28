//! Damage to deduplication keys, to whole keys and to the namespace's metadata.

use std::collections::BTreeSet;

use dwell::store::admin::fsck::Problem as P;
use serde_json::json;

use super::{Damaged, findings, healthy_part};
use crate::commands::fixture::Said;
use crate::store::fixture::{FAR, request, target_on};

#[tokio::test]
async fn damage_to_memories_keys_and_meta_is_found_named_and_repaired() {
    let d = Damaged::new().await;
    d.healthy().await;
    let namespace = &d.listed.fixture.settings.namespace;
    let meta = format!("{namespace}:meta");
    let long_ago = "1000000000000";
    let mut other = request("other-1", 950, FAR);
    other.job.target = target_on("third");
    let store = crate::store::fixture::open(&d.listed.fixture.settings, &["third"]).await;
    store.jobs.schedule(&[other]).await.unwrap();

    let now_ms = dwell::clock::wall_ms().to_string();
    d.redis("HSET", &d.key_in(0, "completed"), (("", &now_ms), ("over", "x"))).await;
    d.redis("HSET", &d.key_in(0, "applied"), (("", &now_ms), ("fingerpr", "soon:7"))).await;
    d.redis("HSET", &d.key_in(1, "completed_old"), ("", long_ago)).await;
    d.redis("HSET", &d.key_in(1, "applied"), (("", long_ago), ("fingerpr", "added:7"))).await;
    d.redis("DEL", &d.key_in(2, "applied"), &[] as &[&str]).await;
    d.redis("HSET", &d.key_in(2, "applied"), ("fingerpr", "added:7")).await;
    d.redis("SET", &d.key_in(3, "completed_old"), "mine").await;
    d.redis("EXPIRE", &d.key_in(3, "jobs"), "1000").await;
    d.redis("HDEL", &meta, "broker:other").await;
    d.redis("HDEL", &meta, "broker:third").await;

    let said = d.fsck(&[]);
    let expected: BTreeSet<(String, String)> = [
        ("over".to_owned(), P::BadMemory),
        ("66696e6765727072".to_owned(), P::BadMemory),
        (d.key_in(1, "completed_old"), P::MemoryPastTime),
        (d.key_in(1, "applied"), P::MemoryPastTime),
        (d.key_in(2, "applied"), P::MemoryWithoutTime),
        (d.key_in(3, "completed_old"), P::WrongType),
        (d.key_in(3, "jobs"), P::KeyExpires),
        ("third".to_owned(), P::MetaBroker),
    ]
    .map(|(id, problem)| (id, problem.as_str().to_owned()))
    .into();
    assert_eq!((said.code, findings(&said)), (1, expected.clone()), "{}", said.err);
    let said = d.fsck(&["--repair"]);
    assert_eq!((said.code, findings(&said)), (0, expected), "{}", said.err);
    assert_eq!((d.fsck(&[]).code, d.fsck(&[]).out), (0, String::new()));
    assert_eq!(d.score("other-1", "due:third").await, Some(4e12));
    let mut raw = d.listed.fixture.raw.clone();
    let aside: Vec<String> = redis::cmd("KEYS")
        .arg(d.key_in(3, "quarantined:completed_old:*"))
        .query_async(&mut raw)
        .await
        .unwrap();
    let kept: String = redis::cmd("GET").arg(&aside[0]).query_async(&mut raw).await.unwrap();
    assert_eq!((aside.len(), kept.as_str()), (1, "mine"));
}

#[tokio::test]
async fn what_another_program_wrote_is_named_and_left_in_place() {
    let d = Damaged::new().await;
    d.healthy().await;
    d.scheduled("newer").await;
    let mut record = d.bytes("newer", "jobs").await;
    record[0] = 3;
    d.redis("HSET", &d.key("newer", "jobs"), ("newer", record)).await;
    let foreign = d.key_in(1, "mine");
    d.redis("SET", &foreign, "x").await;
    let before = d.dump_strings_too().await;
    let said = d.fsck(&["--repair"]);
    let expected =
        [(foreign, "unknown_key".to_owned()), ("newer".to_owned(), "unknown_version".to_owned())]
            .into();
    assert_eq!((said.code, findings(&said)), (1, expected));
    assert_eq!(d.dump_strings_too().await, before);
    let table = d.listed.run(&["fsck"]).out;
    assert!(
        table.lines().last().unwrap().starts_with("2 found, 0 repaired, 26 jobs checked"),
        "{table}"
    );
}

#[tokio::test]
async fn a_namespace_that_lost_its_meta_is_told_by_its_jobs() {
    let d = Damaged::new().await;
    d.healthy().await;
    let meta = format!("{}:meta", d.listed.fixture.settings.namespace);
    let before = d.dump().await;
    let with = |buckets: &'static str| ["--set", buckets];
    let finding = |said: &Said| (said.code, said.lines());
    let told = |problem: &str, repaired: bool| {
        vec![json!({"bucket": null, "id": meta, "problem": problem, "repaired": repaired})]
    };

    d.redis("HSET", &meta, ("buckets", "8")).await;
    assert_eq!(finding(&d.fsck(&with("redis.buckets=4"))), (1, told("meta_buckets", false)));
    assert_eq!(
        finding(&d.fsck(&[&["--repair"][..], &with("redis.buckets=4")].concat())),
        (0, told("meta_buckets", true))
    );
    assert_eq!(d.dump().await, before);

    d.redis("DEL", &meta, &[] as &[&str]).await;
    // By another number the jobs would stand in wrong buckets: nothing is touched.
    assert_eq!(finding(&d.fsck(&["--repair"])), (1, told("meta_missing", false)));
    let said = d.fsck(&[&["--repair"][..], &with("redis.buckets=4")].concat());
    let problems: BTreeSet<(String, String)> =
        [(meta.as_str(), "meta_missing"), ("main", "meta_broker"), ("other", "meta_broker")]
            .map(|(id, problem)| (id.to_owned(), problem.to_owned()))
            .into_iter()
            .filter(|(id, _)| id != "other")
            .collect();
    assert_eq!((said.code, findings(&said)), (0, problems));
    assert_eq!(healthy_part(&d.dump().await), healthy_part(&before));
    assert_eq!(d.fsck(&with("redis.buckets=4")).code, 0);
}
