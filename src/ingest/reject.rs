//! Publishes bad requests to `rejected`.

use dwell_connectors::{Message, Outcome};
use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock;
use crate::outgoing::Rejected;
use crate::reconnect::Backoff;
use crate::request::Rejection;
use crate::telemetry::{IngestResult, PauseReason};

impl Ingest {
    /// Publishes a bad request to `rejected`, as often as it takes, and as much of it as the broker takes; false when given up.
    pub(super) async fn reject(&self, request: Message, rejection: &Rejection, give_up: &CancellationToken) -> bool {
        let position = request.position.clone();
        let mut rejected = Rejected::new(request, rejection, self.publisher.kind());
        let mut backoff = Backoff::link();
        let mut paused = None;
        // What the broker said to the request as it came.
        let mut invalid = String::new();
        loop {
            let outcome = self.publisher.publish_one(self.rejected.clone(), rejected.message()).await;
            match outcome {
                Outcome::Confirmed => break,
                Outcome::Invalid(why) if rejected.leave_out() => {
                    if invalid.is_empty() {
                        invalid = why;
                    }
                    continue;
                }
                outcome if paused.is_none() => {
                    paused = Some(self.paused(PauseReason::Rejected));
                    self.tell(|metrics| metrics.last_error().met(format!("`rejected` takes no messages: {outcome:?}")));
                    tracing::error!(ingest = self.name, rejected = %self.rejected, ?outcome, "a bad request cannot be published to `rejected`: the ingest waits until it can; make the destination, or set ingest.declare = true");
                }
                _ => {}
            }
            tokio::select! {
                () = give_up.cancelled() => break,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
        if give_up.is_cancelled() && paused.is_some() {
            return false;
        }
        let code = rejection.code.as_str();
        if let Some(left_out) = rejected.left_out() {
            let (log, offset) = position.map_or_else(Default::default, |position| (position.log, position.offset));
            tracing::warn!(
                ingest = self.name,
                log,
                offset,
                code,
                left_out,
                why = invalid,
                "a bad request was published to `rejected` without what the broker does not take"
            );
        }
        tracing::debug!(ingest = self.name, code, detail = rejection.detail, "rejected");
        self.count(IngestResult::Rejected, 1);
        true
    }
}
