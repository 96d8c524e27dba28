//! A message as librdkafka delivers it.

use bytes::Bytes;
use rdkafka::Message as _;
use rdkafka::message::BorrowedMessage;

use super::headers;
use crate::{Destination, Message, Position};

/// A message, and where it stands.
pub(super) struct Delivery {
    pub(super) message: Message,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// How much memory the message takes.
    pub(super) bytes: usize,
}

/// The message that was delivered.
pub(super) fn delivery(from: &BorrowedMessage<'_>) -> Delivery {
    let (partition, offset) = (from.partition(), from.offset());
    let position = Position { log: from.topic().to_owned(), partition, offset: offset.cast_unsigned() };
    let message = Message {
        body: from.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
        has_body: from.payload().is_some(),
        key: from.key().map(Bytes::copy_from_slice),
        headers: headers::from_kafka(from.headers()),
        destination: Destination::new(from.topic()),
        position: Some(position),
        timestamp_ms: from.timestamp().to_millis(),
        // A log does not count who read it: another member may have, and ended before it committed.
        redelivered: true,
        ..Message::default()
    };
    let bytes = message.footprint();
    Delivery { message, partition, offset, bytes }
}
