//! Cron fields: the local times that they name.

use dwell_core::quote;

use crate::civil::{Month, SECONDS_PER_DAY};
use crate::days::{Days, bits};
use crate::error::ParseError;
use crate::field::{HOUR, MINUTE, MONTH, SECOND};
use crate::zone::Zone;

/// Five or six cron fields. Equal ones name the same times in every zone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Cron {
    /// Bit n is the value n, here and below.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: Days,
    months: u64,
    is_fixed: bool,
}

impl Cron {
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        // Other schedulers take a zone in front or behind.
        let front = fields.first().filter(|first| is_zone(first));
        let zone = front.or_else(|| fields.last().filter(|last| Zone::parse(last).is_ok()));
        if let Some(zone) = zone {
            return Err(ParseError::new(format!(
                "{} in an expression: name the zone apart, by delay-time-zone, time_zone or --zone",
                quote(zone)
            )));
        }
        let (second, rest) = match fields.len() {
            5 => ("0", &fields[..]),
            6 => (fields[0], &fields[1..]),
            count => {
                return Err(ParseError::new(format!(
                    "{} has {count} fields: write 5 (minute, hour, day of month, month, day of \
                     week), or 6 with the second before them",
                    quote(text)
                )));
            }
        };
        let cron = Self {
            seconds: SECOND.set(second)?,
            minutes: MINUTE.set(rest[0])?,
            hours: HOUR.set(rest[1])?,
            days: Days::parse(rest[2], rest[4])?,
            months: MONTH.set(rest[3])?,
            is_fixed: ![second, rest[0], rest[1]].iter().any(|field| field.contains(['*', '/'])),
        };
        if cron.has_days() {
            Ok(cron)
        } else {
            Err(ParseError::new(format!(
                "{} never fires: its months have no such day",
                quote(text)
            )))
        }
    }

    /// Whether it fires once for each of its local times, also where the zone's clock is changed.
    /// Others follow the zone's clock.
    pub(crate) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The first of its local times from `from` and before `until`.
    pub(crate) fn first_in(&self, from: i64, until: i64) -> Option<i64> {
        if from >= until {
            return None;
        }
        let from_day = from.div_euclid(SECONDS_PER_DAY);
        let last_day = (until - 1).div_euclid(SECONDS_PER_DAY);
        let mut day = self.next_day(from_day, last_day)?;
        let mut found = None;
        if day == from_day {
            found = self.first_second(from.rem_euclid(SECONDS_PER_DAY));
            if found.is_none() {
                day = self.next_day(from_day + 1, last_day)?;
            }
        }
        let second = found.or_else(|| self.first_second(0))?;
        Some(day * SECONDS_PER_DAY + second).filter(|time| *time < until)
    }

    /// The last of its local times from `from` and before `until`.
    pub(crate) fn last_in(&self, from: i64, until: i64) -> Option<i64> {
        if from >= until {
            return None;
        }
        let first_day = from.div_euclid(SECONDS_PER_DAY);
        let last_day = (until - 1).div_euclid(SECONDS_PER_DAY);
        let mut day = self.previous_day(last_day, first_day)?;
        let mut found = None;
        if day == last_day {
            found = self.last_second((until - 1).rem_euclid(SECONDS_PER_DAY));
            if found.is_none() {
                day = self.previous_day(last_day - 1, first_day)?;
            }
        }
        let second = found.or_else(|| self.last_second(SECONDS_PER_DAY - 1))?;
        Some(day * SECONDS_PER_DAY + second).filter(|time| *time >= from)
    }

    /// One form of all expressions with this meaning.
    pub(crate) fn normal(&self) -> String {
        let numbers = |set: u64, count: u32| {
            if set.count_ones() == count {
                "*".to_owned()
            } else {
                bits(set).map(|value| value.to_string()).collect::<Vec<_>>().join(",")
            }
        };
        let (of_month, of_week) = self.days.normal();
        format!(
            "{} {} {} {} {of_month} {} {of_week}",
            if self.is_fixed { "fixed" } else { "repeating" },
            numbers(self.seconds, 60),
            numbers(self.minutes, 60),
            numbers(self.hours, 24),
            numbers(self.months, 12),
        )
    }

    /// Whether any day fits. In the 28 years from 2000 each month begins on each weekday, leap
    /// years too.
    fn has_days(&self) -> bool {
        let first = Month { year: 2000, month: 1 }.first_day();
        let last = Month { year: 2028, month: 1 }.first_day() - 1;
        self.next_day(first, last).is_some()
    }

    /// The first day that fits, from `from` to `last`.
    fn next_day(&self, from: i64, last: i64) -> Option<i64> {
        let (mut month, day) = Month::of_day(from);
        let mut allowed = u32::MAX << day;
        while month.first_day() <= last {
            let days = self.days_in(month) & allowed;
            if days != 0 {
                let found = month.first_day() + i64::from(days.trailing_zeros()) - 1;
                return Some(found).filter(|found| *found <= last);
            }
            (month, allowed) = (month.next(), u32::MAX);
        }
        None
    }

    /// The last day that fits, from `from` back to `first`.
    fn previous_day(&self, from: i64, first: i64) -> Option<i64> {
        let (mut month, day) = Month::of_day(from);
        let mut allowed = u32::MAX >> (31 - day);
        while month.next().first_day() > first {
            let days = self.days_in(month) & allowed;
            if days != 0 {
                let found = month.first_day() + i64::from(days.ilog2()) - 1;
                return Some(found).filter(|found| *found >= first);
            }
            (month, allowed) = (month.previous(), u32::MAX);
        }
        None
    }

    fn days_in(&self, month: Month) -> u32 {
        if self.months >> month.month & 1 == 1 { self.days.in_month(month) } else { 0 }
    }

    /// The first time of a day that fits, from this second of the day.
    fn first_second(&self, from: i64) -> Option<i64> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        let at = |hour: i64, minute: i64, second: i64| hour * 3_600 + minute * 60 + second;
        let first = |set: u64| i64::from(set.trailing_zeros());
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1
                && let Some(second) = bit_from(self.seconds, second)
            {
                return Some(at(hour, minute, second));
            }
            if let Some(minute) = bit_from(self.minutes, minute + 1) {
                return Some(at(hour, minute, first(self.seconds)));
            }
        }
        let hour = bit_from(self.hours, hour + 1)?;
        Some(at(hour, first(self.minutes), first(self.seconds)))
    }

    /// The last time of a day that fits, to this second of the day.
    fn last_second(&self, to: i64) -> Option<i64> {
        let (hour, minute, second) = (to / 3_600, to / 60 % 60, to % 60);
        let at = |hour: i64, minute: i64, second: i64| hour * 3_600 + minute * 60 + second;
        let last = |set: u64| i64::from(set.ilog2());
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1
                && let Some(second) = bit_to(self.seconds, second)
            {
                return Some(at(hour, minute, second));
            }
            if let Some(minute) = bit_to(self.minutes, minute - 1) {
                return Some(at(hour, minute, last(self.seconds)));
            }
        }
        let hour = bit_to(self.hours, hour - 1)?;
        Some(at(hour, last(self.minutes), last(self.seconds)))
    }
}

/// Whether the field sets a zone, as some crons read it.
fn is_zone(field: &str) -> bool {
    field.starts_with("TZ=") || field.starts_with("CRON_TZ=")
}

/// The first bit from this one that is set.
fn bit_from(set: u64, from: i64) -> Option<i64> {
    let rest = set & (u64::MAX << from);
    (rest != 0).then(|| i64::from(rest.trailing_zeros()))
}

/// The last bit up to this one that is set.
fn bit_to(set: u64, to: i64) -> Option<i64> {
    if to < 0 {
        return None;
    }
    let rest = set & (u64::MAX >> (63 - to));
    (rest != 0).then(|| i64::from(rest.ilog2()))
}
