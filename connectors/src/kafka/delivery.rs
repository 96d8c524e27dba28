//! Conversion of a delivered message.

use bytes::Bytes;
use rdkafka::Message as _;
use rdkafka::message::BorrowedMessage;

use super::headers;
use crate::{Destination, Message, Position};

/// A message with its partition and offset.
pub(super) struct Delivery {
    pub(super) message: Message,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// The memory of the message, in bytes.
    pub(super) bytes: usize,
}

/// Converts a delivered message.
pub(super) fn delivery(from: &BorrowedMessage<'_>) -> Delivery {
    let (partition, offset) = (from.partition(), from.offset());
    let position =
        Position { log: from.topic().to_owned(), partition, offset: offset.cast_unsigned() };
    let (headers, unreadable) = headers::from_kafka(from.headers());
    let message = Message {
        body: from.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
        has_body: from.payload().is_some(),
        key: from.key().map(Bytes::copy_from_slice),
        headers,
        destination: Destination::new(from.topic()),
        position: Some(position),
        timestamp_ms: from.timestamp().to_millis(),
        // A log does not count deliveries: another member may have read the message, and ended
        // before a commit.
        redelivered: true,
        unreadable,
        ..Message::default()
    };
    let bytes = message.footprint();
    Delivery { message, partition, offset, bytes }
}
