//! The headers of a message: ordered, with repeated names.

use serde::{Deserialize, Serialize};

use crate::allocated;
use crate::value::Value;

/// A header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The name, unchanged.
    pub name: String,
    /// The value, with its type.
    pub value: Value,
}

/// Headers in order; a name may occur more than once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(Vec<Header>);

impl Headers {
    /// Adds a header at the end.
    pub fn push(&mut self, name: impl Into<String>, value: Value) {
        self.0.push(Header { name: name.into(), value });
    }

    /// The headers in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.iter()
    }

    /// The first value with this name; ASCII case is ignored.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| &h.value)
    }

    /// The first value with this name if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_text)
    }

    /// Keeps the headers for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&Header) -> bool) {
        self.0.retain(keep);
    }

    /// The number of headers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The approximate memory of the headers besides the struct itself, in bytes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let each =
            self.0.iter().map(|header| allocated(header.name.len()) + header.value.footprint());
        self.0.capacity() * size_of::<Header>() + each.sum::<usize>()
    }
}

impl FromIterator<Header> for Headers {
    fn from_iter<I: IntoIterator<Item = Header>>(iter: I) -> Self {
        Headers(iter.into_iter().collect())
    }
}

impl IntoIterator for Headers {
    type Item = Header;
    type IntoIter = std::vec::IntoIter<Header>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
