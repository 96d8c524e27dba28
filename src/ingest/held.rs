//! Holds a batch that the store does not take.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock;
use crate::reconnect::Backoff;
use crate::store::error::{Class, StoreError};
use crate::telemetry::PauseReason;

/// A batch that the store does not take: the ingest is paused, says so once, and tries again.
pub(super) struct Held<'a> {
    ingest: &'a Ingest,
    backoff: Backoff,
    reason: Option<PauseReason>,
}

impl<'a> Held<'a> {
    pub(super) fn new(ingest: &'a Ingest) -> Self {
        Held { ingest, backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)), reason: None }
    }

    /// Waits before the next try; false when given up.
    pub(super) async fn wait(&mut self, error: &StoreError, give_up: &CancellationToken) -> bool {
        let reason = if error.class == Class::Oom { PauseReason::RedisFull } else { PauseReason::Redis };
        if self.reason != Some(reason) {
            self.resume();
            self.ingest.metrics.ingest_paused(reason);
            self.reason = Some(reason);
            tracing::warn!(ingest = self.ingest.name, %error, mend = error.mend, "the store does not take jobs, the ingest waits");
        }
        tokio::select! {
            () = give_up.cancelled() => false,
            () = clock::sleep(self.backoff.pause()) => true,
        }
    }

    fn resume(&mut self) {
        if let Some(reason) = self.reason.take() {
            self.ingest.metrics.ingest_resumed(reason);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.reason.is_some() {
            tracing::info!(ingest = self.ingest.name, "the ingest goes on");
        }
        self.resume();
    }
}
