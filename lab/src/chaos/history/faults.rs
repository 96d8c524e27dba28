//! The faults of a run, and the jobs that each one affects.

use dwell::store::keys::bucket_of;
use serde::{Deserialize, Serialize};

use super::requests::Job;
use crate::chaos::fault::FaultKind;

/// A fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The start, epoch µs.
    pub began_us: i64,
    /// The end, epoch µs; for `invoke` the planned end.
    pub healed_us: i64,
    /// The highest number of claimed jobs meanwhile.
    #[serde(default)]
    pub in_flight: u64,
    /// The target and the method, or why the fault could not be injected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The jump of a wall clock, µs: positive is ahead. For faults of clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_step_us: Option<i64>,
    /// The affected jobs, if not all are affected, and from when on the others are served in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Scope>,
}

/// The scope of a fault that affects some jobs only: it must not delay others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// From then on all other jobs are served in time, epoch µs.
    pub from_us: i64,
    /// The affected jobs.
    pub only: Only,
}

/// The jobs that a fault affects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// None.
    Nobody,
    /// Jobs for this target.
    Target(String),
    /// Jobs that name this broker.
    Broker(String),
    /// These jobs.
    Jobs(Vec<String>),
    /// Jobs of this bucket.
    Bucket {
        /// The bucket.
        number: u16,
        /// The number of buckets.
        of: u16,
    },
}

impl Only {
    /// Whether the fault affects this job.
    #[must_use]
    pub fn concerns(&self, id: &str, job: &Job) -> bool {
        match self {
            Only::Nobody => false,
            Only::Target(target) => job.target == *target,
            Only::Broker(broker) => job.broker.as_ref() == Some(broker),
            Only::Jobs(ids) => ids.iter().any(|of| of == id),
            Only::Bucket { number, of } => bucket_of(id, *of) == *number,
        }
    }
}
