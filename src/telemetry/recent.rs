//! Recent errors, pauses and lateness of this instance, for the API and the dashboard.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::PauseReason;
use crate::clock::{self, Instant};

/// The length of a slice of the window.
const SLICE_DURATION: Duration = Duration::from_secs(10);
/// The number of slices: the window is a minute.
const SLICES_PER_WINDOW: usize = 6;
/// The longest lateness that is recorded exactly, µs: an hour.
const MAX_LATENESS_US: u64 = 3_600_000_000;
/// The most characters of an error text: brokers repeat what they got.
const MAX_ERROR_CHARS: usize = 300;

/// An error and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorSeen {
    /// The failure and its place, without secrets.
    pub message: String,
    /// When, epoch ms by the clock of this host.
    pub at_ms: i64,
}

/// The last error of a connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LastError(Arc<Mutex<Option<ErrorSeen>>>);

impl LastError {
    /// Records an error.
    pub fn record(&self, message: impl std::fmt::Display) {
        let message = message
            .to_string()
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_ERROR_CHARS)
            .collect();
        *self.0.lock() = Some(ErrorSeen { message, at_ms: clock::wall_ms() });
    }

    /// The last error.
    #[must_use]
    pub fn get(&self) -> Option<ErrorSeen> {
        self.0.lock().clone()
    }
}

/// Whether an ingest reads, and why it is paused. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Reading(Arc<Mutex<(bool, Option<PauseReason>)>>);

impl Reading {
    /// The source was opened or closed.
    pub fn reads(&self, reads: bool) {
        self.0.lock().0 = reads;
    }

    /// The ingest was paused for this reason, or resumed.
    pub fn paused(&self, reason: Option<PauseReason>) {
        self.0.lock().1 = reason;
    }

    /// Whether the ingest reads, and why it is paused.
    #[must_use]
    pub fn get(&self) -> (bool, Option<PauseReason>) {
        *self.0.lock()
    }
}

/// The lateness of first attempts within the last minute. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Lateness(Arc<Mutex<VecDeque<Slice>>>);

/// The start of each slice, and its values in µs.
type Slice = (Instant, Histogram<u64>);

/// Lateness over the window, in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// The number of first attempts that were confirmed.
    pub count: u64,
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The maximum.
    pub max_ms: f64,
}

impl Lateness {
    /// The length of the window.
    pub const WINDOW: Duration =
        Duration::from_secs(SLICE_DURATION.as_secs() * SLICES_PER_WINDOW as u64);

    /// A first attempt was confirmed this long after it was due.
    pub fn record(&self, late: Duration) {
        let now = clock::now();
        let mut slices = self.0.lock();
        if slices.back().is_none_or(|(begun, _)| now.duration_since(*begun) >= SLICE_DURATION) {
            let histogram =
                Histogram::new_with_bounds(1, MAX_LATENESS_US, 2).expect("constant bounds");
            slices.push_back((now, histogram));
            while slices.len() > SLICES_PER_WINDOW {
                slices.pop_front();
            }
        }
        if let Some((_, histogram)) = slices.back_mut() {
            histogram.saturating_record(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// The lateness over the window; `None` if nothing was confirmed.
    #[must_use]
    pub fn get(&self) -> Option<Percentiles> {
        let now = clock::now();
        let slices = self.0.lock();
        let mut living = slices
            .iter()
            .filter(|(begun, _)| now.duration_since(*begun) < Self::WINDOW)
            .map(|(_, histogram)| histogram);
        let mut sum = living.next()?.clone();
        // The bounds are the same.
        living.for_each(|histogram| sum.add(histogram).unwrap_or_default());
        // Below 2^53.
        let ms = |us: u64| us as f64 / 1000.0;
        let at = |quantile| ms(sum.value_at_quantile(quantile));
        Some(Percentiles {
            count: sum.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: ms(sum.max()),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lateness_is_that_of_the_last_minute() {
        let lateness = Lateness::default();
        assert_eq!(lateness.get(), None);
        lateness.record(Duration::from_secs(7200));
        clock::sleep(Duration::from_secs(40)).await;
        for ms in 1..=98 {
            lateness.record(Duration::from_millis(ms));
        }
        let seen = lateness.get().unwrap();
        assert_eq!(seen.count, 99);
        assert!((49.0..52.0).contains(&seen.p50_ms) && seen.max_ms > 3_500_000.0, "{seen:?}");
        clock::sleep(Duration::from_secs(21)).await;
        let seen = lateness.get().unwrap();
        assert!(seen.count == 98 && (98.0..99.0).contains(&seen.max_ms), "{seen:?}");
        clock::sleep(Duration::from_secs(40)).await;
        assert_eq!(lateness.get(), None);
    }

    #[test]
    fn an_error_is_one_short_line() {
        let last = LastError::default();
        assert_eq!(last.get(), None);
        last.record(format!("a\nb{}", "c".repeat(1000)));
        let met = last.get().unwrap();
        assert!(
            met.message.starts_with("a bcc")
                && met.message.chars().count() == MAX_ERROR_CHARS
                && met.at_ms > 0,
            "{met:?}"
        );
    }
}
