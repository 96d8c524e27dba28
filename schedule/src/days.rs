//! The days on which a cron expression fires: by day of month, day of week, or either.

use crate::civil::Month;
use crate::error::ParseError;
use crate::field::{DAY_OF_MONTH, DAY_OF_WEEK};

/// The days of month 1 to 31, as bits.
const EVERY_DAY_OF_MONTH: u32 = 0xffff_fffe;

/// The days of week 0 to 6, as bits.
const EVERY_DAY_OF_WEEK: u8 = 0x7f;

/// Both day fields. A lone `*` is none: then the other decides. A day that fits either fires.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Days {
    of_month: Option<DaysOfMonth>,
    of_week: Option<DaysOfWeek>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct DaysOfMonth {
    /// Bit n is day n.
    days: u32,
    /// Bit n is the weekday that is nearest to day n, within the month.
    nearest_weekdays: u32,
    has_last: bool,
    has_last_weekday: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct DaysOfWeek {
    /// Bit n is each weekday n, from 0 for Sunday.
    every: u8,
    /// The first to the fifth of the month.
    nth: [u8; 5],
    last: u8,
}

impl Days {
    pub(crate) fn parse(of_month: &str, of_week: &str) -> Result<Self, ParseError> {
        let of_month = match DAY_OF_MONTH.is_wild(of_month) {
            true => None,
            false => Some(DaysOfMonth::parse(of_month)?),
        };
        let of_week = match DAY_OF_WEEK.is_wild(of_week) {
            true => None,
            false => Some(DaysOfWeek::parse(of_week)?),
        };
        // One form of what fires every day, so that equal expressions compare equal.
        let is_every_day = of_month.as_ref().is_some_and(|days| days.days == EVERY_DAY_OF_MONTH)
            || of_week.as_ref().is_some_and(|days| days.every == EVERY_DAY_OF_WEEK);
        Ok(if is_every_day {
            Self { of_month: None, of_week: None }
        } else {
            Self { of_month, of_week }
        })
    }

    /// The days of this month on which the expression fires: bit n is day n.
    pub(crate) fn in_month(&self, month: Month) -> u32 {
        let all = EVERY_DAY_OF_MONTH & (u32::MAX >> (31 - month.days()));
        let days = match (&self.of_month, &self.of_week) {
            (None, None) => all,
            (of_month, of_week) => {
                of_month.as_ref().map_or(0, |days| days.in_month(month))
                    | of_week.as_ref().map_or(0, |days| days.in_month(month))
            }
        };
        days & all
    }

    /// The two fields in one form.
    pub(crate) fn normal(&self) -> (String, String) {
        let wild = || "*".to_owned();
        (
            self.of_month.as_ref().map_or_else(wild, DaysOfMonth::normal),
            self.of_week.as_ref().map_or_else(wild, DaysOfWeek::normal),
        )
    }
}

impl DaysOfMonth {
    fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parsed = Self::default();
        for item in DAY_OF_MONTH.items(text)? {
            match item.as_str() {
                "L" => parsed.has_last = true,
                "LW" => parsed.has_last_weekday = true,
                other => match other.strip_suffix('W') {
                    Some(day) => {
                        parsed.nearest_weekdays |= 1 << DAY_OF_MONTH.value(&item, day)?;
                    }
                    // The set has bits 1 to 31.
                    None => parsed.days |= DAY_OF_MONTH.item(other)? as u32,
                },
            }
        }
        Ok(parsed)
    }

    fn in_month(&self, month: Month) -> u32 {
        let last = month.days();
        let weekday = |day: u8| (month.first_weekday() + day - 1) % 7;
        let mut days = self.days;
        if self.has_last {
            days |= 1 << last;
        }
        if self.has_last_weekday {
            days |= 1 << nearest_weekday(last, last, weekday(last));
        }
        for day in bits(u64::from(self.nearest_weekdays)).filter(|day| *day <= last) {
            days |= 1 << nearest_weekday(day, last, weekday(day));
        }
        days
    }

    fn normal(&self) -> String {
        let near = bits(u64::from(self.nearest_weekdays)).map(|day| format!("{day}W"));
        let mut items: Vec<String> =
            bits(u64::from(self.days)).map(|day| day.to_string()).chain(near).collect();
        items.extend(self.has_last.then(|| "L".to_owned()));
        items.extend(self.has_last_weekday.then(|| "LW".to_owned()));
        items.join(",")
    }
}

impl DaysOfWeek {
    fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parsed = Self::default();
        for item in DAY_OF_WEEK.items(text)? {
            if item == "L" {
                let advice = "write 5L or FRIL for the last Friday";
                return Err(DAY_OF_WEEK.flaw(text, "has an L without a weekday", advice));
            }
            if let Some(day) = item.strip_suffix('L') {
                parsed.last |= 1 << (DAY_OF_WEEK.value(&item, day)? % 7);
            } else if let Some((day, which)) = item.split_once('#') {
                let day = DAY_OF_WEEK.value(&item, day)? % 7;
                let which = match which {
                    "1" => 0,
                    "2" => 1,
                    "3" => 2,
                    "4" => 3,
                    "5" => 4,
                    _ => {
                        let advice = "write 5#1 to 5#5, or 5L for the last";
                        return Err(DAY_OF_WEEK.flaw(&item, "is out of range", advice));
                    }
                };
                parsed.nth[which] |= 1 << day;
            } else {
                // Bits 0 to 7, where 7 is Sunday too.
                let set = DAY_OF_WEEK.item(&item)?;
                parsed.every |= (set | set >> 7) as u8 & EVERY_DAY_OF_WEEK;
            }
        }
        for some in parsed.nth.iter_mut().chain([&mut parsed.last]) {
            *some &= !parsed.every;
        }
        Ok(parsed)
    }

    fn in_month(&self, month: Month) -> u32 {
        let (first, last) = (month.first_weekday(), month.days());
        (1..=last).fold(0, |days, day| {
            let weekday = (first + day - 1) % 7;
            let mut fits = self.every | self.nth[usize::from((day - 1) / 7)];
            if day + 7 > last {
                fits |= self.last;
            }
            days | u32::from(fits >> weekday & 1) << day
        })
    }

    fn normal(&self) -> String {
        let every = bits(self.every.into()).map(|day| day.to_string());
        let nth = (1..).zip(&self.nth).flat_map(|(which, days)| {
            bits((*days).into()).map(move |day| format!("{day}#{which}"))
        });
        let last = bits(self.last.into()).map(|day| format!("{day}L"));
        every.chain(nth).chain(last).collect::<Vec<_>>().join(",")
    }
}

/// The day from Monday to Friday that is nearest to `day`, in a month of `last` days.
fn nearest_weekday(day: u8, last: u8, weekday: u8) -> u8 {
    match weekday {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == last => day - 2,
        0 => day + 1,
        _ => day,
    }
}

/// The numbers of the bits that are set, ascending.
pub(crate) fn bits(set: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |bit| set >> bit & 1 == 1)
}
