//! The state of the instances during a run, and of the store at its end.

use serde::{Deserialize, Serialize};

/// An instance at work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Which.
    pub instance: usize,
    /// Its process: another one after a restart.
    pub pid: u32,
    /// Resident memory, bytes.
    pub rss: u64,
    /// `dwell_possible_duplicates_total`, all causes; `None` where it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_duplicates: Option<u64>,
}

/// How it ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Jobs in `due`.
    pub scheduled: u64,
    /// Jobs in `run`.
    pub reserved: u64,
    /// Who is in `dead`.
    pub dead: Vec<DeadJob>,
    /// What fsck found: bucket, id and problem of each.
    pub damage: Vec<String>,
    /// Why the campaign itself could not go on: then nothing is known of what was still to come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Every instance that ended by itself, or not with 0 when it was told to, and every panic in a
    /// log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<String>,
}

/// A job that is kept as dead. Records of before say its id alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DeadEntry")]
pub struct DeadJob {
    /// Whose.
    pub id: String,
    /// What it died of, as a dead letter says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The attempt that it died with: how many were begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DeadEntry {
    Id(String),
    Job {
        id: String,
        #[serde(default)]
        reason: Option<String>,
        #[serde(default)]
        attempt: Option<u32>,
    },
}

impl From<DeadEntry> for DeadJob {
    fn from(entry: DeadEntry) -> DeadJob {
        match entry {
            DeadEntry::Id(id) => DeadJob { id, reason: None, attempt: None },
            DeadEntry::Job { id, reason, attempt } => DeadJob { id, reason, attempt },
        }
    }
}
