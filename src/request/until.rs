//! A time in a request: with an offset, or on the clock of a time zone that the request names.

use dwell_schedule::{Zone, local_time_ms};

use super::reject::{Code, Rejection};
use crate::units::{parse_time_ms, quote};

/// A time as a request states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Until {
    /// Epoch ms.
    At(i64),
    /// RFC 3339 without an offset. The time zone may be stated later than the time.
    Local(String),
}

impl Until {
    /// Reads RFC 3339, with an offset or without, or epoch milliseconds.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match parse_time_ms(text) {
            Ok(ms) => Ok(Until::At(ms)),
            // A local time has the same form in every zone.
            Err(_) if local_time_ms(text, &Zone::utc()).is_ok() => {
                Ok(Until::Local(text.trim().to_owned()))
            }
            Err(why) => Err(why),
        }
    }

    /// Epoch ms; a time without an offset is one of this zone.
    pub(super) fn ms(&self, zone: Option<&Zone>) -> Result<i64, String> {
        match (self, zone) {
            (Until::At(ms), _) => Ok(*ms),
            (Until::Local(text), Some(zone)) => {
                local_time_ms(text, zone).map_err(|why| why.to_string())
            }
            (Until::Local(text), None) => Err(format!(
                "{} has no offset: add Z for UTC, an offset as +02:00, or name its zone: delay-time-zone, over HTTP time_zone",
                quote(text)
            )),
        }
    }
}

/// The time of `delay-until`, epoch ms. `zone`: `delay-time-zone`, which only a time without an
/// offset may have, and must have.
pub(super) fn until_ms(
    until: Option<&Until>,
    zone: Option<&str>,
) -> Result<Option<i64>, Rejection> {
    let stray = |what: &str| {
        let detail = format!(
            "the request has delay-time-zone and {what}: leave it out, it is for a delay-until without an offset or a delay-schedule"
        );
        Rejection::new(Code::BadHeader, detail)
    };
    match (until, zone) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(stray("no delay-until")),
        (Some(Until::At(_)), Some(_)) => {
            Err(stray("a time with an offset or in epoch milliseconds"))
        }
        (Some(until), zone) => {
            let bad =
                |name: &str, why: String| Rejection::new(Code::BadDelay, format!("{name}: {why}"));
            let zone = zone
                .map(Zone::parse)
                .transpose()
                .map_err(|why| bad("delay-time-zone", why.to_string()))?;
            until.ms(zone.as_ref()).map(Some).map_err(|why| bad("delay-until", why))
        }
    }
}
