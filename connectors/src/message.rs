//! A message, received or to be published: the same type on every broker.

use bytes::Bytes;
use dwell_core::{Destination, Headers, Properties, Value, allocated};

/// A smaller integer is probably a time in seconds: 10¹¹ ms is March 1973, 10¹¹ s is the year 5138.
pub const MIN_EPOCH_MS: i64 = 100_000_000_000;

/// A message. Nothing in it is interpreted here: the body is opaque, and headers keep their order,
/// types and repeated names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// The body, unchanged.
    pub body: Bytes,
    /// False if there is no body on a broker that distinguishes that from an empty body (a Kafka
    /// tombstone).
    pub has_body: bool,
    /// The Kafka key; `None` elsewhere.
    pub key: Option<Bytes>,
    /// The headers in order, names unchanged.
    pub headers: Headers,
    /// The AMQP properties, unchanged; `None` elsewhere.
    pub properties: Option<Box<Properties>>,
    /// The destination that the message was received from: subject, topic, or exchange and routing
    /// key. Empty on a message that was not received.
    pub destination: Destination,
    /// The position in the stream or partition; `None` if the broker has no positions (AMQP) or the
    /// message was not received.
    pub position: Option<Position>,
    /// The broker's timestamp, epoch ms; `None` if the broker has none.
    pub timestamp_ms: Option<i64>,
    /// The broker's timestamp has a fraction of a millisecond, which `timestamp_ms` lacks.
    pub timestamp_is_cut: bool,
    /// The broker reports a redelivery, or cannot rule one out. False proves nothing on NATS: a
    /// server that crashed may have lost its last delivery counts.
    pub redelivered: bool,
    /// The message expired in its queue, and the broker's redelivery flag was lost with that.
    pub mark_lost: bool,
    /// The parts, in words, that are not UTF-8 though the protocol has only text there; left out.
    pub unreadable: Vec<String>,
}

impl Message {
    /// A message with this body and no headers.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Message { body: body.into(), has_body: true, ..Message::default() }
    }

    /// Adds a text header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(name, Value::Text(value.into()));
        self
    }

    /// The size of the content, in bytes: body, key, header names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len()
            + self.key.as_ref().map_or(0, Bytes::len)
            + self.headers.iter().map(|h| h.name.len() + h.value.size()).sum::<usize>()
    }

    /// The approximate memory of the message, in bytes. Includes the overhead of each part, which
    /// is most of the memory of many small headers.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let texts = [&self.destination.exchange, &self.destination.address]
            .into_iter()
            .chain(self.position.as_ref().map(|p| &p.log));
        MESSAGE_OVERHEAD_BYTES
            + allocated(self.body.len())
            + self.key.as_ref().map_or(0, |key| allocated(key.len()))
            + texts.map(|text| allocated(text.len())).sum::<usize>()
            + self.properties.as_ref().map_or(0, |properties| properties.footprint())
            + self.headers.footprint()
    }
}

/// The memory of a message without its content, and of its entries in the lists that hold it until
/// it is settled.
const MESSAGE_OVERHEAD_BYTES: usize = size_of::<Message>() + 128;

/// The position of a received message in its stream or partition. Unique among the messages of a
/// broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Position {
    /// The stream or topic.
    pub log: String,
    /// The partition; 0 if there are none.
    pub partition: i32,
    /// The offset or stream sequence.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use dwell_core::Header;

    use super::*;

    #[test]
    fn many_small_headers_take_many_times_what_there_is_of_them() {
        let small = (0..1000).fold(Message::new(""), |message, number| {
            message.with_header(format!("{number:03}"), "x")
        });
        assert!(small.footprint() > 20 * small.size(), "{} of {}", small.footprint(), small.size());
        let large = Message::new(vec![0; 1 << 20]);
        assert!((1 << 20..(1 << 20) + 1024).contains(&large.footprint()), "{}", large.footprint());
        let nested = Message {
            headers: Headers::from_iter([Header {
                name: "a".into(),
                value: Value::List(vec![Value::Null; 1000]),
            }]),
            ..small
        };
        assert!(nested.footprint() > 1000 * size_of::<Value>());
    }
}
