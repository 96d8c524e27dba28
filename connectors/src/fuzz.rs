//! Entry points to parsers and writers that only connectors call otherwise, for the package `fuzz`.

use crate::Message;

/// Sanitizes the payload of an AMQP frame as received; true if the payload was changed. `kind`: 1
/// for a method frame, 2 for a content header frame.
#[cfg(feature = "amqp")]
pub fn amqp_sanitize(kind: u8, payload: &mut [u8]) -> bool {
    crate::amqp::fuzz::sanitize(kind, payload)
}

/// The message of the payload of a sanitized content header frame; `None` if the library's parser
/// refuses the payload.
#[cfg(feature = "amqp")]
#[must_use]
pub fn amqp_message(payload: &[u8]) -> Option<Message> {
    crate::amqp::fuzz::message(payload)
}

/// The headers of a NATS header block, and whether the client library can parse the block.
#[cfg(feature = "nats")]
#[must_use]
pub fn nats_headers(block: &[u8]) -> (crate::Headers, bool) {
    crate::nats::fuzz::headers(block)
}

/// Whether the connector of this kind (`nats`, `kafka`, `amqp`) can encode the message for its
/// broker, or why not. `frame_max` is AMQP's.
pub fn publishable(kind: &str, message: Message, frame_max: usize) -> Result<(), String> {
    match kind {
        #[cfg(feature = "amqp")]
        "amqp" => crate::amqp::fuzz::publishable(message, frame_max),
        #[cfg(feature = "nats")]
        "nats" => crate::nats::fuzz::publishable(message),
        #[cfg(feature = "kafka")]
        "kafka" => crate::kafka::fuzz::publishable(&message),
        _ => {
            let _ = (message, frame_max);
            Ok(())
        }
    }
}
