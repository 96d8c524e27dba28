//! The error of a system.

use dwell::config;
use dwell_connectors::ConnectorError;
use dwell_testkit::servers::ServerError;

/// A system could not be started, broken or repaired.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The broker failed.
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    /// Redis failed.
    #[error("redis: {0}")]
    Redis(#[from] ::redis::RedisError),
    /// A file, a folder, a process or a port is not available.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// The settings of the instances are refused.
    #[error("the settings of the instances are refused: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Settings(Vec<config::Problem>),
    /// An unexpected result.
    #[error("{0}")]
    Unexpected(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Error::Io(what, error)
    }
}
