//! The state of the instances during a run, and of the store at its end.

use serde::{Deserialize, Serialize};

use super::queue::Tally;
use crate::checker::occurrences::Claim;

/// A sample of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The number of the instance.
    pub instance: usize,
    /// The process id, which changes at a restart.
    pub pid: u32,
    /// Resident memory, bytes.
    pub rss: u64,
    /// `dwell_possible_duplicates_total`, all causes; `None` without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_duplicates: Option<u64>,
    /// Of those, the jobs of an owner whose lease ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescued: Option<u64>,
    /// Claims without an answer that were given back by their nonce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimed: Option<u64>,
    /// `dwell_leases_lost_total`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases_lost: Option<u64>,
}

/// The final state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Jobs in `due`.
    pub scheduled: u64,
    /// Jobs in leases, or held for their consumers.
    pub reserved: u64,
    /// The jobs in `dead`.
    pub dead: Vec<DeadJob>,
    /// Requests that the ingest has not acknowledged; `None` if nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<u64>,
    /// The findings of fsck: bucket, id and problem.
    pub damage: Vec<String>,
    /// Why the campaign could not continue; then the further events are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Unexpected exits of instances (by themselves, or with another code than 0), and panics in
    /// logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<String>,
    /// The counts of events at the consumers of a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumers: Option<Tally>,
    /// What the recurring schedules that are left say of themselves; `None` if nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedules: Option<Vec<Claim>>,
}

/// A dead job in Redis. Older histories have the id only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DeadEntry")]
pub struct DeadJob {
    /// The job's id.
    pub id: String,
    /// The reason, as in a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of attempts begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DeadEntry {
    Id(String),
    Job { id: String, reason: Option<String>, attempt: Option<u32> },
}

impl From<DeadEntry> for DeadJob {
    fn from(entry: DeadEntry) -> DeadJob {
        match entry {
            DeadEntry::Id(id) => DeadJob { id, reason: None, attempt: None },
            DeadEntry::Job { id, reason, attempt } => DeadJob { id, reason, attempt },
        }
    }
}
