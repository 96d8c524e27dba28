//! How often a message of ours has come back: each time it is a new request, up to a bound that finds what goes round for ever.

use dwell_connectors::Message;

use super::reject::{Code, Rejection};
use super::rules::Rules;
use super::target::Target;
use crate::outgoing::{ATTEMPT, DEAD_REASON, ROUND};
use crate::units::quote;

/// Which time the message comes back; 0 where Dwell did not publish it. Refused beyond `limits.max_rounds`.
pub(super) fn of(message: &Message, rules: &Rules) -> Result<u32, Rejection> {
    if message.headers.get(ATTEMPT).is_none() {
        return Ok(0);
    }
    let before = message.headers.get(ROUND).and_then(|value| value.written()?.trim().parse::<u32>().ok());
    let (round, most) = (before.unwrap_or(0).saturating_add(1), rules.limits.max_rounds);
    if round > most {
        return Err(Rejection::new(
            Code::Loop,
            format!(
                "Dwell has published the message {round} times, and limits.max_rounds is {most}: something between the target and this ingest \
                 sends it round"
            ),
        ));
    }
    Ok(round)
}

/// Whether a message of ours may come back without a delay: RabbitMQ's plugin lets it pass at once, from one delayed exchange to another, republished
/// as it was received, or dead-lettered by its queue. A dead letter of ours is none of these.
pub(super) fn may_lack_delay(message: &Message, rules: &Rules) -> bool {
    rules.source.is_some_and(|source| source.exchanges)
        && rules.ingest.missing_delay_immediate
        && message.headers.get(DEAD_REASON).is_none()
}

/// Refuses a message of ours without a delay whose target is where it came from: that led back here, and would at once again.
pub(super) fn leads_on(message: &Message, target: &Target<'_>, rules: &Rules) -> Result<(), Rejection> {
    if *target.broker != rules.ingest.broker || target.to != message.destination {
        return Ok(());
    }
    let to = quote(&target.to.to_string());
    Err(Rejection::new(
        Code::Loop,
        format!("Dwell published the message to {to}, by which it came back without a delay, and would again: name another target"),
    ))
}

/// A framework copied our headers, or a target leads back here: it would go round for ever.
pub(super) fn without_delay() -> Rejection {
    Rejection::new(
        Code::Loop,
        "the message was published by Dwell and comes back without a delay: something between the target and this ingest sends it round",
    )
}
