//! The requests of producers, and the answers.

use serde::{Deserialize, Serialize};

/// A request for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// `delay-id`
    pub id: String,
    /// The job; with `invoke`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// The answer of the other side.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub res: String,
    /// The number of the request in its burst, from 0: `delay-on-conflict: debounce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// The expected job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The due time, epoch ms; any value for a bad request.
    pub due_ms: i64,
    /// The target.
    pub target: String,
    /// The digest of body and headers: that of its arrival.
    pub digest: String,
    /// `delay-retry`, ms each; `None`: that of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<Vec<u64>>,
    /// The target does not exist at first: attempts are used up without a fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// The expected rejection code of a bad request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// `delay-broker`; `None`: that of the ingest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// The job's consumer, for `delay-confirm: consumer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<Consumer>,
    /// `delay-expire`, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_ms: Option<i64>,
    /// The target has a limit, whose rate is in the header of the history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
    /// The target is a queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
    /// One request of a burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Debounce>,
    /// A recurring schedule, whose first time is the due time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurring: Option<Recurring>,
}

/// The times of a request with `delay-on-conflict: debounce`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debounce {
    /// `delay-for`, ms.
    pub delay_ms: i64,
    /// `delay-max-wait`, ms.
    pub max_wait_ms: i64,
}

/// The times of a recurring schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurring {
    /// The interval, ms.
    pub every_ms: i64,
    /// `delay-count`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// A consumer that confirms, and its words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    /// `delay-ttr`, ms.
    pub ttr_ms: u64,
    /// The word of each attempt; the last word is also that of every later attempt.
    pub words: Vec<Word>,
}

impl Consumer {
    /// The word of this attempt.
    #[must_use]
    pub fn word(&self, attempt: u32) -> Word {
        let at = (attempt.max(1) as usize - 1).min(self.words.len().saturating_sub(1));
        self.words.get(at).copied().unwrap_or(Word::Silent)
    }
}

/// The action of a consumer on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// It finishes within the TTR.
    Finish,
    /// It finishes twice within the TTR.
    FinishTwice,
    /// It finishes after the TTR.
    FinishLate,
    /// It fails within the TTR.
    Fail,
    /// It fails and then finishes.
    FailThenFinish,
    /// It does nothing.
    Silent,
}

/// A control request for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// The job's id.
    pub id: String,
    /// The new time of a reschedule, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// The answer of the other side.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub res: String,
    /// The number of a consumer's word: a job may have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The job's id.
    pub id: String,
    /// The action: `schedule`, `cancel`, …
    pub action: String,
    /// The verdict.
    pub res: String,
    /// The number of the consumer's word, where it is known: over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}
