//! Jobs that were popped and have not reached their consumer.

use std::ops::Deref;
use std::time::Duration;

use super::{Consumers, PopRequest};
use crate::alarm::Alarm;
use crate::budget::{Budget, Share, UsedUp};
use crate::clock::{self, Instant};
use crate::job::JobId;
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::pop::{PopLimits, Popped, Return};
use crate::store::record::Nonce;
use crate::store::wake_up::WakeUp;

/// The tries to give jobs back while Redis is away; then their leases end.
const MAX_RETURN_TRIES: u32 = 8;
/// Between two tries.
const RETURN_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Between the memory that a pop waited for and its next try.
const MEMORY_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The jobs of a pop. Dropped before [`sent`](PoppedJobs::sent), they are due again at once.
pub struct PoppedJobs {
    jobs: Vec<Popped>,
    bytes: usize,
    consumers: Consumers,
    /// The calls that handed the jobs out, each with the number of its jobs.
    calls: Vec<Call>,
    /// The next job is too large for the bytes left.
    is_full: bool,
    /// The memory that the next jobs lacked, bytes.
    missing: usize,
    /// The share of these jobs of the memory for all popped jobs.
    share: Option<Share>,
    /// The due time of jobs that were popped before it: nobody gets them until then.
    due: Option<Instant>,
}

/// The memory of a job besides its body and its headers, bytes.
const JOB_OVERHEAD_BYTES: usize = 512;

struct Call {
    nonce: Nonce,
    bucket: u16,
    queue: String,
    jobs: usize,
}

impl Consumers {
    /// Bounds the memory of popped jobs until they are sent, together with the other shares of this
    /// budget.
    pub fn share(&self, budget: &Budget) {
        // The first budget stays.
        let _ = self.inner.budget.set(budget.clone());
    }
}

impl PoppedJobs {
    pub(super) fn none(consumers: &Consumers) -> PoppedJobs {
        PoppedJobs {
            jobs: Vec::new(),
            bytes: 0,
            consumers: consumers.clone(),
            calls: Vec::new(),
            is_full: false,
            missing: 0,
            share: None,
            due: None,
        }
    }

    pub(super) fn of(
        consumers: &Consumers,
        nonce: Nonce,
        bucket: u16,
        queue: &str,
        jobs: Vec<Popped>,
    ) -> PoppedJobs {
        let bytes = jobs.iter().map(|job| job.size).sum();
        let calls = vec![Call { nonce, bucket, queue: queue.to_owned(), jobs: jobs.len() }];
        PoppedJobs {
            jobs,
            bytes,
            consumers: consumers.clone(),
            calls,
            is_full: false,
            missing: 0,
            share: None,
            due: None,
        }
    }

    /// Holds the jobs until this time.
    pub(super) fn hold_until(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// Waits until the jobs are due.
    pub(super) async fn until_due(&self) {
        let Some(due) = self.due else { return };
        // Each exact timer is a file descriptor. Tokio's timer is up to 2 ms late.
        match self.consumers.inner.alarms.try_acquire() {
            Ok(_place) => Alarm::default().until(due).await,
            Err(_) => clock::sleep_until(due).await,
        }
    }

    /// Adds the jobs of another call. Without memory for them they go back, and the answer is full.
    pub(super) fn add(&mut self, mut other: PoppedJobs) {
        if let Err(missing) = other.reserve() {
            (self.is_full, self.missing) = (true, missing);
            return;
        }
        self.bytes += other.bytes;
        self.is_full |= other.is_full;
        self.due = self.due.max(other.due);
        self.jobs.append(&mut other.jobs);
        self.calls.append(&mut other.calls);
        match (&mut self.share, other.share.take()) {
            (Some(share), Some(more)) => share.add(more),
            (share, more) => *share = share.take().or(more),
        }
    }

    /// Takes the memory that the jobs need, or answers its size, bytes. A job larger than the whole
    /// memory takes the whole memory.
    fn reserve(&mut self) -> Result<(), usize> {
        let Some(budget) = self.consumers.inner.budget.get() else { return Ok(()) };
        let of_job = |popped: &Popped| {
            popped.record.job.body.len()
                + popped.record.job.headers.footprint()
                + JOB_OVERHEAD_BYTES
        };
        let bytes = self.jobs.iter().map(of_job).sum::<usize>().min(budget.bytes());
        let mut share = budget.share();
        let is_reserved = share.grow(bytes);
        self.share = Some(share);
        if is_reserved { Ok(()) } else { Err(bytes) }
    }

    /// Nothing was popped, for want of memory alone.
    ///
    /// # Errors
    /// [`Class::Memory`](crate::store::error::Class) if no job was popped for want of memory alone.
    pub(super) fn check_memory(&self) -> Result<(), StoreError> {
        if self.is_empty() && self.missing > 0 {
            Err(StoreError::new(Class::Memory, UsedUp.to_string()))
        } else {
            Ok(())
        }
    }

    /// After a pop whose jobs had no room: waits until others have given that much memory back.
    pub(super) async fn until_room(&self, until: Instant) {
        let inner = &self.consumers.inner;
        let Some(budget) = inner.budget.get().filter(|_| self.missing > 0) else { return };
        let room = async {
            while budget.take(self.missing).await.is_err() {}
            // The other waiting pops have their turn.
            clock::sleep(MEMORY_RETRY_DELAY).await;
        };
        let until = until.saturating_duration_since(clock::now());
        let _ = inner.stop.run_until_cancelled(clock::timeout(until, room)).await;
    }

    /// Marks the answer as full: the next job is too large for the bytes left.
    pub(super) fn close(&mut self) {
        self.is_full = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_full
    }

    /// What one call may add.
    pub(super) fn limits(&self, asked: &PopRequest) -> PopLimits {
        let left = asked.max_bytes.saturating_sub(self.bytes);
        PopLimits {
            ttr_ms: asked.ttr_ms,
            max_ttr_ms: asked.max_ttr_ms,
            most: asked.max.saturating_sub(self.jobs.len()).min(CALL_JOBS),
            most_bytes: left.min(CALL_BYTES),
            room: (!self.jobs.is_empty()).then_some(left),
        }
    }

    pub(super) fn has_room(&self, asked: &PopRequest) -> bool {
        self.jobs.len() < asked.max
            && !self.is_full
            && (self.jobs.is_empty() || self.bytes < asked.max_bytes)
    }

    /// Hands the jobs to their consumer, which has them until their leases end.
    #[must_use]
    pub fn sent(mut self) -> Vec<Popped> {
        debug_assert!(self.due.is_none_or(|due| clock::now() >= due), "a job was sent early");
        self.calls.clear();
        std::mem::take(&mut self.jobs)
    }
}

impl Deref for PoppedJobs {
    type Target = [Popped];

    fn deref(&self) -> &[Popped] {
        &self.jobs
    }
}

impl std::fmt::Debug for PoppedJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PoppedJobs").field(&self.jobs).finish()
    }
}

impl Drop for PoppedJobs {
    fn drop(&mut self) {
        // Before that time nobody got them.
        let is_early = self.due.is_some_and(|due| clock::now() < due);
        let when = if is_early { Return::Early } else { Return::Due };
        let mut jobs = std::mem::take(&mut self.jobs).into_iter();
        for Call { nonce, bucket, queue, jobs: count } in std::mem::take(&mut self.calls) {
            let ids: Vec<JobId> = jobs.by_ref().take(count).map(|job| job.id).collect();
            if !ids.is_empty() {
                give_back_later(self.consumers.clone(), (nonce, when), bucket, queue, ids);
            }
        }
    }
}

/// Gives jobs of a pop back in the background: these, or all (empty).
pub(super) fn give_back_later(
    consumers: Consumers,
    (nonce, when): (Nonce, Return),
    bucket: u16,
    queue: String,
    ids: Vec<JobId>,
) {
    // Without a runtime the process ends, and so do the leases.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        for _ in 0..MAX_RETURN_TRIES {
            let store = &consumers.inner.store.jobs;
            match store.unpop(nonce, when, bucket, &queue, &ids).await {
                Ok(0) => return,
                Ok(_) => {
                    let due_ms = consumers.inner.store.now_ms();
                    let broker = DueSet::Queue(&queue).to_string();
                    consumers.wake_all(vec![WakeUp { bucket, broker, due_ms }]).await;
                    return;
                }
                Err(error) => tracing::debug!(queue, bucket, %error, "jobs of a consumer that went away could not be given back yet"),
            }
            clock::sleep(RETURN_RETRY_INTERVAL).await;
        }
        tracing::warn!(queue, bucket, "jobs of a consumer that went away stay reserved until their leases end");
    });
}
