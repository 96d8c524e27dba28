//! Dates of the Gregorian calendar as numbers of days, and local times as numbers of seconds.
//!
//! A local time is the count of seconds from 1970-01-01T00:00:00 on the zone's clock, as if the
//! clock had never been changed.

pub(crate) const SECONDS_PER_DAY: i64 = 86_400;

/// A month of a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Month {
    pub(crate) year: i64,
    /// From 1 to 12.
    pub(crate) month: u8,
}

impl Month {
    /// The month of a day, and the day of the month, from 1.
    pub(crate) fn of_day(day: i64) -> (Self, u8) {
        // Years from March, in eras of 400: Howard Hinnant's `civil_from_days`.
        let shifted = day + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        // Both are small by their formulas.
        (Self { year, month: month as u8 }, day_of_month as u8)
    }

    /// The first day of this month.
    pub(crate) fn first_day(self) -> i64 {
        // Howard Hinnant's `days_from_civil`.
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = (i64::from(self.month) + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// The number of days of this month.
    pub(crate) fn days(self) -> u8 {
        let is_leap = self.year.rem_euclid(4) == 0
            && (self.year.rem_euclid(100) != 0 || self.year.rem_euclid(400) == 0);
        match self.month {
            2 => 28 + u8::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// The weekday of the first of this month, from 0 for Sunday.
    pub(crate) fn first_weekday(self) -> u8 {
        // 1970-01-01 was a Thursday.
        (self.first_day() + 4).rem_euclid(7) as u8
    }

    pub(crate) fn next(self) -> Self {
        if self.month == 12 {
            Self { year: self.year + 1, month: 1 }
        } else {
            Self { month: self.month + 1, ..self }
        }
    }

    pub(crate) fn previous(self) -> Self {
        if self.month == 1 {
            Self { year: self.year - 1, month: 12 }
        } else {
            Self { month: self.month - 1, ..self }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_months_agree_with_jiff() {
        let mut date = jiff::civil::date(1890, 1, 1);
        let epoch = jiff::civil::date(1970, 1, 1);
        let mut day = i64::from(epoch.until(date).unwrap().get_days());
        while date.year() < 2310 {
            let (month, day_of_month) = Month::of_day(day);
            assert_eq!(
                (month.year, month.month, day_of_month),
                (i64::from(date.year()), date.month() as u8, date.day() as u8)
            );
            assert_eq!(month.days(), date.days_in_month() as u8);
            assert_eq!(month.first_day(), day - i64::from(day_of_month) + 1);
            let weekday = date.first_of_month().weekday().to_sunday_zero_offset();
            assert_eq!(month.first_weekday(), weekday as u8);
            (date, day) = (date.tomorrow().unwrap(), day + 1);
        }
    }

    #[test]
    fn months_follow_one_another_over_the_year() {
        let december = Month { year: 1969, month: 12 };
        assert_eq!(december.next(), Month { year: 1970, month: 1 });
        assert_eq!(december.next().previous(), december);
        assert_eq!(december.previous().next(), december);
    }
}
