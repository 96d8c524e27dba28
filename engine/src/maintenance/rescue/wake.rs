//! The wake-ups of a rescue.

use futures_util::future::BoxFuture;

use crate::store::wake_up::WakeUp;

/// Wakes the readers of a set.
pub trait WakeReaders: Send + Sync {
    /// A job is due again: wakes the readers of its set.
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()>;
}
