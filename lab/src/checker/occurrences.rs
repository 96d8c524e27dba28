//! The occurrences of recurring schedules: what a schedule says of itself, and whether what was
//! received agrees with it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use dwell::schedule::StoredSchedule;
use dwell::store::Store;
use dwell::store::error::StoreError;
use dwell::store::schedules::ScheduleQuery;
use serde::{Deserialize, Serialize};

/// The digits at the end of an occurrence's id: its nominal time, epoch ms.
const TIME_DIGITS: usize = 13;
/// The schedules of one read.
const PAGE: usize = 512;

/// What a schedule says of itself at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The id of the schedule.
    pub id: String,
    /// The first nominal time, epoch ms.
    pub start_ms: i64,
    /// The interval, ms.
    pub every_ms: i64,
    /// The first nominal time that was not decided, epoch ms.
    pub next_ms: i64,
    /// The number of the newest occurrence.
    pub occurrence: u64,
    /// How many were missed.
    pub missed: u64,
}

/// The occurrences that were received: the numbers of each, by nominal time, epoch ms.
pub(crate) type Made = BTreeMap<i64, Vec<u64>>;

/// How the occurrences disagree with their schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// So many times were neither made nor counted as missed.
    Lost(u64),
    /// So many times were counted as missed and made, or made without being a time.
    Twice(u64),
    /// The numbers are not those from 1 in the order of the times: one is off by so much.
    Numbers(u64),
}

impl Claim {
    /// How many nominal times were decided.
    fn times(&self) -> u64 {
        let span_ms = u64::try_from(self.next_ms - self.start_ms).unwrap_or(0);
        span_ms.div_ceil(self.every_ms.unsigned_abs().max(1))
    }

    /// Whether this nominal time was decided.
    pub(crate) fn has(&self, nominal_ms: i64) -> bool {
        nominal_ms < self.next_ms && self.is_on_grid(nominal_ms)
    }

    /// Whether this may be a nominal time of the schedule.
    pub(crate) fn is_on_grid(&self, nominal_ms: i64) -> bool {
        nominal_ms >= self.start_ms && (nominal_ms - self.start_ms) % self.every_ms.max(1) == 0
    }

    /// How many nominal times before the next one lie between these times, epoch ms, both included.
    pub(crate) fn times_within(&self, from_ms: i64, to_ms: i64) -> u64 {
        let until = |end_ms: i64| Claim { next_ms: end_ms.min(self.next_ms), ..self.clone() };
        until(to_ms.saturating_add(1)).times().saturating_sub(until(from_ms).times())
    }

    /// The first flaw of what was received, and what it is. `left_out`: how many of the nominal
    /// times need no decision, at least and at most: a schedule that is paused makes and misses
    /// nothing.
    pub(crate) fn flaw(
        &self,
        made: &Made,
        left_out: &RangeInclusive<u64>,
    ) -> Option<(Flaw, String)> {
        let Claim { id, occurrence, missed, .. } = self;
        let (count, times) = (made.len() as u64, self.times());
        let told = count + missed;
        let least = times.saturating_sub(*left_out.end());
        let most = times.saturating_sub(*left_out.start());
        let what = format!("{id}: {count} occurrences and {missed} missed of {times} times");
        let off = off(made).max(occurrence.abs_diff(count));
        if told < least {
            Some((Flaw::Lost(least - told), what))
        } else if told > most {
            Some((Flaw::Twice(told - most), what))
        } else if off > 0 {
            let numbers: Vec<u64> = made.values().flatten().copied().collect();
            let what = format!(
                "{id}: {count} occurrences have the numbers {numbers:?}, the newest is {occurrence}"
            );
            Some((Flaw::Numbers(off), what))
        } else {
            None
        }
    }
}

/// By how much a number is off at most: the occurrences have the numbers from 1 in the order of
/// their times.
pub(crate) fn off(made: &Made) -> u64 {
    let off = made
        .values()
        .zip(1_u64..)
        .flat_map(|(numbers, number)| numbers.iter().map(move |other| other.abs_diff(number)));
    off.max().unwrap_or(0)
}

/// The schedule and the nominal time of an occurrence.
pub(crate) fn split(id: &str) -> Option<(&str, i64)> {
    let (schedule, digits) = id.rsplit_once('@')?;
    (digits.len() == TIME_DIGITS).then(|| Some((schedule, digits.parse().ok()?)))?
}

/// What all schedules say of themselves.
pub(crate) async fn claims(store: &Store) -> Result<Vec<Claim>, StoreError> {
    let mut query = ScheduleQuery { limit: PAGE, ..ScheduleQuery::default() };
    let mut claims = Vec::new();
    loop {
        let page = store.schedules.list(&query).await?;
        claims.extend(page.schedules.iter().filter_map(claim));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(claims),
        }
    }
}

/// `None`: the schedule has no interval, no first or no next time, which none of a campaign lacks.
fn claim(stored: &StoredSchedule) -> Option<Claim> {
    let progress = &stored.progress;
    Some(Claim {
        id: stored.id.as_str().to_owned(),
        start_ms: stored.timing.start_ms?,
        every_ms: stored.timing.expression.interval_ms()?,
        next_ms: progress.next_ms?,
        occurrence: progress.occurrence,
        missed: progress.missed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_within_bounds_and_before_the_next() {
        let claim = Claim {
            id: "a".to_owned(),
            start_ms: 1000,
            every_ms: 10,
            next_ms: 1050,
            occurrence: 0,
            missed: 0,
        };
        for (from_ms, to_ms, count) in [
            (0, 999, 0),
            (0, 1000, 1),
            (1000, 1010, 2),
            (1001, 1009, 0),
            (1041, 9999, 0),
            (9, 0, 0),
        ] {
            assert_eq!(claim.times_within(from_ms, to_ms), count, "{from_ms} {to_ms}");
        }
        assert_eq!(claim.times_within(0, i64::MAX), 5);
    }

    #[test]
    fn times_that_need_no_decision_are_neither_lost_nor_twice() {
        let claim = Claim {
            id: "a".to_owned(),
            start_ms: 1000,
            every_ms: 10,
            next_ms: 1050,
            occurrence: 3,
            missed: 0,
        };
        let made: Made = [(1000, vec![1]), (1010, vec![2, 2]), (1040, vec![3])].into();
        let flaw = |left_out| claim.flaw(&made, &left_out).map(|(flaw, _)| flaw);
        assert_eq!(flaw(0..=0), Some(Flaw::Lost(2)));
        assert_eq!((flaw(2..=2), flaw(0..=2), flaw(1..=4)), (None, None, None));
        assert_eq!(flaw(3..=3), Some(Flaw::Twice(1)));
    }
}
