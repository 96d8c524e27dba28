//! The faults of a run, and the jobs that each one affects.

use dwell::store::keys::bucket_of;
use serde::{Deserialize, Serialize};

use super::requests::Job;

/// Something broken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Its name.
    pub kind: String,
    /// From when, epoch µs.
    pub began_us: i64,
    /// Until when, epoch µs; of `invoke` when it is to be whole again.
    pub healed_us: i64,
    /// The most jobs that were claimed meanwhile.
    #[serde(default)]
    pub in_flight: u64,
    /// What was done to what, or why it could not be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// By how much a wall clock jumped, µs: above zero it was ahead. Of faults of clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_step_us: Option<i64>,
    /// Who else is served as ever while it lasts, and from when on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Scope>,
}

/// A fault that concerns some jobs alone: it must hold up no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// From when on all others are served in time, epoch µs.
    pub from_us: i64,
    /// Whom it concerns.
    pub only: Only,
}

/// Whom a fault concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// From then on nobody.
    Nobody,
    /// Jobs for this target.
    Target(String),
    /// Jobs that name this broker.
    Broker(String),
    /// These jobs.
    Jobs(Vec<String>),
    /// Jobs of this bucket.
    Bucket {
        /// Its number.
        number: u16,
        /// How many there are.
        of: u16,
    },
}

impl Only {
    /// Whether it concerns this job.
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
