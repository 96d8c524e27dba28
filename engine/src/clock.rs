//! The only module that reads time. All other code takes times as arguments. Agents sleep by these
//! functions, so that tests can pause the clock (tokio's paused time); only the timer of the
//! dispatcher does not pause (`src/alarm.rs`).

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use tokio::time::Instant;

/// The monotonic clock of this process.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that reads time")]
pub fn now() -> Instant {
    Instant::now()
}

/// The host's wall clock, epoch ms: for people (`created_ms`, logs). Never decides what is due.
#[must_use]
pub fn wall_ms() -> i64 {
    wall_us() / 1000
}

/// The host's wall clock, epoch µs: for people, and for the load generator, which compares it with
/// due times on one host.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that reads time")]
pub fn wall_us() -> i64 {
    // A clock before 1970 reads as 1970. The microseconds exceed an i64 in 292 thousand years.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// A duration of µs; zero if negative.
#[must_use]
pub fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// A duration in whole ms for scripts, rounded up, so that nothing is early.
#[must_use]
pub fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Sleeps until this instant. Tokio's timer has a resolution of 1 ms and never wakes early.
#[allow(clippy::disallowed_methods, reason = "the one place that reads time")]
pub async fn sleep_until(instant: Instant) {
    tokio::time::sleep_until(instant).await;
}

/// Sleeps for this long.
#[allow(clippy::disallowed_methods, reason = "the one place that reads time")]
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The future's output, or `None` when it takes longer than `limit`.
#[allow(clippy::disallowed_methods, reason = "the one place that reads time")]
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}
