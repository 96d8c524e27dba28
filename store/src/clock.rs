//! The only module that reads time. All other code takes times as arguments. Agents sleep by these
//! functions, so that tests can pause the clock (tokio's paused time); only the exact timer does not
//! pause (`alarm.rs`).

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

/// The longest span and the latest time that the public API takes, ms: 126 thousand years. Their sum
/// is exact in the numbers of Lua and of sorted sets.
pub const MAX_MS: u64 = 4_000_000_000_000_000;

/// A span in whole ms, rounded up; a longer one than [`MAX_MS`] is cut to it.
#[must_use]
pub fn span_ms(span: Duration) -> u64 {
    whole_ms(span).min(MAX_MS)
}

/// A time as epoch ms, rounded up, so that nothing is early. A time before 1970 is 1970, a later
/// one than [`MAX_MS`] is cut to it.
pub(crate) fn epoch_ms(time: SystemTime) -> i64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(span_ms(since_epoch)).unwrap_or(i64::MAX)
}

/// The time of these epoch ms; 1970 for one that the platform cannot tell.
#[must_use]
pub fn time_of(ms: i64) -> SystemTime {
    let span = Duration::from_millis(ms.unsigned_abs());
    if ms < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) }
        .unwrap_or(UNIX_EPOCH)
}

/// The epoch ms of a time of [`time_of`], also before 1970.
pub(crate) fn ms_of(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => epoch_ms(time),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_times_are_rounded_up_and_cut_to_the_longest() {
        assert_eq!(span_ms(Duration::from_nanos(1_000_001)), 2);
        assert_eq!(span_ms(Duration::MAX), MAX_MS);
        let after = |span| UNIX_EPOCH + span;
        assert_eq!(epoch_ms(after(Duration::from_nanos(1_000_001))), 2);
        assert_eq!(epoch_ms(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(epoch_ms(after(Duration::from_millis(2 * MAX_MS))), 4_000_000_000_000_000);
        assert_eq!(time_of(1500), after(Duration::from_millis(1500)));
        assert_eq!(time_of(-1), UNIX_EPOCH - Duration::from_millis(1));
        for ms in [i64::MIN + 1, -5, 0, 1500, 4_000_000_000_000_000] {
            assert!(ms_of(time_of(ms)) == ms || time_of(ms) == UNIX_EPOCH, "{ms}");
        }
    }
}
