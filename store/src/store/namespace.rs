//! A namespace in one Redis: its keys, scripts, connections, brokers and clock.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use redis::Value;
use tokio::sync::Notify;

use super::call::repairs::{Repair, Repairs};
use super::call::script_call::ScriptCall;
use super::client::{RedisClient, SlotLayout, rest};
use super::error::{Class, StoreError};
use super::gate::Gate;
use super::jobs::lease::Lease;
use super::keys::{FIXED_KEYS, Keys};
use super::place_observers::PlaceObservers;
use super::record::Nonce;
use super::scripts::{Name, Scripts};
use super::{answer, meta};
use crate::clock::{self, Instant};
use crate::config::Redis;
use crate::job::JobId;
use crate::store::due_set::DueSet;

/// Receives an event for every call to Redis. The metrics implement it.
pub trait CallObserver: Send + Sync {
    /// A script call succeeded after `took`.
    fn called(&self, script: Name, took: Duration);
    /// A call failed.
    fn failed(&self, class: Class);
}

/// An observer that ignores everything.
#[derive(Debug)]
pub struct Unobserved;

impl CallObserver for Unobserved {
    fn called(&self, _: Name, _: Duration) {}
    fn failed(&self, _: Class) {}
}

/// Whether the queue of this name has as many jobs as it may have.
pub type IsQueueFull = Arc<dyn Fn(&str) -> bool + Send + Sync>;

fn lease_key(epoch: &str) -> [u8; 32] {
    blake3::derive_key("dwell 2026-11 leases of queues", epoch.as_bytes())
}

/// The base that the parts of a [`Store`](super::Store) share.
pub struct Namespace {
    pub(super) keys: Keys,
    pub(super) scripts: Scripts,
    pub(super) link: RedisClient,
    pub(super) gate: Gate,
    pub(super) observer: Arc<dyn CallObserver>,
    /// The settings and brokers with which this store joined the namespace. `None` if the store
    /// only reads and acts.
    pub(super) joined: Option<(Redis, Box<[String]>)>,
    /// Every broker of the namespace, of all instances; each has a `due` key.
    pub(super) brokers: RwLock<Arc<[String]>>,
    /// The limits of queues, in the order in which they apply.
    pub(super) queue_limits: RwLock<Vec<meta::QueueLimit>>,
    /// How many jobs of queues may be out at a time, in the same order.
    pub(super) queue_in_flight: RwLock<Vec<meta::QueueInFlight>>,
    /// Those that wait for places of queues.
    pub(super) place_observers: PlaceObservers,
    /// The key of the leases of queues, from the epoch of the namespace, which no consumer knows.
    lease_key: RwLock<[u8; 32]>,
    /// Whether a queue has as many jobs as it may have; none is full before this is set.
    pub(super) is_queue_full: OnceLock<IsQueueFull>,
    /// A request of this process stored a recurring schedule.
    pub(super) schedules_changed: Notify,
    /// Redis's clock at its last answer, epoch µs, and the local time of that answer.
    clock: Mutex<Option<(i64, Instant)>>,
}

impl Namespace {
    pub(super) fn new(
        settings: &Redis,
        link: RedisClient,
        gate: Gate,
        known: meta::Meta,
        observer: Arc<dyn CallObserver>,
    ) -> Namespace {
        Namespace {
            keys: Keys::new(&settings.namespace, known.buckets),
            scripts: Scripts::new(known.buckets),
            link,
            gate,
            observer,
            joined: None,
            brokers: RwLock::new(known.brokers.into()),
            queue_limits: RwLock::new(known.queue_limits),
            queue_in_flight: RwLock::new(known.queue_in_flight),
            place_observers: PlaceObservers::default(),
            lease_key: RwLock::new(lease_key(&known.epoch)),
            is_queue_full: OnceLock::new(),
            schedules_changed: Notify::new(),
            clock: Mutex::new(None),
        }
    }

    /// The keys of the namespace.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// How many batches run side by side for a master: several only if they wait for durability.
    #[must_use]
    pub fn batches_at_once(&self) -> usize {
        self.gate.links()
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

    /// Every broker of the namespace, also of other instances.
    #[must_use]
    pub fn brokers(&self) -> Arc<[String]> {
        self.brokers.read().clone()
    }

    /// Remembers a broker that this store did not know.
    pub(super) fn learn(&self, broker: &str) {
        let mut brokers = self.brokers.write();
        if let Err(at) = brokers.binary_search_by(|known| known.as_str().cmp(broker)) {
            let mut more = brokers.to_vec();
            more.insert(at, broker.to_owned());
            *brokers = more.into();
        }
    }

    /// A keyed hash of pop and queue. Redis stores it, so a forged lease matches nothing.
    pub(super) fn pop_proof(&self, nonce: Nonce, queue: &str) -> Nonce {
        self.proof(&[&nonce, queue.as_bytes()])
    }

    /// A keyed hash of the lease and its job. The span, the wait and the expiry stand in the lease
    /// alone, so a consumer that changes one of them does not know the hash.
    pub(super) fn seal(&self, id: &JobId, lease: &Lease) -> [u8; 8] {
        self.proof(&[
            b"seal",
            &lease.terms(),
            lease.of_job().as_bytes(),
            b"/",
            id.as_str().as_bytes(),
        ])
    }

    /// The first 8 bytes of the keyed hash of these parts, one after the other. A `Hasher` holds
    /// 1.9 kB and is slower than one call for so little.
    fn proof(&self, parts: &[&[u8]]) -> [u8; 8] {
        let hash = blake3::keyed_hash(&self.lease_key.read(), &parts.concat());
        std::array::from_fn(|i| hash.as_bytes()[i])
    }

    fn follow(&self, meta: meta::Meta) {
        *self.lease_key.write() = lease_key(&meta.epoch);
        *self.brokers.write() = meta.brokers.into();
        *self.queue_limits.write() = meta.queue_limits;
        *self.queue_in_flight.write() = meta.queue_in_flight;
    }

    /// Redis's clock now, epoch µs, computed from Redis's last answer. Before the first
    /// answer, the host's clock.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        match *self.clock.lock() {
            // Only an elapsed time of 292 000 years does not fit.
            Some((us, seen)) => {
                us + i64::try_from(clock::now().duration_since(seen).as_micros()).unwrap_or(0)
            }
            None => clock::wall_ms() * 1000,
        }
    }

    /// Whether the time of Redis is known.
    pub(super) fn has_seen_clock(&self) -> bool {
        self.clock.lock().is_some()
    }

    /// Redis's clock now, epoch ms.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.now_us() / 1000
    }

    /// The brokers of the settings, with which this store joined the namespace. Empty if the store
    /// only reads and acts.
    #[must_use]
    pub fn own_brokers(&self) -> &[String] {
        self.joined.as_ref().map_or(&[], |(_, brokers)| brokers)
    }

    /// Notes that Redis's clock shows this time now, epoch µs.
    pub fn saw_clock(&self, us: i64) {
        *self.clock.lock() = Some((us, clock::now()));
    }

    /// Asks Redis for its time and remembers the answer. Epoch µs.
    pub async fn read_clock(&self) -> Result<i64, StoreError> {
        let us = answer::micros_of(self.link.command("TIME", &redis::cmd("TIME")).await?)?;
        self.saw_clock(us);
        Ok(us)
    }

    /// Asks the master of this bucket for its time, and remembers the answer. Epoch ms. Unlike
    /// [`read_clock`](Namespace::read_clock), it does not wait for another master.
    pub(super) async fn read_clock_of(&self, bucket: u16) -> Result<i64, StoreError> {
        let key = Some(self.keys.jobs(bucket).as_bytes());
        let us = answer::micros_of(self.link.command_to("TIME", key, &redis::cmd("TIME")).await?)?;
        self.saw_clock(us);
        Ok(us / 1000)
    }

    /// A call with the bucket's keys and the keys of these brokers, and of queues by `=` and their
    /// names. The caller adds the arguments.
    pub(super) fn script_call(&self, script: Name, bucket: u16, sets: &[String]) -> ScriptCall {
        self.script_call_with(script, bucket, sets, &[])
    }

    /// The same call, with more keys after the keys of the sets. The keys of recurring schedules
    /// that the script reads come last.
    pub(super) fn script_call_with(
        &self,
        script: Name,
        bucket: u16,
        sets: &[String],
        more: &[String],
    ) -> ScriptCall {
        let of_queues = sets.iter().filter(|set| DueSet::named(set).is_of_queue()).count();
        let of_schedules = self.keys.schedule_keys_of(script, bucket);
        let keys = FIXED_KEYS + sets.len() + of_queues + more.len() + of_schedules.len();
        let mut call = ScriptCall::new(&self.scripts, script, keys);
        call.arg(self.keys.fixed(bucket).as_slice());
        for set in sets {
            for key in self.keys.sets(bucket, set) {
                call.arg(key);
            }
        }
        call.arg(more);
        call.arg(of_schedules);
        call
    }

    /// Calls a script over the connection that does not wait for durability.
    pub(super) async fn call(&self, call: &ScriptCall) -> Result<Value, StoreError> {
        let (script, begun) = (call.script(), clock::now());
        let mut repairs = Repairs::without_moves();
        let answer = loop {
            let answer = self.link.command(script.as_str(), call.as_ref()).await;
            let Some(repair) = repairs.after_call(&answer) else {
                break answer.map_err(StoreError::into_answer);
            };
            if let Some(Err(error)) = self.repair(&self.link, repair, &[call]).await.pop() {
                break Err(error);
            }
        };
        self.observe(script, begun, &answer);
        answer
    }

    /// Calls a script behind the durability gate. After an error the call may have been carried
    /// out.
    pub(super) async fn durable_call(&self, call: ScriptCall) -> Result<Value, StoreError> {
        let (script, begun) = (call.script(), clock::now());
        let answer = self.gated_call(call).await;
        self.observe(script, begun, &answer);
        answer
    }

    /// Calls a script behind the durability gate, and reports nothing to the observer.
    pub(super) async fn gated_call(&self, call: ScriptCall) -> Result<Value, StoreError> {
        let (link, calls) = (self.gate.link(), [vec![call]]);
        let mut repairs = Repairs::default();
        loop {
            let answer = self.gate.pass(link, &calls).await.pop().unwrap_or(Ok(Value::Nil));
            let Some(repair) = repairs.after_call(&answer) else {
                return answer.map_err(StoreError::into_answer);
            };
            if let Some(Err(error)) = self.repair(link, repair, &[&calls[0][0]]).await.pop() {
                return Err(error);
            }
        }
    }

    /// Carries out the repair of these calls. Returns one result per call: after an error it cannot
    /// be sent again now.
    pub(super) async fn repair(
        &self,
        link: &RedisClient,
        repair: Repair,
        calls: &[&ScriptCall],
    ) -> Vec<Result<(), StoreError>> {
        match repair {
            Repair::Load => return self.load(link, calls).await,
            Repair::Wait(pause) => rest(pause).await,
            Repair::Resend => {}
        }
        vec![Ok(()); calls.len()]
    }

    /// Loads the scripts of these calls on the masters that they address, side by side: a master
    /// that hangs fails its own calls alone.
    async fn load(&self, link: &RedisClient, calls: &[&ScriptCall]) -> Vec<Result<(), StoreError>> {
        let mut loads = Vec::new();
        for script in Name::ALL {
            let places: Vec<usize> =
                (0..calls.len()).filter(|at| calls[*at].script() == script).collect();
            if !places.is_empty() {
                let of_script: Vec<&ScriptCall> = places.iter().map(|at| calls[*at]).collect();
                loads.push(async move { (places, self.load_one(link, script, of_script).await) });
            }
        }
        let mut results = vec![Ok(()); calls.len()];
        for (places, loaded) in join_all(loads).await {
            for (at, loaded) in places.into_iter().zip(loaded) {
                results[at] = loaded.map_err(not_of_the_call);
            }
        }
        results
    }

    /// Loads one script, and where calls share commands, that which runs several calls.
    async fn load_one(
        &self,
        link: &RedisClient,
        script: Name,
        calls: Vec<&ScriptCall>,
    ) -> Vec<Result<(), StoreError>> {
        let loaded = link.load(&self.scripts.source(script), calls.clone()).await;
        let shared = self.scripts.shared_source(script).filter(|_| self.gate.shares_over(link));
        let Some(shared) = shared.filter(|_| loaded.iter().all(Result::is_ok)) else {
            return loaded;
        };
        let both = loaded.into_iter().zip(link.load(&shared, calls).await);
        both.map(|(one, of_several)| {
            one.and_then(|()| of_several.or_else(|error| self.gate.sharing.not_loaded(error)))
        })
        .collect()
    }

    pub(super) fn observe<T>(&self, name: Name, begun: Instant, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.observer.called(name, clock::now().duration_since(begun)),
            Err(error) => self.observer.failed(error.class),
        }
    }

    /// Reads the brokers of the namespace again; other instances add theirs. A store that joined
    /// the namespace joins again: if Redis lost the namespace, this restores it with the store's
    /// own brokers.
    pub async fn rejoin(&self) -> Result<(), StoreError> {
        let meta = match &self.joined {
            Some((settings, brokers)) => meta::join(&self.link, settings, brokers).await?,
            None => meta::read_as(&self.link, &self.keys).await?,
        };
        self.follow(meta);
        Ok(())
    }

    /// Reads the brokers of the namespace again, and writes nothing. An error of class `Settings`
    /// if Redis lost the namespace, or if it has another number of buckets by now.
    pub async fn reread(&self) -> Result<(), StoreError> {
        let meta = meta::read_as(&self.link, &self.keys).await?;
        if let Some((settings, _)) = &self.joined {
            meta::agree(&meta, settings)?;
        }
        self.follow(meta);
        Ok(())
    }
}

/// The error of a load of a script. Its class is not that of an answer to a call: a probe takes
/// such an answer for a sign that the store works, and a batch takes damage for a refusal.
fn not_of_the_call(error: StoreError) -> StoreError {
    match error.class {
        Class::Script | Class::Oom => StoreError { class: Class::Other, ..error },
        _ => error,
    }
}
