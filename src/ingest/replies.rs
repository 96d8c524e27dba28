//! The verdicts of a batch, on their way to who asked for them.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Destination, Outcome};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::silent::Silent;
use crate::clock;
use crate::job::{Action, JobId};
use crate::outgoing;
use crate::publisher::{OVERSLEPT, Publisher};
use crate::reconnect::Backoff;
use crate::store::schedule::Answer;
use crate::telemetry::{IngestMetrics, PublishOutcome};

/// The most verdicts that are waited for at once: they stand beside the window of the dispatcher.
const REPLIES: usize = 128;
/// How often a verdict is published that the broker did not take.
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

/// A verdict that is being published.
struct Attempt {
    reply: Reply,
    tries_left: usize,
    /// How long its outcomes took until now.
    waited: Duration,
    /// This process stood still meanwhile.
    has_overslept: bool,
    /// An outcome was unknown.
    was_doubted: bool,
    /// Nobody waits for it.
    is_aside: bool,
}

impl Attempt {
    fn first(reply: Reply) -> Self {
        Attempt { reply, tries_left: REPLY_TRIES, waited: Duration::ZERO, has_overslept: false, was_doubted: false, is_aside: false }
    }
}

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
    /// after the other would stop the ingest. Where one was waited for in vain nobody waits for the next: one queue that stands still
    /// would stop the ingest too. What was not taken is tried again, and once what may not have been (the link broke, this process stood still): a
    /// verdict that comes twice says the same. One that cannot be delivered is counted and said, and the request acknowledged all the same.
    pub(super) async fn reply(&self, mut replies: Replies, give_up: &CancellationToken) {
        while !replies.is_empty() {
            let now = replies.drain(..replies.len().min(REPLIES)).map(Attempt::first);
            let (silent, now): (Vec<Attempt>, Vec<Attempt>) = now.partition(|attempt| self.silent.is(&attempt.reply.to));
            self.set_aside(silent, give_up);
            let silent = self.deliver(now, give_up, true).await;
            self.set_aside(silent, give_up);
        }
    }

    /// Goes on with these while nobody waits for them.
    fn set_aside(&self, attempts: Vec<Attempt>, give_up: &CancellationToken) {
        let aside = attempts.into_iter().map(|attempt| Attempt { is_aside: true, ..attempt });
        let (attempts, surplus): (Vec<Attempt>, Vec<Attempt>) = aside.partition(|_| self.silent.begin());
        for attempt in surplus {
            self.ended(&attempt, &Outcome::Refused("too many verdicts wait for a confirm".to_owned()));
        }
        if attempts.is_empty() {
            return;
        }
        let (replier, give_up) = (self.clone(), give_up.clone());
        self.aside.spawn(async move {
            replier.deliver(attempts, &give_up, false).await;
        });
    }

    /// Waits for those that nobody waited for.
    pub(super) async fn end(&self, give_up: &CancellationToken) {
        self.aside.close();
        if give_up.run_until_cancelled(self.aside.wait()).await.is_some() {
            return;
        }
        let count = self.silent.under_way();
        for _ in 0..count {
            if let Some(metrics) = &self.metrics {
                metrics.reply(PublishOutcome::Unknown);
            }
        }
        if count > 0 {
            tracing::warn!(ingest = &*self.ingest, count, "verdicts have no confirm at the end, nobody knows whether they were delivered");
        }
    }

    /// Until each has its outcome; gives back those whose destination takes nothing in time, if nobody is to wait for such.
    async fn deliver(&self, mut attempts: Vec<Attempt>, give_up: &CancellationToken, leave_silent: bool) -> Vec<Attempt> {
        let mut left = Vec::new();
        if attempts.is_empty() {
            return left;
        }
        // A broker that was away is read again before it is published to, or the other way round: each link comes back by itself.
        give_up.run_until_cancelled(self.publisher.until_connected()).await;
        let mut backoff = Backoff::link();
        loop {
            attempts = self.publish(attempts, give_up.is_cancelled()).await;
            if leave_silent {
                left.extend(attempts.extract_if(.., |attempt| self.silent.is(&attempt.reply.to)));
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

    /// Once: gives back those that are to be tried again.
    async fn publish(&self, attempts: Vec<Attempt>, is_last: bool) -> Vec<Attempt> {
        let verdict = |Attempt { reply, .. }: &Attempt| (reply.to.clone(), outgoing::verdict(&reply.id, reply.action, reply.answer));
        let outcomes = self.publisher.publish_all(attempts.iter().map(verdict).collect()).await;
        let timeout = self.publisher.publish_timeout();
        let mut again = Vec::new();
        for (mut attempt, (outcome, took)) in attempts.into_iter().zip(outcomes) {
            attempt.tries_left -= 1;
            // The publisher keeps the timeout. A process that stood still waited for itself; where that comes again, something else stands still.
            if took >= timeout + OVERSLEPT && !attempt.has_overslept {
                attempt.has_overslept = true;
            } else {
                attempt.waited += took;
            }
            let is_new_doubt = matches!(outcome, Outcome::Unknown(_)) && !attempt.was_doubted;
            attempt.was_doubted |= is_new_doubt;
            // A link that breaks answers sooner, and so does a broker that refuses: they hold nothing up.
            let in_vain = attempt.waited >= timeout / 2;
            if self.silent.heard(&attempt.reply.to, &outcome, in_vain) {
                tracing::warn!(ingest = &*self.ingest, to = %attempt.reply.to, "nothing is confirmed there, requests do not wait for their verdicts there");
            }
            let may_be_missing = matches!(outcome, Outcome::Refused(_)) || (is_new_doubt && !in_vain);
            if !is_last && attempt.tries_left > 0 && may_be_missing {
                again.push(attempt);
            } else {
                self.ended(&attempt, &outcome);
                if attempt.is_aside {
                    self.silent.end();
                }
            }
        }
        again
    }

    /// Counts a verdict, and says where it could not be delivered.
    fn ended(&self, Attempt { reply, is_aside, .. }: &Attempt, outcome: &Outcome) {
        if let Some(metrics) = &self.metrics {
            metrics.reply(PublishOutcome::from(outcome));
        }
        if *is_aside && self.silent.is(&reply.to) {
            // That was said as the silence began, with those that were waited for.
            tracing::debug!(ingest = &*self.ingest, id = %reply.id, to = %reply.to, ?outcome, "the verdict could not be delivered");
        } else if *outcome != Outcome::Confirmed {
            tracing::warn!(ingest = &*self.ingest, id = %reply.id, to = %reply.to, ?outcome, "the verdict could not be delivered");
        }
    }
}
