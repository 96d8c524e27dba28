//! Doors to parsers and writers that only connectors call, for the package `fuzz`, which feeds them anything.

use crate::Message;

/// Puts a frame of AMQP right as it comes from the wire; true when anything had to change. `kind`: 1 for a method, 2 for a header.
#[cfg(feature = "amqp")]
pub fn amqp_sanitize(kind: u8, payload: &mut [u8]) -> bool {
    crate::amqp::fuzz::sanitize(kind, payload)
}

/// What the payload of a header frame of AMQP says, once it was put right; `None` where the library's parser refuses it.
#[cfg(feature = "amqp")]
#[must_use]
pub fn amqp_message(payload: &[u8]) -> Option<Message> {
    crate::amqp::fuzz::message(payload)
}

/// The headers of a NATS block, and whether the client library is trusted with it.
#[cfg(feature = "nats")]
#[must_use]
pub fn nats_headers(block: &[u8]) -> (crate::Headers, bool) {
    crate::nats::fuzz::headers(block)
}

/// Whether the connector of this kind (`nats`, `kafka`, `amqp`) can write the message for its broker, or why not. `frame_max`: AMQP's.
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
