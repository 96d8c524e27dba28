//! Values that are text in the settings. Each reads itself from its text, and is written as text.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::IntoDeserializer;
use serde::de::value::StringDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rules::{self, Wrong};
use crate::units::{show_duration_ms, show_size, show_time_ms};

/// Stands between the message and the hint in an error of serde, which is one text. No message has
/// it: control characters of values are escaped.
const HINT_SEPARATOR: char = '\u{1f}';
/// Stands at the end of each mistake in such an error.
const MISTAKE_END: char = '\u{1e}';

/// The mistakes that a value of this module reports by this error of serde; none for other errors.
pub(super) fn mistakes(error: &str) -> Vec<Wrong> {
    let mistake = |text: &str| {
        let (message, hint) = text.split_once(HINT_SEPARATOR)?;
        Some((message.to_owned(), hint.to_owned()))
    };
    error.split(MISTAKE_END).filter_map(mistake).collect()
}

/// The error of a value that has these mistakes.
pub(super) fn refused<E: serde::de::Error>(mistakes: &[Wrong]) -> E {
    let text = |(message, hint): &Wrong| format!("{message}{HINT_SEPARATOR}{hint}{MISTAKE_END}");
    E::custom(mistakes.iter().map(text).collect::<String>())
}

/// A unit of [`Bounded`]: how the values are read and written.
pub trait Unit {
    /// Reads a value within these bounds, or says what is wrong and what to write.
    const READ: fn(&str, u64, u64) -> Result<u64, Wrong>;
    /// Writes a value.
    const SHOW: fn(u64) -> String;
}

/// The unit of [`Millis`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time;

impl Unit for Time {
    const READ: fn(&str, u64, u64) -> Result<u64, Wrong> = rules::duration;
    const SHOW: fn(u64) -> String = show_duration_ms;
}

/// The unit of [`Bytes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size;

impl Unit for Size {
    const READ: fn(&str, u64, u64) -> Result<u64, Wrong> = rules::size;
    const SHOW: fn(u64) -> String = show_size;
}

/// A value from `MIN` to `MAX`, written with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded<U, const MIN: u64, const MAX: u64>(u64, PhantomData<U>);

/// A duration from `MIN` to `MAX` ms, written `500ms`, `90s`, `1h30m` or `PT15M`.
pub type Millis<const MIN: u64, const MAX: u64> = Bounded<Time, MIN, MAX>;

/// A size from `MIN` to `MAX` bytes, written `1MiB`, `64KiB` or `100kB`.
pub type Bytes<const MIN: u64, const MAX: u64> = Bounded<Size, MIN, MAX>;

impl<U, const MIN: u64, const MAX: u64> Bounded<U, MIN, MAX> {
    /// This number of ms or bytes; beyond a bound, the bound.
    #[must_use]
    pub fn of(value: u64) -> Self {
        Bounded(value.clamp(MIN, MAX), PhantomData)
    }
}

impl<const MIN: u64, const MAX: u64> Millis<MIN, MAX> {
    /// The duration in ms.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> Bytes<MIN, MAX> {
    /// The size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl<'de, U: Unit, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<U, MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        (U::READ)(&text, MIN, MAX)
            .map(|value| Bounded(value, PhantomData))
            .map_err(|wrong| refused(&[wrong]))
    }
}

impl<U: Unit, const MIN: u64, const MAX: u64> Serialize for Bounded<U, MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&(U::SHOW)(self.0))
    }
}

/// A value that may be left out: empty text is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Optional<T>(Option<T>);

impl<T> From<Option<T>> for Optional<T> {
    fn from(value: Option<T>) -> Self {
        Optional(value)
    }
}

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

/// Reads a value that blank text leaves out too.
pub(super) fn blank_or<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Optional<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let text = if text.trim().is_empty() { String::new() } else { text };
    let value: StringDeserializer<D::Error> = text.into_deserializer();
    Optional::deserialize(value)
}

impl<T: Serialize> Serialize for Optional<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }
}

/// The waits between attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits(Vec<u64>);

impl From<Vec<u64>> for Waits {
    /// The waits of so many ms.
    fn from(waits_ms: Vec<u64>) -> Self {
        Waits(waits_ms)
    }
}

impl Deref for Waits {
    type Target = Vec<u64>;

    /// The waits in ms.
    fn deref(&self) -> &Vec<u64> {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Waits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mut waits, mut mistakes) = (Vec::new(), Vec::new());
        for text in Vec::<String>::deserialize(deserializer)? {
            match rules::duration(&text, 0, rules::MAX_DURATION_MS) {
                Ok(wait_ms) => waits.push(wait_ms),
                Err(wrong) => mistakes.push(wrong),
            }
        }
        if mistakes.is_empty() { Ok(Waits(waits)) } else { Err(refused(&mistakes)) }
    }
}

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|wait_ms| show_duration_ms(*wait_ms)))
    }
}

/// Where a new group starts, as text.
pub(super) mod start {
    use dwell_connectors::Start;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{refused, rules, show_time_ms};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Start, D::Error> {
        rules::start(&String::deserialize(deserializer)?).map_err(|wrong| refused(&[wrong]))
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        start: &Start,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match start {
            Start::Earliest => serializer.serialize_str("earliest"),
            Start::Latest => serializer.serialize_str("latest"),
            Start::At(ms) => serializer.serialize_str(&show_time_ms(*ms)),
        }
    }
}

/// Takes the default out of the schema of a setting that is required.
pub(super) fn without_default(schema: &mut Schema) {
    schema.remove("default");
}

/// The schema of a value is that of what is written for it.
macro_rules! written_as {
    ($([$($of:tt)*] $value:ty as $text:ty;)+) => {
        $(impl<$($of)*> JsonSchema for $value {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($value).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$text>::json_schema(generator)
            }
        })+
    };
}

written_as! {
    [U, const MIN: u64, const MAX: u64] Bounded<U, MIN, MAX> as String;
    [T] Optional<T> as String;
    [] Waits as Vec<String>;
}
