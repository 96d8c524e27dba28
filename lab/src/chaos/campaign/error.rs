//! The error of a campaign.

use dwell::store::error::StoreError;
use dwell_connectors::ConnectorError;
use dwell_testkit::environment::Failure;

use crate::chaos::history::Unreadable;
use crate::chaos::system;

/// The campaign failed, or cannot be judged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "what its parts say")]
pub enum Error {
    #[error(transparent)]
    System(#[from] system::Error),
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    #[error("{0}")]
    Unexpected(String),
}
