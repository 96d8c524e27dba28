//! Publishes bad requests to `rejected`.

use std::collections::VecDeque;

use dwell_connectors::{Message, Outcome, Position};
use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock;
use crate::events::{JobEvent, Observer};
use crate::outgoing::Rejected;
use crate::reconnect::Backoff;
use crate::request::Rejection;
use crate::telemetry::PauseReason;

/// The most bad requests in flight, beside the window of the dispatcher. If a broker confirms fewer
/// within `publish_timeout`, the others are published again.
const MAX_CONCURRENT_REJECTIONS: usize = 256;

/// The bad requests of a batch, with their errors.
pub(super) type Rejections = Vec<(Message, Rejection)>;

/// A bad request in flight.
struct RejectionDelivery {
    position: Option<Position>,
    rejection: Rejection,
    rejected: Rejected,
    /// The first outcome, for the request as it came.
    invalid: String,
}

impl Ingest {
    /// Publishes bad requests to `rejected`, many at once. Repeats each until the broker takes it,
    /// and leaves out what the broker does not take. False if given up.
    pub(super) async fn reject(&self, rejections: Rejections, give_up: &CancellationToken) -> bool {
        let Some(rejections) = self.keep_returned(rejections, give_up).await else { return false };
        let capabilities = self.publisher.connector().capabilities();
        let attempt = |(request, rejection): (Message, Rejection)| RejectionDelivery {
            position: request.position.clone(),
            rejected: Rejected::new(request, &rejection, capabilities),
            rejection,
            invalid: String::new(),
        };
        let mut waiting: VecDeque<RejectionDelivery> =
            rejections.into_iter().map(attempt).collect();
        let mut backoff = Backoff::link();
        let mut paused = None;
        while !waiting.is_empty() {
            let now: Vec<RejectionDelivery> =
                waiting.drain(..waiting.len().min(MAX_CONCURRENT_REJECTIONS)).collect();
            let messages = now
                .iter()
                .map(|attempt| (self.rejected.clone(), attempt.rejected.message()))
                .collect();
            let outcomes = self.publisher.publish_all(messages).await;
            let mut refused = None;
            for (mut attempt, (outcome, _)) in now.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Confirmed | Outcome::Finished => {
                        self.was_rejected(&attempt);
                        continue;
                    }
                    Outcome::Invalid(why) if attempt.rejected.leave_out() => {
                        if attempt.invalid.is_empty() {
                            attempt.invalid = why;
                        }
                    }
                    outcome => refused = Some(outcome),
                }
                waiting.push_back(attempt);
            }
            let Some(outcome) = refused else { continue };
            if paused.is_none() {
                paused = Some(self.paused(PauseReason::Rejected));
                self.with_metrics(|metrics| {
                    metrics
                        .last_error()
                        .record(format!("`rejected` does not take messages: {outcome}"))
                });
                tracing::error!(ingest = self.name, rejected = %self.rejected, %outcome, "a bad request cannot be published to `rejected`; the ingest waits; create the destination or set ingest.declare = true");
            }
            tokio::select! {
                () = give_up.cancelled() => return false,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
        true
    }

    /// The request is in `rejected`.
    fn was_rejected(
        &self,
        RejectionDelivery { position, rejection, rejected, invalid }: &RejectionDelivery,
    ) {
        let left_out = rejected.left_out();
        self.apply.events.observe(&JobEvent::Rejected {
            ingest: &self.name,
            code: rejection.code.as_str(),
            left_out: left_out.as_deref().map(|parts| (parts, invalid.as_str())),
            position: position
                .as_ref()
                .map_or_else(Default::default, |position| (position.log.as_str(), position.offset)),
        });
    }
}
