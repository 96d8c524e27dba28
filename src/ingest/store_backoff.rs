//! The wait of a batch while the store does not take it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::apply::RetryPolicy;
use crate::clock;
use crate::reconnect::Backoff;
use crate::store::error::{Class, StoreError};
use crate::telemetry::PauseReason;
use crate::telemetry::metrics::Paused;

/// The wait between two tries of a batch that the store does not take. Pauses the ingest, logs the
/// pause once, and logs the end unless the batch was given up.
pub(super) struct StoreBackoff<'a> {
    ingest: &'a Ingest,
    give_up: &'a CancellationToken,
    backoff: Backoff,
    paused: Option<(PauseReason, Paused)>,
}

impl<'a> StoreBackoff<'a> {
    pub(super) fn new(ingest: &'a Ingest, give_up: &'a CancellationToken) -> Self {
        StoreBackoff {
            ingest,
            give_up,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            paused: None,
        }
    }
}

impl RetryPolicy for StoreBackoff<'_> {
    async fn wait(&mut self, error: &StoreError) -> bool {
        let reason =
            if error.class == Class::Oom { PauseReason::RedisFull } else { PauseReason::Redis };
        if self.paused.as_ref().is_none_or(|(known, _)| *known != reason) {
            // The previous pause ends before the next one counts.
            self.paused = None;
            self.paused = Some((reason, self.ingest.paused(reason)));
            self.ingest.with_metrics(|metrics| metrics.last_error().record(error));
            if error.is_told() {
                tracing::info!(
                    ingest = self.ingest.name,
                    "the ingest is paused until redis accepts the login"
                );
            } else {
                tracing::warn!(ingest = self.ingest.name, %error, hint = error.hint, "the store does not take jobs, the ingest is paused");
            }
            self.ingest.store_failed.notify_one();
        }
        tokio::select! {
            () = self.give_up.cancelled() => {
                self.ingest.apply.store.jobs.unanswered_are_over().await;
                self.paused = None;
                false
            }
            () = clock::sleep(self.backoff.pause()) => true,
        }
    }
}

impl Drop for StoreBackoff<'_> {
    fn drop(&mut self) {
        if self.paused.is_some() {
            tracing::info!(ingest = self.ingest.name, "the ingest resumes");
        }
    }
}
