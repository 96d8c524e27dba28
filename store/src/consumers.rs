//! Pops for the consumers of one process: over all buckets of several queues, and waiting until a
//! job is there.
//!
//! - `asking`: the pops that ask for jobs of a queue at the same time; `rounds`: the choice of the
//!   calls that they share; `calls`: these calls.
//! - `fill`: pops from the buckets of a queue, the one with the oldest job first.
//! - `guard`: popped jobs that have not reached their consumer; dropped, they go back.
//! - `heads`: the due time of the first job of each bucket of a queue.
//! - `in_flight`: the places of queues that limit how many jobs are out.
//! - `places`: what all waiting pops may take together.
//! - `turns`: the turns of limited queues.
//! - `watch`: the looks at a queue, and the pops that wait for its jobs; `waiter`: a pop that
//!   waits.

mod asking;
mod calls;
mod fill;
mod guard;
mod heads;
mod in_flight;
mod places;
mod rounds;
mod turn_wait;
mod turns;
mod waiter;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::guard::PoppedJobs;
use self::places::Places;
use self::waiter::Waiter;
use self::watch::{Call, Watch};
use crate::budget::Budget;
use crate::clock::{self, Instant};
use crate::events::{Facts, JobEvent, Observer};
use crate::job::{DeadReason, JobId};
use crate::policy::late::LateRules;
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::jobs::acknowledge::{
    Acknowledged, Acknowledgement, LeaseAction, LeaseObserver, LeaseVerdict,
};
use crate::store::place_observers::PlaceObserver;
use crate::store::wake_up::WakeUp;

/// The most jobs of one pop.
pub const MAX_POP_JOBS: usize = 1000;
/// The most bytes of bodies of one pop; one job is always handed out.
pub const MAX_POP_BYTES: usize = 8 << 20;
/// The longest wait of a pop.
pub const MAX_POP_WAIT: Duration = Duration::from_secs(60);
/// The most exact timers at a time, of a file descriptor each.
const MAX_ALARMS: usize = 64;

/// The request of a consumer.
#[derive(Debug, Clone)]
pub struct PopRequest {
    /// The queues: the first one with due jobs serves, and the next ones fill the rest.
    pub queues: Vec<String>,
    /// The most jobs.
    pub max: usize,
    /// The most bytes of bodies; one job is always handed out.
    pub max_bytes: usize,
    /// The wait for the first job.
    pub wait: Duration,
    /// The lease, ms; `None`: the TTR of each job.
    pub ttr_ms: Option<u64>,
    /// The longest lease, ms.
    pub max_ttr_ms: u64,
}

/// The pops of one process. Cheap to clone.
#[derive(Clone)]
pub struct Consumers {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    rules: LateRules,
    observer: Arc<dyn Observer>,
    watches: Mutex<HashMap<String, Arc<Watch>>>,
    places: Places,
    stop: CancellationToken,
    /// The memory for popped jobs, if it is bounded.
    budget: OnceLock<Budget>,
    /// The places of exact timers.
    alarms: Semaphore,
}

impl Inner {
    fn wake(&self, head: &WakeUp) {
        if let Some(queue) = DueSet::named(&head.broker).queue()
            && let Some(watch) = self.watches.lock().get(queue)
        {
            watch.wake(
                head.bucket,
                head.due_ms.saturating_mul(1000).saturating_sub(self.store.now_us()),
            );
        }
    }
}

impl PlaceObserver for Inner {
    fn places_free(&self, queue: &str, count: usize) {
        if let Some(watch) = self.watches.lock().get(queue) {
            watch.places_free(count);
        }
    }
}

impl LeaseObserver for Inner {
    fn acknowledged(&self, queue: &str, id: &JobId, action: &LeaseAction, verdict: LeaseVerdict) {
        let error: &str = match action {
            LeaseAction::Fail { error, .. } | LeaseAction::Bury { error, .. } => error,
            _ => "",
        };
        let is_applied = false;
        self.observer.observe(&JobEvent::Acknowledged { queue, id, verdict, error, is_applied });
        if verdict == LeaseVerdict::Dead {
            // A wait that was not begun would have ended past the expiry.
            let reason = match action {
                LeaseAction::Fail { wait_ms: Some(_), .. } | LeaseAction::Release { .. } => {
                    DeadReason::Expired
                }
                _ => DeadReason::Failed,
            };
            let set = Some(DueSet::Queue(queue));
            let facts = Facts::default();
            self.observer.observe(&JobEvent::Dead { set, id, reason, error, facts });
        }
    }

    fn due_again(&self, head: &WakeUp) {
        self.wake(head);
    }
}

impl Consumers {
    /// Makes the pops of this process. `stop` ends the waiting pops.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        rules: LateRules,
        observer: Arc<dyn Observer>,
        stop: CancellationToken,
    ) -> Consumers {
        Consumers::with_places(store, rules, observer, stop, Places::default())
    }

    fn with_places(
        store: Arc<Store>,
        rules: LateRules,
        observer: Arc<dyn Observer>,
        stop: CancellationToken,
        places: Places,
    ) -> Consumers {
        let (watches, budget) = Default::default();
        let alarms = Semaphore::new(MAX_ALARMS);
        let inner = Inner { store, rules, observer, watches, places, stop, budget, alarms };
        let inner = Arc::new(inner);
        let watching: Arc<dyn PlaceObserver> = inner.clone();
        inner.store.observe_places(Arc::downgrade(&watching));
        Consumers { inner }
    }

    /// Hands out due jobs, and waits for the first one if there is none. Empty after the wait, or
    /// where the process stops. Dropping the answer, or this future, gives the jobs back.
    ///
    /// # Errors
    /// Redis does not answer or refuses; also while the pop waits.
    /// [`Class::Memory`](crate::store::error::Class) at its end where jobs are ready and have no
    /// room, and instead of a wait where the waiting pops of this process name too many queues.
    pub async fn pop(&self, asked: &PopRequest) -> Result<PoppedJobs, StoreError> {
        let until = clock::now() + asked.wait;
        let jobs = self.pop_now(asked).await?;
        if jobs.is_empty() { self.pop_until(asked, until).await } else { Ok(jobs) }
    }

    /// The second half of a [`pop`](Consumers::pop), after a [`pop_now`](Consumers::pop_now) that
    /// found nothing: waits until `until` for the first job.
    ///
    /// # Errors
    /// As [`pop`](Consumers::pop).
    pub async fn pop_until(
        &self,
        asked: &PopRequest,
        until: Instant,
    ) -> Result<PoppedJobs, StoreError> {
        let mut jobs = PoppedJobs::none(self);
        while clock::now() < until && !self.inner.stop.is_cancelled() {
            let Some(call) = self.wait(asked, until).await? else { break };
            // The futures have boxes of their own: thousands of pops wait at a time, and few get a
            // job at a time.
            jobs = Box::pin(self.pop_granted(asked, call)).await?;
            if !jobs.is_empty() {
                return Ok(jobs);
            }
            Box::pin(jobs.until_room(until)).await;
        }
        jobs.check_memory().map(|()| jobs)
    }

    /// The store of the jobs.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The number of pops that wait for this queue in this process.
    #[must_use]
    pub fn waiting(&self, queue: &str) -> usize {
        self.inner.watches.lock().get(queue).map_or(0, |watch| watch.waiting())
    }

    /// Carries out lease actions, reports their verdicts, and wakes the pops that wait for the jobs
    /// that are due again: all of it even if the caller goes away.
    pub async fn acknowledge(
        &self,
        acknowledgements: &[Acknowledgement],
    ) -> Vec<Result<Acknowledged, StoreError>> {
        let observer = self.inner.clone();
        self.inner.store.jobs.acknowledge_observed(acknowledgements, observer).await
    }

    /// Notes that a job of a queue became the earliest of its bucket. Wake-ups for brokers are
    /// ignored.
    pub fn wake(&self, head: &WakeUp) {
        self.inner.wake(head);
    }

    /// Wake-ups of other processes may have been lost: looks at every queue with a waiting pop.
    pub fn look_again(&self) {
        self.inner.watches.lock().values().for_each(|watch| watch.look_again());
    }

    /// Ends the pause of a queue, and wakes the pops that wait for it in this process and in
    /// others.
    ///
    /// # Errors
    /// A master does not answer or refuses: repeat the call.
    pub async fn resume(&self, queue: &str) -> Result<(), StoreError> {
        let store = &self.inner.store;
        store.admin.resume(queue).await?;
        let buckets: Vec<u16> = (0..store.keys().buckets()).collect();
        let (mut looks, mut wake_ups) = (store.jobs.heads(queue, &buckets), Vec::new());
        while let Some((buckets, ahead_us)) = looks.next().await {
            let now_ms = store.now_ms();
            let due = |(bucket, ahead_us): (&u16, Option<i64>)| {
                let due_ms = now_ms.saturating_add(ahead_us?.div_euclid(1000));
                Some(WakeUp { bucket: *bucket, broker: DueSet::Queue(queue).to_string(), due_ms })
            };
            wake_ups.extend(buckets.iter().zip(ahead_us?).filter_map(due));
        }
        self.wake_all(wake_ups).await;
        Ok(())
    }

    /// Wakes the pops that wait in this process and in others.
    pub async fn wake_all(&self, wake_ups: Vec<WakeUp>) {
        wake_ups.iter().for_each(|head| self.wake(head));
        if let Err(error) = self.inner.store.wake_others(&wake_ups).await {
            tracing::debug!(%error, "wake-ups were not sent, the floor poll of the others finds the jobs");
        }
    }

    /// Waits until a job of one of the queues is due. `None` after the wait, or if the process
    /// stops.
    async fn wait(&self, asked: &PopRequest, until: Instant) -> Result<Option<Call>, StoreError> {
        let waiter = self.waiter(asked)?;
        // Dropping the waiter takes it out of the watches.
        tokio::select! {
            granted = waiter.granted() => granted.map(Some),
            () = clock::sleep_until(until) => waiter.take().transpose(),
            () = self.inner.stop.cancelled() => Ok(None),
        }
    }

    /// A waiting pop, in the watches of its queues. An error if all waiting pops take too much.
    fn waiter(&self, asked: &PopRequest) -> Result<Waiter<Call>, StoreError> {
        let places = &self.inner.places;
        let waiter = Waiter::new(places.take(asked.queues.len())?);
        // A refused pop leaves no watch behind.
        let has_room = {
            let watches = self.inner.watches.lock();
            let new = asked.queues.iter().filter(|queue| !watches.contains_key(queue.as_str()));
            watches.len() + new.count() <= places.queues
        };
        if !has_room {
            return Err(places.no_queue());
        }
        for queue in &asked.queues {
            loop {
                let watch = self.watch(queue, places.queues).ok_or_else(|| places.no_queue())?;
                // A watch that is over has left its place.
                if watch.add(&waiter) {
                    break;
                }
            }
        }
        Ok(waiter)
    }

    /// The watch of a queue, which runs; `None` if the queue has none and there are so many
    /// already.
    fn watch(&self, queue: &str, most: usize) -> Option<Arc<Watch>> {
        let mut watches = self.inner.watches.lock();
        if let Some(watch) = watches.get(queue) {
            return Some(watch.clone());
        }
        if watches.len() >= most {
            return None;
        }
        let watch = self.lone_watch(queue);
        watches.insert(queue.to_owned(), watch.clone());
        let (consumers, watching) = (self.clone(), watch.clone());
        tokio::spawn(async move { watching.run(consumers).await });
        Some(watch)
    }

    /// A watch of a queue for one pop alone.
    fn lone_watch(&self, queue: &str) -> Arc<Watch> {
        let store = &self.inner.store;
        Arc::new(Watch::new(queue, store.keys().buckets(), store.is_cluster()))
    }
}

#[cfg(test)]
mod tests;
