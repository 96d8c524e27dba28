//! `dwell fsck` on a namespace with planted damage, and healthy jobs in every state that must not
//! change.

mod cluster;
mod concurrent;
mod counts;
mod jobs;
mod keys;

use std::collections::{BTreeMap, BTreeSet};

use dwell::job::{Action, DeadReason, Due};
use dwell::store::admin::fsck::Problem;
use dwell::store::jobs::claim::ClaimedJob;
use dwell::store::jobs::settle::{Bury, Completion, SettleResult};
use redis::ToRedisArgs;
use serde_json::Value;

use super::fixture::Said;
use super::ls::Listed;
use crate::store::fixture::{
    FAR, LEASE, MAIN, PAST, action, held, in_leases, one_of, request, retry,
};

type Dump = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A namespace of four buckets to be damaged.
struct Damaged {
    listed: Listed,
    /// The findings that must be there: id and problem.
    expected: BTreeSet<(String, &'static str)>,
}

impl Damaged {
    async fn new() -> Damaged {
        Damaged { listed: Listed::new().await, expected: BTreeSet::new() }
    }

    fn bucket(&self, id: &str) -> u16 {
        self.listed.fixture.store.keys().bucket_of(id)
    }

    /// The key of this name in the bucket of this id.
    fn key(&self, id: &str, name: &str) -> String {
        self.key_in(self.bucket(id), name)
    }

    fn key_in(&self, bucket: u16, name: &str) -> String {
        format!("{{{}:{bucket:02}}}:{name}", self.listed.fixture.settings.namespace)
    }

    async fn redis(&self, command: &str, key: &str, rest: impl ToRedisArgs) {
        let mut raw = self.listed.fixture.raw.clone();
        let () = redis::cmd(command)
            .arg(key)
            .arg(rest)
            .query_async::<redis::Value>(&mut raw)
            .await
            .map(drop)
            .unwrap();
    }

    async fn bytes(&self, id: &str, name: &str) -> Vec<u8> {
        let mut raw = self.listed.fixture.raw.clone();
        redis::cmd("HGET").arg(self.key(id, name)).arg(id).query_async(&mut raw).await.unwrap()
    }

    async fn score(&self, id: &str, name: &str) -> Option<f64> {
        let mut raw = self.listed.fixture.raw.clone();
        redis::cmd("ZSCORE").arg(self.key(id, name)).arg(id).query_async(&mut raw).await.unwrap()
    }

    /// A job that waits for a far time.
    async fn scheduled(&self, id: &str) {
        self.listed.fixture.put(request(id, number(id), FAR)).await;
    }

    /// A job that is claimed.
    async fn claimed(&self, id: &str) -> ClaimedJob {
        self.listed.fixture.put(request(id, number(id), PAST)).await;
        one_of(
            self.listed
                .fixture
                .store
                .jobs
                .claim(self.bucket(id), MAIN, LEASE, 1, 1 << 20)
                .await
                .unwrap(),
        )
    }

    /// A job that waits for its consumer.
    async fn held(&self, id: &str) {
        let lease = self.claimed(id).await;
        let store = &self.listed.fixture.store;
        assert_eq!(
            store.jobs.hold(self.bucket(id), &[(held(&lease), 1_000_000)]).await.unwrap(),
            [SettleResult::Settled]
        );
    }

    /// A job that waits for its second attempt.
    async fn retried(&self, id: &str) {
        let lease = self.claimed(id).await;
        assert_eq!(
            self.listed
                .fixture
                .store
                .jobs
                .retry(self.bucket(id), MAIN, &[retry(&lease, 1_000_000)])
                .await
                .unwrap(),
            [SettleResult::Settled]
        );
    }

    async fn dead(&self, id: &str) {
        let lease = self.claimed(id).await;
        let bury =
            Bury { job: held(&lease), reason: DeadReason::Late, error: "too late".to_owned() };
        assert_eq!(
            self.listed.fixture.store.jobs.bury(self.bucket(id), &[bury]).await.unwrap(),
            [SettleResult::Settled]
        );
    }

    async fn completed(&self, id: &str) {
        let lease = self.claimed(id).await;
        let store = &self.listed.fixture.store;
        assert_eq!(
            store.jobs.complete(self.bucket(id), &[held(&lease)], Completion::Fired).await.unwrap(),
            [SettleResult::Settled]
        );
    }

    fn expect(&mut self, id: &str, problem: Problem) {
        self.expected.insert((id.to_owned(), problem.as_str()));
    }

    /// Damage by one command on the job's own bucket.
    async fn hurt(
        &mut self,
        id: &str,
        problem: Problem,
        command: &str,
        name: &str,
        rest: impl ToRedisArgs,
    ) {
        self.redis(command, &self.key(id, name), rest).await;
        self.expect(id, problem);
    }

    fn fsck(&self, more: &[&str]) -> Said {
        self.listed.run(&[&["fsck", "-o", "json"], more].concat())
    }

    async fn dump(&self) -> Dump {
        self.listed.fixture.dump().await
    }

    /// Every key with its value, also keys that are not Dwell's. Not by DUMP: its bytes follow a
    /// hash's table, which Redis rebuilds in the background.
    async fn dump_strings_too(&self) -> (Dump, BTreeMap<String, Vec<u8>>) {
        self.listed.fixture.dump_strings_too().await
    }

    /// Where this job is now.
    async fn place(&self, id: &str) -> BTreeSet<String> {
        let dump = self.dump().await;
        let holds = dump.iter().filter(|(key, entries)| {
            !key.contains("quarantine") && entries.contains_key(id.as_bytes())
        });
        let lent = in_leases(&dump, id);
        holds.filter_map(|(key, _)| Some(key.split_once("}:")?.1.to_owned())).chain(lent).collect()
    }

    /// Returns the name that `fsck` gives the lease of this job.
    fn lease_of(lease: &ClaimedJob) -> String {
        lease
            .token
            .lease
            .nonce
            .iter()
            .fold("lease ".to_owned(), |name, byte| format!("{name}{byte:02x}"))
    }

    /// Damage by one command on the job's lease.
    async fn hurt_lease(&mut self, lease: &ClaimedJob, command: &str, name: &str) {
        self.redis(command, &self.key(lease.id.as_str(), name), &lease.token.lease.nonce[..]).await;
        self.expect(&Damaged::lease_of(lease), Problem::LeaseWithoutOwner);
    }

    async fn is_in(&self, id: &str, names: &[&str]) {
        assert_eq!(
            self.place(id).await,
            names.iter().map(|name| (*name).to_owned()).collect(),
            "{id}"
        );
    }

    /// Every job that is well, in every state that a job can have.
    async fn healthy(&self) {
        for n in 0..20 {
            self.scheduled(&format!("well-{n}")).await;
        }
        self.listed.fixture.act(&action(Action::Reschedule, "well-3", 900)).await;
        self.listed.fixture.act(&action(Action::Cancel, "well-4", 901)).await;
        self.listed.fixture.put(request("well-5", 902, Due::At(3_000_000_000_000))).await;
        self.claimed("well-claimed").await;
        self.retried("well-retried").await;
        self.dead("well-dead").await;
        self.completed("well-completed").await;
        self.held("well-held").await;
        // The same id again, after it was over.
        self.completed("well-again").await;
        self.listed.fixture.put(request("well-again", 905, FAR)).await;
        // An attempted job that is fired goes before the due time of its schedule.
        self.retried("well-fired").await;
        self.listed.fixture.act(&action(Action::Reschedule, "well-fired", 903)).await;
        self.listed.fixture.act(&action(Action::Fire, "well-fired", 904)).await;
    }
}

/// A message of its own for each id.
fn number(id: &str) -> u64 {
    id.bytes().fold(1000, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte))
}

fn healthy_part(dump: &Dump) -> Dump {
    let of = |entries: &BTreeMap<Vec<u8>, Vec<u8>>| -> BTreeMap<Vec<u8>, Vec<u8>> {
        entries
            .iter()
            .filter(|(id, _)| id.starts_with(b"well-"))
            .map(|(id, bytes)| (id.clone(), bytes.clone()))
            .collect()
    };
    dump.iter()
        .map(|(key, entries)| (key.clone(), of(entries)))
        .filter(|(_, entries)| !entries.is_empty())
        .collect()
}

fn findings(said: &Said) -> BTreeSet<(String, String)> {
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    said.lines().iter().map(|finding| (text(finding, "id"), text(finding, "problem"))).collect()
}

#[tokio::test]
async fn a_healthy_namespace_has_no_findings_and_is_not_changed() {
    let damaged = Damaged::new().await;
    damaged.healthy().await;
    let before = damaged.dump().await;
    for arguments in [&[][..], &["--repair"]] {
        let said = damaged.fsck(arguments);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", ""));
    }
    assert_eq!(damaged.dump().await, before);
    assert_eq!(damaged.listed.run(&["fsck"]).out, "no damage, 25 jobs checked\n");
}

#[tokio::test]
async fn a_redis_that_is_away_exits_69_and_no_namespace_78() {
    let listed = Listed::new().await;
    let said = listed.run(&["fsck", "--set", "redis.urls=redis://127.0.0.1:1"]);
    assert_eq!((said.code, said.out.as_str()), (69, ""), "{}", said.err);
    let said = listed.run(&["fsck", "--repair", "--set", "redis.namespace=nobody-uses-this"]);
    assert_eq!((said.code, said.out.as_str()), (78, ""), "{}", said.err);
    assert!(said.err.contains("there is no namespace"), "{}", said.err);
    assert_eq!(listed.run(&["fsck", "all"]).code, 64);
}
