//! The values that programs in some languages write for nothing: `null` for a list, and an empty
//! list for an object.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, AnyOfBuilder, ArrayItems};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Schema, Type};

/// A list; `null` is an empty one.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The schema of the values that [`object`] reads.
pub(super) fn object_schema() -> Schema {
    let object =
        ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(true)));
    let null = ObjectBuilder::new().schema_type(Type::Null);
    let empty = ArrayBuilder::new().items(ArrayItems::False).max_items(Some(0));
    let text = "The headers by name: text, a number, a boolean, null, `{\"base64\": \"…\"}`, or a list of these for a repeated name (of a broker with lists: a value of type list)";
    AnyOfBuilder::new().description(Some(text)).item(object).item(null).item(empty).into()
}

/// An object; `null` and an empty list are an empty one.
pub(super) fn object<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Value>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Object(entries) => Ok(entries.into_iter().collect()),
        Value::Null => Ok(BTreeMap::new()),
        Value::Array(values) if values.is_empty() => Ok(BTreeMap::new()),
        _ => Err(D::Error::custom("headers must be an object")),
    }
}
