//! Acknowledgements of delivered messages, as JetStream defines them.

use async_nats::Subject;
use async_nats::message::OutboundMessage;
use bytes::Bytes;

/// The server forgets the message.
pub(super) const ACK: Bytes = Bytes::from_static(b"+ACK");
/// The server delivers the message again, at once.
pub(super) const NAK: Bytes = Bytes::from_static(b"-NAK");
/// The server restarts the `ack_wait` of the message.
pub(super) const IN_PROGRESS: Bytes = Bytes::from_static(b"+WPI");

/// An acknowledgement with this payload.
pub(super) fn reply_with(reply: Subject, payload: &Bytes) -> OutboundMessage {
    OutboundMessage { subject: reply, reply: None, payload: payload.clone(), headers: None }
}
