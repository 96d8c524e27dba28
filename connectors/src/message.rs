//! A message as it came, or as it goes: the same type on every broker.

use bytes::Bytes;
use dwell_core::{Destination, Headers, Properties, Value, allocated};

/// A message. Nothing of it is interpreted here: the body is opaque, headers keep their order, their types and repeated names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// The body, byte for byte.
    pub body: Bytes,
    /// False where the broker tells "no body" from an empty one and there was none (a Kafka tombstone).
    pub has_body: bool,
    /// The Kafka key; `None` elsewhere.
    pub key: Option<Bytes>,
    /// The headers, in order, names as they came.
    pub headers: Headers,
    /// The AMQP properties, as they came; `None` elsewhere.
    pub properties: Option<Box<Properties>>,
    /// Where the message came in: the subject, topic or routing key (and exchange). Empty on a message that was never received.
    pub destination: Destination,
    /// Where it stands in what was read; `None` where the broker has no positions (AMQP) or it was not received.
    pub position: Option<Position>,
    /// The broker's time of the message, epoch ms; `None` where the broker gives none.
    pub timestamp_ms: Option<i64>,
    /// The broker's time has parts of a millisecond, which `timestamp_ms` lacks.
    pub timestamp_is_cut: bool,
    /// The broker says, or cannot rule out, that it delivered this message before. False is no proof on NATS: a server that crashed may have
    /// forgotten its last deliveries.
    pub redelivered: bool,
    /// The message expired in its queue, and the broker's mark of what it delivered before was lost with that.
    pub mark_lost: bool,
}

impl Message {
    /// A message of this body, with no headers.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Message { body: body.into(), has_body: true, ..Message::default() }
    }

    /// The same message with one more text header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(name, Value::Text(value.into()));
        self
    }

    /// How much there is of the message, in bytes: body, key, header names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len()
            + self.key.as_ref().map_or(0, Bytes::len)
            + self.headers.iter().map(|h| h.name.len() + h.value.size()).sum::<usize>()
    }

    /// About how much memory the message takes as it lies there, in bytes: with what each of its parts costs besides its content, which is most of
    /// it where there are many small headers.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let texts = [&self.destination.exchange, &self.destination.address].into_iter().chain(self.position.as_ref().map(|p| &p.log));
        MESSAGE
            + allocated(self.body.len())
            + self.key.as_ref().map_or(0, |key| allocated(key.len()))
            + texts.map(|text| allocated(text.len())).sum::<usize>()
            + self.properties.as_ref().map_or(0, |properties| properties.footprint())
            + self.headers.footprint()
    }
}

/// A message without its content, and its places in the lists that it stands in until it is settled.
const MESSAGE: usize = size_of::<Message>() + 128;

/// Where a received message stands in its stream or partition. With the broker's name it tells one inbound message from every other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Position {
    /// The stream or topic.
    pub log: String,
    /// The partition; 0 where there is none.
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
        let small = (0..1000).fold(Message::new(""), |message, number| message.with_header(format!("{number:03}"), "x"));
        assert!(small.footprint() > 20 * small.size(), "{} of {}", small.footprint(), small.size());
        let large = Message::new(vec![0; 1 << 20]);
        assert!((1 << 20..(1 << 20) + 1024).contains(&large.footprint()), "{}", large.footprint());
        let nested =
            Message { headers: Headers::from_iter([Header { name: "a".into(), value: Value::List(vec![Value::Null; 1000]) }]), ..small };
        assert!(nested.footprint() > 1000 * size_of::<Value>());
    }
}
