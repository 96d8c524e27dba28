//! Percentiles of latencies.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest recorded latency, µs: a day.
const LONGEST_US: u64 = 86_400_000_000;

/// A histogram of latencies, µs.
#[derive(Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// Percentiles, ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The number of latencies.
    pub count: u64,
    /// The median, ms.
    pub p50_ms: f64,
    /// 90 %, ms.
    pub p90_ms: f64,
    /// 99 %, ms.
    pub p99_ms: f64,
    /// 99.9 %, ms.
    pub p999_ms: f64,
    /// The maximum, ms.
    pub max_ms: f64,
}

impl Default for Latencies {
    /// Three digits of any time from 1 µs to a day.
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, 3);
        Latencies { histogram: histogram.expect("1 < LONGEST_US / 2, and 3 digits are at most 5") }
    }
}

impl Latencies {
    /// Adds a latency, µs; a negative one counts as zero.
    pub fn add(&mut self, us: i64) {
        self.histogram.saturating_record(u64::try_from(us).unwrap_or(0));
    }

    /// The percentiles.
    pub fn percentiles(&self) -> Percentiles {
        let ms = |us: u64| us as f64 / 1000.0;
        let at = |quantile: f64| ms(self.histogram.value_at_quantile(quantile));
        Percentiles {
            count: self.histogram.len(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: ms(self.histogram.max()),
        }
    }
}

/// The median; that of none is 0.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match (sorted.get(sorted.len() / 2), sorted.len() % 2) {
        (Some(middle), 1) => *middle,
        (Some(after), _) => f64::midpoint(sorted[sorted.len() / 2 - 1], *after),
        (None, _) => 0.0,
    }
}

impl std::fmt::Display for Percentiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Percentiles { p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = self;
        write!(
            f,
            "p50 {p50_ms:.1} ms, p90 {p90_ms:.1} ms, p99 {p99_ms:.1} ms, p99.9 {p999_ms:.1} ms, max {max_ms:.1} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_times() {
        let mut times = Latencies::default();
        assert_eq!(times.percentiles(), Percentiles::default());
        (1..=1000).for_each(|ms| times.add(ms * 1000));
        let spread = times.percentiles();
        let near = |is: f64, expected: f64| (is - expected).abs() <= expected / 500.0;
        assert_eq!(spread.count, 1000);
        assert!(
            near(spread.p50_ms, 500.0) && near(spread.p90_ms, 900.0) && near(spread.p99_ms, 990.0),
            "{spread:?}"
        );
        assert!(near(spread.p999_ms, 999.0) && near(spread.max_ms, 1000.0), "{spread:?}");
    }

    #[test]
    fn times_past_the_bounds_are_kept_at_them() {
        let mut times = Latencies::default();
        times.add(-5);
        times.add(i64::MAX);
        let spread = times.percentiles();
        assert_eq!((spread.count, spread.p50_ms), (2, 0.0));
        assert!(spread.max_ms >= 86_400_000.0);
    }
}
