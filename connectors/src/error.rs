//! What went wrong, and what the caller does next.

/// An error of a connector. The kind is the decision; the text says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConnectorError {
    /// What the caller does next.
    pub kind: ErrorKind,
    /// What failed and where (never a password, never a body), for people.
    pub message: String,
    /// What a person can do about it; empty where nothing but waiting helps.
    pub hint: String,
    /// The client library's error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What the caller does after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The link is gone or was never there: drop the value, open another after a pause, for ever.
    Disconnected,
    /// What the settings name does not exist (stream, topic, queue). At start: exit 69, or `declare`. Later: as `Disconnected`, it may come back.
    Missing,
    /// The broker refuses these credentials or this permission. At start: exit 69. Later: as `Disconnected`.
    Denied,
    /// The settings can never work: stop at start, exit 78.
    Config,
}

impl ConnectorError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ConnectorError { kind, message: message.into(), hint: String::new(), source: None }
    }

    /// The same error with what a person can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same error with what the client library said.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}
