//! Detects that the store does not answer this instance, and waits until it does.
//!
//! Other instances may still reach it, so messages are given back after `hold`, and reading stops
//! until the store answers. Reading on would only take messages from the others and give them back,
//! until a broker that counts deliveries drops them. The same probe decides both, so that no
//! instance alternates.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock::{self, Instant};
use crate::reconnect::{Backoff, jitter};
use crate::telemetry::{PauseReason, Paused};

/// The interval between probes of the store while no request fails: an idle instance must notice an
/// outage.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// An answer may always take this long, however short `hold` is: with `appendfsync everysec` a
/// healthy one takes a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval between probes after a probe without an answer.
const PROBE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

impl Ingest {
    /// Waits until the store has not answered for `hold`.
    pub(super) async fn store_lost(&self) {
        let hold = Duration::from_millis(self.rules.ingest.hold.ms());
        let mut silent_since: Option<Instant> = None;
        loop {
            let asked = clock::now();
            let left = hold.saturating_sub(
                silent_since.map_or(Duration::ZERO, |since| asked.duration_since(since)),
            );
            match clock::timeout(left.max(PROBE_TIMEOUT), self.apply.store.jobs.takes_requests())
                .await
            {
                Some(Ok(())) => silent_since = None,
                Some(Err(_)) | None => {
                    if silent_since.get_or_insert(asked).elapsed() >= hold {
                        return;
                    }
                }
            }
            match silent_since {
                Some(since) => {
                    clock::sleep(
                        jitter(PROBE_RETRY_INTERVAL).min(hold.saturating_sub(since.elapsed())),
                    )
                    .await
                }
                // Earlier where a request is held.
                None => {
                    let _ =
                        clock::timeout(jitter(PROBE_INTERVAL), self.store_failed.notified()).await;
                }
            }
        }
    }

    /// Waits until the store answers; false if told to stop before. `paused` counts the pause
    /// meanwhile.
    pub(super) async fn until_answered(
        &self,
        stop: &CancellationToken,
        mut paused: Option<Paused>,
    ) -> bool {
        let mut backoff = Backoff::link();
        loop {
            let error = tokio::select! {
                () = stop.cancelled() => return false,
                answer = self.apply.store.jobs.takes_requests() => match answer {
                    Ok(()) => return true,
                    Err(error) => error,
                },
            };
            if paused.is_none() {
                paused = Some(self.paused(PauseReason::Redis));
                self.with_metrics(|metrics| metrics.last_error().record(&error));
                if !error.is_told() {
                    tracing::warn!(ingest = self.name, %error, hint = error.hint, "the store does not answer, reading stops until it does");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    }
}
