//! Decodes answers of Redis. An unexpected shape of the answer of a script is an error of class
//! `script`, never a panic.

use bytes::Bytes;
use redis::Value;

use super::error::{Class, StoreError};

/// The answer of TIME as epoch µs.
pub(super) fn micros_of(time: Value) -> Result<i64, StoreError> {
    let mut items = Items::new("TIME", time)?;
    let odd = |_| StoreError::new(Class::Other, "redis: TIME did not answer numbers");
    let seconds: i64 = items.text()?.parse().map_err(odd)?;
    let micros: i64 = items.text()?.parse().map_err(odd)?;
    Ok(seconds * 1_000_000 + micros)
}

/// The text of a reply, lossy: for INFO, CONFIG and meta.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text,
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A zset score; Dwell writes only whole ms.
#[allow(clippy::cast_possible_truncation, reason = "whole ms below 2^53")]
pub(super) fn score(value: Value) -> Option<i64> {
    match value {
        Value::BulkString(bytes) => {
            std::str::from_utf8(&bytes).ok()?.parse::<f64>().ok().map(|score| score as i64)
        }
        Value::Double(score) => Some(score as i64),
        Value::Int(score) => Some(score),
        _ => None,
    }
}

/// The items of an array answer, read one by one.
pub(super) struct Items {
    script: &'static str,
    items: std::vec::IntoIter<Value>,
}

impl Items {
    /// Expects an array.
    pub(super) fn new(script: &'static str, value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(items) => Ok(Items { script, items: items.into_iter() }),
            other => Err(StoreError::new(
                Class::Script,
                format!("redis: {script} answered {other:?} instead of an array"),
            )),
        }
    }

    /// The number of items left.
    #[must_use]
    pub(super) fn left(&self) -> usize {
        self.items.len()
    }

    fn odd(&self, wanted: &str, got: Option<&Value>) -> StoreError {
        StoreError::new(
            Class::Script,
            format!("redis: {} answered {got:?} instead of {wanted}", self.script),
        )
    }

    /// An integer.
    pub(super) fn int(&mut self) -> Result<i64, StoreError> {
        match self.items.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(self.odd("an integer", other.as_ref())),
        }
    }

    /// Bytes, not copied.
    pub(super) fn bytes(&mut self) -> Result<Bytes, StoreError> {
        match self.items.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes.into()),
            other => Err(self.odd("a string", other.as_ref())),
        }
    }

    /// Text.
    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        match self.items.next() {
            Some(Value::BulkString(bytes)) => {
                String::from_utf8(bytes).map_err(|_| self.odd("text", None))
            }
            other => Err(self.odd("a string", other.as_ref())),
        }
    }

    /// A number written as text; `None` if the text is empty.
    pub(super) fn maybe_number(&mut self) -> Result<Option<i64>, StoreError> {
        let text = self.text()?;
        if text.is_empty() {
            return Ok(None);
        }
        // A score written by another program may be a fraction or infinite; it must not fail the
        // whole answer.
        #[allow(clippy::cast_possible_truncation, reason = "a cast of a float ends at the bounds")]
        text.parse()
            .or_else(|_| text.parse().map(|score: f64| score as i64))
            .map(Some)
            .map_err(|_| self.odd("a number", None))
    }
}
