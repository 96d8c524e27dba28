//! `fsck`: finds damage in a namespace, and repairs it if asked, beside running instances.
//!
//! Scans only find ids and keys. A script then checks an id by all its data at one instant, and
//! repairs it in the same call: a job that moves meanwhile is neither reported nor changed.

mod bucket;
mod counts;
mod memories;
mod namespace;
mod problem;
mod scan;
mod schedules;

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;
use serde::Serialize;

pub use self::problem::Problem;
use crate::config::Redis;
use crate::store::Store;
use crate::store::answer::Items;
use crate::store::call::script_call::ScriptCall;
use crate::store::error::StoreError;
use crate::store::meta::SweepRules;
use crate::store::namespace::Namespace;
use crate::store::scripts::Name;

/// Damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The bucket; `None` for damage to the whole namespace.
    pub bucket: Option<u16>,
    /// The job's id (lossy if not UTF-8), the damaged key, the broker of `meta_broker`, or the
    /// queue of `bad_count`.
    pub id: String,
    /// The kind of damage.
    pub problem: Problem,
    /// Whether this run repaired it.
    pub repaired: bool,
}

/// The rules of a run: settings that the instances share.
#[derive(Debug, Clone)]
pub struct FsckRules {
    /// The span of a claim, ms.
    pub lease_ms: u64,
    /// The waits, ms, of a job without a retry array.
    pub retry_ms: Vec<u64>,
    /// The retention of dead jobs and of remembered outcomes.
    pub sweep: SweepRules,
    /// Whether to repair damage.
    pub repair: bool,
}

/// Receives each finding.
pub type FindingSink<'a> = &'a mut (dyn FnMut(Finding) + Send + Sync);

/// Checks the namespace of the settings and reports every finding. Returns the number of checked
/// jobs.
///
/// # Errors
/// Redis cannot be reached or refuses, there is no such namespace, or its schema is unknown.
/// Findings that were reported before remain valid.
pub async fn run(
    settings: &Redis,
    rules: FsckRules,
    found: FindingSink<'_>,
) -> Result<u64, StoreError> {
    let Some((store, queues)) = namespace::open(settings, &rules, found).await? else {
        return Ok(0);
    };
    let mut fsck =
        Fsck { store, rules, found, jobs: 0, moved: Vec::new(), brokers: BTreeSet::new(), queues };
    for bucket in 0..fsck.store.keys.buckets() {
        if fsck.keys_of(bucket).await? {
            fsck.unfinished(bucket).await?;
            fsck.leases(bucket).await?;
            fsck.bucket(bucket).await?;
            fsck.counts(bucket).await?;
            fsck.memories(bucket).await?;
            fsck.schedules(bucket).await?;
        }
    }
    fsck.judge_moved().await?;
    Ok(fsck.jobs)
}

/// A pass over a namespace.
struct Fsck<'a> {
    store: Store,
    rules: FsckRules,
    found: FindingSink<'a>,
    /// The number of checked jobs.
    jobs: u64,
    /// Jobs that were moved to their own buckets.
    moved: Vec<(u16, Vec<u8>)>,
    /// Reported brokers that the namespace did not have, and queues that their buckets did not
    /// know, by `=` and their names.
    brokers: BTreeSet<String>,
    /// Per bucket, the queues that it knows or has keys of, by `=` and their names.
    queues: BTreeMap<u16, BTreeSet<String>>,
}

impl Fsck<'_> {
    fn tell(&mut self, bucket: u16, id: &[u8], problem: Problem, repaired: bool) {
        (self.found)(Finding {
            bucket: Some(bucket),
            id: String::from_utf8_lossy(id).into_owned(),
            problem,
            repaired,
        });
    }

    /// The sets of a bucket: of the brokers and of its queues.
    fn sets(&self, bucket: u16) -> Vec<String> {
        let queues = self.queues.get(&bucket).into_iter().flatten();
        self.store.brokers().iter().chain(queues).cloned().collect()
    }

    /// Judges every key of a bucket as a whole. False if one has a wrong type still: every script
    /// fails on it.
    async fn keys_of(&mut self, bucket: u16) -> Result<bool, StoreError> {
        let sets: Vec<String> =
            self.sets(bucket).iter().flat_map(|set| self.store.keys.sets(bucket, set)).collect();
        let mut keys: Vec<(String, &str)> =
            self.store.keys.fixed(bucket).iter().map(|key| (key.clone(), "hash")).collect();
        for (key, kind) in &mut keys {
            let keys = &self.store.keys;
            if [keys.claim_deadlines(bucket), keys.held(bucket), keys.dead(bucket)]
                .contains(&key.as_str())
            {
                *kind = "zset";
            }
        }
        keys.extend(sets.into_iter().map(|key| (key, "zset")));
        keys.extend(self.store.keys.pops(bucket).map(|key| (key, "hash")));
        keys.push((self.store.keys.ends(bucket), "zset"));
        keys.push((self.store.keys.schedules(bucket).to_owned(), "hash"));
        keys.push((self.store.keys.schedule_states(bucket).to_owned(), "hash"));
        keys.push((self.store.keys.schedule_times(bucket).to_owned(), "zset"));
        keys.push((self.store.keys.quarantine(bucket), "hash"));
        let mut is_sound = true;
        for (key, kind) in keys {
            if let Some((problem, repaired)) =
                self.store.fsck_key(&key, kind, self.rules.repair).await?
            {
                is_sound &= repaired || problem != Problem::WrongType;
                (self.found)(Finding { bucket: Some(bucket), id: key, problem, repaired });
            }
        }
        Ok(is_sound)
    }
}

impl Namespace {
    /// Judges one key as a whole.
    async fn fsck_key(
        &self,
        key: &str,
        kind: &str,
        repair: bool,
    ) -> Result<Option<(Problem, bool)>, StoreError> {
        let mut call = ScriptCall::new(&self.scripts, Name::FsckKey, 2);
        call.arg(key).arg(self.keys.aside(key, self.now_ms())).arg(u8::from(repair)).arg(kind);
        let mut items = Items::new("fsck_key", self.call(&call).await?)?;
        let problem = Problem::of_word(&items.text()?);
        Ok(problem.zip(Some(items.int()? == 1)))
    }
}

/// The bytes of an answer, if it has any.
fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}
