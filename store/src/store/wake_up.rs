//! A wake-up for the readers of a bucket.

/// A job that became the earliest of its bucket and broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeUp {
    /// The bucket.
    pub bucket: u16,
    /// The broker, or `=` and the queue.
    pub broker: String,
    /// Epoch ms by Redis's clock.
    pub due_ms: i64,
}
