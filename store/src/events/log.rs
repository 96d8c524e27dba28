//! The log lines of the events of jobs.

use super::{JobEvent, PublishOutcome, TargetPause};

/// Writes the line of an event, if the event has one.
pub fn write(event: &JobEvent<'_>) {
    match *event {
        JobEvent::Rejected { ingest, code, left_out, position: (log, offset) } => {
            if let Some((left_out, why)) = left_out {
                tracing::warn!(
                    ingest,
                    log,
                    offset,
                    code,
                    left_out,
                    why,
                    "parts of a bad request were left out of `rejected` because the broker does not take them"
                );
            }
            tracing::debug!(ingest, log, offset, code, "rejected");
        }
        JobEvent::Replied { outcome: PublishOutcome::Confirmed, is_told: false, .. } => {}
        JobEvent::Replied { ingest, id, to, answer: outcome, is_told, .. } => {
            if is_told {
                tracing::debug!(ingest, %id, %to, ?outcome, "the verdict could not be delivered");
            } else {
                tracing::warn!(ingest, %id, %to, ?outcome, "the verdict could not be delivered");
            }
        }
        JobEvent::RepliesAbandoned { ingest, count } => {
            tracing::warn!(
                ingest,
                count,
                "verdicts have no confirm at shutdown and may not be delivered"
            );
        }
        JobEvent::Unreadable { id, bucket, why } => {
            tracing::error!(%id, bucket, why, "a stored job cannot be read, it is kept among the dead");
        }
        JobEvent::Attempted { broker, id, error, pause: Some(pause), .. } => {
            let TargetPause { word, noun, wait } = pause;
            tracing::debug!(%id, broker, why = error, pause = ?wait, "{word}, the {noun} is paused");
        }
        JobEvent::Attempted { broker, id, error, is_over: true, .. } => {
            tracing::debug!(
                %id, broker, why = error,
                "the outcome came after the end of the lease, another instance takes the job over"
            );
        }
        JobEvent::DeadLetter { broker, id, outcome, error: Some(why) } => {
            tracing::warn!(
                %id, broker, outcome = outcome.as_str(), why,
                "the broker did not take the dead letter; the job stays among the dead in redis"
            );
        }
        JobEvent::Retried { broker, id, attempt, error, wait_ms } => {
            tracing::debug!(%id, broker, attempt, why = error, wait_ms, "the attempt failed");
        }
        JobEvent::Dying { broker, id, attempt, error, reason } => {
            let reason = reason.as_str();
            tracing::debug!(%id, broker, attempt, why = error, reason, "the attempt failed, the job dies");
        }
        JobEvent::Lost { broker, bucket, count, .. } => {
            tracing::debug!(
                broker,
                bucket,
                lost = count,
                "jobs were not settled: they were cancelled, replaced or taken over"
            );
        }
        JobEvent::Abandoned { broker, count } => {
            tracing::warn!(
                broker,
                count,
                "no confirm within shutdown.drain, the jobs are given back and may be published twice"
            );
        }
        JobEvent::OccurrenceMade { schedule, id, due_ms, is_caught_up, .. } => {
            tracing::debug!(%schedule, %id, due_ms, is_caught_up, "an occurrence of the schedule was made");
        }
        JobEvent::OccurrencesMissed { schedule, count, times, reason, to_log, .. } => {
            let (first_ms, last_ms) = (times.first(), times.last());
            if let Some(count) = to_log {
                tracing::warn!(
                    id = %schedule, count, reason, first_ms, last_ms,
                    "occurrences of the schedule were missed"
                );
            } else {
                tracing::debug!(
                    id = %schedule, count, reason, first_ms, last_ms,
                    "occurrences of the schedule were missed"
                );
            }
        }
        JobEvent::TakenOver { set, id, crashes } => {
            let set = set.name();
            tracing::warn!(%id, broker = &*set, crashes, "the lease expired without a settlement, the job is taken over");
        }
        JobEvent::BadRequest { .. }
        | JobEvent::Returned { .. }
        | JobEvent::Received { .. }
        | JobEvent::Applied { .. }
        | JobEvent::Dropped { .. }
        | JobEvent::Settled { .. }
        | JobEvent::Attempted { .. }
        | JobEvent::DeadLetter { error: None, .. }
        | JobEvent::Dead { .. }
        | JobEvent::TimedOut { .. }
        | JobEvent::PopAsked { .. }
        | JobEvent::Popped { .. }
        | JobEvent::Acknowledged { .. } => {}
    }
}
