//! What follows an outcome: of a publication, and of the settle that carries it to the store.

use std::time::Duration;

use dwell_connectors::{Outcome, Token};

use super::Dispatch;
use super::flight::Flight;
use super::settle::Settle;
use super::share::{Answer, PROMPT};
use crate::clock::{self, micros, whole_ms};
use crate::job::{Confirm, DeadReason};
use crate::retry::{self, Next};
use crate::store::settle::{Bury, Over, Release, Retry, Stood};
use crate::telemetry::{DuplicateCause, PublishOutcome};

impl Dispatch {
    /// A publication has its outcome.
    pub(super) fn concluded(&mut self, token: Token, outcome: Outcome) {
        let Some(mut flight) = self.flights.remove(&token) else { return };
        let (span, name) = (std::mem::take(&mut flight.span), PublishOutcome::from(&outcome).as_str());
        match &outcome {
            Outcome::Confirmed => span.succeeded(name),
            Outcome::Refused(why) | Outcome::Invalid(why) | Outcome::Unroutable(why) | Outcome::Unknown(why) => span.failed(name, why),
        }
        let now = clock::now();
        let (bucket, size) = (flight.lease.bucket, flight.lease.size);
        self.window.settling(size);
        self.moved = true;
        let to = match (&self.dead, flight.lease.state.reason) {
            (Some(dead), Some(_)) => dead,
            _ => &flight.lease.record.job.to,
        };
        let answer = match &outcome {
            Outcome::Confirmed => Answer::Confirmed(now.duration_since(flight.published)),
            Outcome::Unknown(_) if self.had_time(&flight) => Answer::Unknown,
            Outcome::Unknown(_) | Outcome::Refused(_) | Outcome::Invalid(_) | Outcome::Unroutable(_) => Answer::Other,
        };
        if self.shares.left(to, size, answer, now) {
            tracing::warn!(
                broker = &*self.broker, %to,
                "destinations of one pattern of `allow`, this one among them, confirm nothing: together they have an eighth of the window until one \
                 confirms; does a stream, a queue, a leader answer for them?"
            );
        }
        if outcome == Outcome::Confirmed
            && let Some(told) = self.pauses.confirmed(to)
        {
            if told {
                tracing::info!(broker = &*self.broker, %to, "the destination confirms again");
            }
            self.count_pauses();
        }
        if let Some(reason) = flight.lease.state.reason {
            // Where the dead letters go is paused by others' outcomes only, but this may have been the one that tries it.
            self.pauses.lapsed(to, token);
            if outcome != Outcome::Confirmed {
                tracing::warn!(id = %flight.lease.id, broker = &*self.broker, ?outcome, "the dead letter was not taken, the job is kept in redis all the same");
            }
            let error = flight.lease.state.last_error.clone();
            self.gathered.bury(bucket, Bury { job: flight.held(), reason, error });
            return;
        }
        if let Some(metrics) = &self.of_broker {
            metrics.publish(PublishOutcome::from(&outcome), 1);
            if let Outcome::Refused(why) | Outcome::Invalid(why) | Outcome::Unroutable(why) | Outcome::Unknown(why) = &outcome {
                metrics.last_error().met(format_args!("{}: {why}", flight.lease.record.job.to));
            }
        }
        match outcome {
            Outcome::Confirmed => {
                self.metrics.confirm(now.duration_since(flight.published));
                if flight.lease.state.attempt == 1 {
                    self.metrics.lateness(micros(self.store.now_us().saturating_sub(flight.lease.state.due_ms.saturating_mul(1000))));
                }
                match flight.lease.record.job.confirm {
                    Confirm::Broker => self.gathered.complete(bucket, flight.held()),
                    Confirm::Consumer => self.gathered.hold(bucket, flight.held(), flight.lease.record.job.ttr_ms),
                }
            }
            Outcome::Refused(why) => {
                let to = &flight.lease.record.job.to;
                let pause = self.pauses.refused(to, token, now.duration_since(flight.published), now);
                tracing::debug!(id = %flight.lease.id, broker = &*self.broker, why, ?pause, "refused, the destination is paused");
                self.count_pauses();
                let pause_ms = whole_ms(pause);
                self.gathered.release(bucket, Release { job: flight.held(), pause_ms, unpublished: true });
            }
            Outcome::Invalid(why) => {
                self.pauses.lapsed(&flight.lease.record.job.to, token);
                self.fail(&flight, Next::Dies(DeadReason::Invalid), why);
            }
            Outcome::Unroutable(why) => {
                if self.pauses.answered(&flight.lease.record.job.to, token) {
                    self.count_pauses();
                }
                self.fail_on_schedule(&flight, why);
            }
            // This process stood still: what its lease no longer covers it does not count, whoever comes first takes the job over with its step kept.
            Outcome::Unknown(why) if now > flight.lease.deadline => {
                tracing::debug!(id = %flight.lease.id, broker = &*self.broker, why, "the outcome came after the lease, the job is taken over");
                self.pauses.lapsed(&flight.lease.record.job.to, token);
                self.metrics.leases_lost(1);
                self.window.settled(1);
            }
            Outcome::Unknown(why) => {
                let to = &flight.lease.record.job.to;
                if !self.had_time(&flight) {
                    self.pauses.lapsed(to, token);
                } else if self.pauses.unknown(to, token, now < flight.deadline, now) {
                    tracing::warn!(
                        broker = &*self.broker, %to, why,
                        "the destination confirms nothing: its jobs wait, one at a time tries it; does a stream, a queue, a leader answer for it?"
                    );
                }
                self.count_pauses();
                self.metrics.possible_duplicates(DuplicateCause::UnknownOutcome, 1);
                self.fail_on_schedule(&flight, why);
            }
        }
    }

    /// Whether a destination that is well would have confirmed it: a time to run may be shorter than the way there and back.
    fn had_time(&self, flight: &Flight) -> bool {
        flight.deadline - flight.published >= Duration::from_millis(self.rules.publish_timeout_ms).min(PROMPT)
    }

    pub(super) fn count_pauses(&self) {
        if let Some(metrics) = &self.of_broker {
            metrics.target_paused(self.pauses.count());
        }
    }

    fn fail_on_schedule(&mut self, flight: &Flight, why: String) {
        let lease = &flight.lease;
        let next = retry::next(&lease.record.job, &lease.state, &self.rules.retry_ms, DeadReason::RetriesExhausted);
        self.fail(flight, next, why);
    }

    fn fail(&mut self, flight: &Flight, next: Next, why: String) {
        tracing::debug!(id = %flight.lease.id, broker = &*self.broker, attempt = flight.lease.state.attempt, why, ?next, "the attempt failed");
        let (wait_ms, dies) = match next {
            Next::Wait(ms) => (ms, None),
            Next::Dies(reason) => (0, Some(reason)),
        };
        self.gathered.retry(flight.lease.bucket, Retry { job: flight.held(), wait_ms, unpublished: false, dies, error: why });
    }

    /// The store took outcomes.
    pub(super) fn settled(&mut self, bucket: u16, settle: &Settle, stood: Option<Vec<Stood>>) {
        self.gathered.answered(bucket, settle);
        self.window.settled(settle.len());
        let Some(stood) = stood else { return };
        let count = |of: &[Stood]| stood.iter().filter(|one| of.contains(one)).count() as u64;
        let lost = count(&[Stood::Lost, Stood::TakenOver]);
        if lost > 0 {
            self.metrics.leases_lost(lost);
            // What was dropped was not published; a hold comes too late where the consumer had its word first.
            if let Settle::Complete(Over::Fired, _) = settle {
                self.metrics.possible_duplicates(DuplicateCause::LeaseLost, count(&[Stood::TakenOver]));
            }
            tracing::debug!(broker = &*self.broker, bucket, lost, "settled too late: cancelled, replaced or taken over meanwhile");
        }
        let now = clock::now();
        match settle {
            Settle::Bury(jobs) => {
                jobs.iter().zip(&stood).filter(|(_, stood)| **stood == Stood::Settled).for_each(|(job, _)| self.metrics.dead(job.reason))
            }
            Settle::Retry(jobs) => {
                for job in jobs {
                    self.wakes.head(bucket, now + Duration::from_millis(job.wait_ms));
                }
            }
            Settle::Release(jobs) => {
                for job in jobs {
                    self.wakes.head(bucket, now + Duration::from_millis(job.pause_ms));
                }
            }
            Settle::Complete(..) | Settle::Hold(..) => {}
        }
    }

    /// The drain time is over: what has no outcome goes back, its step kept; it may have landed.
    pub(super) fn abandon(&mut self) {
        let count = self.flights.len() as u64;
        tracing::warn!(
            broker = &*self.broker,
            count,
            "no confirm within shutdown.drain, the jobs are given back and may be published twice"
        );
        self.metrics.possible_duplicates(DuplicateCause::UnknownOutcome, count);
        for (_, flight) in std::mem::take(&mut self.flights) {
            self.window.settling(flight.lease.size);
            self.gathered.release(flight.lease.bucket, Release { job: flight.held(), pause_ms: 0, unpublished: false });
        }
    }
}
