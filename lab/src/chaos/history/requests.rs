//! What producers ask for, and the answers.

use serde::{Deserialize, Serialize};

/// A job that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// `delay-id`
    pub id: String,
    /// Which; with `invoke`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// What the other side said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub res: String,
}

/// What is to arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// When, epoch ms; of a request that is to be refused, any.
    pub due_ms: i64,
    /// Where.
    pub target: String,
    /// Of its body and headers: see [`Arrival::digest`].
    pub digest: String,
    /// `delay-retry`, ms each; `None`: that of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<Vec<u64>>,
    /// Its target is not there at first: attempts are burned without a fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// The code that it is to be refused with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// `delay-broker`; `None`: that of the ingest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
}

/// Something is asked for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Whose.
    pub id: String,
    /// The new time, epoch ms: of a reschedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// What the other side said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub res: String,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Whose.
    pub id: String,
    /// On what: `schedule`, `cancel`, …
    pub action: String,
    /// The word.
    pub res: String,
}
