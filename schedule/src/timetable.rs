//! The times of a schedule: an expression in a zone, from a start to an end.

use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::expression::{Expression, Kind};
use crate::occurrence_id::MAX_TIME_MS;
use crate::zone::Zone;

/// The most times of a gap that are listed.
pub const MAX_LISTED: usize = 100;

/// The most times of a gap that are counted.
pub const MAX_COUNTED: u64 = 10_000;

/// When a schedule fires: the nominal times, epoch ms, from 1970 to
/// [`MAX_TIME_MS`].
#[derive(Debug, Clone)]
pub struct Timetable {
    expression: Expression,
    zone: Zone,
    start: Option<i64>,
    end: Option<i64>,
    /// From when the intervals of `@every` are counted, and the number of the first.
    grid: (i64, i64),
}

/// The times between two others: the newest, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gap {
    /// The newest [`MAX_LISTED`], ascending.
    pub newest: Vec<i64>,
    /// Their number, at most [`MAX_COUNTED`].
    pub count: u64,
}

impl Timetable {
    /// The times of an expression. Start and end are included; without a zone it is UTC.
    /// `stored_ms` is when the schedule was stored: without a start the intervals of `@every` are
    /// counted from there, the first of them is over one interval later.
    pub fn new(
        expression: Expression,
        zone: Option<Zone>,
        start: Option<i64>,
        end: Option<i64>,
        stored_ms: i64,
    ) -> Result<Self, ParseError> {
        if expression.interval_ms().is_some() && zone.is_some() {
            return Err(ParseError::new(
                "a time zone with @every, which counts elapsed time: remove the zone, and give \
                 start and end an offset",
            ));
        }
        if let (Some(start), Some(end)) = (start, end)
            && end < start
        {
            return Err(ParseError::new("the end is before the start: write a later end"));
        }
        let grid = start.map_or((stored_ms, 1), |start| (start, 0));
        Ok(Self { expression, zone: zone.unwrap_or_else(Zone::utc), start, end, grid })
    }

    /// The expression.
    #[must_use]
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// The zone; UTC where none was named.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first moment at which the schedule may fire.
    #[must_use]
    pub fn start(&self) -> Option<i64> {
        self.start
    }

    /// The last moment at which the schedule may fire.
    #[must_use]
    pub fn end(&self) -> Option<i64> {
        self.end
    }

    /// Whether the other schedule, stored again, goes on with the next time of this one: expression,
    /// zone and start are the same. The end may be another.
    #[must_use]
    pub fn continues(&self, other: &Self) -> bool {
        (&self.expression, &self.zone, self.start) == (&other.expression, &other.zone, other.start)
    }

    /// The first time that is later than this one.
    #[must_use]
    pub fn next(&self, after_ms: i64) -> Option<i64> {
        self.first(after_ms.checked_add(1)?)
    }

    /// The first time that is not before this one.
    #[must_use]
    pub fn first(&self, from_ms: i64) -> Option<i64> {
        self.walk().first_from(from_ms)
    }

    /// The last time that is not after this one.
    #[must_use]
    pub fn latest_at_or_before(&self, ms: i64) -> Option<i64> {
        self.walk().last_in(i64::MIN, ms)
    }

    /// The next `count` times that are later than this one.
    #[must_use]
    pub fn upcoming(&self, after_ms: i64, count: usize) -> Vec<i64> {
        let mut walk = self.walk();
        let mut times = Vec::new();
        let mut from = after_ms.checked_add(1);
        while times.len() < count
            && let Some(time) = from.and_then(|from| walk.first_from(from))
        {
            times.push(time);
            from = time.checked_add(1);
        }
        times
    }

    /// The times from `from_ms` to `to_ms`, both included. Those of `@every` are not iterated.
    #[must_use]
    pub fn gap(&self, from_ms: i64, to_ms: i64) -> Gap {
        self.gap_of(from_ms, to_ms, MAX_LISTED, MAX_COUNTED)
    }

    /// The newest `listed` times from `from_ms` to `to_ms`, and their number up to `counted`.
    pub(crate) fn gap_of(&self, from_ms: i64, to_ms: i64, listed: usize, counted: u64) -> Gap {
        let mut walk = self.walk();
        let mut gap = Gap::default();
        let mut to = Some(to_ms);
        while gap.count < counted
            && let Some(time) = to.and_then(|to| walk.last_in(from_ms, to))
        {
            gap.count += 1;
            if gap.newest.len() < listed {
                gap.newest.push(time);
            } else if let Some(count) = self.intervals(from_ms, time) {
                gap.count = (gap.count - 1).saturating_add(count).min(counted);
                break;
            }
            to = time.checked_sub(1);
        }
        gap.newest.reverse();
        gap
    }

    /// How many times of `@every` there are from `from_ms` to the time `last`.
    fn intervals(&self, from_ms: i64, last: i64) -> Option<u64> {
        let interval = self.expression.interval_ms()?;
        let first = self.first(from_ms)?;
        u64::try_from((last - first) / interval + 1).ok()
    }

    fn walk(&self) -> Walk<'_> {
        let step = match self.expression.kind() {
            Kind::Cron(cron) => Step::Cron(Cursor::new(cron, &self.zone)),
            Kind::Every(interval) => Step::Every { interval: *interval, grid: self.grid },
        };
        let start = self.start.unwrap_or(0).max(0);
        let end = self.end.unwrap_or(MAX_TIME_MS).min(MAX_TIME_MS);
        Walk { step, start, end }
    }
}

/// A walk over the times, in both directions.
struct Walk<'a> {
    step: Step<'a>,
    start: i64,
    end: i64,
}

enum Step<'a> {
    Cron(Cursor<'a>),
    Every { interval: i64, grid: (i64, i64) },
}

impl Walk<'_> {
    fn first_from(&mut self, from_ms: i64) -> Option<i64> {
        let from = from_ms.max(self.start);
        if from > self.end {
            return None;
        }
        let found = match &mut self.step {
            // Up to a second, so that nothing is before `from`.
            Step::Cron(cursor) => cursor.first_from((from + 999).div_euclid(1_000))? * 1_000,
            Step::Every { interval, grid } => {
                let (interval, origin, first) =
                    (i128::from(*interval), i128::from(grid.0), i128::from(grid.1));
                // The quotient is rounded up.
                let number = -(origin - i128::from(from)).div_euclid(interval);
                i64::try_from(origin + number.max(first) * interval).ok()?
            }
        };
        (found <= self.end).then_some(found)
    }

    fn last_in(&mut self, from_ms: i64, to_ms: i64) -> Option<i64> {
        let (from, to) = (from_ms.max(self.start), to_ms.min(self.end));
        if from > to {
            return None;
        }
        match &mut self.step {
            Step::Cron(cursor) => {
                let from = (from + 999).div_euclid(1_000);
                Some(cursor.last_in(from, to.div_euclid(1_000))? * 1_000)
            }
            Step::Every { interval, grid } => {
                let (interval, origin, first) =
                    (i128::from(*interval), i128::from(grid.0), i128::from(grid.1));
                let number = (i128::from(to) - origin).div_euclid(interval);
                let found = i64::try_from(origin + number * interval).ok()?;
                (number >= first && found >= from).then_some(found)
            }
        }
    }
}
