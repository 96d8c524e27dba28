//! A request that waits for a connection or its answer.

use std::sync::Arc;

use tokio::time::Instant;

use crate::http::targets::Target;
use crate::{Message, Token};

/// A publication without an outcome.
pub(in crate::http) struct PendingRequest {
    pub(in crate::http) token: Token,
    pub(in crate::http) target: Arc<Target>,
    pub(in crate::http) message: Message,
    pub(in crate::http) dedupe_id: String,
    pub(in crate::http) begun: Instant,
    /// Since when it waits for a connection, if it does.
    pub(in crate::http) queued: Instant,
    /// Without an answer by then the outcome is unknown.
    pub(in crate::http) until: Instant,
    /// A connection ended before any of it was sent.
    pub(in crate::http) was_given_back: bool,
}

impl PendingRequest {
    /// Until when it may wait for a slot. At least half of the attempt is the host's: a slow one
    /// would get requests whose time is nearly over, and each would burn an attempt.
    pub(super) fn patience(&self) -> Instant {
        self.begun + self.until.saturating_duration_since(self.begun) / 2
    }
}
