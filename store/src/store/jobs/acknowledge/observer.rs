//! The observer of the acknowledgements of one caller.

use super::{LeaseAction, LeaseVerdict};
use crate::job::JobId;
use crate::store::wake_up::WakeUp;

/// Receives the verdicts on the acknowledgements of a caller, in the task that sent them: the
/// caller may have gone away. It does not wait. Its panic changes no answer.
pub trait LeaseObserver: Send + Sync {
    /// An acknowledgement of this job has its verdict.
    fn acknowledged(&self, queue: &str, id: &JobId, action: &LeaseAction, verdict: LeaseVerdict);
    /// A job is due again. The other processes are told without the observer.
    fn due_again(&self, head: &WakeUp);
}

/// An observer that ignores everything.
impl LeaseObserver for () {
    fn acknowledged(&self, _: &str, _: &JobId, _: &LeaseAction, _: LeaseVerdict) {}
    fn due_again(&self, _: &WakeUp) {}
}
