//! JSON values that are text in headers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_connectors::Value;
use serde::{Deserialize, Deserializer};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::http::server::Problem;
use crate::units::{parse_duration_ms, quote};

/// Text, or an integer, so that milliseconds need no quotes.
#[derive(Debug)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Ok(Text(text)),
            serde_json::Value::Number(number) if number.is_i64() || number.is_u64() => {
                Ok(Text(number.to_string()))
            }
            other => Err(serde::de::Error::custom(format_args!(
                "{} is neither text nor an integer",
                shown(&other)
            ))),
        }
    }
}

impl PartialSchema for Text {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Integer]))
            .into()
    }
}

impl ToSchema for Text {}

/// The duration in the field `name` of a body, ms.
pub(super) fn span(name: &str, text: Option<Text>) -> Result<Option<u64>, Problem> {
    text.map(|text| parse_duration_ms(&text.0))
        .transpose()
        .map_err(|why| Problem::bad(format!("{name}: {why}")))
}

/// Text as its UTF-8 bytes, or bytes as `{"base64": "…"}`.
#[derive(Debug)]
pub(super) struct TextOrBytes(pub(super) Bytes);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Base64 {
    base64: String,
}

impl<'de> Deserialize<'de> for TextOrBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Ok(TextOrBytes(text.into())),
            object @ serde_json::Value::Object(_) => {
                bytes(object).map(TextOrBytes).map_err(serde::de::Error::custom)
            }
            other => Err(serde::de::Error::custom(format_args!(
                "{} is neither text nor {{\"base64\": …}}",
                shown(&other)
            ))),
        }
    }
}

impl PartialSchema for TextOrBytes {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Object])).into()
    }
}

impl ToSchema for TextOrBytes {}

/// The bytes of `{"base64": "…"}`.
fn bytes(object: serde_json::Value) -> Result<Bytes, String> {
    let Base64 { base64 } = serde_json::from_value(object)
        .map_err(|_| "an object must be {\"base64\": \"…\"}".to_owned())?;
    decode(&base64)
}

/// Bytes in base64, with padding.
pub(super) fn decode(base64: &str) -> Result<Bytes, String> {
    STANDARD
        .decode(base64)
        .map(Bytes::from)
        .map_err(|error| format!("this is not base64 with padding: {error}"))
}

/// The values of a header. A list stands for repeated headers, but on AMQP it is one value.
pub(super) fn header_values(json: serde_json::Value, lists: bool) -> Result<Vec<Value>, String> {
    match json {
        serde_json::Value::Array(values) if lists => {
            Ok(vec![Value::List(values.into_iter().map(header_value).collect::<Result<_, _>>()?)])
        }
        serde_json::Value::Array(values) => values.into_iter().map(header_value).collect(),
        one => Ok(vec![header_value(one)?]),
    }
}

fn header_value(json: serde_json::Value) -> Result<Value, String> {
    Ok(match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(value),
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::I64(integer),
            (None, Some(float)) if number.is_f64() => Value::F64(float),
            _ => return Err(format!("{number} is beyond 64 bits: send it as text")),
        },
        object @ serde_json::Value::Object(_) => Value::Bytes(bytes(object)?),
        serde_json::Value::Array(_) => {
            return Err("a header cannot hold a list in a list".to_owned());
        }
    })
}

fn shown(value: &serde_json::Value) -> String {
    quote(&value.to_string())
}
