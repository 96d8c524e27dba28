//! Values that are text in the settings. Each reads itself from its text, and is written as text.

use std::borrow::Cow;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::StringDeserializer;
use serde::de::{Error as _, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rules::{self, Wrong};
use crate::units::show_duration_ms;

/// Stands between the message and the hint in an error of serde, which is one text. No message has
/// it: control characters of values are escaped.
const HINT_SEPARATOR: char = '\u{1f}';

/// The mistake that a value of this module reports by this error of serde; `None` for other errors.
pub(super) fn wrong(error: &str) -> Option<Wrong> {
    error.split_once(HINT_SEPARATOR).map(|(message, hint)| (message.to_owned(), hint.to_owned()))
}

/// A duration from `LEAST` to `MOST` ms, written `500ms`, `90s`, `1h30m` or `PT15M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millis<const LEAST: u64, const MOST: u64>(u64);

impl<const LEAST: u64, const MOST: u64> Millis<LEAST, MOST> {
    /// The duration in ms.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0
    }
}

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Millis<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let ms = rules::duration(&text, LEAST, MOST).map_err(|(message, hint)| {
            D::Error::custom(format!("{message}{HINT_SEPARATOR}{hint}"))
        })?;
        Ok(Millis(ms))
    }
}

impl<const LEAST: u64, const MOST: u64> Serialize for Millis<LEAST, MOST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_duration_ms(self.0))
    }
}

impl<const LEAST: u64, const MOST: u64> JsonSchema for Millis<LEAST, MOST> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Millis".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// A value that may be left out: empty text is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Optional<T>(Option<T>);

impl<T> Deref for Optional<T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Optional<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Optional(None));
        }
        let value: StringDeserializer<D::Error> = text.into_deserializer();
        T::deserialize(value).map(|value| Optional(Some(value)))
    }
}

impl<T: Serialize> Serialize for Optional<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }
}

impl<T> JsonSchema for Optional<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Optional".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}
