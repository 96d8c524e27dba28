//! The words for actions, verdicts and reasons of death.

use serde::{Deserialize, Serialize};

/// The reason why a job is dead: the words of `delayed-dead-reason` and `dwell_dead_total{reason}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum DeadReason {
    /// All attempts of the retry array failed.
    RetriesExhausted,
    /// The target will never accept the message.
    Invalid,
    /// Overdue by more than `max_late`, with `late = "dead"`.
    Late,
    /// The consumer failed the last attempt.
    Failed,
    /// The instance that held the job crashed five times in a row.
    Crashed,
}

impl DeadReason {
    /// Every reason, in the order of the contract.
    pub const ALL: [DeadReason; 5] = [
        DeadReason::RetriesExhausted,
        DeadReason::Invalid,
        DeadReason::Late,
        DeadReason::Failed,
        DeadReason::Crashed,
    ];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DeadReason::RetriesExhausted => "retries_exhausted",
            DeadReason::Invalid => "invalid",
            DeadReason::Late => "late",
            DeadReason::Failed => "failed",
            DeadReason::Crashed => "crashed",
        }
    }

    /// The reason of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// The action of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Action {
    /// Store a job.
    Schedule,
    /// Cancel a job.
    Cancel,
    /// Give a job another due time.
    Reschedule,
    /// Make a job due now.
    Fire,
    /// The consumer has done the job.
    Finish,
    /// The consumer could not do the job.
    Fail,
    /// Schedule a dead job again.
    Requeue,
}

impl Action {
    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Schedule => "schedule",
            Action::Cancel => "cancel",
            Action::Reschedule => "reschedule",
            Action::Fire => "fire",
            Action::Finish => "finish",
            Action::Fail => "fail",
            Action::Requeue => "requeue",
        }
    }
}

/// The answer to a request. The scripts answer with the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", schema(as = VerdictWord))]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Verdict {
    /// A new job.
    Added,
    /// The id existed: the new job replaced the old one.
    Replaced,
    /// The same job exists: nothing changed.
    Duplicate,
    /// The id exists and was kept: nothing changed.
    Kept,
    /// The id exists and the policy is `reject`: nothing changed.
    Conflict,
    /// The job was never published, and will not be.
    Cancelled,
    /// There will be no further attempt; an earlier one with an unknown outcome may still arrive.
    CancelledAfterAttempt,
    /// An attempt is in flight. For `cancel`: the job ends, and the attempt may still arrive. For
    /// any other action: nothing changed.
    InFlight,
    /// The job has its new due time.
    Rescheduled,
    /// The job is due now.
    Firing,
    /// The job is done.
    Finished,
    /// The job waits for its next attempt, or dies after the last one.
    Failed,
    /// The dead job is due now.
    Requeued,
    /// Too late: the job was already confirmed or finished.
    Fired,
    /// The job is dead: requeue it.
    Dead,
    /// Nothing changed: no attempt is in flight (`fail`), or the job is not dead (`requeue`).
    Waiting,
    /// Nothing changed: the job has another schedule or attempt.
    Stale,
    /// There is no such job. This does not prove that it was not delivered.
    NotFound,
}

impl Verdict {
    /// Every verdict, in the order of the contract.
    pub const ALL: [Verdict; 18] = [
        Verdict::Added,
        Verdict::Replaced,
        Verdict::Duplicate,
        Verdict::Kept,
        Verdict::Conflict,
        Verdict::Cancelled,
        Verdict::CancelledAfterAttempt,
        Verdict::InFlight,
        Verdict::Rescheduled,
        Verdict::Firing,
        Verdict::Finished,
        Verdict::Failed,
        Verdict::Requeued,
        Verdict::Fired,
        Verdict::Dead,
        Verdict::Waiting,
        Verdict::Stale,
        Verdict::NotFound,
    ];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Added => "added",
            Verdict::Replaced => "replaced",
            Verdict::Duplicate => "duplicate",
            Verdict::Kept => "kept",
            Verdict::Conflict => "conflict",
            Verdict::Cancelled => "cancelled",
            Verdict::CancelledAfterAttempt => "cancelled_after_attempt",
            Verdict::InFlight => "in_flight",
            Verdict::Rescheduled => "rescheduled",
            Verdict::Firing => "firing",
            Verdict::Finished => "finished",
            Verdict::Failed => "failed",
            Verdict::Requeued => "requeued",
            Verdict::Fired => "fired",
            Verdict::Dead => "dead",
            Verdict::Waiting => "waiting",
            Verdict::Stale => "stale",
            Verdict::NotFound => "not_found",
        }
    }

    /// The verdict of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == word)
    }
}
