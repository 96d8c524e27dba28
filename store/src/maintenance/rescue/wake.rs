//! The wake-ups of a rescue.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::consumers::Consumers;
use crate::store::wake_up::WakeUp;

/// Wakes the readers of a set.
pub trait WakeReaders: Send + Sync {
    /// A job is due again: wakes the readers of its set.
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()>;
}

/// The pops of this process, and the readers of others.
impl WakeReaders for Consumers {
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()> {
        self.wake_all(vec![head]).boxed()
    }
}
