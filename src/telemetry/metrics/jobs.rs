//! The counts of the events of jobs. Nothing else counts jobs.

use std::time::Duration;

use super::exemplar::exemplar;
use super::{BrokerMetrics, IngestMetrics, Metrics};
use crate::clock;
use crate::events::{JobEvent, Observer, PublishOutcome};
use crate::job::{Action, DeadReason, Verdict};
use crate::store::jobs::acknowledge::LeaseVerdict;
use crate::telemetry::labels::{DuplicateCause, IngestResult, LeaseEnd, OccurrenceResult};
use crate::telemetry::trace::TraceId;

impl Observer for Metrics {
    fn observe(&self, event: &JobEvent<'_>) {
        self.count(event, None);
    }
}

impl Metrics {
    /// Counts an event. `trace`: that of the span that the event ends, if it is exported.
    pub(crate) fn count(&self, event: &JobEvent<'_>, trace: Option<TraceId>) {
        match *event {
            JobEvent::Received { ingest, verdict, .. } => {
                let result = match verdict {
                    Verdict::Added | Verdict::Replaced => IngestResult::Scheduled,
                    Verdict::Duplicate | Verdict::Kept => IngestResult::Duplicate,
                    // It counts once `rejected` has it.
                    Verdict::Conflict => return,
                    _ => IngestResult::Action,
                };
                self.received(ingest, result, 1);
            }
            JobEvent::Rejected { ingest, .. } => self.received(ingest, IngestResult::Rejected, 1),
            JobEvent::Returned { ingest, count } => {
                self.received(ingest, IngestResult::Rejected, count);
            }
            JobEvent::Applied { action: Action::Cancel, verdict, .. } => self.cancelled(verdict),
            JobEvent::OccurrenceMade { is_caught_up, .. } => {
                let result = match is_caught_up {
                    true => OccurrenceResult::CaughtUp,
                    false => OccurrenceResult::Made,
                };
                self.occurrences(result, 1);
            }
            JobEvent::OccurrencesMissed { count, .. } => {
                self.occurrences(OccurrenceResult::Missed, count);
            }
            JobEvent::Replied { ingest, outcome, .. } => self.replied(ingest, outcome, 1),
            JobEvent::RepliesAbandoned { ingest, count } => {
                self.replied(ingest, PublishOutcome::Unknown, count);
            }
            JobEvent::Dropped { .. } => {
                self.late_dropped.inc();
            }
            JobEvent::Attempted { broker, outcome, shown, error, took, late, is_over, .. } => {
                if let Some(broker) = self.of_broker(broker) {
                    broker.publish.of(outcome).inc();
                    if let Some(why) = error {
                        broker.last_error.record(format_args!("{shown}: {why}"));
                    }
                }
                match outcome {
                    PublishOutcome::Confirmed => self.confirmed(took, late, trace),
                    PublishOutcome::Unknown if is_over => {
                        self.leases_lost.inc();
                    }
                    PublishOutcome::Unknown => {
                        self.possible_duplicates(DuplicateCause::UnknownOutcome, 1);
                    }
                    _ => {}
                }
            }
            JobEvent::Lost { count, duplicates, .. } => {
                self.leases_lost.inc_by(count);
                self.possible_duplicates(DuplicateCause::LeaseLost, duplicates);
            }
            JobEvent::Abandoned { count, .. } => {
                self.possible_duplicates(DuplicateCause::UnknownOutcome, count);
            }
            JobEvent::TakenOver { .. } => self.possible_duplicates(DuplicateCause::Rescued, 1),
            JobEvent::Dead { reason, .. } => self.dead(reason),
            JobEvent::TimedOut { queue: Some(queue), count } => {
                self.lease_ended(queue, LeaseEnd::Timeout, count);
            }
            JobEvent::PopAsked { queue } => {
                if let Some(queue) = self.queues.of_queue(queue) {
                    queue.pops.inc();
                }
            }
            JobEvent::Popped { queue, attempt, late, .. } => {
                if let Some(queue) = self.queues.of_queue(queue) {
                    queue.popped.inc();
                    if attempt == 1 {
                        queue.lateness.observe(late.as_secs_f64());
                    }
                }
            }
            JobEvent::Acknowledged { queue, verdict, .. } => {
                let end = match verdict {
                    LeaseVerdict::Finished => LeaseEnd::Finished,
                    LeaseVerdict::Failed | LeaseVerdict::Dead => LeaseEnd::Failed,
                    LeaseVerdict::Released => LeaseEnd::Released,
                    _ => return,
                };
                self.lease_ended(queue, end, 1);
            }
            JobEvent::BadRequest { .. }
            | JobEvent::Applied { .. }
            | JobEvent::Unreadable { .. }
            | JobEvent::Settled { .. }
            | JobEvent::DeadLetter { .. }
            | JobEvent::Retried { .. }
            | JobEvent::Dying { .. }
            | JobEvent::TimedOut { queue: None, .. } => {}
        }
    }
}

impl Metrics {
    /// Counts events of jobs that were not published, or may not have been.
    pub(crate) fn events_dropped(&self, count: u64) {
        self.events_dropped.inc_by(count);
    }

    fn of_broker(&self, name: &str) -> Option<&BrokerMetrics> {
        self.brokers.iter().find(|(known, _)| known == name).map(|(_, metrics)| metrics)
    }

    fn of_ingest(&self, name: &str) -> Option<&IngestMetrics> {
        self.ingests.iter().find(|(known, _)| known == name).map(|(_, metrics)| metrics)
    }

    fn received(&self, ingest: &str, result: IngestResult, count: u64) {
        if let Some(ingest) = self.of_ingest(ingest) {
            ingest.results.of(result).inc_by(count);
        }
    }

    fn replied(&self, ingest: &str, outcome: PublishOutcome, count: u64) {
        if let Some(ingest) = self.of_ingest(ingest) {
            ingest.replies.of(outcome).inc_by(count);
        }
    }

    fn occurrences(&self, result: OccurrenceResult, count: u64) {
        self.occurrences.of(result).inc_by(count);
    }

    /// Verdicts that cancel never gives are not counted.
    fn cancelled(&self, verdict: Verdict) {
        if let Some((_, counter)) = self.cancelled.iter().find(|(known, _)| *known == verdict) {
            counter.inc();
        }
    }

    fn confirmed(&self, took: Duration, late: Option<Duration>, trace: Option<TraceId>) {
        self.confirm.observe(took.as_secs_f64());
        if let Some(late) = late {
            let at = trace.map(|_| clock::time_of(clock::wall_ms()));
            self.lateness.observe(late.as_secs_f64(), trace.map(exemplar), at);
            self.recent_lateness.record(late);
        }
    }

    fn possible_duplicates(&self, cause: DuplicateCause, count: u64) {
        self.possible_duplicates.of(cause).inc_by(count);
    }

    fn dead(&self, reason: DeadReason) {
        if let Some((_, counter)) = self.dead.iter().find(|(known, _)| *known == reason) {
            counter.inc();
        }
    }

    fn lease_ended(&self, queue: &str, end: LeaseEnd, count: u64) {
        if let Some(queue) = self.queues.of_queue(queue) {
            queue.ends.of(end).inc_by(count);
        }
    }
}

#[cfg(test)]
mod tests;
