//! The reasons why a start fails, and those that a start can wait for.

use dwell_connectors::{ConnectorError, ErrorKind};

use crate::store::error::{Class, StoreError};

/// Why the start failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// The kind of failure.
    pub cause: Cause,
    /// The failure, and its place.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

/// The kinds of failures at start, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The settings can never work with these servers: exit code 78, at once.
    Settings,
    /// A server refuses access: exit code 69, at once.
    Refused,
    /// A server does not have what the settings name: wait, somebody may create it. Exit code 69
    /// when the wait is over.
    Missing,
    /// A server cannot be reached or is not ready: wait. Exit code 69 when the wait is over.
    Unreachable,
}

impl StartError {
    /// All errors as one, with the cause that is worst: waiting does not help against it.
    pub(super) fn joined(errors: impl IntoIterator<Item = StartError>) -> Option<StartError> {
        errors.into_iter().reduce(|one, other| StartError {
            cause: one.cause.min(other.cause),
            message: if one.message == other.message {
                one.message
            } else {
                format!("{}; {}", one.message, other.message)
            },
            hint: if one.hint == other.hint {
                one.hint
            } else {
                format!("{}; {}", one.hint, other.hint)
            },
        })
    }
}

impl Cause {
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Cause::Settings => ErrorKind::Config,
            Cause::Refused => ErrorKind::Denied,
            Cause::Missing => ErrorKind::Missing,
            Cause::Unreachable => ErrorKind::Disconnected,
        }
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        let cause = match error.class {
            Class::Settings => Cause::Settings,
            Class::Script
            | Class::Outdated
            | Class::Refused
            | Class::Other
            | Class::QueueFull
            | Class::Taken
            | Class::TooManyPaused
            | Class::Memory => Cause::Refused,
            Class::Io
            | Class::Timeout
            | Class::Oom
            | Class::Readonly
            | Class::Moved
            | Class::Unserved
            | Class::Unshared
            | Class::NoScript => Cause::Unreachable,
        };
        StartError { cause, message: error.message, hint: error.hint }
    }
}

impl From<ConnectorError> for StartError {
    fn from(error: ConnectorError) -> Self {
        let cause = match error.kind {
            ErrorKind::Config => Cause::Settings,
            ErrorKind::Missing => Cause::Missing,
            ErrorKind::Denied => Cause::Refused,
            ErrorKind::Disconnected => Cause::Unreachable,
        };
        StartError { cause, message: error.message, hint: error.hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_errors_say_alike_is_said_once() {
        let error = |cause, message: &str| StartError {
            cause,
            message: message.to_owned(),
            hint: "look".to_owned(),
        };
        let joined = |other: &str| {
            let errors = [error(Cause::Unreachable, "one"), error(Cause::Missing, other)];
            let joined = StartError::joined(errors).unwrap();
            (joined.cause, joined.message, joined.hint)
        };
        let hint = "look".to_owned();
        assert_eq!(joined("one"), (Cause::Missing, "one".to_owned(), hint.clone()));
        assert_eq!(joined("two"), (Cause::Missing, "one; two".to_owned(), hint));
    }
}
