//! The queues that are full.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

/// The queues that have `max_jobs` jobs. Clones share the state: one agent counts and sets it, and
/// every reader of requests asks. No queue is full until the first count.
#[derive(Debug, Clone, Default)]
pub struct FullQueues(Arc<RwLock<Arc<HashSet<String>>>>);

impl FullQueues {
    /// Whether this queue takes no new jobs. The store still takes a request that it has applied
    /// before, or that replaces a job.
    #[must_use]
    pub fn is_full(&self, queue: &str) -> bool {
        self.full().contains(queue)
    }

    /// The names of the full queues.
    #[must_use]
    pub fn full(&self) -> Arc<HashSet<String>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the names of the full queues.
    pub fn set(&self, full: HashSet<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(full);
    }
}
