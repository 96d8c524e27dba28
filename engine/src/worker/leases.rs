//! The leases of the jobs whose handlers run: prolonged at each third of their TTR.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::client::queues::touch;
use crate::clock::{self, Instant};
use crate::consumers::Consumers;
use crate::store::error::StoreError;
use crate::store::queue::acknowledge::{Acknowledged, Acknowledgement, LeaseAction, LeaseVerdict};
use crate::store::queue::pop::Lease;

/// The most leases that one call prolongs.
const MAX_LEASES_PER_CALL: usize = 1000;
/// After an error, the time to the next try is at most this.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two checks of leases while a call is on its way.
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
    /// The times of the next touch, each with the key of its lease. A lost lease is not in the set.
    order: BTreeSet<(Instant, u64)>,
    /// The time until which the keeper sleeps.
    sleeps_until: Option<Instant>,
    is_draining: bool,
}

/// A lease, and the attempt under it.
struct Held {
    lease: Lease,
    context: Context,
    deadline: Instant,
    touch_at: Instant,
}

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
    /// Notes that a handler begins under this lease, which ends at `deadline`. Returns the key of
    /// the lease.
    pub(super) fn begin(&self, lease: Lease, context: Context, deadline: Instant) -> u64 {
        let mut inner = self.inner.lock();
        inner.last_key += 1;
        let key = inner.last_key;
        let touch_at = clock::now() + period(&lease);
        inner.order.insert((touch_at, key));
        inner.held.insert(key, Held { lease, context, deadline, touch_at });
        if inner.sleeps_until.is_none_or(|until| touch_at < until) {
            self.changed.notify_one();
        }
        key
    }

    /// Removes the lease of a handler that ended. `None` if its job was given back meanwhile.
    pub(super) fn end(&self, key: u64) -> Option<Over> {
        let mut inner = self.inner.lock();
        let held = inner.held.remove(&key)?;
        let is_lost = !inner.order.remove(&(held.touch_at, key));
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
        let order = std::mem::take(&mut inner.order);
        let held =
            order.into_iter().filter_map(|(_, key)| inner.held.remove(&key)).collect::<Vec<_>>();
        held.into_iter().map(|held| (held.say(action.clone()), held.deadline)).collect()
    }

    /// Prolongs leases until told to stop.
    pub(super) async fn keep(self: Arc<Self>, consumers: Consumers, stop: CancellationToken) {
        loop {
            let (keys, acknowledgements) = self.to_touch(clock::now());
            if acknowledgements.is_empty() {
                let until = {
                    let mut inner = self.inner.lock();
                    inner.sleeps_until = inner.order.first().map(|(at, _)| *at);
                    inner.sleeps_until
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.changed.notified() => {}
                    () = clock::sleep_until(until.unwrap_or_else(clock::now)), if until.is_some() => {}
                }
                continue;
            }
            let mut call = std::pin::pin!(consumers.acknowledge(&acknowledgements));
            let answers = loop {
                // A Redis that does not answer must not hide that leases have ended.
                tokio::select! {
                    () = stop.cancelled() => return,
                    answers = &mut call => break answers,
                    () = clock::sleep(EXPIRY_CHECK_INTERVAL) => self.lose_ended(clock::now()),
                }
            };
            let now = clock::now();
            keys.into_iter().zip(answers).for_each(|(key, answer)| self.touched(key, answer, now));
            self.lose_ended(now);
        }
    }

    /// The leases to prolong now.
    fn to_touch(&self, now: Instant) -> (Vec<u64>, Vec<Acknowledgement>) {
        let inner = self.inner.lock();
        let due = inner.order.iter().take_while(|(at, _)| *at <= now).take(MAX_LEASES_PER_CALL);
        due.filter_map(|(_, key)| {
            Some((*key, inner.held.get(key)?.say(touch(&inner.held.get(key)?.lease, None))))
        })
        .unzip()
    }

    fn touched(&self, key: u64, answer: Result<Acknowledged, StoreError>, now: Instant) {
        let mut inner = self.inner.lock();
        let Some(held) = inner.held.get_mut(&key) else { return };
        let (before, period) = (held.touch_at, period(&held.lease));
        match answer {
            Ok(Acknowledged { verdict: LeaseVerdict::Touched, ms }) => {
                held.deadline = now + Duration::from_millis(held.lease.ttr_ms.into());
                held.touch_at = now + period;
                ms.into_iter().for_each(|ms| held.context.prolonged(ms));
            }
            Ok(Acknowledged { verdict, .. }) => {
                tracing::warn!(id = %held.context.id(), queue = held.context.queue(), verdict = verdict.as_str(), "the job is not this worker's any more, its handler is cancelled");
                held.context.cancellation().cancel();
                inner.order.remove(&(before, key));
                return;
            }
            Err(error) => {
                tracing::debug!(id = %held.context.id(), %error, "the lease could not be prolonged yet");
                held.touch_at = now + period.min(MAX_RETRY_INTERVAL);
            }
        }
        let next = held.touch_at;
        if inner.order.remove(&(before, key)) {
            inner.order.insert((next, key));
        }
    }

    /// Cancels the handlers whose leases have ended by now.
    fn lose_ended(&self, now: Instant) {
        let mut inner = self.inner.lock();
        let Inner { held, order, .. } = &mut *inner;
        order.retain(|(_, key)| {
            let Some(held) = held.get(key).filter(|held| held.deadline <= now) else { return true };
            tracing::warn!(id = %held.context.id(), queue = held.context.queue(), "the lease ended while redis was away, the handler is cancelled");
            held.context.cancellation().cancel();
            false
        });
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
