//! A job: its message, destination and rules; and the words for actions, verdicts and reasons of
//! death.

use bytes::Bytes;
use dwell_core::{Destination, Headers, Properties};
use serde::{Deserialize, Serialize};

/// The id of a job: 1 to 256 bytes of UTF-8 without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    /// The most bytes of an id.
    pub const MAX_BYTES: usize = 256;

    /// The id, or why the text is not valid.
    pub fn new(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        if text.is_empty() {
            return Err("an id must not be empty".to_owned());
        }
        if text.len() > Self::MAX_BYTES {
            return Err(format!("an id has at most {} bytes, this one has {}", Self::MAX_BYTES, text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("an id must not contain control characters".to_owned());
        }
        Ok(JobId(text))
    }

    /// A new id: 32 hexadecimal digits, random.
    #[must_use]
    pub fn random() -> Self {
        JobId(format!("{:032x}", rand::random::<u128>()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        JobId::new(text)
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// When a job is due: at a time, after a delay from receipt by Redis's clock, or at the earlier of
/// the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Epoch ms.
    At(i64),
    /// ms from the call of the `schedule` script.
    In(u64),
    /// The earlier of the two. For a message whose timestamp seems to be in the future: this
    /// process only estimates Redis's clock, and may hold a request for long before it calls the
    /// script.
    Earlier {
        /// Epoch ms.
        at_ms: i64,
        /// ms from the call of the script.
        in_ms: u64,
    },
}

/// Who confirms an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// The broker, by its publish confirm.
    #[default]
    Broker,
    /// The consumer, by `finish` within the TTR.
    Consumer,
}

/// What happens to a job that is overdue by more than `max_late` at its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// The job is published all the same.
    #[default]
    Fire,
    /// The job is dropped and counted.
    Drop,
    /// The job goes to the dead letters, with the reason `late`.
    Dead,
}

/// What happens to a schedule whose id exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The new job replaces the old one: time, body and rules.
    #[default]
    Replace,
    /// The old job stays, and the new one is dropped.
    Keep,
    /// The new job is rejected with `conflict`.
    Reject,
}

/// The default TTR of a job, ms: the default of `delivery.ttr`.
pub const DEFAULT_TTR_MS: u32 = 30_000;

/// A message with its destination and rules. The record stores it; the body is separate and
/// unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The `[brokers.NAME]` to publish to. In the record's prefix.
    #[serde(skip)]
    pub broker: String,
    /// The destination on that broker.
    #[serde(rename = "to")]
    pub to: Destination,
    /// Kafka key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Bytes>,
    /// The headers to publish, without control headers.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// AMQP properties as received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<Box<Properties>>,
    /// How long one attempt may take, ms. In the record's prefix.
    #[serde(skip)]
    pub ttr_ms: u32,
    /// Who confirms an attempt. In the record's prefix (flag).
    #[serde(skip)]
    pub confirm: Confirm,
    /// Waits between attempts, ms; empty: a single attempt. `None`: the `delivery.retry` of the
    /// delivering instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Vec<u64>>,
    /// What happens if the job is too late; `None`: the `delivery.late` of the delivering instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Late>,
    /// The job is too late if overdue by more than this, ms; `None`: `delivery.max_late`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_late_ms: Option<u64>,
    /// When the request was read, epoch ms by the reader's clock: for people.
    #[serde(default)]
    pub created_ms: i64,
    /// The kind of broker that the request came from (`nats`, `kafka`, `amqp`); empty for HTTP and
    /// the command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// The `traceparent` of the request's span, to which attempts link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// How often the message returned to an ingest before this request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// False for a Kafka tombstone.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub has_body: bool,
    /// The body, byte for byte. Follows the metadata in the record.
    #[serde(skip)]
    pub body: Bytes,
}

impl Job {
    /// A job of this body for a destination on `[brokers.NAME]`, confirmed by the broker, with the
    /// retry array of the instance that delivers it. The other fields may be set before it is sent.
    #[must_use]
    pub fn new(broker: impl Into<String>, to: Destination, body: impl Into<Bytes>) -> Self {
        Job {
            broker: broker.into(),
            to,
            key: None,
            headers: Headers::default(),
            properties: None,
            ttr_ms: DEFAULT_TTR_MS,
            confirm: Confirm::Broker,
            retry: None,
            late: None,
            max_late_ms: None,
            created_ms: crate::clock::wall_ms(),
            origin: String::new(),
            trace: None,
            round: 0,
            has_body: true,
            body: body.into(),
        }
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// Why a job is dead: the words of `delayed-dead-reason` and `dwell_dead_total{reason}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// All attempts of the retry array failed.
    RetriesExhausted,
    /// The target will never accept the message.
    Invalid,
    /// Overdue by more than `max_late`, with `late = "dead"`.
    Late,
    /// The consumer failed the last attempt.
    Failed,
    /// The instance that held the job crashed five times in a row.
    Crashed,
}

impl DeadReason {
    /// Every reason, in the order of the contract.
    pub const ALL: [DeadReason; 5] =
        [DeadReason::RetriesExhausted, DeadReason::Invalid, DeadReason::Late, DeadReason::Failed, DeadReason::Crashed];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DeadReason::RetriesExhausted => "retries_exhausted",
            DeadReason::Invalid => "invalid",
            DeadReason::Late => "late",
            DeadReason::Failed => "failed",
            DeadReason::Crashed => "crashed",
        }
    }

    /// The reason of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// The action of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Store a job.
    Schedule,
    /// Cancel a job.
    Cancel,
    /// Give a job another due time.
    Reschedule,
    /// Make a job due now.
    Fire,
    /// The consumer has done the job.
    Finish,
    /// The consumer could not do the job.
    Fail,
    /// Schedule a dead job again.
    Requeue,
}

impl Action {
    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Schedule => "schedule",
            Action::Cancel => "cancel",
            Action::Reschedule => "reschedule",
            Action::Fire => "fire",
            Action::Finish => "finish",
            Action::Fail => "fail",
            Action::Requeue => "requeue",
        }
    }
}

/// The answer to a request. The scripts answer with the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", schema(as = VerdictWord))]
pub enum Verdict {
    /// A new job.
    Added,
    /// The id existed: the new job replaced the old one.
    Replaced,
    /// The same job exists: nothing changed.
    Duplicate,
    /// The id exists and was kept: nothing changed.
    Kept,
    /// The id exists and the policy is `reject`: nothing changed.
    Conflict,
    /// The job was never published, and will not be.
    Cancelled,
    /// There will be no further attempt; an earlier one with an unknown outcome may still arrive.
    CancelledAfterAttempt,
    /// An attempt is in flight. For `cancel`: the job ends, and the attempt may still arrive. For any
    /// other action: nothing changed.
    InFlight,
    /// The job has its new due time.
    Rescheduled,
    /// The job is due now.
    Firing,
    /// The job is done.
    Finished,
    /// The job waits for its next attempt, or dies after the last one.
    Failed,
    /// The dead job is due now.
    Requeued,
    /// Too late: the job was already confirmed or finished.
    Fired,
    /// The job is dead: requeue it.
    Dead,
    /// Nothing changed: no attempt is in flight (`fail`), or the job is not dead (`requeue`).
    Waiting,
    /// Nothing changed: the job has another schedule or attempt.
    Stale,
    /// There is no such job. This does not prove that it was not delivered.
    NotFound,
}

impl Verdict {
    /// Every verdict, in the order of the contract.
    pub const ALL: [Verdict; 18] = [
        Verdict::Added,
        Verdict::Replaced,
        Verdict::Duplicate,
        Verdict::Kept,
        Verdict::Conflict,
        Verdict::Cancelled,
        Verdict::CancelledAfterAttempt,
        Verdict::InFlight,
        Verdict::Rescheduled,
        Verdict::Firing,
        Verdict::Finished,
        Verdict::Failed,
        Verdict::Requeued,
        Verdict::Fired,
        Verdict::Dead,
        Verdict::Waiting,
        Verdict::Stale,
        Verdict::NotFound,
    ];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Added => "added",
            Verdict::Replaced => "replaced",
            Verdict::Duplicate => "duplicate",
            Verdict::Kept => "kept",
            Verdict::Conflict => "conflict",
            Verdict::Cancelled => "cancelled",
            Verdict::CancelledAfterAttempt => "cancelled_after_attempt",
            Verdict::InFlight => "in_flight",
            Verdict::Rescheduled => "rescheduled",
            Verdict::Firing => "firing",
            Verdict::Finished => "finished",
            Verdict::Failed => "failed",
            Verdict::Requeued => "requeued",
            Verdict::Fired => "fired",
            Verdict::Dead => "dead",
            Verdict::Waiting => "waiting",
            Verdict::Stale => "stale",
            Verdict::NotFound => "not_found",
        }
    }

    /// The verdict of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == word)
    }
}
