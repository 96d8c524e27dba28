//! Holds a batch that the store does not take.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock;
use crate::reconnect::Backoff;
use crate::store::error::{Class, StoreError};
use crate::telemetry::PauseReason;
use crate::telemetry::metrics::Paused;

/// A batch that the store does not take: the ingest is paused, says so once, and tries again.
pub(super) struct Held<'a> {
    ingest: &'a Ingest,
    backoff: Backoff,
    paused: Option<(PauseReason, Paused)>,
}

impl<'a> Held<'a> {
    pub(super) fn new(ingest: &'a Ingest) -> Self {
        Held { ingest, backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)), paused: None }
    }

    /// Waits before the next try; false when given up.
    pub(super) async fn wait(&mut self, error: &StoreError, give_up: &CancellationToken) -> bool {
        let reason = if error.class == Class::Oom { PauseReason::RedisFull } else { PauseReason::Redis };
        if self.paused.as_ref().is_none_or(|(known, _)| *known != reason) {
            self.paused = Some((reason, self.ingest.metrics.ingest_paused(reason)));
            tracing::warn!(ingest = self.ingest.name, %error, mend = error.mend, "the store does not take jobs, the ingest waits");
        }
        tokio::select! {
            () = give_up.cancelled() => false,
            () = clock::sleep(self.backoff.pause()) => true,
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.paused.is_some() {
            tracing::info!(ingest = self.ingest.name, "the ingest goes on");
        }
    }
}
