//! Notices that the store does not answer this instance any more, and waits until it does.
//!
//! Others may still reach it. So what was read is given back after `hold`, and nothing is read until the store answers: to read on would be to take from
//! the others, and to give back again, until a broker that counts deliveries drops what it delivered too often. Both are decided by the same question,
//! so that no instance goes back and forth.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock::{self, Instant};
use crate::reconnect::{Backoff, jitter};
use crate::telemetry::{PauseReason, Paused};

/// How often the store is asked while nobody met trouble: an instance that has nothing to store must notice too.
const LOOK: Duration = Duration::from_secs(5);
/// So long an answer may take at least, however short `hold` is: with `appendfsync everysec` a good one takes a second.
const ANSWER: Duration = Duration::from_secs(3);
/// How often it is asked once it did not answer.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Ingest {
    /// Waits until the store has not answered for `hold`.
    pub(super) async fn cut_off(&self) {
        let hold = Duration::from_millis(self.rules.ingest.hold_ms);
        let mut silent_since: Option<Instant> = None;
        loop {
            let asked = clock::now();
            let left = hold.saturating_sub(silent_since.map_or(Duration::ZERO, |since| asked.duration_since(since)));
            match clock::timeout(left.max(ANSWER), self.apply.store.takes_requests()).await {
                Some(Ok(())) => silent_since = None,
                Some(Err(_)) | None => {
                    if silent_since.get_or_insert(asked).elapsed() >= hold {
                        return;
                    }
                }
            }
            match silent_since {
                Some(since) => clock::sleep(jitter(LOOK_AGAIN).min(hold.saturating_sub(since.elapsed()))).await,
                // Sooner where a request is held.
                None => {
                    let _ = clock::timeout(jitter(LOOK), self.trouble.notified()).await;
                }
            }
        }
    }

    /// Waits until the store answers; false where told to stop before. `paused` says meanwhile that nothing is read.
    pub(super) async fn until_answered(&self, stop: &CancellationToken, mut paused: Option<Paused>) -> bool {
        let mut backoff = Backoff::link();
        loop {
            let error = tokio::select! {
                () = stop.cancelled() => return false,
                answer = self.apply.store.takes_requests() => match answer {
                    Ok(()) => return true,
                    Err(error) => error,
                },
            };
            if paused.is_none() {
                paused = Some(self.paused(PauseReason::Redis));
                self.tell(|metrics| metrics.last_error().met(&error));
                tracing::warn!(ingest = self.name, %error, hint = error.hint, "the store does not answer, nothing is read until it does");
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    }
}
