//! Decides how a publication's outcome settles its job.

use std::sync::Arc;

use dwell_connectors::{Outcome, Token};

use super::attempt::{AttemptRules, Unconfirmed};
use super::destinations::Destinations;
use super::settle_queue::Settlement;
use super::shares::{QUICK_RESPONSE_LIMIT, Response};
use crate::clock::{Instant, micros, whole_ms};
use crate::job::{Confirm, DeadReason};
use crate::retry::{self, Next};
use crate::store::Store;
use crate::store::queue::claim::ClaimedJob;
use crate::store::queue::settle::{Bury, Release, Retry};
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
        if let Some(reason) = lease.state.reason {
            // A dead letter pauses no destination, but this one may have been the probe of a pause.
            destinations.inconclusive(to, token);
            if let Some(why) = outcome.error() {
                tracing::warn!(
                    id = %lease.id, broker = &*self.broker, outcome = name, why = destinations.why(why),
                    "the broker did not take the dead letter; the job stays among the dead in redis"
                );
            }
            return Some(Settlement::Bury(Bury {
                job: publication.held(),
                reason,
                error: lease.state.last_error.clone(),
            }));
        }
        if let Some(metrics) = &self.broker_metrics {
            metrics.publish(PublishOutcome::from(&outcome), 1);
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
                let ClaimedJob { token, record, .. } = *publication.lease;
                Some(match record.job.confirm {
                    Confirm::Consumer if outcome == Outcome::Confirmed => {
                        Settlement::Hold(token, record.job.ttr_ms)
                    }
                    Confirm::Broker | Confirm::Consumer => Settlement::Complete(token),
                })
            }
            Outcome::Refused(why) => {
                let pause = destinations.refused(to, token, took, now);
                let (noun, why) = (destinations.words().0, destinations.why(&why));
                tracing::debug!(id = %lease.id, broker = &*self.broker, why, ?pause, "refused, the {noun} is paused");
                Some(Settlement::Release(Release {
                    job: publication.held(),
                    pause_ms: whole_ms(pause),
                    unpublished: true,
                }))
            }
            Outcome::Throttled { why, wait } => {
                let pause = destinations.throttled(to, wait, now);
                let (noun, why) = (destinations.words().0, destinations.why(&why));
                tracing::debug!(id = %lease.id, broker = &*self.broker, why, ?pause, "throttled, the {noun} is paused");
                Some(Settlement::Release(Release {
                    job: publication.held(),
                    pause_ms: whole_ms(pause),
                    unpublished: true,
                }))
            }
            Outcome::Invalid(why) => {
                destinations.inconclusive(to, token);
                Some(self.fail(&publication, Next::Dies(DeadReason::Invalid), why, destinations))
            }
            // The job's own time was over: mostly, the destination was not reached.
            Outcome::Failed(why) if now >= publication.deadline && !had_time => {
                destinations.inconclusive(to, token);
                Some(self.fail_on_schedule(&publication, why, destinations))
            }
            // A destination that fails late holds its places in the window for as long as one that
            // does not answer.
            Outcome::Failed(why) if took >= QUICK_RESPONSE_LIMIT => {
                destinations.unknown(to, token, false, now, &why);
                Some(self.fail_on_schedule(&publication, why, destinations))
            }
            Outcome::Unroutable(why) | Outcome::Failed(why) => {
                destinations.answered(to, token, now);
                Some(self.fail_on_schedule(&publication, why, destinations))
            }
            // This process was suspended. The instance that takes the job over keeps its step.
            Outcome::Unknown(why) if now > lease.deadline => {
                tracing::debug!(
                    id = %lease.id, broker = &*self.broker, why = destinations.why(&why),
                    "the outcome came after the end of the lease, another instance takes the job over"
                );
                destinations.inconclusive(to, token);
                self.metrics.leases_lost(1);
                None
            }
            Outcome::Unknown(why) => {
                if had_time {
                    destinations.unknown(to, token, now < publication.deadline, now, &why);
                } else {
                    destinations.inconclusive(to, token);
                }
                self.metrics.possible_duplicates(DuplicateCause::UnknownOutcome, 1);
                Some(self.fail_on_schedule(&publication, why, destinations))
            }
        }
    }

    /// Whether a healthy destination would have confirmed in time: a job's time to run may be
    /// shorter than the round trip.
    fn had_time(&self, publication: &Unconfirmed) -> bool {
        publication.deadline - publication.published
            >= self.rules.publish_timeout().min(QUICK_RESPONSE_LIMIT)
    }

    fn fail_on_schedule(
        &self,
        publication: &Unconfirmed,
        why: String,
        destinations: &Destinations,
    ) -> Settlement {
        let lease = &publication.lease;
        let next = retry::next(
            &lease.record.job,
            lease.state.step,
            &self.rules.delivery.retry_ms,
            DeadReason::RetriesExhausted,
        );
        self.fail(publication, next, why, destinations)
    }

    fn fail(
        &self,
        publication: &Unconfirmed,
        next: Next,
        why: String,
        destinations: &Destinations,
    ) -> Settlement {
        let (lease, shown) = (&publication.lease, destinations.why(&why));
        tracing::debug!(id = %lease.id, broker = &*self.broker, attempt = lease.state.attempt, why = shown, ?next, "the attempt failed");
        let (wait_ms, dies) = match next {
            Next::Wait(ms) => (ms, None),
            Next::Dies(reason) => (0, Some(reason)),
        };
        Settlement::Retry(Retry {
            job: publication.held(),
            wait_ms,
            unpublished: false,
            dies,
            error: why,
        })
    }
}
