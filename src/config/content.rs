//! What a message holds besides its body, as the settings write it: its key and its headers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_connectors::Value;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::rules::Wrong;
use super::values::refused;

/// What a header may be.
const HEADER_HINT: &str =
    "write text, a number, true, false, { base64 = \"…\" }, or a list of these";

/// Text as its UTF-8 bytes, or bytes as `{ base64 = "…" }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TextOrBytes {
    written: serde_json::Value,
    #[serde(skip)]
    bytes: Bytes,
}

impl TextOrBytes {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl<'de> Deserialize<'de> for TextOrBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = serde_json::Value::deserialize(deserializer)?;
        let bytes = match value(&written) {
            Ok(Value::Text(text)) => Ok(Bytes::from(text)),
            Ok(Value::Bytes(bytes)) => Ok(bytes),
            Ok(_) => Err("this is neither text nor bytes".to_owned()),
            Err(why) => Err(why),
        };
        let hint = || "write text, or { base64 = \"…\" }".to_owned();
        match bytes {
            Ok(bytes) => Ok(TextOrBytes { written, bytes }),
            Err(why) => Err(refused(&[(why, hint())])),
        }
    }
}

/// Headers by name. Each has been read once without a mistake.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct HeaderTexts(BTreeMap<String, serde_json::Value>);

impl HeaderTexts {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each name with its values. A list stands for a repeated header, or with `has_lists` for one
    /// value.
    pub fn values(&self, has_lists: bool) -> impl Iterator<Item = (&str, Vec<Value>)> {
        self.0.iter().map(move |(name, written)| {
            let values = match written {
                serde_json::Value::Array(items) => {
                    let items = items.iter().filter_map(|item| value(item).ok()).collect();
                    if has_lists { vec![Value::List(items)] } else { items }
                }
                one => value(one).into_iter().collect(),
            };
            (name.as_str(), values)
        })
    }
}

impl<'de> Deserialize<'de> for HeaderTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
        let mut mistakes: Vec<Wrong> = Vec::new();
        for (name, json) in &written {
            let items = match json {
                serde_json::Value::Array(items) => items.as_slice(),
                one => std::slice::from_ref(one),
            };
            let wrong = items.iter().filter_map(|item| value(item).err());
            mistakes.extend(
                wrong.map(|why| (format!("{name:?}: {why}"), HEADER_HINT.to_owned())).take(1),
            );
        }
        if mistakes.is_empty() { Ok(HeaderTexts(written)) } else { Err(refused(&mistakes)) }
    }
}

/// The value of what is written, but for a list.
fn value(written: &serde_json::Value) -> Result<Value, String> {
    match written {
        serde_json::Value::Bool(value) => Ok(Value::Bool(*value)),
        serde_json::Value::String(text) => Ok(Value::Text(text.clone())),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Ok(Value::I64(integer)),
            (None, Some(float)) if number.is_f64() => Ok(Value::F64(float)),
            _ => Err("a number is beyond 64 bits".to_owned()),
        },
        serde_json::Value::Object(object) => match object.get("base64") {
            Some(serde_json::Value::String(base64)) if object.len() == 1 => {
                decode(base64).map(Value::Bytes)
            }
            _ => Err("a table has other keys than `base64`, whose value is text".to_owned()),
        },
        serde_json::Value::Array(_) => Err("a list stands in a list".to_owned()),
        serde_json::Value::Null => Err("nothing is written".to_owned()),
    }
}

/// Bytes in base64, with padding.
pub(crate) fn decode(base64: &str) -> Result<Bytes, String> {
    STANDARD
        .decode(base64)
        .map(Bytes::from)
        .map_err(|error| format!("this is not base64 with padding: {error}"))
}

impl JsonSchema for TextOrBytes {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TextOrBytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

impl JsonSchema for HeaderTexts {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Headers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": { "description": "A value." } })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_text_a_number_a_switch_bytes_or_a_list() {
        let text = "a = \"x\"\nb = 7\nc = true\nd = 1.5\ne = { base64 = \"AAE=\" }\nf = [\"x\", 1]";
        let headers: HeaderTexts = toml::from_str(text).unwrap();
        let of = |has_lists: bool| {
            headers.values(has_lists).map(|(name, values)| (name.to_owned(), values)).collect()
        };
        let flat: BTreeMap<String, Vec<Value>> = of(false);
        let one = |value: Value| vec![value];
        assert_eq!(flat["a"], one(Value::Text("x".to_owned())));
        assert_eq!((&flat["b"], &flat["c"]), (&one(Value::I64(7)), &one(Value::Bool(true))));
        assert_eq!(flat["d"], one(Value::F64(1.5)));
        assert_eq!(flat["e"], one(Value::Bytes(Bytes::from_static(&[0, 1]))));
        let list = vec![Value::Text("x".to_owned()), Value::I64(1)];
        assert_eq!(flat["f"], list);
        let whole: BTreeMap<String, Vec<Value>> = of(true);
        assert_eq!(whole["f"], [Value::List(list)]);
    }

    #[test]
    fn each_header_that_cannot_be_read_is_told() {
        let text = "a = { base64 = \"?\" }\nb = { base46 = \"\" }\nc = [[1]]\nd = 1";
        let error = toml::from_str::<HeaderTexts>(text).unwrap_err().to_string();
        for part in ["\"a\": this is not base64", "\"b\": a table has other keys", "\"c\": a list"]
        {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("\"d\""), "{error}");
    }
}
