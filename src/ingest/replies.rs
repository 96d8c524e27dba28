//! Publishes the verdicts of a batch to their reply targets.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Destination, Outcome};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::unresponsive::UnresponsiveTargets;
use crate::clock;
use crate::events::{JobEvent, Observer};
use crate::job::{Action, JobId};
use crate::outgoing;
use crate::publisher::{Publisher, SUSPENSION_THRESHOLD};
use crate::reconnect::Backoff;
use crate::store::jobs::batch::Answer;
use crate::telemetry::{Events, publish_outcome};

/// The most verdicts whose confirms are awaited at once, beside the window of the dispatcher.
const MAX_CONCURRENT_REPLIES: usize = 128;
/// The most tries to publish a verdict that the broker did not take.
const MAX_REPLY_TRIES: usize = 4;

/// A requested verdict.
pub(super) struct Reply {
    pub(super) to: Destination,
    pub(super) id: JobId,
    pub(super) action: Action,
    pub(super) answer: Answer,
}

/// The verdicts of a batch.
pub(super) type Replies = Vec<Reply>;

/// A verdict that is being published.
struct ReplyDelivery {
    reply: Reply,
    tries_left: usize,
    /// The time that its outcomes took so far.
    waited: Duration,
    /// This process was suspended meanwhile.
    was_suspended: bool,
    /// An outcome was unknown.
    was_unknown: bool,
    /// No request waits for it.
    in_background: bool,
}

impl ReplyDelivery {
    fn first(reply: Reply) -> Self {
        ReplyDelivery {
            reply,
            tries_left: MAX_REPLY_TRIES,
            waited: Duration::ZERO,
            was_suspended: false,
            was_unknown: false,
            in_background: false,
        }
    }
}

/// Publishes verdicts.
#[derive(Clone)]
pub(super) struct Replier {
    ingest: Arc<str>,
    publisher: Publisher,
    events: Events,
    unresponsive: Arc<UnresponsiveTargets>,
    /// Verdicts that no request waits for.
    background: TaskTracker,
}

impl Replier {
    pub(super) fn new(ingest: &str, publisher: Publisher, events: Events) -> Self {
        Replier {
            ingest: ingest.into(),
            publisher,
            events,
            unresponsive: Arc::default(),
            background: TaskTracker::new(),
        }
    }

    /// Publishes the verdicts, many at once: a confirm may take as long as the publish timeout, and
    /// one at a time would block the ingest. After a target has timed out, requests do not wait for
    /// their verdicts there: one hanging queue would block the ingest, too. A refused verdict is
    /// published again, and an unknown one (connection lost, process suspended) once more: a
    /// duplicate verdict says the same. A verdict that cannot be delivered is counted and logged,
    /// and the request acknowledged all the same.
    pub(super) async fn reply(&self, mut replies: Replies, give_up: &CancellationToken) {
        while !replies.is_empty() {
            let now = replies
                .drain(..replies.len().min(MAX_CONCURRENT_REPLIES))
                .map(ReplyDelivery::first);
            let (silent, now): (Vec<ReplyDelivery>, Vec<ReplyDelivery>) =
                now.partition(|attempt| self.unresponsive.contains(&attempt.reply.to));
            self.publish_in_background(silent, give_up);
            let silent = self.deliver(now, give_up, true).await;
            self.publish_in_background(silent, give_up);
        }
    }

    /// Publishes these without blocking the requests.
    fn publish_in_background(&self, attempts: Vec<ReplyDelivery>, give_up: &CancellationToken) {
        let background =
            attempts.into_iter().map(|attempt| ReplyDelivery { in_background: true, ..attempt });
        let (attempts, surplus): (Vec<ReplyDelivery>, Vec<ReplyDelivery>) =
            background.partition(|_| self.unresponsive.start());
        for attempt in surplus {
            self.ended(
                &attempt,
                &Outcome::Refused("too many verdicts wait for their confirms".to_owned()),
            );
        }
        if attempts.is_empty() {
            return;
        }
        let (replier, give_up) = (self.clone(), give_up.clone());
        self.background.spawn(async move {
            replier.deliver(attempts, &give_up, false).await;
        });
    }

    /// Waits for the verdicts that no request waited for.
    pub(super) async fn end(&self, give_up: &CancellationToken) {
        self.background.close();
        if give_up.run_until_cancelled(self.background.wait()).await.is_some() {
            return;
        }
        let count = self.unresponsive.in_flight() as u64;
        if count > 0 {
            self.events.observe(&JobEvent::RepliesAbandoned { ingest: &self.ingest, count });
        }
    }

    /// Waits until each has its outcome. Returns those whose target does not respond in time, if
    /// nobody is to wait for them.
    async fn deliver(
        &self,
        mut attempts: Vec<ReplyDelivery>,
        give_up: &CancellationToken,
        leave_unresponsive: bool,
    ) -> Vec<ReplyDelivery> {
        let mut left = Vec::new();
        if attempts.is_empty() {
            return left;
        }
        // Reading may resume before publishing after an outage: each connection comes back by
        // itself.
        give_up.run_until_cancelled(self.publisher.until_connected()).await;
        let mut backoff = Backoff::link();
        loop {
            attempts = self.publish(attempts, give_up.is_cancelled()).await;
            if leave_unresponsive {
                left.extend(
                    attempts
                        .extract_if(.., |attempt| self.unresponsive.contains(&attempt.reply.to)),
                );
            }
            if attempts.is_empty() {
                return left;
            }
            let again = async {
                clock::sleep(backoff.pause()).await;
                self.publisher.until_back().await;
            };
            give_up.run_until_cancelled(again).await;
        }
    }

    /// Publishes once. Returns those to try again.
    async fn publish(&self, attempts: Vec<ReplyDelivery>, is_last: bool) -> Vec<ReplyDelivery> {
        let verdict = |ReplyDelivery { reply, .. }: &ReplyDelivery| {
            (reply.to.clone(), outgoing::verdict(&reply.id, reply.action, reply.answer))
        };
        let outcomes = self.publisher.publish_all(attempts.iter().map(verdict).collect()).await;
        let timeout = self.publisher.publish_timeout();
        let mut again = Vec::new();
        for (mut attempt, (outcome, took)) in attempts.into_iter().zip(outcomes) {
            attempt.tries_left -= 1;
            // The publisher keeps the timeout. A wait that is much longer means that this process
            // was suspended; a second one has another cause.
            if took >= timeout + SUSPENSION_THRESHOLD && !attempt.was_suspended {
                attempt.was_suspended = true;
            } else {
                attempt.waited += took;
            }
            let is_first_unknown = matches!(outcome, Outcome::Unknown(_)) && !attempt.was_unknown;
            attempt.was_unknown |= is_first_unknown;
            // A lost connection and a refusing broker answer sooner: they block nothing.
            let timed_out = attempt.waited >= timeout / 2;
            if self.unresponsive.record(&attempt.reply.to, &outcome, timed_out) {
                tracing::warn!(ingest = &*self.ingest, to = %attempt.reply.to, "the reply target timed out, requests no longer wait for its confirms");
            }
            let may_be_missing =
                matches!(outcome, Outcome::Refused(_)) || (is_first_unknown && !timed_out);
            if !is_last && attempt.tries_left > 0 && may_be_missing {
                again.push(attempt);
            } else {
                self.ended(&attempt, &outcome);
                if attempt.in_background {
                    self.unresponsive.finish();
                }
            }
        }
        again
    }

    /// A verdict has its last outcome.
    fn ended(&self, ReplyDelivery { reply, in_background, .. }: &ReplyDelivery, outcome: &Outcome) {
        self.events.observe(&JobEvent::Replied {
            ingest: &self.ingest,
            id: &reply.id,
            to: &reply.to,
            outcome: publish_outcome(outcome),
            answer: outcome,
            is_told: *in_background && self.unresponsive.contains(&reply.to),
        });
    }
}
