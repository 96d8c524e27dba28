//! The error of a campaign and of its system.

use std::path::Path;

use dwell::config;
use dwell::store::error::StoreError;
use dwell_connectors::ConnectorError;
use dwell_testkit::environment::Failure;
use dwell_testkit::servers::ServerError;

use crate::chaos::history::Unreadable;

/// A system could not be started, broken or repaired, or a campaign cannot be judged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "what its parts say")]
pub enum Error {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("redis: {0}")]
    Redis(#[from] ::redis::RedisError),
    /// A file, a folder, a process or a port is not available.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    #[error("the settings of the instances are refused: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Settings(Vec<config::Problem>),
    /// An unexpected result.
    #[error("{0}")]
    Unexpected(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Server(error) => error.into(),
            Error::Connector(error) => error.into(),
            Error::Failure(failure) => failure,
            other => Failure::Unexpected(other.to_string()),
        }
    }
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Error::Io(what, error)
    }

    /// This file or folder is not available.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        Error::io(path.display().to_string())
    }

    pub(crate) fn unexpected(what: impl Into<String>) -> Self {
        Error::Unexpected(what.into())
    }
}
