//! Counts how often a message that Dwell published returns as a request. A limit stops endless
//! loops.

use dwell_connectors::Message;

use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::target::Target;
use crate::config::MissingDelay;
use crate::delayed_headers::{ATTEMPT, DEAD_REASON, ROUND};
use crate::units::quote_address;

/// Returns the number of times that the message came back; 0 where Dwell did not publish it. A
/// number above `limits.max_rounds` is rejected.
pub(super) fn of(message: &Message, rules: &RequestRules) -> Result<u32, Rejection> {
    if message.headers.get(ATTEMPT).is_none() {
        return Ok(0);
    }
    let before =
        message.headers.get(ROUND).and_then(|value| value.written()?.trim().parse::<u32>().ok());
    let (round, most) = (before.unwrap_or(0).saturating_add(1), rules.limits.max_rounds);
    if round > most {
        return Err(Rejection::new(
            Code::Loop,
            format!(
                "Dwell has published the message {round} times, and limits.max_rounds is {most}: something between the target and this ingest \
                 sends it back"
            ),
        ));
    }
    Ok(round)
}

/// Whether a message that Dwell published may return without a delay. RabbitMQ's plugin delivers
/// such a message at once: when it passes from one delayed exchange to another, is republished as
/// received, or is dead-lettered by its queue. Dwell's own dead letters are excluded.
pub(super) fn may_lack_delay(message: &Message, rules: &RequestRules) -> bool {
    rules.source.is_some_and(|source| source.exchanges)
        && rules.ingest.missing_delay == MissingDelay::Immediate
        && message.headers.get(DEAD_REASON).is_none()
}

/// Rejects a returned message without a delay whose target is the destination that it came from: it
/// would return at once.
pub(super) fn leads_on(
    message: &Message,
    target: &Target<'_>,
    rules: &RequestRules,
) -> Result<(), Rejection> {
    if *target.broker != rules.ingest.broker || target.to != message.destination {
        return Ok(());
    }
    let to = quote_address(&target.to.to_string());
    Err(Rejection::new(
        Code::Loop,
        format!(
            "Dwell published the message to {to}, and it returned from there without a delay: name another target"
        ),
    ))
}

/// A framework copied Dwell's headers, or a target leads back to the ingest: the message would loop
/// for ever.
pub(super) fn without_delay() -> Rejection {
    Rejection::new(
        Code::Loop,
        "the message was published by Dwell and returns without a delay: something between the target and this ingest sends it back",
    )
}
