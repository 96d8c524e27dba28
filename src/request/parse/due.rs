//! The due time of a request: a delay or a time, at most `max_delay` ahead.

use dwell_connectors::Message;
use dwell_schedule::spread_ms;

use super::age::own_time;
use crate::config::DelayFrom;
use crate::job::{Due, JobId};
use crate::request::control::Control;
use crate::request::expire;
use crate::request::reject::{Code, Rejection};
use crate::request::rules::RequestRules;
use crate::request::until::{Until, until_ms};
use crate::units::{show_duration_ms, show_time_ms};

/// The due time, within `max_delay`; `None` where the request has none.
pub(super) fn due(
    control: &Control,
    message: &Message,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<Option<Due>, Rejection> {
    // The zone may be that of the expiry alone.
    let is_of_expiry = control.expire.as_ref().is_some_and(expire::Stated::is_local)
        && !matches!(control.delay_until, Some(Until::Local(_)));
    let zone = control.zone.as_deref().filter(|_| !is_of_expiry);
    due_of(
        control.delay_for,
        (control.delay_until.as_ref(), zone),
        // A backlog on the ingest is one burst of a job that debounces.
        counted_from(message, rules).filter(|_| control.max_wait_ms.is_none()),
        rules.limits.max_delay.ms(),
        now_ms,
    )
}

/// The due time that a caller states, at most `max_ms` ahead: a delay (ms, from receipt), or a time
/// in the forms of `delay-until`, without an offset only with the name of a time zone; `None`
/// without both.
pub fn due_stated(
    delay_for: Option<u64>,
    until: Option<&str>,
    zone: Option<&str>,
    max_ms: u64,
    now_ms: i64,
) -> Result<Option<Due>, Rejection> {
    let until = until
        .map(Until::parse)
        .transpose()
        .map_err(|why| Rejection::new(Code::BadDelay, format!("until: {why}")))?;
    due_of(delay_for, (until.as_ref(), zone), None, max_ms, now_ms)
}

/// As [`due_within`], of a time with its time zone.
fn due_of(
    delay_for: Option<u64>,
    (until, zone): (Option<&Until>, Option<&str>),
    from_ms: Option<i64>,
    max_ms: u64,
    now_ms: i64,
) -> Result<Option<Due>, Rejection> {
    if delay_for.is_some() && until.is_some() {
        return Err(ambiguous());
    }
    due_within(delay_for, until_ms(until, zone)?, from_ms, max_ms, now_ms)
}

/// The due time of a delay (ms, from `from_ms` or from receipt) or of a time (epoch ms), at most
/// `max_ms` ahead; `None` without both.
pub fn due_within(
    delay_for: Option<u64>,
    delay_until: Option<i64>,
    from_ms: Option<i64>,
    max_ms: u64,
    now_ms: i64,
) -> Result<Option<Due>, Rejection> {
    let too_long = |what: String| too_long(&what, max_ms);
    match (delay_for, delay_until) {
        (Some(_), Some(_)) => Err(ambiguous()),
        (None, None) => Ok(None),
        (Some(ms), None) if ms > max_ms => {
            Err(too_long(format!("a delay of {}", show_duration_ms(ms))))
        }
        (Some(ms), None) => Ok(Some(match from_ms {
            Some(from_ms) if from_ms <= now_ms => Due::At(from_ms.saturating_add_unsigned(ms)),
            Some(from_ms) => Due::Earlier { at_ms: from_ms.saturating_add_unsigned(ms), in_ms: ms },
            None => Due::In(ms),
        })),
        (None, Some(at_ms)) if i128::from(at_ms) - i128::from(now_ms) > i128::from(max_ms) => {
            Err(too_long(show_time_ms(at_ms)))
        }
        (None, Some(at_ms)) => Ok(Some(Due::At(at_ms.max(0)))),
    }
}

/// The due time, moved within the spread by the id. `delay_for`: of the request, if it has one.
pub(super) fn spread(
    due: Due,
    delay_for: Option<u64>,
    (id, spread): (&JobId, u64),
    max_ms: u64,
    now_ms: i64,
) -> Result<Due, Rejection> {
    let stated_ms = match (delay_for, due) {
        (Some(ms), _) | (None, Due::In(ms) | Due::Earlier { in_ms: ms, .. }) => i128::from(ms),
        (None, Due::At(at_ms)) => i128::from(at_ms) - i128::from(now_ms),
    };
    // Whatever the id, so that a request is not accepted for one and refused for another.
    if stated_ms + i128::from(spread) > i128::from(max_ms) {
        return Err(too_long("the time with the whole delay-spread", max_ms));
    }
    let by_ms = spread_ms(id.as_str(), spread);
    Ok(match due {
        Due::At(at_ms) => Due::At(at_ms.saturating_add_unsigned(by_ms)),
        Due::In(ms) => Due::In(ms.saturating_add(by_ms)),
        Due::Earlier { at_ms, in_ms } => Due::Earlier {
            at_ms: at_ms.saturating_add_unsigned(by_ms),
            in_ms: in_ms.saturating_add(by_ms),
        },
    })
}

/// The message's own time where `delay-for` counts from it; `None` where `delay-for` counts from
/// receipt, by Redis's clock.
fn counted_from(message: &Message, rules: &RequestRules) -> Option<i64> {
    // A queue stores no time, and the producer's time is in seconds and unreliable.
    let by_receipt = rules.ingest.delay_from == DelayFrom::Receipt
        || rules.source.is_none_or(|source| !source.log);
    // Rounded up, so that no delay ends early.
    own_time(message)
        .filter(|_| !by_receipt)
        .map(|ms| ms.saturating_add(message.timestamp_is_cut.into()))
}

pub(super) fn ambiguous() -> Rejection {
    Rejection::new(Code::AmbiguousDelay, "the request has both delay-for and delay-until: send one")
}

fn too_long(what: &str, max_ms: u64) -> Rejection {
    let most = show_duration_ms(max_ms);
    Rejection::new(
        Code::DelayTooLong,
        format!("{what} exceeds limits.max_delay, {most}: Dwell does not fire early"),
    )
}

pub(super) fn missing_delay() -> Rejection {
    Rejection::new(
        Code::MissingDelay,
        "the request has no delay: send delay-for (90s, PT15M) or delay-until (2026-01-31T12:00:00Z)",
    )
}
