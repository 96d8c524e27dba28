//! Decides how a publication's outcome settles its job.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Outcome, Token};

use super::attempt::{AttemptRules, Unconfirmed};
use super::destinations::Destinations;
use super::settle_queue::Settlement;
use super::shares::{Response, SILENCE_LIMIT};
use crate::clock::{Instant, micros, whole_ms};
use crate::events::{JobEvent, Observer, TargetPause};
use crate::policy::Fate;
use crate::policy::attempt::{self, AttemptResult, Conclusion};
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::jobs::claim::ClaimedJob;
use crate::telemetry::{Events, publish_outcome};

/// Concludes the publications of one broker.
pub(super) struct Outcomes {
    store: Arc<Store>,
    broker: Arc<str>,
    rules: Arc<AttemptRules>,
    events: Events,
}

impl Outcomes {
    pub(super) fn new(
        store: Arc<Store>,
        broker: Arc<str>,
        rules: Arc<AttemptRules>,
        events: Events,
    ) -> Self {
        Outcomes { store, broker, rules, events }
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
        let mut span = std::mem::take(&mut publication.span);
        let lease = &publication.lease;
        let to = self.rules.destination(lease);
        let (took, had_time) =
            (now.duration_since(publication.published), self.had_time(&publication));
        let response = match &outcome {
            Outcome::Confirmed | Outcome::Finished => Response::Confirmed(took),
            Outcome::Unknown(_) if had_time => Response::Unknown,
            Outcome::Failed(_) if had_time && took >= SILENCE_LIMIT => Response::Unknown,
            // The job's own time was over.
            Outcome::Failed(_) if !had_time && now >= publication.deadline => Response::Nothing,
            Outcome::Throttled { .. }
            | Outcome::Failed(_)
            | Outcome::Invalid(_)
            | Outcome::Unroutable(_) => Response::Answered(took),
            Outcome::Unknown(_) | Outcome::Refused(_) => Response::Nothing,
        };
        destinations.responded(to, lease.size, response, now);
        let (broker, id, word) = (&*self.broker, &lease.id, publish_outcome(&outcome));
        let error = outcome.error().map(|why| destinations.why(why));
        let (mut pause, mut shown) = (None, String::new());
        let event = if lease.state.reason.is_some() {
            // A dead letter pauses no destination, but this one may have been the probe of a pause.
            destinations.inconclusive(to, token);
            JobEvent::DeadLetter { broker, id, outcome: word, error }
        } else {
            pause = self.judge(&publication, token, &outcome, now, destinations);
            if error.is_some() {
                shown = destinations.shown(to);
            }
            let (attempt, due_ms) = (lease.state.attempt, lease.state.due_ms);
            // The wait for the turn at a limited target is no lateness.
            let ready_ms = due_ms.max(lease.state.turn.at_ms());
            let late_us = || self.store.now_us().saturating_sub(ready_ms.saturating_mul(1000));
            span.lateness(late_us);
            JobEvent::Attempted {
                broker,
                id,
                to,
                shown: &shown,
                attempt,
                due_ms,
                outcome: word,
                error,
                took,
                late: (error.is_none() && attempt == 1).then(|| micros(late_us())),
                pause,
                is_over: matches!(outcome, Outcome::Unknown(_)) && now > lease.deadline,
            }
        };
        self.events.end(span, &event);
        let pause = pause.map_or(Duration::ZERO, |pause| pause.wait);
        self.settlement(publication, outcome, whole_ms(pause), now, destinations)
    }

    /// Pauses the destination of an attempt or not. Returns the pause of a destination that did not
    /// take the message.
    fn judge(
        &self,
        publication: &Unconfirmed,
        token: Token,
        outcome: &Outcome,
        now: Instant,
        destinations: &mut Destinations,
    ) -> Option<TargetPause> {
        let lease = &publication.lease;
        let to = self.rules.destination(lease);
        let (took, had_time) =
            (now.duration_since(publication.published), self.had_time(publication));
        match outcome {
            Outcome::Confirmed | Outcome::Finished => {}
            Outcome::Refused(_) => {
                let wait = destinations.refused(to, token, took, now);
                return Some(TargetPause { word: "refused", noun: destinations.words().0, wait });
            }
            Outcome::Throttled { wait, .. } => {
                let wait = destinations.throttled(to, *wait, now);
                return Some(TargetPause { word: "throttled", noun: destinations.words().0, wait });
            }
            Outcome::Invalid(_) => destinations.inconclusive(to, token),
            // The job's own time was over: mostly, the destination was not reached.
            Outcome::Failed(_) if now >= publication.deadline && !had_time => {
                destinations.inconclusive(to, token);
            }
            // A destination that fails late holds its places in the window for as long as one that
            // does not answer.
            Outcome::Failed(why) if took >= SILENCE_LIMIT => {
                destinations.unknown(to, token, false, now, why);
            }
            Outcome::Unroutable(_) | Outcome::Failed(_) => destinations.answered(to, token, now),
            // This process was suspended, or the job's own time was too short.
            Outcome::Unknown(_) if now > lease.deadline || !had_time => {
                destinations.inconclusive(to, token);
            }
            Outcome::Unknown(why) => {
                destinations.unknown(to, token, now < publication.deadline, now, why);
            }
        }
        None
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
        let delivery = &self.rules.delivery;
        let (retry_ms, rules) = (&delivery.retry, delivery.late_rules());
        let (progress, now_ms) = (state.progress(), self.store.now_ms());
        let fate = match attempt::concluded(&record.job, progress, result, retry_ms, rules, now_ms)
        {
            Conclusion::Complete => return Some(Settlement::Complete(token)),
            Conclusion::Hold { ttr_ms } => return Some(Settlement::Hold(token, ttr_ms)),
            Conclusion::Leave => return None,
            Conclusion::Settle(fate) => fate,
        };
        let (broker, attempt) = (&*self.broker, state.attempt);
        match &fate {
            Fate::Retry { wait_ms, error } => {
                let (id, error, wait_ms) = (&id, destinations.why(error), *wait_ms);
                self.events.observe(&JobEvent::Retried { broker, id, attempt, error, wait_ms });
            }
            Fate::Die { reason, error, .. } => {
                let (id, error, reason) = (&id, destinations.why(error), *reason);
                self.events.observe(&JobEvent::Dying { broker, id, attempt, error, reason });
            }
            Fate::Drop => {
                let (set, id) = (DueSet::Broker(broker), &id);
                self.events.observe(&JobEvent::Dropped { set, id });
            }
            Fate::Release { .. } | Fate::Bury { .. } => {}
        }
        Some(Settlement::of(fate, token, pause_ms))
    }

    /// Whether a healthy destination would have confirmed in time: a job's time to run may be
    /// shorter than the round trip.
    fn had_time(&self, publication: &Unconfirmed) -> bool {
        publication.deadline - publication.published
            >= self.rules.publish_timeout().min(SILENCE_LIMIT)
    }
}
