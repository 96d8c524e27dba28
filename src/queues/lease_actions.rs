//! Words on leases that depend on the lease.

use crate::store::jobs::acknowledge::LeaseAction;
use crate::store::jobs::lease::Lease;

/// The attempt failed. `wait_ms` replaces the wait of the retry array, unless the array is at its
/// end.
#[must_use]
pub fn fail(lease: &Lease, wait_ms: Option<u64>, error: Option<String>) -> LeaseAction {
    let error = error
        .filter(|error| !error.is_empty())
        .unwrap_or_else(|| "the consumer said `fail`".to_owned());
    LeaseAction::Fail { wait_ms: lease.wait_ms.map(|of_array| wait_ms.unwrap_or(of_array)), error }
}

/// The lease lasts so long from now, at most `longest_ms`; by default as long as it was given.
#[must_use]
pub fn touch(lease: &Lease, ttr_ms: Option<u64>, longest_ms: u64) -> LeaseAction {
    LeaseAction::Touch { ttr_ms: ttr_ms.unwrap_or(lease.ttr_ms.into()).min(longest_ms) }
}
