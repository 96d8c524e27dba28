//! The answer of a command or of a script.

/// As Redis answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bulk(Vec<u8>),
    Status(String),
    Array(Vec<Reply>),
    Error(String),
}

impl Reply {
    pub(crate) fn bulk(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply::Bulk(bytes.into())
    }

    pub(crate) fn maybe(bytes: Option<&Vec<u8>>) -> Reply {
        bytes.map_or(Reply::Nil, |bytes| Reply::Bulk(bytes.clone()))
    }

    pub(crate) fn int(count: usize) -> Reply {
        Reply::Int(i64::try_from(count).expect("a count of things in memory"))
    }

    /// The items of an array; none of anything else.
    pub(crate) fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            _ => &[],
        }
    }

    /// The bytes of a string; empty for anything else.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            _ => &[],
        }
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    /// The number in a string.
    pub(crate) fn number(&self) -> Option<i64> {
        self.text().parse().ok()
    }
}
