//! `[queues.NAME]` as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{DEFAULT_TTR_MS, OnTimeout};
use crate::units::show_duration_ms;

/// A queue of Dwell: consumers fetch its jobs over HTTP.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// How long a consumer may keep a job, where neither the fetch nor the job says. At most
    /// `limits.max_ttr`.
    pub ttr: String,
    /// The waits after a failed attempt; after the last one the job is dead. Empty: a single
    /// attempt. By default `delivery.retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Vec<String>>,
    /// What follows if a consumer keeps a job for too long.
    pub on_timeout: OnTimeout,
    /// How many jobs each queue may have, dead ones not counted; a new job beyond it is rejected as
    /// `queue_full`. 0: no maximum.
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub max_jobs: u64,
    /// How long dead jobs stay in Redis.
    pub dead_retention: String,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            ttr: show_duration_ms(DEFAULT_TTR_MS.into()),
            retry: None,
            on_timeout: OnTimeout::Ready,
            max_jobs: 0,
            dead_retention: "14d".to_owned(),
        }
    }
}
