//! The observer of a rescue: metrics and wake-ups of the caller.

use futures_util::future::BoxFuture;

use crate::job::DeadReason;
use crate::store::wake_up::WakeUp;

/// Receives the results of a rescue.
pub trait RescueObserver: Send + Sync {
    /// Consumers did not finish so many jobs within the TTR; `queue`: of jobs of a queue.
    fn timed_out(&self, _queue: Option<&str>, _count: u64) {}
    /// The owner of a job crashed, and its attempt may have arrived.
    fn taken_over(&self) {}
    /// A job is dead for this reason.
    fn dead(&self, _reason: DeadReason) {}
    /// A job is due again: wakes the readers of its set.
    fn wake(&self, head: WakeUp) -> BoxFuture<'_, ()>;
}
