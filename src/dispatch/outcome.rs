//! Decides how a publication's outcome settles its job.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Outcome, Token};

use super::attempt::{AttemptRules, Unconfirmed};
use super::destinations::Destinations;
use super::settle_queue::Settlement;
use super::shares::{QUICK_RESPONSE_LIMIT, Response};
use crate::clock::{Instant, micros, whole_ms};
use crate::policy::Fate;
use crate::policy::attempt::{self, AttemptResult, Conclusion};
use crate::store::Store;
use crate::store::queue::claim::ClaimedJob;
use crate::telemetry::{BrokerMetrics, DuplicateCause, Metrics, PublishOutcome};

/// Concludes the publications of one broker.
pub(super) struct Outcomes {
    store: Arc<Store>,
    broker: Arc<str>,
    rules: Arc<AttemptRules>,
    metrics: Metrics,
    broker_metrics: Option<BrokerMetrics>,
}

impl Outcomes {
    pub(super) fn new(
        store: Arc<Store>,
        broker: Arc<str>,
        rules: Arc<AttemptRules>,
        metrics: Metrics,
        broker_metrics: Option<BrokerMetrics>,
    ) -> Self {
        Outcomes { store, broker, rules, metrics, broker_metrics }
    }

    /// Passes the outcome to `destinations`, and returns how to settle the job; `None` if the lease
    /// has expired.
    pub(super) fn conclude(
        &self,
        mut publication: Unconfirmed,
        token: Token,
        outcome: Outcome,
        now: Instant,
        destinations: &mut Destinations,
    ) -> Option<Settlement> {
        let (span, name) =
            (std::mem::take(&mut publication.span), PublishOutcome::from(&outcome).as_str());
        match outcome.error() {
            None => span.succeeded(name),
            Some(why) => span.failed(name, destinations.why(why)),
        }
        let lease = &publication.lease;
        let to = self.rules.destination(lease);
        let (took, had_time) =
            (now.duration_since(publication.published), self.had_time(&publication));
        let response = match &outcome {
            Outcome::Confirmed | Outcome::Finished => Response::Confirmed(took),
            Outcome::Unknown(_) if had_time => Response::Unknown,
            Outcome::Failed(_) if had_time && took >= QUICK_RESPONSE_LIMIT => Response::Unknown,
            // The job's own time was over.
            Outcome::Failed(_) if !had_time && now >= publication.deadline => Response::Nothing,
            Outcome::Throttled { .. }
            | Outcome::Failed(_)
            | Outcome::Invalid(_)
            | Outcome::Unroutable(_) => Response::Answered(took),
            Outcome::Unknown(_) | Outcome::Refused(_) => Response::Nothing,
        };
        destinations.responded(to, lease.size, response, now);
        let pause = if lease.state.reason.is_some() {
            // A dead letter pauses no destination, but this one may have been the probe of a pause.
            destinations.inconclusive(to, token);
            if let Some(why) = outcome.error() {
                tracing::warn!(
                    id = %lease.id, broker = &*self.broker, outcome = name, why = destinations.why(why),
                    "the broker did not take the dead letter; the job stays among the dead in redis"
                );
            }
            Duration::ZERO
        } else {
            self.judge(&publication, token, &outcome, now, destinations)
        };
        self.settlement(publication, outcome, whole_ms(pause), now, destinations)
    }

    /// Counts the outcome of an attempt, and pauses its destination or not. Returns the pause of a
    /// job that its destination did not take.
    fn judge(
        &self,
        publication: &Unconfirmed,
        token: Token,
        outcome: &Outcome,
        now: Instant,
        destinations: &mut Destinations,
    ) -> Duration {
        let lease = &publication.lease;
        let to = self.rules.destination(lease);
        let (took, had_time) =
            (now.duration_since(publication.published), self.had_time(publication));
        if let Some(metrics) = &self.broker_metrics {
            metrics.publish(PublishOutcome::from(outcome), 1);
            if let Some(why) = outcome.error() {
                metrics.last_error().record(format_args!(
                    "{}: {}",
                    destinations.shown(to),
                    destinations.why(why)
                ));
            }
        }
        match outcome {
            Outcome::Confirmed | Outcome::Finished => {
                self.metrics.confirm(took);
                if lease.state.attempt == 1 {
                    self.metrics.lateness(micros(
                        self.store.now_us().saturating_sub(lease.state.due_ms.saturating_mul(1000)),
                    ));
                }
            }
            Outcome::Refused(why) => {
                let pause = destinations.refused(to, token, took, now);
                let (noun, why) = (destinations.words().0, destinations.why(why));
                tracing::debug!(id = %lease.id, broker = &*self.broker, why, ?pause, "refused, the {noun} is paused");
                return pause;
            }
            Outcome::Throttled { why, wait } => {
                let pause = destinations.throttled(to, *wait, now);
                let (noun, why) = (destinations.words().0, destinations.why(why));
                tracing::debug!(id = %lease.id, broker = &*self.broker, why, ?pause, "throttled, the {noun} is paused");
                return pause;
            }
            Outcome::Invalid(_) => destinations.inconclusive(to, token),
            // The job's own time was over: mostly, the destination was not reached.
            Outcome::Failed(_) if now >= publication.deadline && !had_time => {
                destinations.inconclusive(to, token);
            }
            // A destination that fails late holds its places in the window for as long as one that
            // does not answer.
            Outcome::Failed(why) if took >= QUICK_RESPONSE_LIMIT => {
                destinations.unknown(to, token, false, now, why);
            }
            Outcome::Unroutable(_) | Outcome::Failed(_) => destinations.answered(to, token, now),
            // This process was suspended.
            Outcome::Unknown(why) if now > lease.deadline => {
                tracing::debug!(
                    id = %lease.id, broker = &*self.broker, why = destinations.why(why),
                    "the outcome came after the end of the lease, another instance takes the job over"
                );
                destinations.inconclusive(to, token);
                self.metrics.leases_lost(1);
            }
            Outcome::Unknown(why) => {
                if had_time {
                    destinations.unknown(to, token, now < publication.deadline, now, why);
                } else {
                    destinations.inconclusive(to, token);
                }
                self.metrics.possible_duplicates(DuplicateCause::UnknownOutcome, 1);
            }
        }
        Duration::ZERO
    }

    /// How to settle the job; `None` if another instance takes the job over. `pause_ms`: the wait
    /// of a job that its destination did not take.
    fn settlement(
        &self,
        publication: Unconfirmed,
        outcome: Outcome,
        pause_ms: u64,
        now: Instant,
        destinations: &Destinations,
    ) -> Option<Settlement> {
        let ClaimedJob { id, token, deadline, state, record, .. } = *publication.lease;
        let result = match outcome {
            Outcome::Confirmed => AttemptResult::Confirmed,
            Outcome::Finished => AttemptResult::Finished,
            Outcome::Refused(_) | Outcome::Throttled { .. } => AttemptResult::Refused,
            Outcome::Invalid(why) => AttemptResult::Invalid(why),
            Outcome::Unroutable(why) | Outcome::Failed(why) => AttemptResult::Failed(why),
            Outcome::Unknown(_) if now > deadline => AttemptResult::Expired,
            Outcome::Unknown(why) => AttemptResult::Unknown(why),
        };
        let retry_ms = &self.rules.delivery.retry_ms;
        let fate = match attempt::concluded(&record.job, state.progress(), result, retry_ms) {
            Conclusion::Complete => return Some(Settlement::Complete(token)),
            Conclusion::Hold { ttr_ms } => return Some(Settlement::Hold(token, ttr_ms)),
            Conclusion::Leave => return None,
            Conclusion::Settle(fate) => fate,
        };
        let (broker, attempt) = (&*self.broker, state.attempt);
        match &fate {
            Fate::Retry { wait_ms, error } => {
                let why = destinations.why(error);
                tracing::debug!(%id, broker, attempt, why, wait_ms, "the attempt failed");
            }
            Fate::Die { reason, error, .. } => {
                let (why, reason) = (destinations.why(error), reason.as_str());
                tracing::debug!(%id, broker, attempt, why, reason, "the attempt failed, the job dies");
            }
            Fate::Release { .. } | Fate::Bury { .. } | Fate::Drop => {}
        }
        Some(Settlement::of(fate, token, pause_ms))
    }

    /// Whether a healthy destination would have confirmed in time: a job's time to run may be
    /// shorter than the round trip.
    fn had_time(&self, publication: &Unconfirmed) -> bool {
        publication.deadline - publication.published
            >= self.rules.publish_timeout().min(QUICK_RESPONSE_LIMIT)
    }
}
