//! Events of jobs are no requests: each would make another event, without an end.

use dwell_connectors::Message;

use super::reject::{Code, Rejection};
use crate::delayed_headers::EVENT_TYPE_PREFIX;

/// The headers with the type of a CloudEvent, as each kind of broker names them.
const TYPE_HEADERS: [&str; 4] = ["ce-type", "ce_type", "cloudEvents_type", "cloudEvents:type"];

/// Whether the message is an event of a job that Dwell published.
pub(crate) fn is_own_event(message: &Message) -> bool {
    message.headers.iter().any(|header| {
        TYPE_HEADERS.iter().any(|name| header.name.eq_ignore_ascii_case(name))
            && header.value.written().is_some_and(|value| value.starts_with(EVENT_TYPE_PREFIX))
    })
}

/// Rejects an event of a job that Dwell published.
pub(super) fn check(message: &Message) -> Result<(), Rejection> {
    if !is_own_event(message) {
        return Ok(());
    }
    Err(Rejection::new(
        Code::Loop,
        "the message is an event of a job, which Dwell published: something between events.to and this ingest sends it back",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_events_are_rejected() {
        let code = |name: &str, value: &str| {
            let message = Message::new("").with_header("delay-for", "1m").with_header(name, value);
            check(&message).err().map(|rejection| rejection.code)
        };
        for name in ["ce-type", "CE-Type", "ce_type", "cloudEvents_type", "cloudEvents:type"] {
            assert_eq!(code(name, "dwell.job.missed.v2"), Some(Code::Loop), "{name}");
            assert_eq!(code(name, "com.shop.order.v1"), None, "{name}");
        }
        assert_eq!(code("type", "dwell.job.dead.v1"), None);
    }
}
