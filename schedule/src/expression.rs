//! The expression of a schedule: cron fields, an alias for some, or an interval.

use std::str::FromStr;

use dwell_core::{parse_duration_ms, quote};

use crate::cron::Cron;
use crate::error::ParseError;
use crate::go_duration::go_duration_ms;

/// The shortest interval of `@every`.
pub const MIN_INTERVAL_MS: i64 = 1_000;

const ALIASES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// Five or six cron fields, `@daily` and the like, or `@every 30m`. Expressions that mean the same
/// are equal, however they are written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expression(Kind);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Cron(Cron),
    /// The interval, ms.
    Every(i64),
}

impl Expression {
    /// Reads an expression. The interval of `@every` is a duration as in `delay-for`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parse_with(text, parse_duration_ms)
    }

    /// Reads an expression of NATS: the interval of `@every` is a duration as Go spells it
    /// (`1h30m0s`). The rest is as in [`Expression::parse`].
    pub fn parse_nats(text: &str) -> Result<Self, ParseError> {
        Self::parse_with(text, go_duration_ms)
    }

    fn parse_with(
        text: &str,
        duration_ms: fn(&str) -> Result<u64, String>,
    ) -> Result<Self, ParseError> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(ParseError::new(
                "an empty schedule: write cron fields as 0 9 * * MON-FRI, @daily or @every 30m",
            ));
        }
        if !trimmed.starts_with('@') {
            return Ok(Self(Kind::Cron(Cron::parse(trimmed)?)));
        }
        let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        let rest = rest.trim();
        if word.eq_ignore_ascii_case("@every") {
            return Ok(Self(Kind::Every(interval_ms(rest, duration_ms)?)));
        }
        if word.eq_ignore_ascii_case("@at") {
            return Err(ParseError::new(format!(
                "{} is a single time: write it as delay-until",
                quote(trimmed)
            )));
        }
        let alias = ALIASES.iter().find(|(name, _)| trimmed.eq_ignore_ascii_case(name));
        match alias {
            Some((_, fields)) => Ok(Self(Kind::Cron(Cron::parse(fields)?))),
            None => Err(ParseError::new(format!(
                "{} is not a schedule: write cron fields, @every 30m, @hourly, @daily, @midnight, \
                 @weekly, @monthly, @yearly or @annually",
                quote(trimmed)
            ))),
        }
    }

    /// The interval of `@every`, ms.
    #[must_use]
    pub fn interval_ms(&self) -> Option<i64> {
        match self.0 {
            Kind::Every(interval) => Some(interval),
            Kind::Cron(_) => None,
        }
    }

    /// Whether the expression fires once for each of its local times, also in a gap and in an
    /// overlap of a zone: cron fields without `*`, `?` and `/` in seconds, minutes and hours.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        matches!(&self.0, Kind::Cron(cron) if cron.is_fixed())
    }

    /// One text for all expressions with this meaning, to compare with stored ones. It is not an
    /// expression itself.
    #[must_use]
    pub fn normal(&self) -> String {
        match &self.0 {
            Kind::Cron(cron) => cron.normal(),
            Kind::Every(interval) => format!("every {interval}"),
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }
}

impl FromStr for Expression {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

fn interval_ms(
    text: &str,
    duration_ms: fn(&str) -> Result<u64, String>,
) -> Result<i64, ParseError> {
    if text.is_empty() {
        return Err(ParseError::new("@every has no duration: write @every 30m"));
    }
    let ms = duration_ms(text).map_err(|flaw| ParseError::new(format!("@every: {flaw}")))?;
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    if ms < MIN_INTERVAL_MS {
        return Err(ParseError::new(format!(
            "@every {} is too short: write at least 1s",
            quote(text)
        )));
    }
    Ok(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str) -> String {
        Expression::parse(text).unwrap().normal()
    }

    #[test]
    fn what_means_the_same_has_one_form() {
        for (one, other) in [
            ("@daily", "0 0 0 * * *"),
            ("@DAILY", "@midnight"),
            ("*/15 * * * *", "0,15,30,45 * * * ?"),
            ("*/15 * * * *", "  0/15\t*  */1 * *"),
            ("0 9 * * mon-FRI", "00 09 * * 5,1-4"),
            ("0 9 * * SUN", "0 9 * * 7"),
            ("0 9 * * FRI-SUN", "0 9 * * 0,5,6"),
            ("0 9 * * 5/1", "0 9 * * 5-7"),
            ("0 9 1-31 * *", "0 9 * * *"),
            ("0 9 */1 * MON", "0 9 * * *"),
            ("0 9 * * MON,MON#2", "0 9 * * 1"),
            ("@every 90m", "@every 1h30m"),
            ("@every PT1M", "@every 60000"),
        ] {
            assert_eq!(normal(one), normal(other), "{one} and {other}");
            assert_eq!(one.parse::<Expression>(), other.parse::<Expression>(), "{one}, {other}");
        }
    }

    #[test]
    fn what_differs_has_another_form() {
        for (one, other) in [
            ("0 * * * *", "0 0-23 * * *"),
            ("0 9 1 * *", "0 9 1W * *"),
            ("0 9 L * *", "0 9 LW * *"),
            ("0 9 * * 5#5", "0 9 * * 5L"),
            ("0 9 1 * MON", "0 9 1 * *"),
            ("@every 1d", "@daily"),
        ] {
            assert_ne!(normal(one), normal(other), "{one} and {other}");
            assert_ne!(one.parse::<Expression>(), other.parse::<Expression>(), "{one}, {other}");
        }
        assert_eq!(normal("5 9 15W,L 1 fri#2,5L"), "fixed 0 5 9 15W,L 1 5#2,5L");
        assert_eq!(normal("@every 1m"), "every 60000");
    }

    #[test]
    fn nats_spells_intervals_as_go_does() {
        let parsed = Expression::parse_nats("@every 1h30m0s").unwrap();
        assert_eq!(parsed.interval_ms(), Some(5_400_000));
        assert!(Expression::parse_nats("@every 1d").is_err());
        assert!(Expression::parse_nats("@every 999ms").is_err());
        assert_eq!(Expression::parse_nats("0 0 9 * * *"), Expression::parse("0 9 * * *"));
    }

    #[test]
    fn an_error_says_what_is_wrong_in_which_field_and_what_to_write() {
        for (text, error) in [
            (
                "60 * * * *",
                "minute `60` is out of range: write 0 to 59, *, or a list, a range or a step of \
                 them",
            ),
            ("0 22-2 * * *", "hour `22-2` runs backwards: write 22-23,0-2"),
            ("0 0 * * SAT-MON", "day of week `SAT-MON` runs backwards: write SAT-SAT,SUN-MON"),
            ("1,,2 * * * *", "minute `1,,2` has an empty item: remove a comma"),
            ("/10 * * * *", "minute `/10` has nothing before the step: write */10"),
            (
                "0 0 MON * *",
                "day of month `MON` has a name of another field: weekdays belong in the last field",
            ),
            ("0 0 30 2 *", "`0 0 30 2 *` never fires: its months have no such day"),
            (
                "@every 1h 30m",
                "@every: `1h 30m` is not a duration: write 5000 (ms), 90s, 1h30m or PT15M",
            ),
            ("@every 999ms", "@every `999ms` is too short: write at least 1s"),
            (
                "TZ=UTC 0 0 * * *",
                "`TZ=UTC` in an expression: name the zone apart, by delay-time-zone, time_zone or \
                 --zone",
            ),
            (
                "0 22 * * 1-5 America/Chicago",
                "`America/Chicago` in an expression: name the zone apart, by delay-time-zone, \
                 time_zone or --zone",
            ),
        ] {
            assert_eq!(Expression::parse(text).unwrap_err().to_string(), error);
        }
    }
}
