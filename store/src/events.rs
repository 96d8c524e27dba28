//! The events of jobs and of their requests. The place where an event happens tells it once, to one
//! [`Observer`]; counts, log lines and spans are made by subscribers.
//!
//! - [`log`]: the subscriber that writes the log.

pub mod log;
mod publish_outcome;

use std::fmt::Debug;
use std::time::Duration;

use dwell_core::Destination;

pub use self::publish_outcome::PublishOutcome;
use crate::job::{Action, DeadReason, Job, JobId, Verdict};
use crate::store::due_set::DueSet;
use crate::store::jobs::acknowledge::LeaseVerdict;

/// The header of an occurrence with the id of its schedule.
const SCHEDULE: &str = "delayed-schedule";
/// The header of an occurrence with its number.
const OCCURRENCE: &str = "delayed-occurrence";

/// Receives every event. The hottest loops call it: it neither waits nor allocates.
pub trait Observer: Send + Sync {
    /// This happened.
    fn observe(&self, event: &JobEvent<'_>);
}

/// An observer that ignores every event.
impl Observer for () {
    fn observe(&self, _: &JobEvent<'_>) {}
}

/// An event of one job, or of `count` jobs of one call. It borrows what its place knows, so that
/// an event allocates nothing. Error texts are without secrets and without answers of strangers.
#[derive(Debug, Clone, Copy)]
pub enum JobEvent<'a> {
    /// A message of an ingest is a bad request, and goes to `rejected`. Ends the span of the
    /// request.
    BadRequest {
        /// The name of the ingest.
        ingest: &'a str,
        /// The code of the mistake.
        code: &'static str,
        /// The mistake.
        detail: &'a str,
    },
    /// `rejected` has taken a bad request.
    Rejected {
        /// The name of the ingest.
        ingest: &'a str,
        /// The code of the mistake. What was wrong stands in `rejected`: it may quote a header.
        code: &'static str,
        /// The parts that the broker did not take, and why it did not.
        left_out: Option<(&'a str, &'a str)>,
        /// The topic or stream of the message, and its offset there; empty and 0 if not known.
        position: (&'a str, u64),
    },
    /// Rejected requests came back to the ingest, and are dead jobs now.
    Returned {
        /// The name of the ingest.
        ingest: &'a str,
        /// The number of requests.
        count: u64,
    },
    /// The request of an inbound message has its verdict. Ends the span of the request.
    Received {
        /// The name of the ingest.
        ingest: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The action of the request.
        action: Action,
        /// The verdict.
        verdict: Verdict,
    },
    /// The store has answered a request for a job, or an action on a job or a recurring schedule,
    /// wherever the request came from.
    Applied {
        /// The id of the job.
        id: &'a JobId,
        /// The broker or queue of a new job; `None` for an action on an existing one.
        set: Option<DueSet<'a>>,
        /// The target of a new job on a broker.
        to: Option<&'a Destination>,
        /// The action of the request.
        action: Action,
        /// The verdict.
        verdict: Verdict,
        /// The due time of the job, epoch ms by Redis's clock, if known.
        due_ms: Option<i64>,
    },
    /// An occurrence of a recurring schedule was made.
    OccurrenceMade {
        /// The id of the schedule.
        schedule: &'a JobId,
        /// The id of the occurrence's job.
        id: &'a JobId,
        /// The broker or queue of the job.
        set: DueSet<'a>,
        /// The target on the broker, if known.
        to: Option<&'a Destination>,
        /// The due time of the job, epoch ms by Redis's clock.
        due_ms: i64,
        /// The number of the occurrence, from 1.
        number: u64,
        /// The occurrence had been missed, and was made all the same.
        is_caught_up: bool,
    },
    /// Occurrences of a recurring schedule were missed, and are not made.
    OccurrencesMissed {
        /// The id of the schedule.
        schedule: &'a JobId,
        /// The broker or queue of its jobs.
        set: DueSet<'a>,
        /// The number of occurrences, as far as they are counted.
        count: u64,
        /// The nominal times of the newest, epoch ms, ascending.
        times: &'a [i64],
        /// Why: `late`, `overlap`, `queue_full` or `conflict`.
        reason: &'static str,
        /// How many of this reason the log tells of: with those since it told last. `None`: it told
        /// of the schedule a short time ago.
        to_log: Option<u64>,
    },
    /// A requested verdict has the outcome of its publication.
    Replied {
        /// The name of the ingest.
        ingest: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The reply target.
        to: &'a Destination,
        /// The outcome.
        outcome: PublishOutcome,
        /// The outcome with the words of the broker.
        answer: &'a (dyn Debug + Sync),
        /// The log has told that this reply target does not respond.
        is_told: bool,
    },
    /// Requested verdicts have no outcome at the end of the drain.
    RepliesAbandoned {
        /// The name of the ingest.
        ingest: &'a str,
        /// The number of verdicts.
        count: u64,
    },
    /// A claimed job cannot be read. It is kept among the dead.
    Unreadable {
        /// The id of the job.
        id: &'a JobId,
        /// The bucket of the job.
        bucket: u16,
        /// Why the record cannot be read.
        why: &'a str,
    },
    /// A job is too late at its first attempt, or past its own end, and is dropped. Of a job of a
    /// broker this is the decision, and [`JobEvent::Settled`] tells that the store has dropped it.
    Dropped {
        /// The broker or queue of the job.
        set: DueSet<'a>,
        /// The id of the job.
        id: &'a JobId,
    },
    /// The store has ended an attempt, or a job without one: told by the instance whose call did
    /// that. A death is [`JobEvent::Dead`].
    Settled {
        /// The broker or queue of the job, if known.
        set: Option<DueSet<'a>>,
        /// The id of the job.
        id: &'a JobId,
        /// What became of the job.
        end: Settled<'a>,
        /// More about the job.
        facts: Facts<'a>,
    },
    /// A publication of a job has its outcome. Ends the span of the attempt.
    Attempted {
        /// The name of the broker.
        broker: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The target.
        to: &'a Destination,
        /// The target for people, without secrets; empty after a confirm.
        shown: &'a str,
        /// The number of this attempt, from 1.
        attempt: u32,
        /// The due time of the schedule, epoch ms by Redis's clock.
        due_ms: i64,
        /// The outcome.
        outcome: PublishOutcome,
        /// Why the message was not delivered, or may not have been.
        error: Option<&'a str>,
        /// The time from the publication to the outcome.
        took: Duration,
        /// The time from the due time to the confirm of a first attempt.
        late: Option<Duration>,
        /// The pause of a target that does not take messages now.
        pause: Option<TargetPause>,
        /// The outcome came after the end of the lease: another instance takes the job over.
        is_over: bool,
    },
    /// The dead letter of a job has its outcome. Ends the span of the attempt.
    DeadLetter {
        /// The name of the broker.
        broker: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The outcome.
        outcome: PublishOutcome,
        /// Why the dead letter was not delivered, or may not have been.
        error: Option<&'a str>,
    },
    /// An attempt failed: a wait begins.
    Retried {
        /// The name of the broker.
        broker: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// The reason of the failure.
        error: &'a str,
        /// The wait from now, ms.
        wait_ms: u64,
    },
    /// The last attempt failed: the dead letter is next.
    Dying {
        /// The name of the broker.
        broker: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// The reason of the failure.
        error: &'a str,
        /// The reason of the death.
        reason: DeadReason,
    },
    /// Jobs were not settled: their leases were over.
    Lost {
        /// The name of the broker.
        broker: &'a str,
        /// The bucket of the jobs.
        bucket: u16,
        /// The number of jobs.
        count: u64,
        /// The number of those that were confirmed, and continue: another attempt of each was or
        /// will be made.
        duplicates: u64,
    },
    /// Publications have no outcome at the end of the drain: their jobs are given back.
    Abandoned {
        /// The name of the broker.
        broker: &'a str,
        /// The number of jobs.
        count: u64,
    },
    /// A job is among the dead.
    Dead {
        /// The broker or queue of the job, if known.
        set: Option<DueSet<'a>>,
        /// The id of the job.
        id: &'a JobId,
        /// The reason of the death.
        reason: DeadReason,
        /// The last error; empty if not known.
        error: &'a str,
        /// More about the job.
        facts: Facts<'a>,
    },
    /// The owner of a job crashed, and its attempt may have arrived: the job is taken over.
    TakenOver {
        /// The broker or queue of the job.
        set: DueSet<'a>,
        /// The id of the job.
        id: &'a JobId,
        /// The number of crashes of owners in a row, before this one.
        crashes: u8,
    },
    /// Consumers did not finish jobs within the TTR.
    TimedOut {
        /// The queue; `None` for jobs of brokers.
        queue: Option<&'a str>,
        /// The number of jobs.
        count: u64,
    },
    /// A consumer asks this queue for jobs.
    PopAsked {
        /// The queue.
        queue: &'a str,
    },
    /// A job was handed to a consumer.
    Popped {
        /// The queue.
        queue: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The number of this attempt, from 1.
        attempt: u32,
        /// The due time of the schedule, epoch ms by Redis's clock.
        due_ms: i64,
        /// The time from the due time to the hand-out.
        late: Duration,
    },
    /// A consumer's word on its lease has its verdict.
    Acknowledged {
        /// The queue.
        queue: &'a str,
        /// The id of the job.
        id: &'a JobId,
        /// The verdict.
        verdict: LeaseVerdict,
        /// The error of a consumer that could not do the job; empty if it named none.
        error: &'a str,
        /// The same end is told as [`JobEvent::Applied`] too.
        is_applied: bool,
    },
}

/// What became of a job that the store has settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled<'a> {
    /// Delivered: the job is over.
    Delivered,
    /// An attempt failed, and a wait began.
    Retried {
        /// The reason of the failure.
        error: &'a str,
    },
    /// Dropped: the job is over.
    Dropped,
}

/// More about the job of an event, as far as the place of the event knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The target on the broker.
    pub to: Option<&'a Destination>,
    /// The number of attempts so far.
    pub attempt: Option<u32>,
    /// The due time of the schedule, epoch ms by Redis's clock.
    pub due_ms: Option<i64>,
    /// The recurring schedule that the job is an occurrence of.
    pub schedule: Option<&'a str>,
    /// The number of the occurrence.
    pub occurrence: Option<u64>,
}

impl<'a> Facts<'a> {
    /// The facts of a job after so many attempts.
    #[must_use]
    pub fn of(job: &'a Job, attempt: u32, due_ms: i64) -> Self {
        let occurrence = job.headers.get(OCCURRENCE).and_then(|value| value.written());
        Facts {
            to: job.destination(),
            attempt: Some(attempt),
            due_ms: Some(due_ms),
            schedule: job.headers.text(SCHEDULE),
            occurrence: occurrence.and_then(|number| number.parse().ok()),
        }
    }
}

/// The pause of a target that refused a message.
#[derive(Debug, Clone, Copy)]
pub struct TargetPause {
    /// The answer of the target: `refused` or `throttled`.
    pub word: &'static str,
    /// The noun for what is paused: the queue, the host.
    pub noun: &'static str,
    /// How long the job waits.
    pub wait: Duration,
}
