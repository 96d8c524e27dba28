//! Publishes bad requests to `rejected`.

use std::collections::VecDeque;

use dwell_connectors::{Message, Outcome, Position};
use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock;
use crate::outgoing::Rejected;
use crate::reconnect::Backoff;
use crate::request::Rejection;
use crate::telemetry::{IngestResult, PauseReason};

/// The most bad requests that are on their way at once: they stand beside the window of the dispatcher. A broker that confirms fewer within
/// `publish_timeout` gets those again that it did not confirm.
const AT_ONCE: usize = 256;

/// The bad requests of a batch, each with what is wrong with it.
pub(super) type Rejections = Vec<(Message, Rejection)>;

/// A bad request on its way.
struct Attempt {
    position: Option<Position>,
    rejection: Rejection,
    rejected: Rejected,
    /// What the broker said to the request as it came.
    invalid: String,
}

impl Ingest {
    /// Publishes bad requests to `rejected`, many at once, each as often as it takes, and as much of it as the broker takes; false when given up.
    pub(super) async fn reject(&self, rejections: Rejections, give_up: &CancellationToken) -> bool {
        let Some(rejections) = self.keep_returned(rejections, give_up).await else { return false };
        let capabilities = self.publisher.connector().capabilities();
        let attempt = |(request, rejection): (Message, Rejection)| Attempt {
            position: request.position.clone(),
            rejected: Rejected::new(request, &rejection, capabilities),
            rejection,
            invalid: String::new(),
        };
        let mut waiting: VecDeque<Attempt> = rejections.into_iter().map(attempt).collect();
        let mut backoff = Backoff::link();
        let mut paused = None;
        while !waiting.is_empty() {
            let now: Vec<Attempt> = waiting.drain(..waiting.len().min(AT_ONCE)).collect();
            let messages = now.iter().map(|attempt| (self.rejected.clone(), attempt.rejected.message())).collect();
            let outcomes = self.publisher.publish_all(messages).await;
            let mut refused = None;
            for (mut attempt, (outcome, _)) in now.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Confirmed => {
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
                self.tell(|metrics| metrics.last_error().met(format!("`rejected` takes no messages: {outcome}")));
                tracing::error!(ingest = self.name, rejected = %self.rejected, %outcome, "a bad request cannot be published to `rejected`: the ingest waits until it can; make the destination, or set ingest.declare = true");
            }
            tokio::select! {
                () = give_up.cancelled() => return false,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
        true
    }

    /// `rejected` has it.
    fn was_rejected(&self, Attempt { position, rejection, rejected, invalid }: &Attempt) {
        let code = rejection.code.as_str();
        if let Some(left_out) = rejected.left_out() {
            let (log, offset) = position.as_ref().map_or_else(Default::default, |position| (position.log.as_str(), position.offset));
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
    }
}
