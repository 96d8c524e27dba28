//! A message as it came, or as it goes: the same type on every broker.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

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

/// What an allocation for so many bytes takes.
fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

/// Where a message goes or came in: a NATS subject, a Kafka topic, or an AMQP exchange with its routing key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Destination {
    /// AMQP exchange; empty is the default exchange, and the only value on other brokers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exchange: String,
    /// Subject, topic or routing key.
    pub address: String,
}

impl Destination {
    /// A subject, a topic, or a queue by way of the default exchange.
    pub fn new(address: impl Into<String>) -> Self {
        Destination { exchange: String::new(), address: address.into() }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.exchange.is_empty() { f.write_str(&self.address) } else { write!(f, "{}/{}", self.exchange, self.address) }
    }
}

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

/// One header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The name, as it came.
    pub name: String,
    /// The value, with its type.
    pub value: Value,
}

/// Headers in order; a name may stand more than once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(Vec<Header>);

impl Headers {
    /// Adds a header at the end.
    pub fn push(&mut self, name: impl Into<String>, value: Value) {
        self.0.push(Header { name: name.into(), value });
    }

    /// The headers in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.iter()
    }

    /// The first value under this name, ASCII case ignored.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| &h.value)
    }

    /// The first value under this name where it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_text)
    }

    /// Keeps the headers for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&Header) -> bool) {
        self.0.retain(keep);
    }

    /// How many headers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No header at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn footprint(&self) -> usize {
        let each = self.0.iter().map(|header| allocated(header.name.len()) + header.value.footprint());
        self.0.capacity() * size_of::<Header>() + each.sum::<usize>()
    }
}

impl FromIterator<Header> for Headers {
    fn from_iter<I: IntoIterator<Item = Header>>(iter: I) -> Self {
        Headers(iter.into_iter().collect())
    }
}

impl IntoIterator for Headers {
    type Item = Header;
    type IntoIter = std::vec::IntoIter<Header>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The value of a header. NATS has text only, Kafka bytes or null, AMQP all of these (field table types of AMQP 0-9-1 §4.2.5, as RabbitMQ reads them).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Null (Kafka), void (AMQP).
    Null,
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `s`
    I16(i16),
    /// `I`
    I32(i32),
    /// `l`
    I64(i64),
    /// `B`
    U8(u8),
    /// `u`
    U16(u16),
    /// `i`
    U32(u32),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: scale and value.
    Decimal(u8, u32),
    /// Text: NATS; AMQP `S` and Kafka values that are UTF-8.
    Text(String),
    /// Bytes that are not UTF-8, or AMQP `x`.
    Bytes(Bytes),
    /// `T`: seconds since 1970.
    Timestamp(u64),
    /// `A`
    List(Vec<Value>),
    /// `F`
    Table(Vec<(String, Value)>),
}

impl Value {
    /// The text, where it is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as text, where nothing of it is lost by that: text, truth values, numbers, seconds. `None` for everything else.
    #[must_use]
    pub fn plain(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Value::Text(text) => Cow::Borrowed(text.as_str()),
            Value::Bool(value) => Cow::Owned(value.to_string()),
            Value::I8(value) => Cow::Owned(value.to_string()),
            Value::I16(value) => Cow::Owned(value.to_string()),
            Value::I32(value) => Cow::Owned(value.to_string()),
            Value::I64(value) => Cow::Owned(value.to_string()),
            Value::U8(value) => Cow::Owned(value.to_string()),
            Value::U16(value) => Cow::Owned(value.to_string()),
            Value::U32(value) => Cow::Owned(value.to_string()),
            Value::F32(value) => Cow::Owned(value.to_string()),
            Value::F64(value) => Cow::Owned(value.to_string()),
            Value::Timestamp(seconds) => Cow::Owned(seconds.to_string()),
            Value::Null | Value::Decimal(..) | Value::Bytes(_) | Value::List(_) | Value::Table(_) => return None,
        })
    }

    /// The value as a producer wrote it who had text or integers in mind: text, bytes that are UTF-8 (Kafka has no other text), integers (AMQP).
    #[must_use]
    pub fn written(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Value::Bool(_) | Value::F32(_) | Value::F64(_) | Value::Timestamp(_) => None,
            other => other.plain(),
        }
    }

    /// How much there is of the value, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(values) => values.iter().map(Value::size).sum(),
            Value::Table(entries) => entries.iter().map(|(name, value)| name.len() + value.size()).sum(),
            _ => 8,
        }
    }

    /// What the value takes besides itself, in bytes.
    fn footprint(&self) -> usize {
        match self {
            Value::Text(text) => allocated(text.len()),
            Value::Bytes(bytes) => allocated(bytes.len()),
            Value::List(values) => values.capacity() * size_of::<Value>() + values.iter().map(Value::footprint).sum::<usize>(),
            Value::Table(entries) => {
                let each = entries.iter().map(|(name, value)| allocated(name.len()) + value.footprint());
                entries.capacity() * size_of::<(String, Value)>() + each.sum::<usize>()
            }
            _ => 0,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

/// The basic properties of an AMQP 0-9-1 message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are those of the AMQP 0-9-1 specification, class basic")]
pub struct Properties {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<String>,
    pub reply_to: Option<String>,
    pub expiration: Option<String>,
    pub message_id: Option<String>,
    pub timestamp: Option<u64>,
    pub kind: Option<String>,
    pub user_id: Option<String>,
    pub app_id: Option<String>,
    pub cluster_id: Option<String>,
}

impl Properties {
    fn footprint(&self) -> usize {
        let Properties {
            content_type,
            content_encoding,
            correlation_id,
            reply_to,
            expiration,
            message_id,
            kind,
            user_id,
            app_id,
            cluster_id,
            ..
        } = self;
        let texts = [content_type, content_encoding, correlation_id, reply_to, expiration, message_id, kind, user_id, app_id, cluster_id];
        size_of::<Self>() + texts.into_iter().flatten().map(|text| allocated(text.len())).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
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
