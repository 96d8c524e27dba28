//! A filter of queues.

use std::sync::Arc;

/// A filter of queues by their names.
#[derive(Clone)]
pub struct QueueFilter(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl QueueFilter {
    /// A filter that wants the queues for which `is_wanted` is true.
    pub fn new(is_wanted: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        QueueFilter(Arc::new(is_wanted))
    }

    /// Whether the jobs of this queue are wanted.
    pub(crate) fn wants(&self, queue: &str) -> bool {
        (self.0)(queue)
    }
}

impl std::fmt::Debug for QueueFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QueueFilter")
    }
}
