//! The occurrences that are overdue: which of them are made, and how many were missed.

use std::str::FromStr;

use dwell_core::quote;

use crate::error::ParseError;
use crate::timetable::{MAX_COUNTED, MAX_LISTED, Timetable};

/// An occurrence that is late by more was missed.
pub const LATE_MS: i64 = 60_000;

/// The most occurrences that are caught up.
const MAX_CAUGHT_UP: usize = 100;

/// What becomes of occurrences that were missed (`delay-catch-up`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum CatchUp {
    /// The newest is made.
    #[default]
    One,
    /// None is made.
    None,
    /// The newest 100 are made.
    All,
}

impl CatchUp {
    /// The name, as it is written in a request.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::None => "none",
            Self::All => "all",
        }
    }
}

impl FromStr for CatchUp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        [Self::One, Self::None, Self::All]
            .into_iter()
            .find(|catch_up| catch_up.name() == text)
            .ok_or_else(|| {
                ParseError::new(format!("{} is no catch-up: write one, none or all", quote(text)))
            })
    }
}

/// The due occurrences of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overdue {
    /// The nominal times of the occurrences to make, ascending.
    pub make: Vec<i64>,
    /// How many of those to make had been missed: they are late, or their successor is due.
    pub caught_up: usize,
    /// How many are not made, at most [`MAX_COUNTED`].
    pub missed: u64,
    /// The newest [`MAX_LISTED`] of those that are not made, ascending.
    pub missed_times: Vec<i64>,
    /// The next time after now; none where there is none, or `left` is used up.
    pub next: Option<i64>,
}

/// What is due at `now_ms` of a schedule whose next time is `next_ms`. `left` is how many
/// occurrences may still be made.
#[must_use]
pub fn overdue(
    timetable: &Timetable,
    next_ms: i64,
    now_ms: i64,
    catch_up: CatchUp,
    left: Option<u64>,
) -> Overdue {
    let allowed = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
    if now_ms < next_ms {
        return Overdue { next: Some(next_ms).filter(|_| allowed > 0), ..Overdue::default() };
    }
    let Some(newest) = timetable.latest_at_or_before(now_ms).filter(|time| *time >= next_ms) else {
        let next = timetable.next(now_ms).filter(|_| allowed > 0);
        return Overdue { next, ..Overdue::default() };
    };
    let is_late = now_ms.saturating_sub(newest) > LATE_MS;
    let made = match catch_up {
        CatchUp::One => 1,
        CatchUp::None => usize::from(!is_late),
        CatchUp::All => MAX_CAUGHT_UP,
    }
    .min(allowed);
    let counted = MAX_COUNTED + made as u64;
    let mut due = timetable.gap_of(next_ms, now_ms, made + MAX_LISTED, counted);
    let make = due.newest.split_off(due.newest.len().saturating_sub(made));
    let made = make.len();
    let caught_up = if is_late { made } else { made.saturating_sub(1) };
    Overdue {
        make,
        caught_up,
        missed: due.count - made as u64,
        missed_times: due.newest,
        next: if made < allowed { timetable.next(now_ms) } else { None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schedule of each whole hour.
    fn hourly() -> Timetable {
        Timetable::new("@hourly".parse().unwrap(), None, None, None, 0).unwrap()
    }

    const HOUR: i64 = 3_600_000;

    /// The hours that are made, those that were missed, and how many were caught up.
    fn hours(late_ms: i64, catch_up: CatchUp) -> (Vec<i64>, Vec<i64>, usize) {
        // The hours 100, 101 and 102 are due.
        let due = overdue(&hourly(), 100 * HOUR, 102 * HOUR + late_ms, catch_up, None);
        assert_eq!((due.next, due.missed), (Some(103 * HOUR), due.missed_times.len() as u64));
        let hours = |times: &[i64]| times.iter().map(|time| time / HOUR).collect();
        (hours(&due.make), hours(&due.missed_times), due.caught_up)
    }

    #[test]
    fn a_gap_is_caught_up_as_the_schedule_says() {
        assert_eq!(hours(LATE_MS, CatchUp::One), (vec![102], vec![100, 101], 0));
        assert_eq!(hours(LATE_MS + 1, CatchUp::One), (vec![102], vec![100, 101], 1));
        assert_eq!(hours(LATE_MS, CatchUp::None), (vec![102], vec![100, 101], 0));
        assert_eq!(hours(LATE_MS + 1, CatchUp::None), (vec![], vec![100, 101, 102], 0));
        assert_eq!(hours(LATE_MS, CatchUp::All), (vec![100, 101, 102], vec![], 2));
        assert_eq!(hours(LATE_MS + 1, CatchUp::All), (vec![100, 101, 102], vec![], 3));
    }

    #[test]
    fn what_is_on_time_is_made_whatever_the_catch_up() {
        for catch_up in [CatchUp::One, CatchUp::None, CatchUp::All] {
            let due = overdue(&hourly(), HOUR, HOUR, catch_up, None);
            assert_eq!((due.make, due.caught_up, due.missed), (vec![HOUR], 0, 0));
            let early = overdue(&hourly(), HOUR, HOUR - 1, catch_up, None);
            assert_eq!(early, Overdue { next: Some(HOUR), ..Overdue::default() });
        }
    }

    #[test]
    fn the_newest_hundred_are_caught_up_and_ten_thousand_counted() {
        let due = overdue(&hourly(), HOUR, 20_000 * HOUR, CatchUp::All, None);
        assert_eq!((due.make.len(), due.caught_up, due.missed), (100, 99, 10_000));
        assert_eq!((due.make[0], due.make[99]), (19_901 * HOUR, 20_000 * HOUR));
        assert_eq!(due.missed_times.last(), Some(&(19_900 * HOUR)));
        assert_eq!(due.missed_times.len(), MAX_LISTED);
    }

    #[test]
    fn a_catch_up_has_a_name() {
        for catch_up in [CatchUp::One, CatchUp::None, CatchUp::All] {
            assert_eq!(catch_up.name().parse(), Ok(catch_up));
        }
        assert!("One".parse::<CatchUp>().is_err());
    }

    #[test]
    fn no_more_are_made_than_are_left() {
        let due = overdue(&hourly(), HOUR, 5 * HOUR, CatchUp::All, Some(2));
        assert_eq!((due.make, due.missed, due.next), (vec![4 * HOUR, 5 * HOUR], 3, None));
        let due = overdue(&hourly(), HOUR, HOUR, CatchUp::One, Some(2));
        assert_eq!((due.make.len(), due.next), (1, Some(2 * HOUR)));
    }
}
