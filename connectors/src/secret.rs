//! Secrets: passwords and tokens, alone and in URLs.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{redacted, split_urls};

/// A secret text. Every output shows `***`, serialization included.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Hides this text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// One URL, several separated by commas, or a list. Every output hides passwords and tokens,
/// serialization included.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Urls(Vec<String>);

impl Urls {
    /// The URLs in this text, separated by commas.
    pub fn new(text: impl Into<String>) -> Self {
        Urls(vec![text.into()])
    }

    /// Each URL with its secrets, and what is shown of it; or why a text may be more than one list
    /// of URLs.
    pub(crate) fn each(&self) -> Result<Vec<(&str, String)>, &'static str> {
        Ok(self.0.iter().map(|text| shown_urls(text)).collect::<Result<Vec<_>, _>>()?.concat())
    }
}

/// The URLs of a text, and what is shown of each: of a text that is not shown as a list, no part.
fn shown_urls(text: &str) -> Result<Vec<(&str, String)>, &'static str> {
    let urls = split_urls(text)?;
    let (whole, parts) = (redacted(text), urls.iter().map(|url| redacted(url)).collect::<Vec<_>>());
    let is_list = whole == parts.join(", ");
    Ok(urls
        .into_iter()
        .zip(parts)
        .map(|(url, part)| (url, if is_list { part } else { whole.clone() }))
        .collect())
}

/// The hint for a text that cannot be read as a URL.
pub(crate) const ESCAPE_HINT: &str = "in a user or a password write , @ / : ? # % as %2C %40 %2F %3A %3F %23 %25; what may be of a password is not \
                                  shown here";

/// Percent-decodes the text.
#[cfg(feature = "nats")]
pub(crate) fn decoded(text: &str) -> Secret {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail
            .first_chunk::<2>()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) if *first == b'%' => {
                bytes.push(code);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Secret(String::from_utf8_lossy(&bytes).into_owned())
}

impl fmt::Display for Urls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .0
                .iter()
                .map(|text| redacted(text))
                .filter(|shown| !shown.is_empty())
                .collect::<Vec<_>>()
                .join(", "),
        )
    }
}

impl fmt::Debug for Urls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Urls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a URL, or a list of URLs")]
        enum Form {
            One(String),
            Several(Vec<String>),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::One(url) => Urls(vec![url]),
            Form::Several(urls) => Urls(urls),
        })
    }
}

impl JsonSchema for Urls {
    fn schema_name() -> Cow<'static, str> {
        "Urls".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
    }
}
