//! The fields of a recurring schedule, and when the schedule fires by them.

use dwell_schedule::{
    CatchUp, Expression, MAX_SCHEDULE_ID_BYTES, MAX_TIME_MS, Zone, split_occurrence_id,
};

use super::reject::{Code, Rejection};
use super::until::Until;
use crate::job::JobId;
use crate::schedule::{Overlap, Timing};
use crate::units::{quote, show_duration_ms};

/// The most occurrences of `delay-count`.
const MAX_COUNT: u64 = 1_000_000_000;

/// The fields of a recurring schedule; `None` where the request leaves one out.
#[derive(Debug, Default)]
pub(super) struct Recurring {
    pub(super) schedule: Option<Stated>,
    pub(super) start: Option<Until>,
    pub(super) end: Option<Until>,
    pub(super) count: Option<u64>,
    pub(super) catch_up: Option<CatchUp>,
    pub(super) overlap: Option<Overlap>,
}

/// An expression with its text, which [`Expression::parse`] reads.
#[derive(Debug)]
pub(super) struct Stated {
    text: String,
    expression: Expression,
}

impl Stated {
    /// Reads an expression.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expression = Expression::parse(text).map_err(|why| why.to_string())?;
        Ok(Stated { text: one_line(text), expression })
    }

    /// An expression in the spelling of another scheduler.
    pub(super) fn foreign(text: &str, expression: Expression) -> Self {
        let is_ours = || Expression::parse(text).is_ok_and(|ours| ours == expression);
        let text = match expression.interval_ms() {
            Some(ms) if !is_ours() => format!("@every {ms}ms"),
            _ => one_line(text),
        };
        Stated { text, expression }
    }
}

impl Recurring {
    /// The control header of a field that is set, without its prefix.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let fields = [
            ("schedule", self.schedule.is_some()),
            ("start", self.start.is_some()),
            ("end", self.end.is_some()),
            ("count", self.count.is_some()),
            ("catch-up", self.catch_up.is_some()),
            ("overlap", self.overlap.is_some()),
        ];
        fields.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// When the schedule fires. `zone`: the name of the time zone in the request. `now_ms`: the
    /// schedule must have a time from then on.
    pub(super) fn timing(
        self,
        zone: Option<&str>,
        spread_ms: Option<u64>,
        now_ms: i64,
    ) -> Result<Timing, Rejection> {
        let bad = |why: String| Rejection::new(Code::BadSchedule, why);
        let Some(Stated { text, expression }) = self.schedule else {
            let detail = "the request has no schedule: send cron fields as 0 9 * * MON-FRI, @daily or @every 30m";
            return Err(bad(detail.to_owned()));
        };
        let zone = zone
            .map(Zone::parse)
            .transpose()
            .map_err(|why| bad(format!("delay-time-zone: {why}")))?;
        let moment = |name: &str, time: Option<Until>| {
            time.map(|time| time.ms(zone.as_ref()))
                .transpose()
                .map_err(|why| bad(format!("{name}: {why}")))
        };
        let start_ms = moment("delay-start", self.start)?;
        let end_ms = moment("delay-end", self.end)?;
        let timing = Timing {
            text,
            expression,
            zone,
            start_ms,
            end_ms,
            count: self.count,
            catch_up: self.catch_up.unwrap_or_default(),
            overlap: self.overlap.unwrap_or_default(),
            spread_ms: check_spread(spread_ms.unwrap_or(0))?,
        };
        let times = timing.timetable(now_ms).map_err(|why| bad(why.to_string()))?;
        if times.first(now_ms).is_none() {
            return Err(bad(format!(
                "{} has no time from now on, within delay-start and delay-end: choose other fields, or a later delay-end",
                quote(&timing.text)
            )));
        }
        Ok(timing)
    }
}

/// The number of occurrences in a request.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let is_number = trimmed.bytes().all(|byte| byte.is_ascii_digit());
    let number = trimmed.parse::<u64>().ok().filter(|number| (1..=MAX_COUNT).contains(number));
    number
        .filter(|_| is_number)
        .ok_or_else(|| format!("{} is not a number from 1 to {MAX_COUNT}", quote(text)))
}

/// The name of a rule for missed occurrences.
pub(super) fn catch_up(text: &str) -> Result<CatchUp, String> {
    text.trim().parse().map_err(|why: dwell_schedule::ParseError| why.to_string())
}

/// Whether a schedule may have this id: those of its occurrences are made of it.
pub(super) fn check_id(id: &JobId) -> Result<(), Rejection> {
    let id = id.as_str();
    let why = if id.len() > MAX_SCHEDULE_ID_BYTES {
        format!("has {} bytes, and a schedule's has at most {MAX_SCHEDULE_ID_BYTES}", id.len())
    } else if split_occurrence_id(id).is_some() {
        "ends in @ and 13 digits, as those of occurrences do".to_owned()
    } else {
        return Ok(());
    };
    Err(Rejection::new(Code::BadId, format!("the id {} {why}: send another id", quote(id))))
}

/// A spread that keeps due times within what a schedule can have; `max_delay` does not apply.
fn check_spread(spread_ms: u64) -> Result<u64, Rejection> {
    if spread_ms > MAX_TIME_MS.unsigned_abs() {
        let shown = show_duration_ms(spread_ms);
        let detail =
            format!("a spread of {shown} is longer than any schedule: choose a shorter one");
        return Err(Rejection::new(Code::BadHeader, detail));
    }
    Ok(spread_ms)
}

/// The text as written; line breaks and tabs between fields become spaces.
fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    spaced.trim().to_owned()
}
