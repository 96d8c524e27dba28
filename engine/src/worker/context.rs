//! The attempt of a handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use dwell_core::Headers;
use dwell_store::clock::time_of;
use dwell_store::job::JobId;
use tokio_util::sync::CancellationToken;

/// An attempt of a job, for its handler. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: JobId,
    queue: Arc<str>,
    attempt: u32,
    due_ms: i64,
    deadline_ms: AtomicI64,
    headers: Headers,
    cancellation: CancellationToken,
}

impl Context {
    pub(crate) fn new(
        id: JobId,
        queue: Arc<str>,
        attempt: u32,
        (due_ms, deadline_ms): (i64, i64),
        headers: Headers,
    ) -> Context {
        let (deadline_ms, cancellation) = (AtomicI64::new(deadline_ms), CancellationToken::new());
        Context {
            inner: Arc::new(Inner {
                id,
                queue,
                attempt,
                due_ms,
                deadline_ms,
                headers,
                cancellation,
            }),
        }
    }

    /// The job's id: the same over its attempts, for a handler that must not act twice.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.inner.id
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.inner.queue
    }

    /// The number of this hand-out of the job, from 1. Hand-outs whose job a worker gave back
    /// count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// The due time of the job in its schedule; its attempts do not change it.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        time_of(self.inner.due_ms)
    }

    /// The current end of the lease by Redis's clock. It moves while the worker prolongs the lease.
    #[must_use]
    pub fn deadline(&self) -> SystemTime {
        time_of(self.inner.deadline_ms.load(Ordering::Relaxed))
    }

    /// The headers of the job.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.inner.headers
    }

    /// Cancelled where the handler works in vain: another caller cancelled, replaced or finished
    /// the job, its lease was lost while Redis was away, or the worker's drain is over. An answer
    /// of the handler after a lost lease changes nothing.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.cancellation
    }

    pub(crate) fn prolonged(&self, deadline_ms: i64) {
        self.inner.deadline_ms.store(deadline_ms, Ordering::Relaxed);
    }
}
