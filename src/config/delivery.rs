//! `[delivery]`.

use dwell_store::store::meta::SweepRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use super::limits::Ttr;
use super::rules::MAX_DURATION_MS;
use super::values::{self, Bytes, Millis, Optional, Waits};
use crate::job::{Confirm, Late};
use crate::policy::late::LateRules;

/// More than any memory, and sums of such numbers do not overflow.
const MAX_IN_FLIGHT_BYTES: u64 = u64::MAX >> 11;

/// How due jobs are published. Durations are `500ms`, `90s`, `1h30m` or `PT15M`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Delivery {
    /// How long one attempt may take until its consumer confirms. At most `limits.max_ttr`.
    pub ttr: Ttr,
    /// An attempt without the broker's confirm in this time has failed. 100ms to 10m.
    pub publish_timeout: Millis<100, 600_000>,
    /// The waits between attempts; after the last one the job is dead. Empty: a single attempt.
    pub retry: Waits,
    /// Who confirms an attempt.
    pub confirm: Confirm,
    /// What happens to a job that is overdue by more than `max_late`.
    pub late: Late,
    /// How long a job may be overdue at its first attempt. Empty: for any time.
    #[serde(deserialize_with = "values::blank_or")]
    pub max_late: Optional<Millis<0, MAX_DURATION_MS>>,
    /// The destination of dead letters, on the target's broker. Empty: dead jobs stay in Redis
    /// only.
    pub dead: String,
    /// How long dead jobs stay in Redis. The namespace stores this value, and the stored value
    /// applies until `dwell check --adopt`.
    pub dead_retention: Millis<0, MAX_DURATION_MS>,
    /// How long Redis remembers a completed job, so that its redelivered request changes nothing.
    /// At least 1s. Of more than a million jobs of the namespace the newest million are remembered.
    /// The namespace stores this value too.
    pub dedupe_window: Millis<1000, MAX_DURATION_MS>,
    /// How many jobs may wait for a confirm at once.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_in_flight: usize,
    /// How many bytes of jobs may wait for a confirm at once: `64MiB`, `100kB`. At least
    /// `limits.max_body`.
    pub max_in_flight_bytes: Bytes<0, MAX_IN_FLIGHT_BYTES>,
}

impl Default for Delivery {
    fn default() -> Self {
        defaults::section("delivery")
    }
}

impl Delivery {
    /// The rules for late jobs.
    #[must_use]
    pub fn late_rules(&self) -> LateRules {
        LateRules { late: self.late, max_late_ms: self.max_late.map(|late| late.ms()) }
    }
}

impl From<&Delivery> for SweepRules {
    fn from(delivery: &Delivery) -> Self {
        SweepRules {
            dead_retention_ms: delivery.dead_retention.ms(),
            dedupe_window_ms: delivery.dedupe_window.ms(),
        }
    }
}
