//! Takes over expired leases: of instances that crashed, and of consumers that did not finish
//! within the TTR. The sidecar and each [`Worker`](crate::worker::Worker) run one.

mod follow_up;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::follow_up::{FollowUp, follow_up};
use crate::clock::{self, Instant};
use crate::fleet::Fleet;
use crate::job::{DeadReason, queue_of_set};
use crate::reconnect::jitter;
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::store::queue::lease::Lease;
use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS, WakeUp};
use crate::store::queue::settle::{Bury, Completion, SettleResult};

/// How often the preferred reader of a bucket looks for expired leases: the delay that a crash adds
/// to the lease.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// In a fleet of up to this size, each instance scans every bucket this often, preferred or not; in
/// a larger fleet each scans more rarely, so that the total stays the same. A killed reader counts
/// as alive for ten seconds; its leases expire meanwhile.
const SMALL_FLEET: u32 = 16;
/// Other instances leave an expired lease to the preferred reader for this time.
const DEFERENCE: Duration = Duration::from_millis(250);

/// What a rescue needs to know.
#[derive(Debug, Clone)]
pub struct RescueRules {
    /// How long the lease of a rescue lasts: it covers the call that sends the jobs back.
    pub lease: Duration,
    /// The waits, ms, between the attempts of jobs without a retry array.
    pub retry_ms: Arc<[u64]>,
}

/// Receives what a rescue did.
pub trait RescueObserver: Send + Sync {
    /// A consumer did not finish its job within the TTR; `queue`: of a job of a queue.
    fn timed_out(&self, _queue: Option<&str>) {}
    /// The owner of a job crashed, and its attempt may have arrived.
    fn taken_over(&self) {}
    /// A job is dead for this reason.
    fn dead(&self, _reason: DeadReason) {}
    /// A job is due again: wakes whoever reads its set.
    fn wake(&self, head: WakeUp) -> BoxFuture<'_, ()>;
}

/// The agent that takes over expired leases.
pub struct Rescue {
    store: Arc<Store>,
    rules: RescueRules,
    observer: Arc<dyn RescueObserver>,
    fleet: watch::Receiver<Fleet>,
}

impl Rescue {
    /// Makes an agent; [`Rescue::run`] starts it.
    #[must_use]
    pub fn new(store: Arc<Store>, rules: RescueRules, observer: Arc<dyn RescueObserver>, fleet: watch::Receiver<Fleet>) -> Self {
        Rescue { store, rules, observer, fleet }
    }

    /// Takes over expired leases until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut all_at = clock::now();
        loop {
            let everything = clock::now() >= all_at;
            let preferred = {
                let fleet = self.fleet.borrow();
                if everything {
                    // Jitter: an outage that stopped all instances must not make them scan at the
                    // same time.
                    all_at = clock::now() + jitter(fleet.shared(SCAN_INTERVAL / SMALL_FLEET).max(SCAN_INTERVAL));
                }
                fleet.preferred(self.store.keys().buckets())
            };
            let buckets = (0..).zip(preferred).filter(|(_, preferred)| *preferred || everything);
            // One pass for each master, side by side: a master that hangs must not delay the
            // others.
            let passes = self.by_master(buckets).into_iter().map(|buckets| self.pass(buckets, &stop));
            let next = join_all(passes).await.into_iter().flatten().min();
            let look = all_at.min(clock::now() + SCAN_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep_until(next.map_or(look, |next| next.min(look))) => {}
            }
        }
    }

    /// Groups buckets by their master, with whether each is preferred; without a cluster, one
    /// group.
    fn by_master(&self, buckets: impl Iterator<Item = (u16, bool)>) -> Vec<Vec<(u16, bool)>> {
        let layout = self.store.layout();
        let mut groups: HashMap<Option<String>, Vec<(u16, bool)>> = HashMap::new();
        for (bucket, preferred) in buckets {
            let home = layout.as_ref().and_then(|layout| self.store.master_of(layout, bucket));
            groups.entry(home).or_default().push((bucket, preferred));
        }
        groups.into_values().collect()
    }

    /// One pass over the buckets of one master. Returns when the next lease in a preferred bucket
    /// expires.
    async fn pass(&self, mut buckets: Vec<(u16, bool)>, stop: &CancellationToken) -> Option<Instant> {
        // A pass that ends early skips different buckets each time.
        let first = rand::random_range(0..buckets.len().max(1));
        buckets.rotate_left(first);
        let is_away = |error: &StoreError| matches!(error.class, Class::Io | Class::Timeout);
        let names: Vec<u16> = buckets.iter().map(|(bucket, _)| *bucket).collect();
        let ahead = match self.store.queue.leases_end(&names).await {
            Ok(ahead) => ahead,
            Err(error) if is_away(&error) => return None,
            // A bucket is damaged or has moved: look at each by itself.
            Err(_) => vec![Some(i64::MIN); names.len()],
        };
        let mut next: Option<Instant> = None;
        for ((bucket, preferred), ahead_us) in buckets.into_iter().zip(ahead) {
            let Some(ahead_us) = ahead_us else { continue };
            let deference = if preferred { Duration::ZERO } else { DEFERENCE };
            if stop.is_cancelled() {
                break;
            }
            if ahead_us.saturating_add(i64::try_from(deference.as_micros()).unwrap_or(0)) > 0 {
                // Consumers wait for the redelivery of jobs that they did not finish: exact to the
                // millisecond when near.
                next = next.into_iter().chain(preferred.then(|| after(ahead_us))).min();
                continue;
            }
            match self.run_once(bucket).await {
                Ok(deadline) => next = next.into_iter().chain(deadline.filter(|_| preferred)).min(),
                Err(error) => {
                    tracing::debug!(bucket, %error, "rescuing failed, trying again");
                    if self.store.is_cluster() && is_away(&error) {
                        // The other buckets of this master would time out as well, and delay the
                        // next pass of the other masters.
                        break;
                    }
                }
            }
        }
        next
    }

    /// Handles one bucket until no lease in it has expired. Returns when the next one expires.
    pub async fn run_once(&self, bucket: u16) -> Result<Option<Instant>, StoreError> {
        loop {
            let taken = self.store.queue.rescue(bucket, self.rules.lease, CALL_JOBS, CALL_BYTES).await?;
            let none_taken = taken.jobs.is_empty() && taken.broken.is_empty();
            let mut buries = Vec::new();
            for broken in taken.broken {
                tracing::error!(id = %broken.id, bucket, why = broken.why, "a stored job cannot be read, it is kept among the dead");
                let bury = Bury { job: broken.token(), reason: DeadReason::Invalid, error: broken.why };
                match &broken.queue {
                    Some(queue) => self.bury(bucket, Some(queue), &[bury]).await?,
                    None => buries.push(bury),
                }
            }
            for (set, leases) in by_set(taken.jobs) {
                if let Some(queue) = queue_of_set(&set) {
                    let mut buries = Vec::new();
                    self.settle(bucket, &set, leases, &mut buries).await?;
                    self.bury(bucket, Some(queue), &buries).await?;
                } else {
                    self.settle(bucket, &set, leases, &mut buries).await?;
                }
            }
            self.bury(bucket, None, &buries).await?;
            if !taken.more || none_taken {
                let ahead_us = taken.next_ms.map(|ms| ms.saturating_mul(1000).saturating_sub(taken.now_us));
                return Ok(ahead_us.map(after));
            }
        }
    }

    async fn bury(&self, bucket: u16, queue: Option<&str>, buries: &[Bury]) -> Result<(), StoreError> {
        if buries.is_empty() {
            return Ok(());
        }
        let stood = self.store.queue.bury_of(bucket, queue, buries).await?;
        let settled = buries.iter().zip(stood).filter(|(_, stood)| *stood == SettleResult::Settled);
        settled.for_each(|(bury, _)| self.observer.dead(bury.reason));
        Ok(())
    }

    /// Sends back the jobs of one broker, or of `=` and a queue. Adds those that are to be buried.
    async fn settle(&self, bucket: u16, set: &str, leases: Vec<Lease>, buries: &mut Vec<Bury>) -> Result<(), StoreError> {
        let (mut releases, mut retries, mut over) = (Vec::new(), Vec::new(), Vec::new());
        let now_ms = self.store.now_ms();
        for lease in leases {
            if lease.state.held {
                self.observer.timed_out(lease.record.job.queue.as_deref());
            } else {
                tracing::warn!(id = %lease.id, broker = set, crashes = lease.state.crashes, "the lease expired without a settlement, the job is taken over");
                self.observer.taken_over();
            }
            match follow_up(&lease, &self.rules.retry_ms, now_ms) {
                FollowUp::Release(release) => releases.push(release),
                FollowUp::Retry(retry) => retries.push(retry),
                FollowUp::Bury(bury) => buries.push(bury),
                FollowUp::End(token) => over.push(token),
            }
        }
        if !over.is_empty() {
            self.store.queue.complete(bucket, &over, Completion::Dropped).await?;
        }
        if !releases.is_empty() {
            self.store.queue.release(bucket, set, &releases).await?;
        }
        if !retries.is_empty() {
            self.store.queue.retry(bucket, set, &retries).await?;
        }
        let soonest = retries.iter().map(|retry| retry.wait_ms).chain(releases.iter().map(|_| 0)).min();
        if let Some(wait_ms) = soonest {
            let due_ms = self.store.now_ms() + i64::try_from(wait_ms).unwrap_or(i64::MAX / 2);
            self.observer.wake(WakeUp { bucket, broker: set.to_owned(), due_ms }).await;
        }
        Ok(())
    }
}

/// When a lease that ends after `ahead_us` has expired: a ms later, because it still holds at its
/// deadline.
fn after(ahead_us: i64) -> Instant {
    clock::now() + clock::micros(ahead_us) + Duration::from_millis(1)
}

/// Groups jobs by their broker, or by `=` and their queue.
fn by_set(leases: Vec<Lease>) -> Vec<(String, Vec<Lease>)> {
    let mut groups: Vec<(String, Vec<Lease>)> = Vec::new();
    for lease in leases {
        let set = lease.record.job.set();
        match groups.iter_mut().find(|(known, _)| *known == *set) {
            Some((_, group)) => group.push(lease),
            None => groups.push((set.into_owned(), vec![lease])),
        }
    }
    groups
}
