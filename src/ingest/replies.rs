//! The verdicts of a batch, on their way to who asked for them.

use std::sync::Arc;

use dwell_connectors::{Destination, Outcome};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::silent::Silent;
use crate::clock;
use crate::job::{Action, JobId};
use crate::outgoing;
use crate::publisher::Publisher;
use crate::reconnect::Backoff;
use crate::store::inbound::Answer;
use crate::telemetry::{IngestMetrics, PublishOutcome};

/// The most verdicts that are waited for at once: they stand beside the window of the dispatcher.
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

/// Publishes verdicts.
#[derive(Clone)]
pub(super) struct Replier {
    ingest: Arc<str>,
    publisher: Publisher,
    metrics: Option<IngestMetrics>,
    silent: Arc<Silent>,
    /// Those that nobody waits for.
    aside: TaskTracker,
}

impl Replier {
    pub(super) fn new(ingest: &str, publisher: Publisher, metrics: Option<IngestMetrics>) -> Self {
        Replier { ingest: ingest.into(), publisher, metrics, silent: Arc::default(), aside: TaskTracker::new() }
    }

    /// Publishes the verdicts where they were asked for, many at once: a confirm may take as long as the publish timeout, and those of a batch one
    /// after the other would stop the ingest. Where the last one was not confirmed in time nobody waits for the next: one queue that stands still
    /// would stop the ingest too. What was surely not taken is tried again. One that cannot be delivered is counted and said, and the request
    /// acknowledged all the same.
    pub(super) async fn reply(&self, mut replies: Replies, give_up: &CancellationToken) {
        while !replies.is_empty() {
            let now = replies.drain(..replies.len().min(REPLIES));
            let (silent, now): (Replies, Replies) = now.partition(|reply| self.silent.is(&reply.to));
            let (silent, surplus): (Replies, Replies) = silent.into_iter().partition(|_| self.silent.begin());
            for reply in surplus {
                self.ended(&reply, &Outcome::Refused("too many verdicts wait for a confirm".to_owned()));
            }
            if !silent.is_empty() {
                let (replier, give_up, count) = (self.clone(), give_up.clone(), silent.len());
                self.aside.spawn(async move {
                    replier.deliver(silent, &give_up).await;
                    replier.silent.end(count);
                });
            }
            self.deliver(now, give_up).await;
        }
    }

    /// Waits for those that nobody waited for.
    pub(super) async fn end(&self, give_up: &CancellationToken) {
        self.aside.close();
        give_up.run_until_cancelled(self.aside.wait()).await;
    }

    /// Until each has its outcome.
    async fn deliver(&self, mut replies: Replies, give_up: &CancellationToken) {
        if replies.is_empty() {
            return;
        }
        // A broker that was away is read again before it is published to, or the other way round: each link comes back by itself.
        give_up.run_until_cancelled(self.publisher.until_connected()).await;
        let mut backoff = Backoff::link();
        for tries_left in (0..REPLY_TRIES).rev() {
            let is_last = tries_left == 0 || give_up.is_cancelled();
            replies = self.publish(replies, is_last).await;
            if replies.is_empty() {
                break;
            }
            let again = async {
                clock::sleep(backoff.pause()).await;
                self.publisher.until_back().await;
            };
            give_up.run_until_cancelled(again).await;
        }
    }

    /// Once: gives back those that were surely not taken, but for the last time.
    async fn publish(&self, replies: Replies, is_last: bool) -> Replies {
        let verdicts = replies.iter().map(|reply| (reply.to.clone(), outgoing::verdict(&reply.id, reply.action, reply.answer)));
        let begun = clock::now();
        let outcomes = self.publisher.publish_all(verdicts.collect()).await;
        // A link that breaks answers sooner, and so does a broker that refuses: they hold nothing up.
        let in_vain = begun.elapsed() >= self.publisher.publish_timeout() / 2;
        let mut refused = Replies::new();
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            if !is_last && matches!(outcome, Outcome::Refused(_)) {
                refused.push(reply);
                continue;
            }
            if self.silent.heard(&reply.to, &outcome, in_vain) {
                tracing::warn!(ingest = &*self.ingest, to = %reply.to, "nothing is confirmed there, requests do not wait for their verdicts there");
            }
            self.ended(&reply, &outcome);
        }
        refused
    }

    /// Counts a verdict, and says where it could not be delivered.
    fn ended(&self, reply: &Reply, outcome: &Outcome) {
        if let Some(metrics) = &self.metrics {
            metrics.reply(PublishOutcome::from(outcome));
        }
        if self.silent.is(&reply.to) {
            // One line was said, as the silence began.
            tracing::debug!(ingest = &*self.ingest, id = %reply.id, to = %reply.to, ?outcome, "the verdict could not be delivered");
        } else if *outcome != Outcome::Confirmed {
            tracing::warn!(ingest = &*self.ingest, id = %reply.id, to = %reply.to, ?outcome, "the verdict could not be delivered");
        }
    }
}
