//! Resident memory of the instances during a campaign: numbers and a curve.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::bench::mib;
use crate::chaos::history::{Event, Op, Sample};

/// The width and the height of a curve.
const CURVE_COLUMNS: usize = 60;
const CURVE_LINES: u64 = 8;
/// A process that lives shorter than this, seconds, has no meaningful slope.
const MIN_SLOPE_SECONDS: i64 = 600;

/// Resident memory of the longest-lived process of an instance, bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The number of the instance.
    pub instance: usize,
    /// The sampled time, seconds.
    pub seconds: i64,
    /// The first sample.
    pub first: u64,
    /// The last sample.
    pub last: u64,
    /// The peak of all its processes.
    pub most: u64,
    /// The growth per hour in the second half of its life, by least squares; `None` if it lived
    /// less than ten minutes.
    pub hourly: Option<f64>,
    /// The maximum in each of equal parts of its life.
    #[serde(default)]
    pub curve: Vec<u64>,
}

/// The longest-lived process of each instance.
pub(super) fn memory(events: &[Event]) -> Vec<Memory> {
    let mut lives: BTreeMap<(usize, u32), Vec<(i64, u64)>> = BTreeMap::new();
    for event in events {
        if let Op::Sample(Sample { instance, pid, rss, .. }) = event.op {
            lives.entry((instance, pid)).or_default().push((event.t_us, rss));
        }
    }
    let mut longest: BTreeMap<usize, Memory> = BTreeMap::new();
    for ((instance, _), samples) in lives {
        let [(from_us, first), .., (to_us, last)] = samples[..] else { continue };
        let (seconds, most) =
            ((to_us - from_us) / 1_000_000, samples.iter().map(|(_, rss)| *rss).max().unwrap_or(0));
        let half = samples.partition_point(|(t_us, _)| *t_us < from_us + (to_us - from_us) / 2);
        let hourly = (seconds >= MIN_SLOPE_SECONDS).then(|| hourly(&samples[half..]));
        let memory =
            Memory { instance, seconds, first, last, most, hourly, curve: curve(&samples) };
        let known = longest.entry(instance).or_insert_with(|| memory.clone());
        let most = known.most.max(most);
        if known.seconds < seconds {
            *known = memory;
        }
        known.most = most;
    }
    longest.into_values().collect()
}

/// The slope by least squares, bytes an hour.
#[allow(clippy::cast_precision_loss, reason = "bytes and µs of one run")]
fn hourly(samples: &[(i64, u64)]) -> f64 {
    let origin = samples.first().map_or(0, |(t_us, _)| *t_us);
    let points = || samples.iter().map(|(t_us, rss)| ((t_us - origin) as f64 / 3.6e9, *rss as f64));
    let count = samples.len() as f64;
    let (mean_t, mean_rss) = (
        points().map(|(t, _)| t).sum::<f64>() / count,
        points().map(|(_, rss)| rss).sum::<f64>() / count,
    );
    let (above, below) = points().fold((0.0, 0.0), |(above, below), (t, rss)| {
        (above + (t - mean_t) * (rss - mean_rss), below + (t - mean_t) * (t - mean_t))
    });
    if below > 0.0 { above / below } else { 0.0 }
}

/// By time, not by samples: a frozen instance has none, and its column repeats the one before.
fn curve(samples: &[(i64, u64)]) -> Vec<u64> {
    let (Some((from_us, first)), Some((to_us, _))) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    let points = CURVE_COLUMNS.min(samples.len());
    let mut most = vec![0; points];
    for (t_us, rss) in samples {
        let at =
            (t_us - from_us) * i64::try_from(points).unwrap_or(i64::MAX) / (to_us - from_us).max(1);
        let point = usize::try_from(at).unwrap_or(0).min(points - 1);
        most[point] = rss.max(&most[point]).to_owned();
    }
    let mut before = *first;
    for point in &mut most {
        before = if *point == 0 { before } else { *point };
        *point = before;
    }
    most
}

impl Memory {
    /// The curve as text, from zero to the maximum: MiB at the left, and
    /// minutes below.
    #[must_use]
    pub fn plot(&self) -> String {
        let top = self.curve.iter().copied().max().unwrap_or(0).max(1);
        let mut text = String::new();
        for line in (0..CURVE_LINES).rev() {
            let columns = self
                .curve
                .iter()
                .map(|rss| if *rss * CURVE_LINES > top * line { '#' } else { ' ' });
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:>6.1} |{}",
                mib(top * (line + 1) / CURVE_LINES),
                columns.collect::<String>().trim_end()
            );
        }
        let minutes = format!("{} min", (self.seconds + 30) / 60);
        let width = self.curve.len();
        let _ = writeln!(
            text,
            "   MiB +{}\n        0{minutes:>rest$}",
            "-".repeat(width),
            rest = width.saturating_sub(1)
        );
        text
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory { instance, seconds, first, last, most, hourly, .. } = self;
        let [first, last, most] = [first, last, most].map(|bytes| mib(*bytes));
        write!(
            f,
            "dwell-{instance}: {first:.1} MiB, after {seconds} s {last:.1} MiB, at most {most:.1} MiB"
        )?;
        hourly.map_or(Ok(()), |hourly| {
            write!(f, ", {:+.1} MiB an hour in the second half", hourly / f64::from(1 << 20))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::Phase;

    fn sample(second: i64, pid: u32, mib: u64) -> Event {
        let op = Op::Sample(Sample {
            instance: 0,
            pid,
            rss: mib << 20,
            possible_duplicates: None,
            rescued: None,
            reclaimed: None,
            leases_lost: None,
        });
        Event { t_us: second * 1_000_000, proc: "campaign".to_owned(), phase: Phase::Ok, op }
    }

    #[test]
    fn memory_is_that_of_the_longest_life_and_the_most_of_any() {
        let events = [
            sample(0, 1, 50),
            sample(1, 1, 90),
            sample(2, 2, 4),
            sample(1802, 2, 11),
            sample(3602, 2, 12),
        ];
        let memory = memory(&events).remove(0);
        assert_eq!(
            (memory.seconds, memory.first >> 20, memory.last >> 20, memory.most >> 20),
            (3600, 4, 12, 90)
        );
        assert_eq!(
            memory.to_string(),
            "dwell-0: 4.0 MiB, after 3600 s 12.0 MiB, at most 90.0 MiB, +2.0 MiB an hour in the second half"
        );
    }

    #[test]
    fn a_curve_is_drawn_by_time() {
        let events: Vec<Event> = [(0, 8), (1, 8), (200, 16), (900, 12), (1200, 16)]
            .map(|(second, mib)| sample(second, 1, mib))
            .into();
        let memory = memory(&events).remove(0);
        assert_eq!(
            memory.curve.iter().map(|rss| rss >> 20).collect::<Vec<_>>(),
            [16, 16, 16, 12, 16]
        );
        let plot = memory.plot();
        let lines: Vec<&str> = plot.lines().collect();
        assert_eq!(
            (lines[0], lines[2], lines[7]),
            ("  16.0 |### #", "  12.0 |#####", "   2.0 |#####"),
            "\n{plot}"
        );
        assert_eq!((lines[8], lines[9]), ("   MiB +-----", "        020 min"), "\n{plot}");
    }
}
