//! Takes over expired leases: of instances that crashed, and of consumers that did not finish
//! within the TTR. The sidecar and each worker of `dwell-engine` run one.

mod told;
mod wake;

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::wake::WakeReaders;
use crate::clock::{self, Instant};
use crate::events::{JobEvent, Observer};
use crate::fleet::Fleet;
use crate::policy::lease::TIMEOUT_ERROR;
use crate::policy::{Fate, UNREADABLE, lease};
use crate::reconnect::jitter;
use crate::store::Store;
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::claim::{ClaimedJob, by_set};
use crate::store::jobs::settle::{Bury, Completion, Release, Retry};
use crate::store::wake_up::WakeUp;

/// The interval at which the preferred reader of a bucket looks for expired leases: the delay that
/// a crash adds to the lease.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// In a fleet of up to this size, each instance scans every bucket this often, preferred or not; in
/// a larger fleet each scans more rarely, so that the total stays the same. A killed reader counts
/// as alive for ten seconds; its leases expire meanwhile.
const SMALL_SCANNING_FLEET: u32 = 16;
/// Other instances leave an expired lease to the preferred reader for this time.
const DEFERENCE_DELAY: Duration = Duration::from_millis(250);

/// The number of buckets of one master that are rescued beside each other: enough to keep Redis
/// busy.
const CONCURRENT_BUCKETS_PER_MASTER: usize = 8;

/// The options of a rescue.
#[derive(Clone)]
pub struct RescueOptions {
    /// The lease of a rescue's claim: it covers the call that sends the jobs back.
    pub lease: Duration,
    /// The waits, ms, between the attempts of jobs without a retry array.
    pub retry_ms: Arc<[u64]>,
    /// Is told of the jobs.
    pub observer: Arc<dyn Observer>,
    /// Woken for jobs that are due again.
    pub readers: Arc<dyn WakeReaders>,
}

/// The agent that takes over expired leases. Cheap to clone.
#[derive(Clone)]
pub struct Rescue {
    store: Arc<Store>,
    options: RescueOptions,
    fleet: watch::Receiver<Fleet>,
}

/// The work of a rescue on one master.
#[derive(Default)]
struct Master {
    /// A look at this master has no answer yet.
    is_looked_at: bool,
    /// The rescues that run.
    running: usize,
    /// Buckets with ended leases, each with whether it is preferred.
    ended: VecDeque<(u16, bool)>,
}

impl Rescue {
    /// Makes an agent; [`Rescue::run`] starts it.
    #[must_use]
    pub fn new(store: Arc<Store>, options: RescueOptions, fleet: watch::Receiver<Fleet>) -> Self {
        Rescue { store, options, fleet }
    }

    /// Takes over expired leases until told to stop. Looks and rescues go on beside each other:
    /// neither a master that hangs nor a bucket with many ended leases delays the others.
    pub async fn run(self, stop: CancellationToken) {
        let (mut all_at, mut masters): (_, HashMap<Option<String>, Master>) =
            (clock::now(), HashMap::new());
        let (mut looks, mut rescues, mut busy) =
            (FuturesUnordered::new(), JoinSet::new(), HashSet::new());
        while !stop.is_cancelled() {
            let everything = clock::now() >= all_at;
            let preferred = {
                let fleet = self.fleet.borrow();
                if everything {
                    // Jitter: an outage that stopped all instances must not make them scan at the
                    // same time.
                    all_at = clock::now()
                        + jitter(
                            fleet.shared(SCAN_INTERVAL / SMALL_SCANNING_FLEET).max(SCAN_INTERVAL),
                        );
                }
                fleet.preferred(self.store.keys().buckets())
            };
            let buckets = (0..)
                .zip(preferred)
                .filter(|(bucket, preferred)| (*preferred || everything) && !busy.contains(bucket));
            masters.retain(|_, master| {
                master.is_looked_at || master.running > 0 || !master.ended.is_empty()
            });
            for (home, buckets) in self.by_master(buckets) {
                let master = masters.entry(home.clone()).or_default();
                if !std::mem::replace(&mut master.is_looked_at, true) {
                    looks.push(self.look(buckets).map(move |found| (home, found)));
                }
            }
            let mut look_at = all_at.min(clock::now() + SCAN_INTERVAL);
            loop {
                for (home, master) in &mut masters {
                    while master.running < CONCURRENT_BUCKETS_PER_MASTER
                        && let Some((bucket, preferred)) = master.ended.pop_front()
                    {
                        master.running += 1;
                        let (rescue, home) = (self.clone(), home.clone());
                        // A task: the records are read on every core.
                        rescues.spawn(async move {
                            let result =
                                AssertUnwindSafe(rescue.run_once(bucket)).catch_unwind().await;
                            (
                                home,
                                bucket,
                                preferred,
                                result.unwrap_or_else(|_| {
                                    Err(StoreError::new(Class::Other, "a rescue panicked"))
                                }),
                            )
                        });
                    }
                }
                tokio::select! {
                    () = stop.cancelled() => break,
                    Some((home, (ended, next))) = looks.next() => {
                        let master = masters.entry(home).or_default();
                        master.is_looked_at = false;
                        master.ended.extend(ended.into_iter().filter(|(bucket, _)| busy.insert(*bucket)));
                        look_at = next.map_or(look_at, |next| next.min(look_at));
                    }
                    Some(rescued) = rescues.join_next() => {
                        let Ok((home, bucket, preferred, result)) = rescued else { continue };
                        let master = masters.entry(home).or_default();
                        master.running = master.running.saturating_sub(1);
                        busy.remove(&bucket);
                        match result {
                            Ok(next) => look_at = next.filter(|_| preferred).map_or(look_at, |next| next.min(look_at)),
                            Err(error) => {
                                tracing::debug!(bucket, %error, "rescuing failed, trying again");
                                if error.is_away() {
                                    // The other buckets of this master would time out as well.
                                    for (bucket, _) in master.ended.drain(..) {
                                        busy.remove(&bucket);
                                    }
                                }
                            }
                        }
                    }
                    () = clock::sleep_until(look_at) => break,
                }
            }
        }
        // Calls on their way are not given up: their leases would have to end.
        while rescues.join_next().await.is_some() {}
    }

    /// Groups buckets by their master, with whether each is preferred; without a cluster, one
    /// group.
    fn by_master(
        &self,
        buckets: impl Iterator<Item = (u16, bool)>,
    ) -> HashMap<Option<String>, Vec<(u16, bool)>> {
        let layout = self.store.layout();
        let mut groups: HashMap<Option<String>, Vec<(u16, bool)>> = HashMap::new();
        for (bucket, preferred) in buckets {
            let home = layout.as_ref().and_then(|layout| self.store.master_of(layout, bucket));
            groups.entry(home).or_default().push((bucket, preferred));
        }
        groups
    }

    /// Looks at buckets of one master. Returns the buckets with an ended lease, each with whether
    /// it is preferred, and the end of the next lease in a preferred bucket.
    async fn look(&self, buckets: Vec<(u16, bool)>) -> (Vec<(u16, bool)>, Option<Instant>) {
        let names: Vec<u16> = buckets.iter().map(|(bucket, _)| *bucket).collect();
        let ahead = match self.store.jobs.leases_end(&names).await {
            Ok(ahead) => ahead,
            Err(error) if error.is_away() => return (Vec::new(), None),
            // A bucket is damaged or has moved: look at each by itself.
            Err(_) => vec![Some(i64::MIN); names.len()],
        };
        let (mut next, mut ended): (Option<Instant>, Vec<(u16, bool)>) = (None, Vec::new());
        for ((bucket, preferred), ahead_us) in buckets.into_iter().zip(ahead) {
            let Some(ahead_us) = ahead_us else { continue };
            let deference = if preferred { Duration::ZERO } else { DEFERENCE_DELAY };
            if ahead_us.saturating_add(i64::try_from(deference.as_micros()).unwrap_or(0)) > 0 {
                // Consumers wait for the redelivery of jobs that they did not finish: exact to the
                // millisecond when near.
                next = next.into_iter().chain(preferred.then(|| after(ahead_us))).min();
            } else {
                ended.push((bucket, preferred));
            }
        }
        (ended, next)
    }

    /// Handles one bucket until no lease in it has expired. Returns when the next one expires. A
    /// queue whose key is damaged keeps its jobs, and holds up no other: its error comes at the
    /// end.
    pub async fn run_once(&self, bucket: u16) -> Result<Option<Instant>, StoreError> {
        self.time_out(bucket).await?;
        let mut result = Ok(());
        loop {
            let taken =
                self.store.jobs.rescue(bucket, self.options.lease, CALL_JOBS, CALL_BYTES).await?;
            let none_taken = taken.jobs.is_empty() && taken.broken.is_empty();
            let mut buries = Vec::new();
            for broken in taken.broken {
                self.options.observer.observe(&JobEvent::Unreadable {
                    id: &broken.id,
                    bucket,
                    why: &broken.why,
                });
                let bury = Bury { job: broken.token(), reason: UNREADABLE, error: broken.why };
                match &broken.queue {
                    Some(queue) => {
                        result = later(result, self.bury(bucket, Some(queue), &[bury]).await)?
                    }
                    None => buries.push(bury),
                }
            }
            for (set, leases) in by_set(taken.jobs) {
                let settled = if let Some(queue) = DueSet::named(&set).queue() {
                    let mut buries = Vec::new();
                    let settled = self.settle(bucket, &set, leases, &mut buries).await;
                    result = later(result, settled)?;
                    self.bury(bucket, Some(queue), &buries).await
                } else {
                    self.settle(bucket, &set, leases, &mut buries).await
                };
                result = later(result, settled)?;
            }
            result = later(result, self.bury(bucket, None, &buries).await)?;
            if !taken.more || none_taken {
                result?;
                let ahead_us =
                    taken.next_ms.map(|ms| ms.saturating_mul(1000).saturating_sub(taken.now_us));
                return Ok(ahead_us.map(after));
            }
        }
    }

    /// Sends back the held jobs past their TTR that are due again at once. Jobs with another fate
    /// stay held.
    async fn time_out(&self, bucket: u16) -> Result<(), StoreError> {
        let (mut sets, mut idle_calls, mut until_ms) = (Vec::new(), 0, None);
        // The first call without an effect learns the queues. A second one learns nothing new that
        // helps.
        while idle_calls < 2 {
            let done = match self
                .store
                .jobs
                .time_out(bucket, &sets, self.options.retry_ms.len(), until_ms, TIMEOUT_ERROR)
                .await
            {
                Ok(done) => done,
                Err(error) if error.is_away() => return Err(error),
                // The key of a queue is damaged or forbidden: the rescue sends back the jobs of the
                // others.
                Err(error) => {
                    tracing::debug!(bucket, %error, "no held job is sent back at once");
                    return Ok(());
                }
            };
            // Holds that end from now on must not delay the rescue.
            until_ms = until_ms.or(Some(done.now_us / 1000));
            if done.ready.is_empty() && done.left_out.is_empty() {
                return Ok(());
            }
            idle_calls = if done.ready.is_empty() { idle_calls + 1 } else { 0 };
            for (set, count) in &done.ready {
                let queue = DueSet::named(set).queue();
                self.options.observer.observe(&JobEvent::TimedOut { queue, count: *count });
                self.wake(WakeUp { bucket, broker: set.clone(), due_ms: done.now_us / 1000 });
            }
            if !done.left_out.is_empty() {
                sets = done.left_out;
            }
        }
        Ok(())
    }

    /// Wakes the readers of a set. A task: a master that hangs delays its wake-up, and nothing
    /// else.
    fn wake(&self, head: WakeUp) {
        let readers = self.options.readers.clone();
        tokio::spawn(async move { readers.wake_readers(head).await });
    }

    async fn bury(
        &self,
        bucket: u16,
        queue: Option<&str>,
        buries: &[Bury],
    ) -> Result<(), StoreError> {
        if buries.is_empty() {
            return Ok(());
        }
        let stood = self.store.jobs.bury_of(bucket, queue, buries).await?;
        told::dead(&*self.options.observer, queue, buries, &stood);
        Ok(())
    }

    /// Sends back the jobs of one broker, or of `=` and a queue. Adds the jobs to bury to `buries`.
    async fn settle(
        &self,
        bucket: u16,
        set: &str,
        leases: Vec<ClaimedJob>,
        buries: &mut Vec<Bury>,
    ) -> Result<(), StoreError> {
        let (mut releases, mut retries, mut over) = (Vec::new(), Vec::new(), Vec::new());
        let now_ms = self.store.now_ms();
        for lease in &leases {
            let (id, crashes) = (&lease.id, lease.state.crashes);
            let event = if lease.state.held {
                JobEvent::TimedOut { queue: lease.record.job.queue(), count: 1 }
            } else {
                JobEvent::TakenOver { set: DueSet::named(set), id, crashes }
            };
            self.options.observer.observe(&event);
            let (state, job) = (&lease.state, lease.token());
            let (of_job, retry_ms) = (&lease.record.job, &self.options.retry_ms);
            match lease::ended(of_job, state.progress(), state.held, retry_ms, now_ms) {
                Fate::Release { unpublished } => {
                    releases.push(Release { job, pause_ms: 0, unpublished });
                }
                Fate::Retry { wait_ms, error } => {
                    let retry = Retry { job, wait_ms, unpublished: false, dies: None, error };
                    retries.push((retry, lease));
                }
                Fate::Die { reason, error, unpublished } => {
                    let dies = Some(reason);
                    retries.push((Retry { job, wait_ms: 0, unpublished, dies, error }, lease));
                }
                Fate::Bury { reason, error } => buries.push(Bury { job, reason, error }),
                Fate::Drop => over.push(job),
            }
        }
        if !over.is_empty() {
            let stood = self.store.jobs.complete(bucket, &over, Completion::Dropped).await?;
            told::dropped(&*self.options.observer, set, &over, &stood);
        }
        if !releases.is_empty() {
            self.store.jobs.release(bucket, set, &releases).await?;
        }
        if !retries.is_empty() {
            let jobs: Vec<Retry> = retries.iter().map(|(retry, _)| retry.clone()).collect();
            let stood = self.store.jobs.retry(bucket, set, &jobs).await?;
            told::retried(&*self.options.observer, set, &retries, &stood);
        }
        let soonest =
            retries.iter().map(|(retry, _)| retry.wait_ms).chain(releases.iter().map(|_| 0)).min();
        if let Some(wait_ms) = soonest {
            let due_ms = self.store.now_ms() + i64::try_from(wait_ms).unwrap_or(i64::MAX / 2);
            self.wake(WakeUp { bucket, broker: set.to_owned(), due_ms });
        }
        Ok(())
    }
}

/// The first of the two errors, for later; at once if the server does not answer.
fn later(
    before: Result<(), StoreError>,
    now: Result<(), StoreError>,
) -> Result<Result<(), StoreError>, StoreError> {
    match now {
        Err(error) if error.is_away() => Err(error),
        now => Ok(before.and(now)),
    }
}

/// The time at which a lease that ends after `ahead_us` has expired: a ms later, because the lease
/// still holds at its deadline.
fn after(ahead_us: i64) -> Instant {
    clock::now() + clock::micros(ahead_us) + Duration::from_millis(1)
}

#[cfg(test)]
mod tests;
