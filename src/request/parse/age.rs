//! The age of a message, by its own time or its producer's, against `max_age`.

use dwell_connectors::Message;

use crate::request::reject::{Code, Rejection};
use crate::request::rules::RequestRules;
use crate::units::{MIN_EPOCH_MS, show_duration_ms, show_time_ms};

/// The message's own time; none where its producer has written seconds, or nothing.
pub(in crate::request) fn own_time(message: &Message) -> Option<i64> {
    message.timestamp_ms.filter(|ms| *ms >= MIN_EPOCH_MS)
}

/// Refuses a message older than `max_age`, by the broker's time, or else by the producer's. A
/// redelivered message was young enough at its first delivery and may be stored, so its age is
/// checked only where the broker does not report redeliveries.
pub(super) fn check_age(
    message: &Message,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<(), Rejection> {
    let reports_redelivery = rules.source.is_none_or(|source| source.reports_redelivery);
    let Some(most) = rules
        .ingest
        .max_age
        .filter(|_| !message.redelivered || !reports_redelivery)
        .map(|most| most.ms())
    else {
        return Ok(());
    };
    let by_producer = || {
        i64::try_from(message.properties.as_ref()?.timestamp?)
            .ok()?
            .checked_mul(1000)
            .filter(|ms| *ms >= MIN_EPOCH_MS)
    };
    let sent_ms = own_time(message).or_else(by_producer);
    let Some(sent_ms) =
        sent_ms.filter(|sent_ms| i128::from(now_ms) - i128::from(*sent_ms) > i128::from(most))
    else {
        return Ok(());
    };
    let (sent, name, most) = (show_time_ms(sent_ms), &rules.name, show_duration_ms(most));
    let detail = format!(
        "the request was sent at {sent}, and ingest.{name}.max_age is {most}: check whether it was carried out before you send it again"
    );
    Err(Rejection::new(Code::TooOld, detail))
}
