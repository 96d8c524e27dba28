//! What happens while `fsck` looks, or what it cannot know: instances that join, newer versions, leases that only a retry array ends.

use std::collections::BTreeSet;

use dwell::store::fsck::Problem as P;
use dwell::store::record;

use super::{Damaged, findings};
use crate::store::bed::{MAIN, held, id, request};

/// Held for a consumer whose TTR is over for long.
async fn forgotten(d: &Damaged, name: &str, retry_ms: &[u64]) {
    let mut schedule = request(name, super::number(name), crate::store::bed::PAST);
    schedule.job.retry = Some(retry_ms.to_vec());
    d.listed.bed.put(schedule).await;
    let bucket = d.bucket(name);
    let lease = crate::store::bed::one_of(d.listed.bed.store.claim(bucket, MAIN, crate::store::bed::LEASE, 1, 1 << 20).await.unwrap());
    assert_eq!(lease.id, id(name));
    assert!(d.listed.bed.store.hold(bucket, &[(held(&lease), 1)]).await.unwrap()[0]);
    d.redis("ZADD", &d.key(name, "run"), ("1000000000000", name)).await;
}

#[tokio::test]
async fn a_consumer_that_did_not_answer_waits_its_retry_array_also_when_fsck_finds_it() {
    let d = Damaged::new().await;
    forgotten(&d, "waits", &[3_600_000]).await;
    forgotten(&d, "used-up", &[]).await;
    let before = dwell::clock::wall_ms();
    let said = d.fsck(&["--repair"]);
    let expected: BTreeSet<(String, String)> =
        ["waits", "used-up"].map(|name| (name.to_owned(), P::LeaseExpired.as_str().to_owned())).into();
    assert_eq!((said.code, findings(&said)), (0, expected), "{}", said.err);
    d.is_in("waits", &["due:main", "jobs", "state"]).await;
    #[allow(clippy::cast_precision_loss, reason = "ms of this century are exact")]
    let soonest = (before + 3_500_000) as f64;
    assert!(d.score("waits", "due:main").await.unwrap() > soonest, "not before the wait that follows a failed attempt");
    // At the end of its array: on its way to the dead letters, not out for another attempt.
    let state = record::State::decode(&d.bytes("used-up", "state").await).unwrap();
    assert_eq!((state.reason, state.attempt), (Some(dwell::job::DeadReason::RetriesExhausted), 1));
    assert_eq!((d.fsck(&[]).code, d.fsck(&[]).out.as_str()), (0, ""));
}
