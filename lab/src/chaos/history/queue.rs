//! The hand-outs of a queue's jobs, as their consumers saw them. Times of leases are by Redis's
//! clock, which is that of the consumers.

use serde::{Deserialize, Serialize};

/// A job in the answer to a pop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoppedJob {
    /// The job's id.
    pub id: String,
    /// The lease, which no other hand-out has. After a failover two may have one attempt.
    pub lease: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// When the lease began, epoch ms.
    pub begun_ms: i64,
    /// When the lease ends by itself, epoch ms.
    pub deadline_ms: i64,
    /// The body is not the one that was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_damaged: bool,
}

/// A consumer's word on a lease. Only `fail` and `release` without an answer are recorded: a
/// `finish` is repeated until its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWord {
    /// The job's id.
    pub id: String,
    /// The lease.
    pub lease: String,
    /// When the word was sent, epoch ms.
    #[serde(default)]
    pub sent_ms: i64,
    /// When it was answered, epoch ms.
    #[serde(default)]
    pub heard_ms: i64,
    /// The verdict; empty without an answer.
    #[serde(default)]
    pub verdict: String,
}

/// The counts of events at consumers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Other queues that had a job.
    pub names: u64,
    /// Pops that were answered with jobs.
    pub pops_with_jobs: u64,
    /// Pops that were answered without jobs.
    pub pops_empty: u64,
    /// Pops that were answered 503: Redis was away.
    pub pops_unavailable: u64,
    /// Pops that were under way at an instance that was killed.
    pub pops_cut_off: u64,
    /// Pops that were never sent: the instance was down.
    pub pops_refused: u64,
    /// Consumers that went away during a pop, and lived on.
    pub pops_left: u64,
    /// The most jobs that pops without an answer may have been handed.
    pub unanswered_jobs: u64,
    /// Consumers that were killed during a pop.
    pub killed_waiting: u64,
    /// Consumers that were killed between a pop and its words.
    pub killed_holding: u64,
    /// Consumers that were killed while their words were under way.
    pub killed_speaking: u64,
    /// Finishes that were answered `finished`.
    pub finished: u64,
    /// Finishes that were answered `stale`: the lease had run out, or a promoted master did not
    /// know it.
    pub finishes_stale: u64,
    /// Finishes that were answered `fired`: an earlier word without an answer had counted.
    pub finishes_repeated: u64,
    /// Calls with words that got no answer.
    pub words_unanswered: u64,
}

impl Tally {
    /// Consumers that were killed.
    pub(crate) fn killed(&self) -> u64 {
        self.killed_waiting + self.killed_holding + self.killed_speaking
    }
}
