//! The risks for the requests in a queue, as its arguments show them.

use super::queue_arguments::{
    EXPIRES_ARGUMENT, MAX_BYTES_ARGUMENT, MAX_LENGTH_ARGUMENT, QueueArguments, TTL_ARGUMENT,
};

/// Limits from this value on count as unlimited.
const MIN_UNLIMITED_DELIVERIES: i64 = 1000;
/// The hint for a queue that keeps messages however often they are redelivered.
pub(super) const UNLIMITED_HINT: &str = "create it again with x-delivery-limit 2147483647";

/// The losses of requests that were confirmed to their producers, each with a hint. `is_read`:
/// dropped requests go to the expired queue, which is read.
pub(super) fn loses(made: &QueueArguments, is_read: bool) -> Vec<(String, &'static str)> {
    let mut losses = Vec::new();
    if made.is_auto_delete {
        let what = "is deleted with every request in it when its last reader leaves, as at a restart of Dwell (auto-delete)";
        losses.push((what.to_owned(), "create it again without auto-delete"));
    }
    if !made.is_durable {
        losses.push((
            "is gone with every request in it when the broker restarts (not durable)".to_owned(),
            "create it again as durable",
        ));
    }
    if let Some(ms) = &made.expires {
        let what = format!(
            "has an {EXPIRES_ARGUMENT} of {ms} ms: without a reader for so long it is deleted with every request in it"
        );
        losses.push((what, "create it again without x-expires"));
    }
    if let Some(ms) = made.ttl.as_ref().filter(|_| !is_read) {
        let what =
            format!("has an {TTL_ARGUMENT} of {ms} ms: a request that waits longer is dropped");
        losses.push((what, "create it again without x-message-ttl, or name the queue that its dead letters go to in `expired_queue`"));
    }
    let drops_oldest =
        made.overflow.as_deref().is_none_or(|overflow| overflow == "drop-head") && !is_read;
    for (name, bound) in [(MAX_LENGTH_ARGUMENT, &made.length), (MAX_BYTES_ARGUMENT, &made.bytes)] {
        if let Some(bound) = bound.as_ref().filter(|_| drops_oldest) {
            let what = format!(
                "has an {name} of {bound}: beyond it the oldest request is dropped (x-overflow drop-head)"
            );
            losses
                .push((what, "create it again with x-overflow reject-publish, or without a bound"));
        }
    }
    losses
}

/// The hint for requests that the queue holds back.
pub(super) const HOLDS_BACK_HINT: &str =
    "let producers send delay-until, or the header as text, which a queue does not read";

/// The caution for a quorum queue of RabbitMQ 4.4 or later, which obeys the header of a dialect.
pub(super) fn holds_back(made: &QueueArguments, version: Option<&str>) -> Option<String> {
    let version = version.filter(|_| made.is_quorum)?;
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let is_44 = (numbers.next()?, numbers.next()?) >= (4, 4);
    is_44.then(|| {
        format!("holds a request with an integer x-opt-delivery-time back until that time (RabbitMQ {version}): Dwell reads it only then, and nobody can cancel or see it before")
    })
}

/// The risk for a message that is redelivered often.
pub(super) fn drops(made: &QueueArguments, is_4: bool) -> Option<String> {
    if !made.is_quorum || made.letters.is_some() {
        return None;
    }
    let limit = made.limit.as_deref().and_then(|limit| limit.parse::<i64>().ok());
    match limit {
        None => Some("has no x-delivery-limit: RabbitMQ 4.0 to 4.2 drops a message that was redelivered 20 times".to_owned()),
        // RabbitMQ 4.0 and later read this as unlimited. Earlier versions do not check the value,
        // and one redelivery exceeds it.
        Some(limit) if limit < 0 && is_4 => None,
        Some(limit) if limit < 0 => {
            Some(format!("has an x-delivery-limit of {limit}: before RabbitMQ 4 a message is dropped at its first redelivery"))
        }
        Some(limit) if limit < MIN_UNLIMITED_DELIVERIES => {
            Some(format!("has an x-delivery-limit of {limit}: a message that is redelivered more often is dropped"))
        }
        Some(_) => None,
    }
}

/// The risk for a message whose `expiration` ends before it is read, or that the risk is unknown;
/// with a hint.
pub(super) fn expires(made: &QueueArguments, expired: Option<&str>) -> Option<(String, String)> {
    let lead = |to: &str| {
        format!(
            "create it again with x-dead-letter-exchange \"\" and x-dead-letter-routing-key `{to}`, or set them by a policy"
        )
    };
    let over = "a message that expires before it is read";
    match (&made.letters, expired) {
        (None, Some(expired)) => {
            let what = format!(
                "shows no dead-letter exchange: {over} is dropped and never in `{expired}`, unless a policy, which does not show, leads it there"
            );
            Some((what, lead(expired)))
        }
        (None, None) => {
            let hint = "create it again with a dead-letter exchange that leads to a second queue, or set that by a policy, and name the second queue in `expired_queue`";
            Some((
                format!(
                    "has no dead-letter exchange: {over} is dropped, unless a policy, which does not show, sets one"
                ),
                hint.to_owned(),
            ))
        }
        // Another exchange may lead to the expired queue: AMQP does not show bindings.
        (Some((exchange, _)), Some(_)) if !exchange.is_empty() => None,
        (Some((_, Some(key))), Some(expired)) if key == expired => None,
        (Some((_, key)), Some(expired)) => {
            let to = key.as_ref().map_or_else(
                || "the queue that its own routing key names".to_owned(),
                |key| format!("the queue `{key}`"),
            );
            Some((
                format!(
                    "sends {over} to {to}, and not to `{expired}`, which `expired_queue` names"
                ),
                lead(expired),
            ))
        }
        (Some((exchange, key)), None) => {
            let key = key.as_ref().map_or_else(String::new, |key| format!(" by the key `{key}`"));
            let what = format!(
                "sends {over} to the exchange `{exchange}`{key}, and Dwell does not read it from there"
            );
            Some((what, "name the queue that takes it in `expired_queue`".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_quorum_queue_from_4_4_on_holds_back() {
        let made = |is_quorum| QueueArguments {
            is_quorum,
            limit: None,
            letters: None,
            is_stream: false,
            is_durable: true,
            is_auto_delete: false,
            expires: None,
            ttl: None,
            length: None,
            bytes: None,
            overflow: None,
        };
        for (version, expected) in [
            ("4.4.0", true),
            ("5.0.1", true),
            ("4.3.9", false),
            ("3.13.7", false),
            ("4.4.0-rc.1", true),
            ("odd", false),
        ] {
            assert_eq!(holds_back(&made(true), Some(version)).is_some(), expected, "{version}");
        }
        assert_eq!(
            (holds_back(&made(false), Some("4.4.0")), holds_back(&made(true), None)),
            (None, None)
        );
    }
}
