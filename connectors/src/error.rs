//! Errors of connectors, and the next step of the caller.

/// An error of a connector. The kind decides what the caller does; the text says what failed,
/// where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConnectorError {
    /// The next step of the caller.
    pub kind: ErrorKind,
    /// The failure and its place, for people; never a password, never a body.
    pub message: String,
    /// The hint for a person; empty if only waiting helps.
    pub hint: String,
    /// The client library's error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The next step of the caller after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The connection is lost or was never open: drop the value, and open another after a pause,
    /// without end.
    Disconnected,
    /// Something that the settings name does not exist (stream, topic, queue). At start: exit 69,
    /// or `declare`. Later: as `Disconnected`, because it may come back.
    Missing,
    /// The broker refuses the credentials or a permission. At start: exit 69. Later: as
    /// `Disconnected`.
    Denied,
    /// The settings can never work: exit 78 at start.
    Config,
}

impl ConnectorError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ConnectorError { kind, message: message.into(), hint: String::new(), source: None }
    }

    /// Adds the hint for a person.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds the error of the client library.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// The message of the innermost error; the outer ones only say that something failed.
#[cfg(any(feature = "amqp", feature = "http", feature = "nats"))]
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = error;
    while let Some(cause) = inner.source() {
        inner = cause;
    }
    inner.to_string()
}
