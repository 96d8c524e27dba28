//! The decisions on the fate of a job. Pure: facts in, a fate out. No Redis, no input or output, no
//! clock: the time is a parameter.
//!
//! | moment | decision |
//! |---|---|
//! | an instance has claimed the job | [`delivery::claimed`] |
//! | a pop has taken the job | [`delivery::popped`] |
//! | a publication has its outcome | [`attempt::concluded`] |
//! | the instance stops before | [`attempt::ABANDONED`], [`attempt::GIVEN_BACK`] |
//! | a lease or a TTR ended | [`lease::ended`] for the rescue, [`lease::unfinished`] for fsck |
//! | a consumer fails the job | [`retry::wait_ms`] |
//! | a limited target has turns | [`limit::Rate`] |
//! | the job's own end comes | [`expiry::has_ended`] |
//! | the job waits past its expiry | [`expiry::swept`] |
//! | a claim finds that the record cannot be read | [`UNREADABLE`] |
//! | occurrences of a recurring schedule are due | `occurrences::plan` |
//!
//! Some decisions are made inside a script, which cannot ask:
//!
//! - `time_out.lua` sends held jobs back without a claim. The script knows the step and three bits
//!   of the record alone, [`lease::time_out_code`]. A test compares the two.
//! - `acknowledge.lua` and `fail.lua` get the answer of [`retry::wait_ms`]. Without a wait the job
//!   dies, with the reason `failed`. `acknowledge.lua` also gets [`expiry::expires_ms`]: a wait that
//!   ends past it is not begun.
//! - `end.lua` gets the jobs that have ended, and those that die of [`expiry::swept`]. The script
//!   checks that the record and the state are still the same.
//! - `claim.lua` and `pop.lua` decide what is due, by Redis's clock.

pub mod attempt;
pub mod delivery;
pub mod expiry;
pub mod late;
pub mod lease;
pub mod limit;
pub mod occurrences;
pub mod retry;

use crate::job::DeadReason;

/// The reason for a claimed job whose record cannot be read. The job is kept among the dead.
pub const UNREADABLE: DeadReason = DeadReason::Invalid;

/// The next step of a job that is not delivered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The job is due again, at the same step.
    Release {
        /// Certainly nothing was published: the attempt does not count.
        unpublished: bool,
    },
    /// The attempt failed: the job is due again, at its next step.
    Retry {
        /// The wait from now, ms.
        wait_ms: u64,
        /// The reason of the failure.
        error: String,
    },
    /// The job dies: its dead letter is published first, and then the job is kept among the dead.
    Die {
        /// The reason of the death.
        reason: DeadReason,
        /// The last error.
        error: String,
        /// Certainly nothing was published: the attempt does not count.
        unpublished: bool,
    },
    /// The job is kept among the dead at once.
    Bury {
        /// The reason of the death.
        reason: DeadReason,
        /// The last error.
        error: String,
    },
    /// The job leaves Redis without a delivery and without a dead letter.
    Drop,
}

impl Fate {
    /// The fate of a job of a queue: its dead stay in Redis, so no dead letter is published first.
    fn of_queue(self) -> Fate {
        match self {
            Fate::Die { reason, error, .. } => Fate::Bury { reason, error },
            other => other,
        }
    }
}

/// The facts about a job that change from attempt to attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress<'a> {
    /// Attempts so far, with the one in flight.
    pub attempt: u32,
    /// Step in the retry array: the number of waits used.
    pub step: u16,
    /// The due time of the schedule, epoch ms.
    pub due_ms: i64,
    /// The time from which the expiry counts if an action began it anew, epoch ms.
    pub anew_ms: Option<i64>,
    /// The number of crashes of owners in a row.
    pub crashes: u8,
    /// The reason why the job is on its way to the dead letters.
    pub reason: Option<DeadReason>,
    /// The last error.
    pub last_error: &'a str,
}

impl Progress<'_> {
    /// The fate of a job that has died and needs no dead letter any more.
    fn buried(&self) -> Option<Fate> {
        self.reason.map(|reason| Fate::Bury { reason, error: self.last_error.to_owned() })
    }
}
