//! The leases of the jobs whose handlers run: prolonged at each third of their TTR, on each master
//! of a cluster by itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dwell_store::clock::{self, Instant};
use dwell_store::consumers::Consumers;
use dwell_store::store::error::StoreError;
use dwell_store::store::jobs::acknowledge::{
    Acknowledged, Acknowledgement, LeaseAction, LeaseVerdict,
};
use dwell_store::store::jobs::lease::Lease;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::client::queues::touch;

/// The most leases that one call prolongs.
const MAX_LEASES_PER_CALL: usize = 1000;
/// After an error, the time to the next try is at most this.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two checks of the leases of one master while a call to it is on its way.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest time between two touches of one lease.
const MIN_TOUCH_INTERVAL: Duration = Duration::from_millis(10);

/// The leases that this worker holds.
#[derive(Default)]
pub(super) struct Leases {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    last_key: u64,
    held: HashMap<u64, Held>,
    /// The touches to come, by master; without a cluster, one entry.
    masters: HashMap<Option<String>, Touches>,
    /// The time until which the keeper sleeps.
    sleeps_until: Option<Instant>,
    is_draining: bool,
}

/// The touches of the leases on one master.
#[derive(Default)]
struct Touches {
    /// The times of the next touch, each with the key of its lease. A lost lease is not in the set.
    order: BTreeSet<(Instant, u64)>,
    /// The time of the next check for ended leases; `None`: no call to this master is on its way.
    check_at: Option<Instant>,
}

/// A lease, and the attempt under it.
struct Held {
    lease: Lease,
    context: Context,
    deadline: Instant,
    touch_at: Instant,
    /// The master whose touches have the lease, unless the lease is lost.
    master: Option<String>,
}

/// A call that prolongs leases on one master.
struct Call {
    master: Option<String>,
    keys: Vec<u64>,
    acknowledgements: Vec<Acknowledgement>,
}

/// The answers to a call, in the order of its leases.
type Answers = Vec<Result<Acknowledged, StoreError>>;

/// The lease of a handler that ended.
pub(super) struct Over {
    pub(super) lease: Lease,
    pub(super) deadline: Instant,
    /// The lease is lost: the job may have another holder by now.
    pub(super) is_lost: bool,
    /// The worker cancelled the handler, because its drain is over.
    pub(super) is_draining: bool,
}

impl Leases {
    /// Notes that a handler begins under this lease, which ends at `deadline`, for a job on
    /// `master`. Returns the key of the lease.
    pub(super) fn begin(
        &self,
        lease: Lease,
        context: Context,
        deadline: Instant,
        master: Option<String>,
    ) -> u64 {
        let mut inner = self.inner.lock();
        inner.last_key += 1;
        let key = inner.last_key;
        let touch_at = clock::now() + period(&lease);
        inner.masters.entry(master.clone()).or_default().order.insert((touch_at, key));
        inner.held.insert(key, Held { lease, context, deadline, touch_at, master });
        if inner.sleeps_until.is_none_or(|until| touch_at < until) {
            self.changed.notify_one();
        }
        key
    }

    /// Removes the lease of a handler that ended. `None` if its job was given back meanwhile.
    pub(super) fn end(&self, key: u64) -> Option<Over> {
        let mut inner = self.inner.lock();
        let held = inner.held.remove(&key)?;
        let is_lost = inner
            .masters
            .get_mut(&held.master)
            .is_none_or(|touches| !touches.order.remove(&(held.touch_at, key)));
        Some(Over {
            lease: held.lease,
            deadline: held.deadline,
            is_lost,
            is_draining: inner.is_draining,
        })
    }

    /// Cancels the handlers that still run after the drain.
    pub(super) fn cancel_all(&self) {
        let mut inner = self.inner.lock();
        inner.is_draining = true;
        inner.held.values().for_each(|held| held.context.cancellation().cancel());
    }

    /// Gives up every lease. Returns for each the acknowledgement with this action, and the end of
    /// the lease.
    pub(super) fn give_up(&self, action: &LeaseAction) -> Vec<(Acknowledgement, Instant)> {
        let mut inner = self.inner.lock();
        let Inner { held, masters, .. } = &mut *inner;
        let orders = masters.values_mut().flat_map(|touches| std::mem::take(&mut touches.order));
        let held = orders.filter_map(|(_, key)| held.remove(&key)).collect::<Vec<_>>();
        held.into_iter().map(|held| (held.say(action.clone()), held.deadline)).collect()
    }

    /// Prolongs leases until told to stop, by one call at a time to each master: one that hangs
    /// delays none of the others.
    pub(super) async fn keep(self: Arc<Self>, consumers: Consumers, stop: CancellationToken) {
        let mut calls = FuturesUnordered::new();
        loop {
            for call in self.to_touch(clock::now()) {
                calls.push(call.make(&consumers));
            }
            let until = self.sleeps_until();
            tokio::select! {
                // An answer that is there counts before the check for ended leases.
                biased;
                () = stop.cancelled() => return,
                Some((call, answers)) = calls.next(), if !calls.is_empty() => {
                    self.answered(call, answers, &consumers);
                }
                () = self.changed.notified() => {}
                () = clock::sleep_until(until.unwrap_or_else(clock::now)), if until.is_some() => {
                    self.check(clock::now());
                }
            }
        }
    }

    /// Begins a call to each master that has leases to prolong now, and no call on its way.
    fn to_touch(&self, now: Instant) -> Vec<Call> {
        let mut inner = self.inner.lock();
        let Inner { held, masters, .. } = &mut *inner;
        let mut calls = Vec::new();
        let idle = masters.iter_mut().filter(|(_, touches)| touches.check_at.is_none());
        for (master, touches) in idle {
            let due =
                touches.order.iter().take_while(|(at, _)| *at <= now).take(MAX_LEASES_PER_CALL);
            let (keys, acknowledgements): (Vec<u64>, Vec<Acknowledgement>) = due
                .filter_map(|(_, key)| {
                    let held = held.get(key)?;
                    Some((*key, held.say(touch(&held.lease, None))))
                })
                .unzip();
            if !keys.is_empty() {
                touches.check_at = Some(now + EXPIRY_CHECK_INTERVAL);
                calls.push(Call { master: master.clone(), keys, acknowledgements });
            }
        }
        calls
    }

    /// The time of the next touch or check, until which the keeper sleeps.
    fn sleeps_until(&self) -> Option<Instant> {
        let mut inner = self.inner.lock();
        inner.sleeps_until = inner.masters.values().filter_map(Touches::next_at).min();
        inner.sleeps_until
    }

    /// Notes the end of a call.
    fn answered(&self, call: Call, answers: Answers, consumers: &Consumers) {
        let now = clock::now();
        for (key, answer) in call.keys.into_iter().zip(answers) {
            self.touched(key, answer, now, consumers);
        }
        let mut inner = self.inner.lock();
        let Inner { held, masters, .. } = &mut *inner;
        if let Some(touches) = masters.get_mut(&call.master) {
            touches.check_at = None;
            touches.lose_ended(held, now);
        }
        masters.retain(|_, touches| touches.next_at().is_some());
    }

    fn touched(
        &self,
        key: u64,
        answer: Result<Acknowledged, StoreError>,
        now: Instant,
        consumers: &Consumers,
    ) {
        let mut inner = self.inner.lock();
        let Inner { held, masters, .. } = &mut *inner;
        let Some(held) = held.get_mut(&key) else { return };
        let is_held = masters
            .get_mut(&held.master)
            .is_some_and(|touches| touches.order.remove(&(held.touch_at, key)));
        let period = period(&held.lease);
        match answer {
            Ok(Acknowledged { verdict: LeaseVerdict::Touched, ms, .. }) => {
                held.deadline = now + Duration::from_millis(held.lease.ttr_ms.into());
                held.touch_at = now + period;
                ms.into_iter().for_each(|ms| held.context.prolonged(ms));
            }
            Ok(Acknowledged { verdict, .. }) => {
                tracing::warn!(id = %held.context.id(), queue = held.context.queue(), verdict = verdict.as_str(), "the job is not this worker's any more, its handler is cancelled");
                held.context.cancellation().cancel();
                return;
            }
            Err(error) => {
                tracing::debug!(id = %held.context.id(), %error, "the lease could not be prolonged yet");
                held.touch_at = now + period.min(MAX_RETRY_INTERVAL);
            }
        }
        if is_held {
            // The job may have another master by now.
            held.master = consumers.store().master_of_job(held.context.id());
            let touches = masters.entry(held.master.clone()).or_default();
            touches.order.insert((held.touch_at, key));
        }
    }

    /// Cancels the handlers whose leases have ended by now, on the masters whose check is due: a
    /// master that does not answer must not hide that leases have ended.
    fn check(&self, now: Instant) {
        let mut inner = self.inner.lock();
        let Inner { held, masters, .. } = &mut *inner;
        for touches in masters.values_mut() {
            if touches.check_at.is_some_and(|at| at <= now) {
                touches.check_at = Some(now + EXPIRY_CHECK_INTERVAL);
                touches.lose_ended(held, now);
            }
        }
    }
}

impl Touches {
    /// The time of the next touch, or of the next check while a call is on its way.
    fn next_at(&self) -> Option<Instant> {
        self.check_at.or_else(|| self.order.first().map(|(at, _)| *at))
    }

    /// Cancels the handlers whose leases have ended by now.
    fn lose_ended(&mut self, held: &HashMap<u64, Held>, now: Instant) {
        self.order.retain(|(_, key)| {
            let Some(held) = held.get(key).filter(|held| held.deadline <= now) else { return true };
            tracing::warn!(id = %held.context.id(), queue = held.context.queue(), "the lease ended while redis was away, the handler is cancelled");
            held.context.cancellation().cancel();
            false
        });
    }
}

impl Call {
    /// Prolongs the leases.
    async fn make(self, consumers: &Consumers) -> (Call, Answers) {
        let answers = consumers.acknowledge(&self.acknowledgements).await;
        (self, answers)
    }
}

impl Held {
    fn say(&self, action: LeaseAction) -> Acknowledgement {
        Acknowledgement { id: self.context.id().clone(), lease: self.lease.clone(), action }
    }
}

/// The time between two touches.
fn period(lease: &Lease) -> Duration {
    (Duration::from_millis(lease.ttr_ms.into()) / 3).max(MIN_TOUCH_INTERVAL)
}
