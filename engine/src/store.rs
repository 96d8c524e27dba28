//! The only place that knows Redis: jobs in buckets, each step a script, each script idempotent.
//!
//! - [`keys`]: every key; [`record`]: what a job looks like in Redis; [`scripts`]: the Lua files.
//! - [`client`]: connections, rebuilt when they break; [`gate`]: those that wait for durability; [`meta`]: what a namespace is.
//! - [`batch`]: requests, behind the gate; [`schedule`]: `schedule`; [`lease`]: `claim` and `rescue`; [`settle`]: `complete` to `bury`; [`act`]: `cancel` to `requeue`; [`read`], [`list`] and `horizon`: what is there; [`fleet`]: the instances.
//! - [`transfer`]: jobs of one broker become those of another.
//! - [`fsck`]: damage, found and repaired.
//! - [`acl`]: what the user may do; [`preflight`]: what a start would find; both change nothing. [`redis_stats`]: what Redis spends.

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

/// Hears of every call to Redis: the metrics do.
pub trait Observer: Send + Sync {
    /// A script was called and answered after this long.
    fn called(&self, script: Name, took: Duration);
    /// A call failed.
    fn failed(&self, class: Class);
}

/// An observer that does not care.
#[derive(Debug)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn called(&self, _: Name, _: Duration) {}
    fn failed(&self, _: Class) {}
}

/// The store: one namespace in one Redis. Cheap to share behind an `Arc`; every method may be called by any task.
pub struct Store {
    keys: Keys,
    scripts: Scripts,
    link: RedisClient,
    gate: Gate,
    observer: Arc<dyn Observer>,
    /// What it joined the namespace with: the settings, and its own brokers. `None` where it only reads and acts.
    joined: Option<(Redis, Box<[String]>)>,
    /// Every broker of the namespace, of all instances: their `due` keys.
    brokers: RwLock<Arc<[String]>>,
    /// Redis's clock as last seen: µs, and when it was seen here.
    clock: Mutex<Option<(i64, Instant)>>,
    /// Until when a call of a batch that got no answer may be carried out.
    unanswered_until: Mutex<Option<Instant>>,
    /// Claims whose answer was lost: what they took goes back first.
    lost_claims: Mutex<Vec<lease::LostClaim>>,
    /// By bucket and set: what stands at its head and cannot be read.
    unread: Mutex<HashMap<(u16, String), lease::Unread>>,
}

impl Store {
    /// Opens the namespace, which is made where it is new, and makes these brokers known to it. Refuses (class `Settings`) where the namespace
    /// has another number of buckets or another schema, or where Redis cannot give the durability or would evict jobs.
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
        // The first batch is judged by it, before any script has answered.
        store.read_clock().await?;
        Ok(store)
    }

    /// Opens a namespace that exists, for reading and for actions of people: joins nothing. `Err` of class `Settings` where it does not exist.
    /// Where Redis cannot give the durability, it can be read, and actions are refused.
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

    /// Where the masters of a cluster were when they were last asked for; `None` where there is no cluster, or they never were.
    #[must_use]
    pub fn layout(&self) -> Option<SlotLayout> {
        self.link.layout()
    }

    /// The master that this bucket had then, as host and port.
    #[must_use]
    pub fn master_of(&self, layout: &SlotLayout, bucket: u16) -> Option<String> {
        layout.master_of(self.keys.jobs(bucket).as_bytes())
    }

    /// Every broker of the namespace, also those of other instances.
    #[must_use]
    pub fn brokers(&self) -> Arc<[String]> {
        self.brokers.read().clone()
    }

    /// Redis's clock now, epoch µs, by what was last seen of it. The host's, where it only reads and acts and has seen nothing yet.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        match *self.clock.lock() {
            // An elapsed time of 292 000 years does not fit.
            Some((us, seen)) => us + i64::try_from(clock::now().duration_since(seen).as_micros()).unwrap_or(0),
            None => clock::wall_ms() * 1000,
        }
    }

    /// Whether Redis told its clock.
    fn has_seen_clock(&self) -> bool {
        self.clock.lock().is_some()
    }

    /// Redis's clock now, epoch ms.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.now_us() / 1000
    }

    /// The brokers that it joined the namespace with: those of its settings. None where it only reads and acts.
    #[must_use]
    pub fn own_brokers(&self) -> &[String] {
        self.joined.as_ref().map_or(&[], |(_, brokers)| brokers)
    }

    fn saw_clock(&self, us: i64) {
        *self.clock.lock() = Some((us, clock::now()));
    }

    /// Asks Redis for its time and remembers it: epoch µs.
    pub async fn read_clock(&self) -> Result<i64, StoreError> {
        let us = answer::micros_of(self.link.command("TIME", &redis::cmd("TIME")).await?)?;
        self.saw_clock(us);
        Ok(us)
    }

    /// The call of a script: EVALSHA with the bucket's keys and the `due` of these brokers; the arguments are the caller's.
    fn script_call(&self, name: Name, bucket: u16, brokers: &[String]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.scripts.hash(name)).arg(8 + brokers.len()).arg(self.keys.fixed(bucket).as_slice());
        for broker in brokers {
            call.arg(self.keys.due(bucket, broker));
        }
        call
    }

    /// Calls a script on the link that does not wait for durability.
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

    /// Keeps these rules in the namespace where it has none yet, and answers those that it has.
    pub async fn keep(&self, own: act::SweepRules) -> Result<act::SweepRules, StoreError> {
        meta::keep(&self.link, &self.keys, own).await
    }

    /// Reads again which brokers the namespace has: other instances bring theirs. Who joined it joins it again, and so makes it again where Redis
    /// lost it, or it would not know its own brokers any more.
    pub async fn rejoin(&self) -> Result<(), StoreError> {
        let meta = match &self.joined {
            Some((settings, brokers)) => meta::join(&self.link, settings, brokers).await?,
            None => meta::read_as(&self.link, &self.keys).await?,
        };
        *self.brokers.write() = meta.brokers.into();
        Ok(())
    }
}
