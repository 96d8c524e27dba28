//! The value of a header, with its type.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::allocated;

/// The value of a header. NATS has text only, Kafka has bytes or null, AMQP has all of these (field
/// table types of AMQP 0-9-1 §4.2.5, as RabbitMQ reads them).
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
    /// Text: NATS values, and AMQP `S` and Kafka values that are UTF-8.
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
    /// The text if the value is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as text if that loses nothing: text, booleans, numbers and timestamps in seconds.
    /// `None` for every other type.
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
            Value::Null
            | Value::Decimal(..)
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Table(_) => return None,
        })
    }

    /// The value as written by a producer that meant text or an integer: text, bytes that are UTF-8
    /// (Kafka has no other text), and integers (AMQP).
    #[must_use]
    pub fn written(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Value::Bool(_) | Value::F32(_) | Value::F64(_) | Value::Timestamp(_) => None,
            other => other.plain(),
        }
    }

    /// The size of the content, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(values) => values.iter().map(Value::size).sum(),
            Value::Table(entries) => {
                entries.iter().map(|(name, value)| name.len() + value.size()).sum()
            }
            _ => 8,
        }
    }

    /// The memory of the value besides the enum itself, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        match self {
            Value::Text(text) => allocated(text.len()),
            Value::Bytes(bytes) => allocated(bytes.len()),
            Value::List(values) => {
                values.capacity() * size_of::<Value>()
                    + values.iter().map(Value::footprint).sum::<usize>()
            }
            Value::Table(entries) => {
                let each =
                    entries.iter().map(|(name, value)| allocated(name.len()) + value.footprint());
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
