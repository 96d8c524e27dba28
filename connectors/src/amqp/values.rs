//! Header values and tables: conversion to AMQP and back. Each type has its counterpart; the
//! differences are these.
//!
//! A table has unique names, and lapin sorts them: headers come in that order. A repeated name is
//! published as a list of its values (`A`), in order. Long strings that are not UTF-8 come as
//! bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable, LongString, ShortString};

use crate::{Headers, Value};

/// The headers of a received message.
pub(super) fn headers(table: &FieldTable) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in table.inner() {
        headers.push(name.as_str(), from_amqp(value));
    }
    headers
}

/// The headers of a message to publish, or why they cannot be published.
pub(super) fn table(headers: Headers) -> Result<FieldTable, String> {
    entries(headers.into_iter().map(|header| (header.name, header.value)))
}

fn entries(entries: impl Iterator<Item = (String, Value)>) -> Result<FieldTable, String> {
    let mut by_name: BTreeMap<String, Vec<AMQPValue>> = BTreeMap::new();
    for (name, value) in entries {
        let value = to_amqp(value).map_err(|why| format!("header `{}`: {why}", shown(&name)))?;
        by_name.entry(name).or_default().push(value);
    }
    let mut table = FieldTable::default();
    for (name, mut values) in by_name {
        let short = ShortString::try_new(name.as_str()).map_err(|_| {
            format!("header `{}`: its name has {} bytes, AMQP takes 255", shown(&name), name.len())
        })?;
        let value = match values.pop() {
            Some(only) if values.is_empty() => only,
            Some(last) => {
                values.push(last);
                AMQPValue::FieldArray(FieldArray::from(values))
            }
            None => AMQPValue::Void,
        };
        table.insert(short, value);
    }
    Ok(table)
}

/// The start of a name, for people.
fn shown(name: &str) -> String {
    name.chars().take(60).flat_map(char::escape_debug).collect()
}

fn from_amqp(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Void => Value::Null,
        AMQPValue::Boolean(value) => Value::Bool(*value),
        AMQPValue::ShortShortInt(value) => Value::I8(*value),
        AMQPValue::ShortInt(value) => Value::I16(*value),
        AMQPValue::LongInt(value) => Value::I32(*value),
        AMQPValue::LongLongInt(value) => Value::I64(*value),
        AMQPValue::ShortShortUInt(value) => Value::U8(*value),
        AMQPValue::ShortUInt(value) => Value::U16(*value),
        AMQPValue::LongUInt(value) => Value::U32(*value),
        AMQPValue::Float(value) => Value::F32(*value),
        AMQPValue::Double(value) => Value::F64(*value),
        AMQPValue::DecimalValue(value) => Value::Decimal(value.scale, value.value),
        AMQPValue::ShortString(text) => Value::Text(text.as_str().to_owned()),
        AMQPValue::LongString(text) => match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Bytes(Bytes::copy_from_slice(text.as_bytes())),
        },
        AMQPValue::ByteArray(bytes) => Value::Bytes(Bytes::copy_from_slice(bytes.as_slice())),
        AMQPValue::Timestamp(seconds) => Value::Timestamp(*seconds),
        AMQPValue::FieldArray(values) => {
            Value::List(values.as_slice().iter().map(from_amqp).collect())
        }
        AMQPValue::FieldTable(table) => Value::Table(
            table
                .inner()
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), from_amqp(value)))
                .collect(),
        ),
    }
}

fn to_amqp(value: Value) -> Result<AMQPValue, String> {
    Ok(match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(value) => AMQPValue::Boolean(value),
        Value::I8(value) => AMQPValue::ShortShortInt(value),
        Value::I16(value) => AMQPValue::ShortInt(value),
        Value::I32(value) => AMQPValue::LongInt(value),
        Value::I64(value) => AMQPValue::LongLongInt(value),
        Value::U8(value) => AMQPValue::ShortShortUInt(value),
        Value::U16(value) => AMQPValue::ShortUInt(value),
        Value::U32(value) => AMQPValue::LongUInt(value),
        Value::F32(value) => AMQPValue::Float(value),
        Value::F64(value) => AMQPValue::Double(value),
        Value::Decimal(scale, value) => AMQPValue::DecimalValue(DecimalValue { scale, value }),
        Value::Text(text) => AMQPValue::LongString(LongString::from(text)),
        Value::Bytes(bytes) => AMQPValue::ByteArray(bytes.to_vec().into()),
        Value::Timestamp(seconds) => AMQPValue::Timestamp(seconds),
        Value::List(values) => AMQPValue::FieldArray(FieldArray::from(
            values.into_iter().map(to_amqp).collect::<Result<Vec<AMQPValue>, String>>()?,
        )),
        Value::Table(table) => AMQPValue::FieldTable(entries(table.into_iter())?),
    })
}

/// The bytes of a table on the wire.
pub(super) fn table_size(table: &FieldTable) -> usize {
    4 + table
        .inner()
        .iter()
        .map(|(name, value)| 2 + name.as_str().len() + size(value))
        .sum::<usize>()
}

fn size(value: &AMQPValue) -> usize {
    match value {
        AMQPValue::ShortString(text) => 4 + text.as_str().len(),
        AMQPValue::LongString(text) => 4 + text.len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.len(),
        AMQPValue::FieldArray(values) => {
            4 + values.as_slice().iter().map(|value| 1 + size(value)).sum::<usize>()
        }
        AMQPValue::FieldTable(table) => table_size(table),
        // The largest of the remaining types.
        _ => 8,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn each_type_comes_back_as_itself() {
        let inner = Value::Table(vec![
            ("a".to_owned(), Value::Bool(true)),
            ("b".to_owned(), Value::List(vec![Value::Null, "x".into()])),
        ]);
        let values = vec![
            Value::Null,
            Value::Bool(false),
            Value::I8(-1),
            Value::I16(-2),
            Value::I32(-3),
            Value::I64(i64::MIN),
            Value::U8(255),
            Value::U16(65_535),
            Value::U32(u32::MAX),
            Value::F32(1.5),
            Value::F64(-2.5),
            Value::Decimal(2, 314),
            Value::Text("täxt".to_owned()),
            Value::Bytes(Bytes::from_static(b"\0\xff")),
            Value::Timestamp(1_700_000_000),
            inner.clone(),
            Value::List(vec![inner, Value::U8(1)]),
        ];
        for value in values {
            assert_eq!(from_amqp(&to_amqp(value.clone()).unwrap()), value);
        }
    }

    #[test]
    fn a_repeated_name_goes_out_as_a_list() {
        let mut out = Headers::default();
        for (name, value) in [("twice", "1"), ("once", "x"), ("twice", "2")] {
            out.push(name, value.into());
        }
        let back = headers(&table(out).unwrap());
        assert_eq!(back.get("twice"), Some(&Value::List(vec!["1".into(), "2".into()])));
        assert_eq!((back.get("once"), back.len()), (Some(&"x".into()), 2));
    }

    #[test]
    fn a_name_that_is_too_long_is_named() {
        for name in ["x".repeat(256), "ä".repeat(128)] {
            let mut out = Headers::default();
            out.push("outer", Value::Table(vec![(name, Value::Null)]));
            assert!(table(out).unwrap_err().contains("256 bytes"));
        }
    }

    #[test]
    fn text_that_is_not_utf8_comes_as_bytes() {
        let value = AMQPValue::LongString(LongString::from(b"\xff".to_vec()));
        assert_eq!(from_amqp(&value), Value::Bytes(Bytes::from_static(b"\xff")));
    }
}
