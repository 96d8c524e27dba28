//! What jobs with a limit must look like: all arrive, once, and never more of them than the rate
//! and its burst allow. Pure.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use serde::Serialize;

use super::{Receipt, Received, Wrongs};
use crate::bench::percentiles::{Latencies, Percentiles};

/// A second, µs.
const SECOND_US: i64 = 1_000_000;
/// A burst is worth this much of the rate, ms.
const BURST_MS: u64 = 100;
/// What left in time may arrive later than what follows by this, ms: the way of a message, and a
/// machine that is busy.
const CALM_LATE_MS: i64 = 500;
/// The same where an instance was killed: a turn may be used so long after its time.
const KILLED_LATE_MS: i64 = 2500;

/// A rate as the settings have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    unit: char,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (count, unit) = text.split_once('/')?;
            let unit = ['s', 'm', 'h'].into_iter().find(|known| unit == known.to_string())?;
            let count = count.parse().ok().filter(|count| (1..=10_000_000).contains(count))?;
            Some(Rate { count, unit })
        };
        read().ok_or_else(|| "write a rate of at most ten million, such as 500/s".to_owned())
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.count, self.unit)
    }
}

impl Rate {
    fn per_ms(self) -> u64 {
        match self.unit {
            's' => 1000,
            'm' => 60_000,
            _ => 3_600_000,
        }
    }

    fn per_s(self) -> f64 {
        self.count as f64 * 1000.0 / self.per_ms() as f64
    }

    /// How many may come at once where the settings have no `burst`.
    pub(crate) fn burst(self) -> u64 {
        (self.count * BURST_MS / self.per_ms()).max(1)
    }

    /// How long so many jobs take, ms.
    pub(crate) fn span_ms(self, jobs: u64) -> i64 {
        let ms = jobs.saturating_mul(self.per_ms()) / self.count;
        i64::try_from(ms).unwrap_or(i64::MAX)
    }

    /// The most jobs that may arrive within so long, µs, if some are later than others by this, ms.
    fn allowed(self, span_us: i64, late_ms: i64) -> u64 {
        let secs = (span_us + late_ms * 1000) as f64 / SECOND_US as f64;
        self.burst() + (secs * self.per_s()).ceil() as u64
    }
}

/// The fates of a set of jobs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tally {
    /// The jobs.
    pub jobs: u64,
    /// Jobs that did not arrive.
    pub lost: u64,
    /// Arrivals beyond the first of a job.
    pub doubled: u64,
    /// Attempts beyond the first of a job.
    pub burned: u64,
    /// Jobs that arrived before their due time.
    pub early: u64,
    /// From the due time to the first arrival.
    pub late: Percentiles,
}

/// Compares jobs (their due times, epoch ms) with what arrived. `is_killed`: an instance was killed,
/// which explains another attempt of a job.
pub(crate) fn tally(
    due_ms: &BTreeMap<String, i64>,
    receipts: &[Receipt],
    is_killed: bool,
    wrongs: &mut Wrongs,
) -> Tally {
    let mut arrived: HashMap<&str, Vec<&Receipt>> = HashMap::new();
    for receipt in receipts {
        arrived.entry(&receipt.id).or_default().push(receipt);
        if !due_ms.contains_key(&receipt.id) {
            wrongs.broken(format!("{}: arrived, and nobody asked for it", receipt.id));
        }
    }
    let (mut tally, mut late) = (Tally::default(), Latencies::default());
    for (id, due_ms) in due_ms {
        tally.jobs += 1;
        let Some(of_job) = arrived.get(id.as_str()) else {
            tally.lost += 1;
            wrongs.broken(format!("{id}: lost"));
            continue;
        };
        let received = Received::of(id, *due_ms, of_job, wrongs);
        late.add(received.late_us);
        tally.early += u64::from(received.late_us < 0);
        let attempts = &received.attempts;
        let is_repeated = received.repeats() > 0;
        let burned = attempts.last().map_or(0, |attempt| u64::from(attempt.saturating_sub(1)));
        tally.doubled += of_job.len() as u64 - 1;
        tally.burned += burned;
        if is_repeated || attempts[0] == 0 || (!is_killed && (of_job.len() > 1 || burned > 0)) {
            wrongs.broken(format!("{id}: arrived with the attempts {attempts:?}"));
        }
    }
    Tally { late: late.percentiles(), ..tally }
}

/// How fast jobs with a limit arrived.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Pace {
    /// The rate of the limit, jobs a second.
    pub limit_per_s: f64,
    /// Its burst.
    pub burst: u64,
    /// Arrivals a second over the run, after the first burst.
    pub per_s: f64,
    /// The same as a share of the limit.
    pub of_limit: f64,
    /// The most arrivals within a second.
    pub worst_second: u64,
    /// The most that are right within a second.
    pub worst_second_allowed: u64,
}

/// Compares arrivals with a limit. Each attempt takes a turn, also one of a job that arrived before.
pub(crate) fn pace(rate: Rate, receipts: &[Receipt], is_killed: bool, wrongs: &mut Wrongs) -> Pace {
    let late_ms = if is_killed { KILLED_LATE_MS } else { CALM_LATE_MS };
    let mut at_us: Vec<i64> = receipts.iter().map(|receipt| receipt.at_us).collect();
    at_us.sort_unstable();
    let (mut worst_second, mut from) = (0, 0);
    for (to, at) in at_us.iter().enumerate() {
        while at - at_us[from] >= SECOND_US {
            from += 1;
        }
        worst_second = worst_second.max(to + 1 - from);
    }
    let (worst_second, worst_second_allowed) =
        (worst_second as u64, rate.allowed(SECOND_US, late_ms));
    if worst_second > worst_second_allowed {
        let most = format!("{worst_second_allowed} at most are right");
        wrongs.broken(format!("{worst_second} arrivals within a second: {most}"));
    }
    let burst = rate.burst();
    let first = usize::try_from(burst).unwrap_or(usize::MAX) - 1;
    let per_s = match (at_us.first(), at_us.get(first), at_us.last()) {
        (Some(begin), Some(after), Some(end)) if end > after => {
            let most = rate.allowed(end - begin, late_ms);
            if at_us.len() as u64 > most {
                let (all, ms) = (at_us.len(), (end - begin) / 1000);
                wrongs.broken(format!("{all} arrivals in {ms} ms: {most} at most are right"));
            }
            crate::bench::per_second((at_us.len() - 1 - first) as u64, end - after)
        }
        _ => 0.0,
    };
    let limit_per_s = rate.per_s();
    let of_limit = per_s / limit_per_s;
    Pace { limit_per_s, burst, per_s, of_limit, worst_second, worst_second_allowed }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const DUE_MS: i64 = 1_700_000_000_000;

    fn rate() -> Rate {
        "100/s".parse().unwrap()
    }

    fn receipt(number: i64, attempt: u32, after_us: i64) -> Receipt {
        let at_us = DUE_MS * 1000 + after_us;
        Receipt { id: format!("job-{number}"), number: 0, attempt, at_us }
    }

    fn jobs(count: i64) -> BTreeMap<String, i64> {
        (0..count).map(|number| (format!("job-{number}"), DUE_MS)).collect()
    }

    /// The first burst at once, the others each 10 ms.
    fn paced(count: i64) -> Vec<Receipt> {
        (0..count).map(|number| receipt(number, 1, (number - 9).max(0) * 10_000)).collect()
    }

    #[test]
    fn a_rate_has_a_count_and_a_unit() {
        assert_eq!((rate().burst(), rate().to_string().as_str()), (10, "100/s"));
        let slow: Rate = "30/m".parse().unwrap();
        assert_eq!((slow.burst(), slow.span_ms(2), slow.per_s()), (1, 4000, 0.5));
        for text in ["0/s", "100", "100/d", "100/", "/s", "-1/s", "1.5/s", "10000001/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_at_the_rate_is_sound() {
        let (mut wrongs, all) = (Wrongs::default(), paced(310));
        let pace = pace(rate(), &all, false, &mut wrongs);
        let tally = tally(&jobs(310), &all, false, &mut wrongs);
        assert_eq!((wrongs.wrongs, tally.jobs, tally.late.count), (0, 310, 310), "{wrongs:?}");
        assert_eq!((pace.burst, pace.worst_second, pace.worst_second_allowed), (10, 109, 160));
        assert!((pace.per_s - 100.0).abs() < 0.01 && (pace.of_limit - 1.0).abs() < 0.001);
    }

    #[test]
    fn too_many_within_a_second_are_refused_and_a_killed_instance_explains_some() {
        let all: Vec<Receipt> = (0..250).map(|number| receipt(number, 1, number)).collect();
        for (is_killed, refused) in [(false, 2), (true, 0)] {
            let mut wrongs = Wrongs::default();
            pace(rate(), &all, is_killed, &mut wrongs);
            assert_eq!(wrongs.wrongs, refused, "{wrongs:?}");
        }
    }

    #[test]
    fn a_rate_that_is_exceeded_in_the_long_run_is_refused_although_no_second_is() {
        let all: Vec<Receipt> = (0..1500).map(|number| receipt(number, 1, number * 8000)).collect();
        let mut wrongs = Wrongs::default();
        let pace = pace(rate(), &all, false, &mut wrongs);
        assert_eq!((pace.worst_second, wrongs.wrongs), (125, 1), "{wrongs:?}");
    }

    #[test]
    fn each_fault_of_a_job_is_counted_and_refused() {
        let refused = |more: &[Receipt], skipped: usize, is_killed: bool| {
            let mut wrongs = Wrongs::default();
            let all = [&paced(20)[skipped..], more].concat();
            (tally(&jobs(20), &all, is_killed, &mut wrongs), wrongs.wrongs)
        };
        let (lost, wrongs) = refused(&[], 1, true);
        assert_eq!((lost.lost, wrongs), (1, 1));
        let (early, wrongs) = refused(&[receipt(0, 1, -1)], 1, true);
        assert_eq!((early.early, wrongs), (1, 1));
        let (_, wrongs) = refused(&[receipt(20, 1, 0)], 0, true);
        assert_eq!(wrongs, 1, "nobody asked for it");
        let (_, wrongs) = refused(&[receipt(0, 0, 0)], 1, true);
        assert_eq!(wrongs, 1, "no attempt");
        for (is_killed, expected) in [(false, 1), (true, 0)] {
            let (again, wrongs) = refused(&[receipt(0, 2, 5)], 0, is_killed);
            assert_eq!((again.doubled, again.burned, wrongs), (1, 1, expected));
            let (burned, wrongs) = refused(&[receipt(0, 3, 5)], 1, is_killed);
            assert_eq!((burned.doubled, burned.burned, wrongs), (0, 2, expected));
            let (_, wrongs) = refused(&[receipt(0, 1, 5)], 0, is_killed);
            assert_eq!(wrongs, 1, "the same attempt twice");
        }
    }
}
