//! When a job of a request expires: `delay-expire`.

use dwell_schedule::Zone;

use super::reject::{Code, Rejection};
use super::until::Until;
use crate::job::Expire;
use crate::units::parse_duration_ms;

/// The least number that is a time (epoch ms); a smaller one is a duration, ms.
const MIN_EPOCH_MS: u64 = 100_000_000_000;

/// An expiry as a request states it.
#[derive(Debug)]
pub(super) enum Stated {
    /// ms from the due time.
    After(u64),
    /// A time as in `delay-until`.
    At(Until),
}

impl Stated {
    /// Reads a duration or a time.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match parse_duration_ms(text) {
            Ok(0) => Err("an expiry of zero would deliver nothing: choose a longer one".to_owned()),
            Ok(ms) if ms >= MIN_EPOCH_MS && is_number(text) => Until::parse(text).map(Stated::At),
            Ok(ms) => Ok(Stated::After(ms)),
            Err(why) => Until::parse(text).map(Stated::At).map_err(|other| {
                // What begins with a date is a time, or was to be one.
                if text.trim().get(4..5) == Some("-") { other } else { why }
            }),
        }
    }

    /// Whether this is a time without an offset.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Stated::At(Until::Local(_)))
    }

    /// The expiry of a job. `zone`: of a time without an offset.
    pub(super) fn of_job(&self, zone: Option<&str>) -> Result<Expire, Rejection> {
        let bad = |why: String| Rejection::new(Code::BadHeader, format!("delay-expire: {why}"));
        match self {
            Stated::After(ms) => Ok(Expire::After(*ms)),
            Stated::At(until) => {
                let zone = zone.filter(|_| self.is_local()).map(Zone::parse).transpose().map_err(
                    |why| Rejection::new(Code::BadDelay, format!("delay-time-zone: {why}")),
                )?;
                until.ms(zone.as_ref()).map(Expire::At).map_err(bad)
            }
        }
    }

    /// The expiry of the jobs of a recurring schedule: a duration.
    pub(super) fn of_occurrence(&self) -> Result<Expire, Rejection> {
        match self {
            Stated::After(ms) => Ok(Expire::After(*ms)),
            Stated::At(_) => Err(Rejection::new(
                Code::BadHeader,
                "delay-expire: a recurring schedule has no fixed time: send how long after its due time a job expires",
            )),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.trim().bytes().all(|byte| byte.is_ascii_digit())
}
