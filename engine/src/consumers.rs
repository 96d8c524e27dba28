//! Pops for the consumers of one process: over all buckets of several queues, and waiting until a
//! job is there.
//!
//! - `guard`: jobs that nobody got yet; dropped, they go back.
//! - `watch`: when the jobs of one queue fall due, and who waits for them.

mod guard;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub use self::guard::PoppedJobs;
use self::watch::{Granted, Watch};
use crate::clock::{self, Instant};
use crate::job::{DeadReason, Late, queue_of_set, set_of_queue};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::queue::acknowledge::{Acknowledge, Acknowledged, LeaseVerdict, Word};
use crate::store::queue::pop::{PopLimits, Popped};
use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS, WakeUp};
use crate::store::record::Nonce;

/// What a consumer asks for.
#[derive(Debug, Clone)]
pub struct PopRequest {
    /// The queues; the first that has something serves, and the next ones fill the rest.
    pub queues: Vec<String>,
    /// The most jobs.
    pub max: usize,
    /// The most bytes of bodies; one job is always handed out.
    pub max_bytes: usize,
    /// How long to wait for the first job.
    pub wait: Duration,
    /// The lease, ms; `None`: the TTR of each job.
    pub ttr_ms: Option<u64>,
    /// The longest lease, ms.
    pub max_ttr_ms: u64,
}

/// What becomes of a job that is late at its first pop, where the job itself does not say.
#[derive(Debug, Clone, Copy, Default)]
pub struct LateRules {
    /// What happens.
    pub late: Late,
    /// Late is what is overdue by more, ms; `None`: nothing is.
    pub max_late_ms: Option<u64>,
}

/// Receives an event for each job that a pop removes instead of handing it out, and for each word on
/// a lease. The metrics implement it.
pub trait ConsumersObserver: Send + Sync {
    /// A job of this queue was too late: dropped, or dead (`true`).
    fn late(&self, queue: &str, is_dead: bool);
}

/// An observer that ignores everything.
#[derive(Debug)]
pub struct UnobservedConsumers;

impl ConsumersObserver for UnobservedConsumers {
    fn late(&self, _: &str, _: bool) {}
}

/// The pops of one process. Cheap to clone.
#[derive(Clone)]
pub struct Consumers {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    rules: LateRules,
    observer: Arc<dyn ConsumersObserver>,
    watches: Mutex<HashMap<String, Arc<Watch>>>,
    /// By queue: the bucket in which a pop left due jobs.
    backlogs: Mutex<HashMap<String, Backlog>>,
    stop: CancellationToken,
}

/// A bucket with more due jobs than its last pop took.
#[derive(Debug, Clone, Copy)]
struct Backlog {
    bucket: u16,
    /// How many pops take from it without a look at the others.
    turns: u8,
}

/// The turns of a [`Backlog`]: a look at all buckets costs as much as a small pop, and no bucket may be
/// served alone for long.
const TURNS: u8 = 8;

/// How long a bucket is left alone whose head cannot be read, µs.
const BLOCKED_US: i64 = 1_000_000;

/// What one bucket gave.
type FromBucket = Result<PoppedJobs, StoreError>;

impl Consumers {
    /// Makes the pops of this process. `stop` ends those that wait.
    #[must_use]
    pub fn new(store: Arc<Store>, rules: LateRules, observer: Arc<dyn ConsumersObserver>, stop: CancellationToken) -> Consumers {
        Consumers { inner: Arc::new(Inner { store, rules, observer, watches: Mutex::default(), backlogs: Mutex::default(), stop }) }
    }

    /// Hands out due jobs, and waits for the first one if there is none. Empty after the wait, or
    /// where the process stops. Dropping the answer, or this future, gives the jobs back.
    ///
    /// # Errors
    /// Redis does not answer or refuses; also while the pop waits.
    pub async fn pop(&self, asked: &PopRequest) -> Result<PoppedJobs, StoreError> {
        let until = clock::now() + asked.wait;
        let jobs = self.pop_now(asked).await?;
        if jobs.is_empty() { self.pop_until(asked, until).await } else { Ok(jobs) }
    }

    /// The second half of a [`pop`](Consumers::pop), after a [`pop_now`](Consumers::pop_now) that found
    /// nothing: waits for the first job until then.
    ///
    /// # Errors
    /// As of a pop.
    pub async fn pop_until(&self, asked: &PopRequest, until: Instant) -> Result<PoppedJobs, StoreError> {
        while clock::now() < until && !self.inner.stop.is_cancelled() {
            let Some(granted) = self.wait(asked, until).await? else { break };
            // In a box of its own: thousands of pops wait at a time, and few get a job at a time.
            let jobs = Box::pin(self.pop_granted(asked, &granted)).await?;
            if !jobs.is_empty() {
                return Ok(jobs);
            }
        }
        Ok(PoppedJobs::none(self))
    }

    /// How many pops wait for this queue in this process.
    #[must_use]
    pub fn waiting(&self, queue: &str) -> usize {
        self.inner.watches.lock().get(queue).map_or(0, |watch| watch.waiting())
    }

    /// Carries out words on leases, and wakes whoever waits for the jobs that are due again.
    pub async fn acknowledge(&self, words: &[Acknowledge]) -> Vec<Result<Acknowledged, StoreError>> {
        let answers = self.inner.store.queue.acknowledge(words).await;
        let keys = self.inner.store.keys();
        let due_again = words.iter().zip(&answers).filter_map(|(word, answer)| match answer {
            Ok(Acknowledged { verdict: LeaseVerdict::Failed | LeaseVerdict::Released, ms: Some(due_ms) }) => {
                Some(WakeUp { bucket: keys.bucket_of(word.id.as_str()), broker: set_of_queue(&word.lease.queue), due_ms: *due_ms })
            }
            _ => None,
        });
        self.wake_all(due_again.collect()).await;
        answers
    }

    /// A job of a queue in this process became the earliest of its bucket. Wake-ups for brokers
    /// are ignored.
    pub fn wake(&self, head: &WakeUp) {
        if let Some(queue) = queue_of_set(&head.broker)
            && let Some(watch) = self.inner.watches.lock().get(queue)
        {
            watch.wake(head.bucket, head.due_ms.saturating_mul(1000));
        }
    }

    /// Wake-ups of other processes may have been lost: looks at every queue that is waited for.
    pub fn look_again(&self) {
        self.inner.watches.lock().values().for_each(|watch| watch.look_again());
    }

    /// Wakes the pops that wait in this process and in others.
    pub async fn wake_all(&self, wake_ups: Vec<WakeUp>) {
        wake_ups.iter().for_each(|head| self.wake(head));
        if let Err(error) = self.inner.store.wake_others(&wake_ups).await {
            tracing::debug!(%error, "wake-ups were not sent, the floor poll of the others finds the jobs");
        }
    }

    /// The first half of a [`pop`](Consumers::pop): pops what is due now, the queues in their order.
    ///
    /// # Errors
    /// As of a pop.
    pub async fn pop_now(&self, asked: &PopRequest) -> Result<PoppedJobs, StoreError> {
        self.pop_more(PoppedJobs::none(self), asked).await
    }

    /// Adds what is due now, the queues in their order. With jobs already, a failure is another pop's.
    async fn pop_more(&self, mut jobs: PoppedJobs, asked: &PopRequest) -> Result<PoppedJobs, StoreError> {
        for queue in &asked.queues {
            if let Some(bucket) = self.backlog(queue) {
                match self.fill(&mut jobs, asked, queue, bucket).await {
                    Err(error) if jobs.is_empty() => return Err(error),
                    Err(_) => return Ok(jobs),
                    Ok(()) => {}
                }
                if !jobs.has_room(asked) {
                    return Ok(jobs);
                }
            }
            let heads = match self.inner.store.queue.heads(queue).await {
                Err(error) if jobs.is_empty() => return Err(error),
                Err(_) => return Ok(jobs),
                Ok(heads) => heads,
            };
            let mut due: Vec<u16> = (0..).zip(&heads).filter(|(_, ahead)| ahead.is_some_and(|us| us <= 0)).map(|(at, _)| at).collect();
            // From a random start, so that no bucket has a preference.
            let first = rand::random_range(0..due.len().max(1));
            due.rotate_left(first);
            for bucket in due {
                if !jobs.has_room(asked) {
                    return Ok(jobs);
                }
                match self.fill(&mut jobs, asked, queue, bucket).await {
                    Err(error) if jobs.is_empty() => return Err(error),
                    // What was popped before is handed out.
                    Err(_) => return Ok(jobs),
                    Ok(()) => {}
                }
            }
            if !jobs.has_room(asked) {
                break;
            }
        }
        Ok(jobs)
    }

    /// Pops from the bucket that has something, and then from the others.
    async fn pop_granted(&self, asked: &PopRequest, granted: &Granted) -> FromBucket {
        let mut jobs = PoppedJobs::none(self);
        match self.fill(&mut jobs, asked, &granted.queue, granted.bucket).await {
            Err(error) if jobs.is_empty() => return Err(error),
            // What was popped before is handed out.
            Err(_) => return Ok(jobs),
            Ok(()) => {}
        }
        // The rest of a larger batch.
        if jobs.is_empty() || !jobs.has_room(asked) { Ok(jobs) } else { self.pop_more(jobs, asked).await }
    }

    /// Pops from one bucket until it has nothing due or the answer is full.
    async fn fill(&self, jobs: &mut PoppedJobs, asked: &PopRequest, queue: &str, bucket: u16) -> Result<(), StoreError> {
        while jobs.has_room(asked) {
            let left = asked.max_bytes.saturating_sub(jobs.bytes());
            let limits = PopLimits {
                ttr_ms: asked.ttr_ms,
                max_ttr_ms: asked.max_ttr_ms,
                most: (asked.max - jobs.len()).min(CALL_JOBS),
                most_bytes: left.min(CALL_BYTES),
                room: (!jobs.is_empty()).then_some(left),
            };
            // A task of its own: if the consumer goes away meanwhile, its end gives the jobs back.
            let (consumers, name) = (self.clone(), queue.to_owned());
            let task = tokio::spawn(async move { consumers.pop_bucket(&name, bucket, limits).await });
            let lost = |_| Err(StoreError::new(crate::store::error::Class::Other, "the process ended during a pop"));
            let (popped, more) = task.await.unwrap_or_else(lost)?;
            jobs.add(popped);
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// One call. Answers the jobs to hand out, and whether more are due.
    async fn pop_bucket(&self, queue: &str, bucket: u16, limits: PopLimits) -> Result<(PoppedJobs, bool), StoreError> {
        let nonce: Nonce = rand::random();
        let popped = match self.inner.store.queue.pop(nonce, bucket, queue, limits).await {
            Ok(popped) => popped,
            Err(error) => {
                if !error.was_not_run() {
                    guard::give_back_later(self.clone(), nonce, bucket, queue.to_owned(), Vec::new());
                }
                self.report(queue, bucket, None);
                return Err(error);
            }
        };
        // Only jobs that cannot be read are at the head: they stay, and more of them may follow.
        let is_blocked = popped.more && popped.jobs.is_empty() && popped.unknown > 0 && !popped.is_cut;
        let head_us = if popped.paused {
            None
        } else if is_blocked {
            Some(popped.now_us + BLOCKED_US)
        } else if popped.more {
            Some(popped.now_us)
        } else {
            popped.next_ms.map(|ms| ms.saturating_mul(1000))
        };
        self.report(queue, bucket, head_us);
        let more = popped.more && !popped.paused && !is_blocked;
        self.left(queue, bucket, more);
        let jobs = self.judge(queue, popped.jobs, popped.now_us).await;
        let mut jobs = PoppedJobs::of(self, nonce, bucket, queue, jobs);
        if popped.is_cut {
            jobs.close();
        }
        Ok((jobs, more))
    }

    /// The bucket to pop from without a look at all of them.
    fn backlog(&self, queue: &str) -> Option<u16> {
        let mut backlogs = self.inner.backlogs.lock();
        let backlog = backlogs.get_mut(queue)?;
        backlog.turns = backlog.turns.checked_sub(1)?;
        Some(backlog.bucket)
    }

    /// A pop of this bucket left due jobs, or none.
    fn left(&self, queue: &str, bucket: u16, more: bool) {
        let mut backlogs = self.inner.backlogs.lock();
        match backlogs.get(queue) {
            Some(backlog) if backlog.bucket == bucket && !more => drop(backlogs.remove(queue)),
            Some(backlog) if backlog.turns > 0 || !more => {}
            None if !more => {}
            _ => drop(backlogs.insert(queue.to_owned(), Backlog { bucket, turns: TURNS })),
        }
    }

    fn report(&self, queue: &str, bucket: u16, head_us: Option<i64>) {
        if let Some(watch) = self.inner.watches.lock().get(queue) {
            watch.report(bucket, head_us);
        }
    }

    /// Removes the jobs that are over by their own end, or too late at their first pop.
    async fn judge(&self, queue: &str, jobs: Vec<Popped>, now_us: i64) -> Vec<Popped> {
        let (mut kept, mut words) = (Vec::with_capacity(jobs.len()), Vec::new());
        for popped in jobs {
            let word = self.inner.rules.word(&popped, now_us);
            match word {
                None => kept.push(popped),
                Some(word) => words.push(Acknowledge { id: popped.id, lease: popped.lease, word }),
            }
        }
        if !words.is_empty() {
            // After an error the lease ends, and the job is judged again.
            let answers = self.inner.store.queue.acknowledge(&words).await;
            for (word, answer) in words.iter().zip(answers) {
                match (&word.word, answer) {
                    (Word::Bury { .. }, Ok(Acknowledged { verdict: LeaseVerdict::Dead, .. })) => self.inner.observer.late(queue, true),
                    (Word::Drop, Ok(Acknowledged { verdict: LeaseVerdict::Dropped, .. })) => self.inner.observer.late(queue, false),
                    _ => {}
                }
            }
        }
        kept
    }

    /// Waits until a job of one of the queues is due. `None` after the wait, or if the process
    /// stops.
    async fn wait(&self, asked: &PopRequest, until: Instant) -> Result<Option<Granted>, StoreError> {
        let waiter = watch::Waiter::new(self);
        for queue in &asked.queues {
            while !self.watch(queue).add(&waiter) {}
        }
        // Dropping the waiter takes it out of the watches.
        tokio::select! {
            granted = waiter.granted() => granted.map(Some),
            () = clock::sleep_until(until) => waiter.take().transpose(),
            () = self.inner.stop.cancelled() => Ok(None),
        }
    }

    /// The watch of a queue, which runs.
    fn watch(&self, queue: &str) -> Arc<Watch> {
        let mut watches = self.inner.watches.lock();
        if let Some(watch) = watches.get(queue) {
            return watch.clone();
        }
        let watch = Arc::new(Watch::new(queue, self.inner.store.keys().buckets()));
        watches.insert(queue.to_owned(), watch.clone());
        let (consumers, watching) = (self.clone(), watch.clone());
        tokio::spawn(async move { watching.run(consumers).await });
        watch
    }
}

impl LateRules {
    /// What to do with a job instead of handing it out.
    fn word(&self, popped: &Popped, now_us: i64) -> Option<Word> {
        let job = &popped.record.job;
        // Without a trace: the consumer said how long the job is of use.
        if job.ends_ms.is_some_and(|ms| ms.saturating_mul(1000) <= now_us) {
            return Some(Word::Drop);
        }
        let max_late_ms = job.max_late_ms.or(self.max_late_ms)?;
        if popped.state.attempt > 1 || popped.late_us(now_us) <= i64::try_from(max_late_ms.saturating_mul(1000)).unwrap_or(i64::MAX) {
            return None;
        }
        match job.late.unwrap_or(self.late) {
            Late::Fire => None,
            Late::Drop => Some(Word::Drop),
            Late::Dead => Some(Word::Bury { reason: DeadReason::Late, error: format!("overdue by more than {max_late_ms} ms") }),
        }
    }
}

#[cfg(test)]
mod tests;
