//! Conversion of headers between librdkafka's list and Dwell's.

use bytes::Bytes;
use rdkafka::message::{BorrowedHeaders, Header as KafkaHeader, Headers as _, OwnedHeaders};

use super::quirks::header_names;
use crate::{Header, Headers, Value};

/// The headers of a received message: ordered, with repeated names. Null stays null, and values
/// that are not UTF-8 stay bytes. Headers whose names are not UTF-8 are left out, and named by their
/// position.
pub(super) fn from_kafka(list: Option<&BorrowedHeaders>) -> (Headers, Vec<String>) {
    let (mut headers, mut unreadable) = (Headers::default(), Vec::new());
    let Some(list) = list else { return (headers, unreadable) };
    for index in 0..list.count() {
        match header_names::get(list, index) {
            Some(header) => headers.push(header.key, header.value.map_or(Value::Null, value)),
            None => unreadable.push(format!("the name of header {}", index + 1)),
        }
    }
    (headers, unreadable)
}

fn value(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Bytes(Bytes::copy_from_slice(bytes)),
    }
}

/// The headers of a message to publish, or why they cannot be published. Numbers become text: Kafka
/// has bytes only.
pub(super) fn to_kafka(headers: &Headers) -> Result<Option<OwnedHeaders>, String> {
    if headers.is_empty() {
        return Ok(None);
    }
    let mut list = OwnedHeaders::new_with_capacity(headers.len());
    for Header { name, value } in headers.iter() {
        if name.contains('\0') {
            return Err(format!(
                "header `{}` cannot be published to Kafka: its name has a zero byte",
                name.escape_debug()
            ));
        }
        let text;
        let bytes: Option<&[u8]> = match value {
            Value::Null => None,
            Value::Text(text) => Some(text.as_bytes()),
            Value::Bytes(bytes) => Some(bytes),
            other => {
                let no_text = || {
                    format!(
                        "header `{name}` cannot be published to Kafka: its value is a decimal, a list or a table"
                    )
                };
                text = other.plain().ok_or_else(no_text)?;
                Some(text.as_bytes())
            }
        };
        list = list.insert(KafkaHeader { key: name, value: bytes });
    }
    Ok(Some(list))
}

/// The size of the headers, in bytes.
pub(super) fn size(list: Option<&BorrowedHeaders>) -> usize {
    list.map_or(0, |list| {
        list.iter().map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len)).sum()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn order_repeats_nulls_and_bytes_survive() {
        let mut headers = Headers::default();
        for (name, value) in [
            ("b", Value::from("täxt")),
            ("a", Value::Null),
            ("b", Value::from("")),
            ("c", Value::Bytes(Bytes::from_static(b"\xff\0"))),
            ("", Value::from("no name")),
        ] {
            headers.push(name, value);
        }
        let list = to_kafka(&headers).unwrap().unwrap();
        assert_eq!(from_kafka(Some(list.as_borrowed())), (headers, Vec::new()));
        assert!(to_kafka(&Headers::default()).unwrap().is_none());
    }

    #[test]
    fn numbers_pass_as_text_and_tables_do_not() {
        let mut headers = Headers::default();
        headers.push("n", Value::I64(-5));
        headers.push("t", Value::Bool(true));
        let (back, _) = from_kafka(Some(to_kafka(&headers).unwrap().unwrap().as_borrowed()));
        assert_eq!((back.text("n"), back.text("t")), (Some("-5"), Some("true")));
        for (name, value) in [
            ("table", Value::Table(vec![])),
            ("list", Value::List(vec![])),
            ("zero\0", Value::Null),
        ] {
            let why = to_kafka(&Headers::from_iter([Header { name: name.to_owned(), value }]))
                .unwrap_err();
            assert!(why.contains(name.trim_end_matches('\0')), "{why}");
        }
    }
}
