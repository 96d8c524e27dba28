//! The fixture of the store tests: a namespace of its own in a shared Redis, short requests, and a
//! view of every key.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use dwell::config::Redis;
use dwell::job::{Action, Confirm, Conflict, Due, Job, JobId, OnTimeout, Target, Verdict};
use dwell::request::{Act, NewJob, Origin};
use dwell::store::jobs::batch::Answer;
use dwell::store::jobs::claim::{Claim, ClaimedJob};
use dwell::store::jobs::settle::{ClaimToken, Completion, Release, Retry, SettleResult};
use dwell::store::meta::SweepRules;
use dwell::store::{Store, Unobserved};
use dwell_connectors::{Destination, Headers};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use redis::aio::MultiplexedConnection;

use crate::support::{namespace, redis_link};

/// Long ago: due at once, by any clock.
pub(crate) const PAST: Due = Due::At(1_000_000_000_000);
/// Not within the life of a test.
pub(crate) const FAR: Due = Due::At(4_000_000_000_000);
pub(crate) const LEASE: Duration = Duration::from_secs(600);
pub(crate) const MAIN: &str = "main";
/// The retry array of jobs that bring none.
pub(crate) const RETRY: &[u64] = &[1_000_000, 2_000_000];
/// Nothing that a sweep could remove.
pub(crate) const KEEP: SweepRules =
    SweepRules { dead_retention_ms: 1 << 40, dedupe_window_ms: 1 << 40 };

/// The one Redis of this test binary, while any test uses it.
pub(crate) async fn shared() -> Arc<RedisServer> {
    static SHARED: tokio::sync::Mutex<Weak<RedisServer>> =
        tokio::sync::Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(RedisServer::start(RedisOptions::default()).await.unwrap());
    *shared = Arc::downgrade(&server);
    server
}

pub(crate) fn settings(url: &str, namespace: &str, buckets: u16) -> Redis {
    Redis { namespace: namespace.to_owned(), buckets, ..Redis::new(url) }
}

pub(crate) async fn open(settings: &Redis, brokers: &[&str]) -> Store {
    let brokers: Vec<String> = brokers.iter().map(|broker| (*broker).to_owned()).collect();
    Store::open(settings, &brokers, Arc::new(Unobserved)).await.unwrap()
}

/// A namespace of one bucket, so that every id is in bucket 0.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) raw: MultiplexedConnection,
    pub(crate) settings: Redis,
    _server: Option<Arc<RedisServer>>,
}

impl Fixture {
    pub(crate) async fn new() -> Fixture {
        Fixture::with(1, &[MAIN]).await
    }

    pub(crate) async fn with(buckets: u16, brokers: &[&str]) -> Fixture {
        let server = shared().await;
        let mut fixture = Fixture::on(&server.url(), buckets, brokers).await;
        fixture._server = Some(server);
        fixture
    }

    /// On a server of the test's own.
    pub(crate) async fn on(url: &str, buckets: u16, brokers: &[&str]) -> Fixture {
        let settings = settings(url, &namespace("store"), buckets);
        Fixture {
            store: open(&settings, brokers).await,
            raw: redis_link(url).await,
            settings,
            _server: None,
        }
    }

    pub(crate) async fn one(&self, request: NewJob) -> Answer {
        self.store.jobs.schedule(&[request]).await.unwrap().answers[0]
    }

    /// Schedules and answers the verdict.
    pub(crate) async fn put(&self, request: NewJob) -> Verdict {
        self.one(request).await.verdict
    }

    pub(crate) async fn act(&self, act: &Act) -> Verdict {
        self.store.jobs.act(act, RETRY).await.unwrap().verdict
    }

    pub(crate) async fn claim(&self) -> Claim {
        self.claim_for(LEASE).await
    }

    pub(crate) async fn claim_for(&self, lease: Duration) -> Claim {
        self.store.jobs.claim(0, MAIN, lease, 128, 1 << 20).await.unwrap()
    }

    /// Claims exactly one.
    pub(crate) async fn claim_one(&self) -> ClaimedJob {
        one_of(self.claim().await)
    }

    pub(crate) async fn rescue_one(&self) -> ClaimedJob {
        one_of(self.store.jobs.rescue(0, LEASE, 128, 1 << 20).await.unwrap())
    }

    pub(crate) async fn complete(&self, lease: &ClaimedJob) -> bool {
        self.store.jobs.complete(0, &[held(lease)], Completion::Fired).await.unwrap()[0]
            == SettleResult::Settled
    }

    pub(crate) async fn hold(&self, lease: &ClaimedJob, ttr_ms: u32) -> bool {
        self.store.jobs.hold(0, &[(held(lease), ttr_ms)]).await.unwrap()[0] == SettleResult::Settled
    }

    pub(crate) async fn release(&self, lease: &ClaimedJob, unpublished: bool) -> bool {
        let release = Release { job: held(lease), pause_ms: 0, unpublished };
        self.store.jobs.release(0, MAIN, &[release]).await.unwrap()[0] == SettleResult::Settled
    }

    pub(crate) async fn retry(&self, lease: &ClaimedJob, wait_ms: u64) -> bool {
        self.store.jobs.retry(0, MAIN, &[retry(lease, wait_ms)]).await.unwrap()[0]
            == SettleResult::Settled
    }

    /// Every key of the namespace with all it holds, in order; the times at which turns began are
    /// left out.
    pub(crate) async fn dump(&self) -> BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>> {
        let (dump, strings) = self.dump_strings_too().await;
        assert!(strings.is_empty(), "{:?} are strings", strings.keys());
        dump
    }

    /// The same, and the strings, which are not Dwell's.
    pub(crate) async fn dump_strings_too(
        &self,
    ) -> (BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>, BTreeMap<String, Vec<u8>>) {
        let mut raw = self.raw.clone();
        let mut keys: Vec<String> = redis::cmd("KEYS")
            .arg(format!("*{}*", self.settings.namespace))
            .query_async(&mut raw)
            .await
            .unwrap();
        keys.sort();
        let (mut dump, mut strings) = (BTreeMap::new(), BTreeMap::new());
        for key in keys {
            let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut raw).await.unwrap();
            let read = match kind.as_str() {
                "hash" => redis::cmd("HGETALL").arg(&key).to_owned(),
                "zset" => {
                    redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1).arg("WITHSCORES").to_owned()
                }
                "string" => {
                    let value: Vec<u8> =
                        redis::cmd("GET").arg(&key).query_async(&mut raw).await.unwrap();
                    strings.insert(key, value);
                    continue;
                }
                other => panic!("{key} is a {other}"),
            };
            let mut entries: BTreeMap<Vec<u8>, Vec<u8>> = read.query_async(&mut raw).await.unwrap();
            if key.contains(":completed") || key.contains(":applied") {
                entries.remove(&Vec::new());
            }
            if !entries.is_empty() {
                dump.insert(key, entries);
            }
        }
        (dump, strings)
    }

    /// The same without what is remembered of actions and of jobs that are over.
    pub(crate) async fn jobs(&self) -> BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut dump = self.dump().await;
        dump.retain(|key, _| !key.contains(":completed") && !key.contains(":applied"));
        dump
    }

    /// Where this id is, which must be one place; `none` where it is nowhere, and then nothing is
    /// left of it.
    pub(crate) async fn place(&self, id: &str) -> String {
        let dump = self.dump().await;
        let mut places = places(&dump, id);
        assert!(places.len() <= 1, "{id} is in {places:?}");
        let has = |name: &str| {
            dump.iter().any(|(key, entries)| {
                key.ends_with(&format!("}}:{name}")) && entries.contains_key(id.as_bytes())
            })
        };
        let Some(place) = places.pop() else {
            assert!(
                !has("jobs") && !has("state"),
                "{id} is indexed nowhere and yet is in jobs or state"
            );
            return "none".to_owned();
        };
        assert!(has("jobs"), "{id} is in {place} without a record");
        place
    }

    /// One command, its answer as it comes.
    pub(crate) async fn redis(&self, line: &[&str]) -> redis::Value {
        let mut command = redis::cmd(line[0]);
        command.arg(&line[1..]);
        command.query_async(&mut self.raw.clone()).await.unwrap()
    }

    /// The key of this name in bucket 0.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{{{}:00}}:{name}", self.settings.namespace)
    }
}

fn places(dump: &BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>, id: &str) -> Vec<String> {
    dump.iter()
        .filter(|(_, entries)| entries.contains_key(id.as_bytes()))
        .filter_map(|(key, _)| key.split_once("}:").map(|(_, name)| name.to_owned()))
        .filter(|name| name.starts_with("due:") || name == "held" || name == "dead")
        .chain(in_leases(dump, id))
        .collect()
}

/// `lease` for each lease that the job has not left.
pub(crate) fn in_leases(
    dump: &BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    id: &str,
) -> Vec<String> {
    let table = |key: &str, name: &str| {
        dump.get(&format!("{}}}:{name}", key.split_once("}:").unwrap().0))
            .cloned()
            .unwrap_or_default()
    };
    let mut found = Vec::new();
    for (key, leases) in dump.iter().filter(|(key, _)| key.ends_with("}:claims")) {
        let (left, lent) = (table(key, "settled"), table(key, "claim_deadlines"));
        assert!(
            leases.keys().eq(left.keys()) && leases.keys().eq(lent.keys()),
            "each lease has three parts"
        );
        for (nonce, text) in leases {
            let ids = text
                .split(|byte| *byte == 0)
                .skip(1)
                .map(|entry| entry.split(|byte| *byte == 1).next().unwrap());
            let is_out = |at: usize| left[nonce][8 + at / 8] & (1 << (at % 8)) == 0;
            found.extend(
                ids.enumerate()
                    .filter(|(at, one)| *one == id.as_bytes() && is_out(*at))
                    .map(|_| "lease".to_owned()),
            );
        }
    }
    found
}

pub(crate) fn one_of(taken: Claim) -> ClaimedJob {
    assert_eq!((taken.jobs.len(), taken.broken.len()), (1, 0));
    taken.jobs.into_iter().next().unwrap()
}

pub(crate) fn held(lease: &ClaimedJob) -> ClaimToken {
    lease.token()
}

pub(crate) fn retry(lease: &ClaimedJob, wait_ms: u64) -> Retry {
    Retry {
        job: held(lease),
        wait_ms,
        unpublished: false,
        dies: None,
        error: "no answer".to_owned(),
    }
}

pub(crate) fn id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

/// The `number`th inbound message: its first delivery.
pub(crate) fn origin(number: u64) -> Origin {
    Origin { fingerprint: number.to_be_bytes(), maybe_redelivered: true, is_message: true }
}

/// The target of the jobs here, on this broker.
pub(crate) fn target_on(broker: &str) -> Target {
    Target::Broker { broker: broker.to_owned(), to: Destination::new("orders.close") }
}

pub(crate) fn job(body: impl Into<Bytes>) -> Job {
    Job {
        target: target_on(MAIN),
        key: None,
        headers: Headers::default(),
        properties: None,
        ttr_ms: 30_000,
        confirm: Confirm::Broker,
        retry: None,
        late: None,
        max_late_ms: None,
        expire: None,
        on_timeout: OnTimeout::Ready,
        tries: None,
        remove_at_ms: None,
        created_ms: 0,
        origin: "nats".to_owned(),
        trace: None,
        round: 0,
        debounced_ms: None,
        has_body: true,
        body: body.into(),
    }
}

/// The `message`th inbound message schedules this id; its body names the message.
pub(crate) fn request(name: &str, message: u64, due: Due) -> NewJob {
    NewJob {
        id: id(name),
        generated: false,
        call_id: None,
        is_new_message: false,
        queue_full: false,
        own_queues: None,
        due,
        conflict: Conflict::Replace,
        job: job(format!("body {message}")),
        origin: origin(message),
        reply_to: None,
    }
}

/// The `message`th inbound message asks for this.
pub(crate) fn action(action: Action, name: &str, message: u64) -> Act {
    let due = (action == Action::Reschedule).then_some(FAR);
    Act { due, origin: origin(message), ..Act::new(action, id(name)) }
}
