//! The only module that knows Redis. Jobs live in buckets; each step is one idempotent script.
//!
//! - [`keys`]: every key; [`record`]: the form of a job in Redis; [`scripts`]: the Lua files.
//! - [`client`]: connections, rebuilt when they break; [`gate`]: connections that wait for
//!   durability; [`meta`]: the description of a namespace.
//! - [`batch`]: requests, behind the gate; [`schedule`]: `schedule`; [`lease`]: `claim` and
//!   `rescue`; [`settle`]: `complete` to `bury`; [`act`]: `cancel` to `requeue`.
//! - [`read`], [`list`] and `horizon`: jobs and counts; [`fleet`]: the instances.
//! - [`transfer`]: moves jobs from one broker to another.
//! - [`fsck`]: finds and repairs damage.
//! - [`acl`]: the permissions of the user; [`preflight`]: what a start would find. Neither changes
//!   anything. [`redis_stats`]: what Redis spends.

pub mod acl;
pub mod act;
mod answer;
pub mod batch;
pub mod client;
pub mod error;
pub mod fleet;
pub mod fsck;
pub mod gate;
mod horizon;
pub mod keys;
pub mod lease;
pub mod list;
pub mod meta;
pub mod preflight;
pub mod read;
pub mod record;
pub mod redis_stats;
pub mod schedule;
pub mod scripts;
pub mod settle;
pub mod transfer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::{Cmd, Value};

use crate::clock::{self, Instant};
use crate::config::Redis;
use client::{RedisClient, SlotLayout};
use error::{Class, StoreError};
use gate::Gate;
use keys::Keys;
use scripts::{Name, Scripts};

/// Receives an event for every call to Redis. The metrics implement it.
pub trait Observer: Send + Sync {
    /// A script call succeeded after `took`.
    fn called(&self, script: Name, took: Duration);
    /// A call failed.
    fn failed(&self, class: Class);
}

/// An observer that ignores everything.
#[derive(Debug)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn called(&self, _: Name, _: Duration) {}
    fn failed(&self, _: Class) {}
}

/// One namespace in one Redis. Share it behind an `Arc`; any task may call any method.
pub struct Store {
    keys: Keys,
    scripts: Scripts,
    link: RedisClient,
    gate: Gate,
    observer: Arc<dyn Observer>,
    /// The settings and brokers with which this store joined the namespace. `None` if the store
    /// only reads and acts.
    joined: Option<(Redis, Box<[String]>)>,
    /// Every broker of the namespace, of all instances; each has a `due` key.
    brokers: RwLock<Arc<[String]>>,
    /// Redis's clock at its last answer, epoch µs, and the local time of that answer.
    clock: Mutex<Option<(i64, Instant)>>,
    /// Until when Redis may still carry out a batch call that got no answer.
    unanswered_until: Mutex<Option<Instant>>,
    /// Claims whose answer was lost. Their jobs go back before the next claim.
    lost_claims: Mutex<Vec<lease::LostClaim>>,
    /// By bucket and set: the unreadable jobs at the head of the set.
    unread: Mutex<HashMap<(u16, String), lease::Unread>>,
}

impl Store {
    /// Opens the namespace, creates it if it is new, and adds these brokers.
    ///
    /// An error of class `Settings` if the namespace has another number of buckets or another
    /// schema, or if Redis cannot give the durability or would evict jobs.
    pub async fn open(settings: &Redis, brokers: &[String], observer: Arc<dyn Observer>) -> Result<Store, StoreError> {
        let link = RedisClient::new(settings);
        let facts = meta::facts(&link).await?;
        meta::refuse_replica(settings, &facts)?;
        let waits = gate::waits_of(settings, &facts)?;
        meta::refuse_eviction(&facts)?;
        acl::refuse_unpermitted(&link, &Keys::new(&settings.namespace, settings.buckets)).await?;
        let known = meta::join(&link, settings, brokers).await?;
        let joined = Some((settings.clone(), brokers.into()));
        let store = Store { joined, ..Store::over(settings, link, Gate::new(settings, Ok(waits)), known, observer) };
        // The deadline of the first batch needs the clock before any script has answered.
        store.read_clock().await?;
        Ok(store)
    }

    /// Opens an existing namespace for reads and for actions of people, without joining it. An
    /// error of class `Settings` if the namespace does not exist.
    ///
    /// If Redis cannot give the durability, reads work and actions are refused.
    pub async fn attach(settings: &Redis) -> Result<Store, StoreError> {
        let link = RedisClient::new(settings);
        let facts = meta::facts(&link).await?;
        let waits = gate::waits_of(settings, &facts);
        let known = meta::read(&link, settings).await?;
        let settings = Redis { buckets: known.buckets, ..settings.clone() };
        Ok(Store::over(&settings, link, Gate::new(&settings, waits), known, Arc::new(Unobserved)))
    }

    fn over(settings: &Redis, link: RedisClient, gate: Gate, known: meta::Meta, observer: Arc<dyn Observer>) -> Store {
        Store {
            keys: Keys::new(&settings.namespace, known.buckets),
            scripts: Scripts::default(),
            link,
            gate,
            observer,
            joined: None,
            brokers: RwLock::new(known.brokers.into()),
            clock: Mutex::new(None),
            unanswered_until: Mutex::default(),
            lost_claims: Mutex::new(Vec::new()),
            unread: Mutex::default(),
        }
    }

    /// The keys of the namespace.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Whether the buckets may be on several masters.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.link.is_cluster()
    }

    /// The masters of the cluster when the client last asked for them. `None` without a cluster, or
    /// before the first time.
    #[must_use]
    pub fn layout(&self) -> Option<SlotLayout> {
        self.link.layout()
    }

    /// The master of this bucket in that layout, as host and port.
    #[must_use]
    pub fn master_of(&self, layout: &SlotLayout, bucket: u16) -> Option<String> {
        layout.master_of(self.keys.jobs(bucket).as_bytes())
    }

    /// Every broker of the namespace, those of other instances included.
    #[must_use]
    pub fn brokers(&self) -> Arc<[String]> {
        self.brokers.read().clone()
    }

    /// Redis's clock now, epoch µs, computed from Redis's last answer. Before the first
    /// answer, the host's clock.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        match *self.clock.lock() {
            // Only an elapsed time of 292 000 years does not fit.
            Some((us, seen)) => us + i64::try_from(clock::now().duration_since(seen).as_micros()).unwrap_or(0),
            None => clock::wall_ms() * 1000,
        }
    }

    /// Whether Redis has told its clock yet.
    fn has_seen_clock(&self) -> bool {
        self.clock.lock().is_some()
    }

    /// Redis's clock now, epoch ms.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.now_us() / 1000
    }

    /// The brokers with which this store joined the namespace: those of its settings. Empty if the
    /// store only reads and acts.
    #[must_use]
    pub fn own_brokers(&self) -> &[String] {
        self.joined.as_ref().map_or(&[], |(_, brokers)| brokers)
    }

    fn saw_clock(&self, us: i64) {
        *self.clock.lock() = Some((us, clock::now()));
    }

    /// Asks Redis for its time and remembers the answer. Epoch µs.
    pub async fn read_clock(&self) -> Result<i64, StoreError> {
        let us = answer::micros_of(self.link.command("TIME", &redis::cmd("TIME")).await?)?;
        self.saw_clock(us);
        Ok(us)
    }

    /// An EVALSHA with the bucket's keys and the `due` keys of these brokers. The caller adds the
    /// arguments.
    fn script_call(&self, name: Name, bucket: u16, brokers: &[String]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.scripts.hash(name)).arg(8 + brokers.len()).arg(self.keys.fixed(bucket).as_slice());
        for broker in brokers {
            call.arg(self.keys.due(bucket, broker));
        }
        call
    }

    /// Calls a script over the connection that does not wait for durability.
    async fn call(&self, name: Name, call: &Cmd) -> Result<Value, StoreError> {
        let begun = clock::now();
        let mut answer = self.link.command(name.as_str(), call).await;
        if matches!(&answer, Err(error) if error.class == Class::NoScript) {
            self.link.load(&name.source(), std::iter::once(call)).await?;
            answer = self.link.command(name.as_str(), call).await;
        }
        self.observe(name, begun, &answer);
        answer
    }

    fn observe<T>(&self, name: Name, begun: Instant, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.observer.called(name, clock::now().duration_since(begun)),
            Err(error) => self.observer.failed(error.class),
        }
    }

    /// Stores these rules if the namespace has none, and answers the rules of the namespace.
    pub async fn keep(&self, own: act::SweepRules) -> Result<act::SweepRules, StoreError> {
        meta::keep(&self.link, &self.keys, own).await
    }

    /// Reads the brokers of the namespace again; other instances add theirs. A store that joined
    /// the namespace joins again: if Redis lost the namespace, this restores it with the store's
    /// own brokers.
    pub async fn rejoin(&self) -> Result<(), StoreError> {
        let meta = match &self.joined {
            Some((settings, brokers)) => meta::join(&self.link, settings, brokers).await?,
            None => meta::read_as(&self.link, &self.keys).await?,
        };
        *self.brokers.write() = meta.brokers.into();
        Ok(())
    }
}
