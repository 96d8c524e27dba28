//! A JSON object as programs in Go read it: the case of names does not matter, the last of several
//! values counts, `null` is no value, and unknown names are ignored.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::request::compact;

/// The fields of an object, by name in lower case, each as it is written.
#[derive(Debug, Default)]
pub(super) struct Fields(HashMap<String, Box<RawValue>>);

/// Why a field, or the whole object, cannot be read.
pub(super) type Unread = String;

impl Fields {
    /// Reads an object. `null` is an object without fields.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Unread> {
        let text = String::from_utf8_lossy(bytes);
        match serde_json::from_str::<Option<Fields>>(&text) {
            Ok(fields) => Ok(fields.unwrap_or_default()),
            // The error's own text may quote the body.
            Err(error) => Err(format!(
                "the body is not a JSON object (line {}, column {})",
                error.line(),
                error.column()
            )),
        }
    }

    /// The text of this field, without white space around it; empty if there is none.
    pub(super) fn text(&self, name: &str) -> Result<String, Unread> {
        let Some(value) = self.0.get(name) else { return Ok(String::new()) };
        serde_json::from_str::<String>(value.get())
            .map(|text| text.trim().to_owned())
            .map_err(|_| format!("`{name}` is not text"))
    }

    /// The integer of this field; `None` if there is none.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, Unread> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        serde_json::from_str::<i64>(value.get())
            .map(Some)
            .map_err(|_| format!("`{name}` is not an integer"))
    }

    /// The bytes of this field: those of a text, or any other value as compact JSON; empty if there
    /// is none.
    pub(super) fn content(&self, name: &str) -> Result<Bytes, Unread> {
        match self.0.get(name) {
            Some(value) if !value.get().starts_with('"') => Ok(Bytes::from(compact(value.get()))),
            _ => self.text(name).map(Bytes::from),
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AsObject)
    }
}

struct AsObject;

impl<'de> Visitor<'de> for AsObject {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Fields, A::Error> {
        let mut fields = HashMap::new();
        while let Some((name, value)) = entries.next_entry::<String, Box<RawValue>>()? {
            if value.get() != "null" {
                fields.insert(name.to_ascii_lowercase(), value);
            }
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_no_case_and_the_last_value_counts() {
        let fields =
            Fields::read(br#" {"ToPic":" a ","topic":"b","TTR":60,"ttr":null,"more":{}} "#)
                .unwrap();
        assert_eq!(
            (fields.text("topic"), fields.integer("ttr"), fields.text("id")),
            (Ok("b".to_owned()), Ok(Some(60)), Ok(String::new()))
        );
        assert_eq!(Fields::read(b"null").unwrap().integer("delay"), Ok(None));
    }

    #[test]
    fn what_is_no_object_or_of_another_type_is_refused() {
        for body in ["", "[]", "1", "{", "{} {}", "\"topic\""] {
            assert!(Fields::read(body.as_bytes()).is_err(), "{body}");
        }
        for value in ["1.5", "1.0", "1e0", "\"1\"", "9223372036854775808", "true", "{}"] {
            let fields = Fields::read(format!("{{\"delay\":{value}}}").as_bytes()).unwrap();
            assert!(fields.integer("delay").is_err(), "{value}");
        }
        assert!(Fields::read(b"{\"id\":2}").unwrap().text("id").is_err());
    }

    proptest! {
        #[test]
        fn any_object_is_read_and_any_bytes_are_survived(topic in ".*", delay: i64, bytes: Vec<u8>) {
            let json = serde_json::json!({"TOPIC": topic, "delay": delay});
            let fields = Fields::read(json.to_string().as_bytes()).unwrap();
            prop_assert_eq!(fields.text("topic"), Ok(topic.trim().to_owned()));
            prop_assert_eq!(fields.integer("delay"), Ok(Some(delay)));
            if let Ok(fields) = Fields::read(&bytes) {
                let _ = (fields.text("id"), fields.integer("ttr"), fields.content("body"));
            }
        }
    }

    #[test]
    fn content_is_text_or_compact_json() {
        let content = |json: &str| {
            Fields::read(format!("{{\"body\":{json}}}").as_bytes())
                .unwrap()
                .content("body")
                .unwrap()
        };
        assert_eq!(content("\" {\\\"a\\\": 1} \""), "{\"a\": 1}");
        assert_eq!(content("{ \"b\": 1.50, \"a\": \" x \" }"), "{\"b\":1.50,\"a\":\" x \"}");
        assert_eq!(content("null"), "");
    }
}
