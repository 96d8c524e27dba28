//! Limits of time: the tolerance of the checker, and the publish timeout.

use dwell::dispatch::LEASE_MARGIN;

use crate::chaos::history::RunHeader;

/// The tolerance, µs: for the time between the publication of a message and its read, and for the
/// samples of instances, one a second.
pub(super) const SLACK_US: i64 = 2_000_000;

/// The publish timeout, µs.
pub(super) fn timeout_us(head: &RunHeader) -> i64 {
    let margin_ms = i64::try_from(LEASE_MARGIN.as_millis()).unwrap_or(i64::MAX);
    (head.lease_ms - margin_ms).max(1) * 1000
}
