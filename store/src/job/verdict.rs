//! The words for actions, verdicts and reasons of death.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The reason why a job is dead: the words of `delayed-dead-reason` and
    /// `dwell_dead_total{reason}`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
    pub enum DeadReason {
        /// All attempts of the retry array failed.
        RetriesExhausted = "retries_exhausted",
        /// The target will never accept the message.
        Invalid = "invalid",
        /// Overdue by more than `max_late`, with `late = "dead"`.
        Late = "late",
        /// The consumer failed the last attempt.
        Failed = "failed",
        /// The instance that held the job crashed five times in a row.
        Crashed = "crashed",
        /// Not delivered within its expiry.
        Expired = "expired",
        /// A later version of Dwell wrote a reason that this one does not know.
        Unknown = "unknown",
    }
}

impl DeadReason {
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
    /// Store a job. The word of the contract is `schedule`.
    #[serde(rename = "schedule")]
    Add,
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
            Action::Add => "schedule",
            Action::Cancel => "cancel",
            Action::Reschedule => "reschedule",
            Action::Fire => "fire",
            Action::Finish => "finish",
            Action::Fail => "fail",
            Action::Requeue => "requeue",
        }
    }
}

words! {
    /// The answer to a request. The scripts answer with the same words.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
    #[serde(rename_all = "snake_case")]
    #[cfg_attr(feature = "schema", schema(as = VerdictWord))]
    #[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
    pub enum Verdict {
        /// A new job.
        Added = "added",
        /// The id existed: the new job replaced the old one.
        Replaced = "replaced",
        /// The same job exists: nothing changed.
        Duplicate = "duplicate",
        /// The id exists and was kept: nothing changed.
        Kept = "kept",
        /// The id exists and the policy is `reject`: nothing changed.
        Conflict = "conflict",
        /// The job was never published, and will not be.
        Cancelled = "cancelled",
        /// There will be no further attempt; an earlier one with an unknown outcome may still
        /// arrive.
        CancelledAfterAttempt = "cancelled_after_attempt",
        /// An attempt is in flight. For `cancel`: the job ends, and the attempt may still arrive.
        /// For any other action: nothing changed.
        InFlight = "in_flight",
        /// The job has its new due time.
        Rescheduled = "rescheduled",
        /// The job is due now.
        Firing = "firing",
        /// The job is done.
        Finished = "finished",
        /// The job waits for its next attempt, or dies after the last one.
        Failed = "failed",
        /// The dead job is due now.
        Requeued = "requeued",
        /// Too late: the job was already confirmed or finished.
        Fired = "fired",
        /// The job is dead: requeue it.
        Dead = "dead",
        /// Nothing changed: no attempt is in flight (`fail`), or the job is not dead (`requeue`).
        Waiting = "waiting",
        /// Nothing changed: the job has another schedule or attempt.
        Stale = "stale",
        /// There is no such job. This does not prove that it was not delivered.
        NotFound = "not_found",
    }
}

impl Verdict {
    /// The verdict of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == word)
    }
}
