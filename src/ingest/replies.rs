//! The verdicts of a batch, on their way to who asked for them.

use dwell_connectors::{Destination, Outcome};
use tokio_util::sync::CancellationToken;

use super::Ingest;
use crate::clock;
use crate::job::{Action, JobId};
use crate::outgoing;
use crate::reconnect::Backoff;
use crate::store::inbound::Answer;
use crate::telemetry::PublishOutcome;

/// The most verdicts that are on their way at once: they stand beside the window of the dispatcher.
const REPLIES: usize = 128;
/// How often a verdict is published that the broker surely did not take.
const REPLY_TRIES: usize = 4;

/// A verdict that somebody asked for.
pub(super) struct Reply {
    pub(super) to: Destination,
    pub(super) id: JobId,
    pub(super) action: Action,
    pub(super) answer: Answer,
}

/// Those of a batch.
pub(super) type Replies = Vec<Reply>;

impl Ingest {
    /// Publishes the verdicts where they were asked for, many at once: a confirm may take as long as the publish timeout, and those of a batch one
    /// after the other would stop the ingest. What was surely not taken is tried again. One that cannot be delivered is counted and said, and the
    /// request acknowledged all the same.
    pub(super) async fn reply(&self, mut replies: Replies, give_up: &CancellationToken) {
        while !replies.is_empty() {
            let mut now: Replies = replies.drain(..replies.len().min(REPLIES)).collect();
            // A broker that was away is read again before it is published to, or the other way round: each link comes back by itself.
            give_up.run_until_cancelled(self.publisher.until_connected()).await;
            let mut backoff = Backoff::link();
            for tries_left in (0..REPLY_TRIES).rev() {
                let is_last = tries_left == 0 || give_up.is_cancelled();
                now = self.publish_verdicts(now, is_last).await;
                if now.is_empty() {
                    break;
                }
                let again = async {
                    clock::sleep(backoff.pause()).await;
                    self.publisher.until_back().await;
                };
                give_up.run_until_cancelled(again).await;
            }
        }
    }

    /// Once: gives back those that were surely not taken, but for the last time.
    async fn publish_verdicts(&self, replies: Replies, is_last: bool) -> Replies {
        let verdicts = replies.iter().map(|reply| (reply.to.clone(), outgoing::verdict(&reply.id, reply.action, reply.answer)));
        let outcomes = self.publisher.publish_all(verdicts.collect()).await;
        let mut refused = Replies::new();
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            if !is_last && matches!(outcome, Outcome::Refused(_)) {
                refused.push(reply);
                continue;
            }
            if let Some(metrics) = &self.of_ingest {
                metrics.reply(PublishOutcome::from(&outcome));
            }
            if outcome != Outcome::Confirmed {
                tracing::warn!(ingest = self.name, id = %reply.id, to = %reply.to, ?outcome, "the verdict could not be delivered");
            }
        }
        refused
    }
}
