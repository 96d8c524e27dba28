//! What a handler knows of its attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use dwell_core::Headers;
use tokio_util::sync::CancellationToken;

use crate::job::JobId;

/// One attempt of a job, for its handler. Cheap to clone.
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
    pub(crate) fn new(id: JobId, queue: Arc<str>, attempt: u32, (due_ms, deadline_ms): (i64, i64), headers: Headers) -> Context {
        let (deadline_ms, cancellation) = (AtomicI64::new(deadline_ms), CancellationToken::new());
        Context { inner: Arc::new(Inner { id, queue, attempt, due_ms, deadline_ms, headers, cancellation }) }
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

    /// Which hand-out of the job this is, from 1. What a worker gave back counts.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// When the job was due in its schedule, epoch ms; the same over its attempts.
    #[must_use]
    pub fn due_ms(&self) -> i64 {
        self.inner.due_ms
    }

    /// Until when the job is held as things stand, epoch ms by Redis's clock. Moves while the worker
    /// prolongs the lease.
    #[must_use]
    pub fn deadline_ms(&self) -> i64 {
        self.inner.deadline_ms.load(Ordering::Relaxed)
    }

    /// The headers of the job.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.inner.headers
    }

    /// Cancelled where the handler works in vain: the job was cancelled, replaced or finished by somebody
    /// else, its lease was lost while Redis was away, or the worker's drain is over. What the handler
    /// answers after a lost lease changes nothing.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.cancellation
    }

    pub(crate) fn prolonged(&self, deadline_ms: i64) {
        self.inner.deadline_ms.store(deadline_ms, Ordering::Relaxed);
    }
}
