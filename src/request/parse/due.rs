//! The due time of a request: a delay or a time, at most `max_delay` ahead.

use dwell_connectors::Message;

use super::age::own_time;
use crate::config::DelayFrom;
use crate::job::Due;
use crate::request::control::Control;
use crate::request::reject::{Code, Rejection};
use crate::request::rules::RequestRules;
use crate::units::{show_duration_ms, show_time_ms};

/// The due time, within `max_delay`; `None` where the request has none.
pub(super) fn due(
    control: &Control,
    message: &Message,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<Option<Due>, Rejection> {
    due_within(
        control.delay_for,
        control.delay_until,
        counted_from(message, rules),
        rules.limits.max_delay.ms(),
        now_ms,
    )
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
    let too_long = |what: String| {
        Rejection::new(
            Code::DelayTooLong,
            format!(
                "{what} exceeds limits.max_delay, {}: Dwell does not fire early",
                show_duration_ms(max_ms)
            ),
        )
    };
    match (delay_for, delay_until) {
        (Some(_), Some(_)) => Err(Rejection::new(
            Code::AmbiguousDelay,
            "the request has both delay-for and delay-until: send one",
        )),
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

pub(super) fn missing_delay() -> Rejection {
    Rejection::new(
        Code::MissingDelay,
        "the request has no delay: send delay-for (90s, PT15M) or delay-until (2026-01-31T12:00:00Z)",
    )
}
