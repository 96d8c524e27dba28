//! The faults of a run, and the jobs that each one affects.

use dwell::store::keys::bucket_of;
use serde::{Deserialize, Serialize};

use super::requests::Job;
use crate::chaos::fault::FaultKind;
use crate::sums::sums;

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
    /// The most leases meanwhile. Older histories have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<Leases>,
    /// The buckets whose last writes a master that was promoted meanwhile may not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<Forgotten>,
}

impl Fault {
    /// A fault from one time to another, epoch µs, of which no more is known.
    #[must_use]
    pub fn new(kind: FaultKind, (began_us, healed_us): (i64, i64), detail: String) -> Fault {
        Fault {
            kind,
            began_us,
            healed_us,
            in_flight: 0,
            detail,
            clock_step_us: None,
            beside: None,
            leases: None,
            forgotten: None,
        }
    }

    /// Whether the fault affects some jobs only, and this one among them.
    pub(crate) fn affects_only(&self, id: &str, job: &Job) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.only.concerns(id, job))
    }

    /// Whether another master was promoted that may not know the last writes.
    #[must_use]
    pub fn has_forgotten(&self) -> bool {
        self.kind.effects().rolls_back || self.forgotten.is_some()
    }

    /// Whether the last writes for this job may be unknown to a promoted master.
    #[must_use]
    pub fn rolls_back(&self, id: &str) -> bool {
        self.kind.effects().rolls_back
            || self.forgotten.as_ref().is_some_and(|forgotten| forgotten.concerns(id))
    }
}

/// The leases in Redis: how many, and in which states the jobs are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// Jobs in leases.
    pub claimed: u64,
    /// Leases.
    pub leases: u64,
    /// Leases that some jobs have left and others have not.
    pub half_settled: u64,
    /// Jobs that wait for their consumers.
    pub held: u64,
}

impl Leases {
    /// The greater of each number.
    #[must_use]
    pub fn most(self, other: Leases) -> Leases {
        Leases {
            claimed: self.claimed.max(other.claimed),
            leases: self.leases.max(other.leases),
            half_settled: self.half_settled.max(other.half_settled),
            held: self.held.max(other.held),
        }
    }
}

sums! { Leases: claimed leases half_settled held }

/// The buckets whose last writes a promoted master may not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The buckets.
    pub buckets: Vec<u16>,
    /// The number of all buckets.
    pub of: u16,
}

impl Forgotten {
    /// Whether the bucket of this job is among them.
    #[must_use]
    pub fn concerns(&self, id: &str) -> bool {
        self.buckets.contains(&bucket_of(id, self.of))
    }
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
    /// Jobs for these targets.
    Targets(Vec<String>),
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
            Only::Targets(targets) => targets.contains(&job.target),
            Only::Broker(broker) => job.broker.as_ref() == Some(broker),
            Only::Jobs(ids) => ids.iter().any(|of| of == id),
            Only::Bucket { number, of } => bucket_of(id, *of) == *number,
        }
    }
}
