//! A job: what is delivered, where to and by which rules; and the words for its states, verdicts and ends.

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

    /// The id, or why it cannot be one.
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

/// When a job is due: a time, or a time to be counted from receipt by Redis's clock, or the earlier of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Epoch ms.
    At(i64),
    /// ms from now, as the `schedule` script sees now.
    In(u64),
    /// Whichever is earlier: epoch ms, or ms from now, as the `schedule` script sees now. For a message that seems to come from after now: this
    /// process knows Redis's clock only as it was when an answer left Redis, and a request may be held for long before it reaches the script.
    Earlier {
        /// Epoch ms.
        at_ms: i64,
        /// ms from now.
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

/// What becomes of a job found overdue by more than `max_late` at its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// It is published all the same.
    #[default]
    Fire,
    /// It is dropped, and counted.
    Drop,
    /// It goes to the dead letters, reason `late`.
    Dead,
}

/// What becomes of a schedule whose id exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// New time, body and schedule.
    #[default]
    Replace,
    /// The old one stays, the new one is dropped.
    Keep,
    /// The new one is rejected with `conflict`.
    Reject,
}

/// How long one attempt may take where a job does not say, ms: the default of `delivery.ttr`.
const DEFAULT_TTR_MS: u32 = 30_000;

/// What is delivered, where to and by which rules. The store keeps it as the record; the body stands apart, untouched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// `[brokers.NAME]` that it is published to. In the record's prefix.
    #[serde(skip)]
    pub broker: String,
    /// Where on that broker.
    #[serde(rename = "to")]
    pub to: Destination,
    /// Kafka key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Bytes>,
    /// What passes on, without control headers.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// AMQP properties as they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<Box<Properties>>,
    /// How long one attempt may take, ms. In the record's prefix.
    #[serde(skip)]
    pub ttr_ms: u32,
    /// Who confirms. In the record's prefix (flag).
    #[serde(skip)]
    pub confirm: Confirm,
    /// Waits between attempts, ms; empty: a single attempt. `None`: the `delivery.retry` of the instance that delivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Vec<u64>>,
    /// What if it is overdue; `None`: as `delivery.late` of the instance that delivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Late>,
    /// Overdue by more than this, ms; `None`: as `delivery.max_late`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_late_ms: Option<u64>,
    /// When the request was read, epoch ms of the reader's clock: for people.
    #[serde(default)]
    pub created_ms: i64,
    /// Kind of broker that the request came from (`nats`, `kafka`, `amqp`), empty for HTTP and the command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// The `traceparent` of the span of its request, for attempts to link to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// How often the message has come back to an ingest before this.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// False for a Kafka tombstone.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub has_body: bool,
    /// The body, byte for byte. Behind the metadata in the record.
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

/// Why a job is dead. The words of `delayed-dead-reason` and of `dwell_dead_total{reason}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The retry array is at its end.
    RetriesExhausted,
    /// The target will never take it.
    Invalid,
    /// Overdue by more than `max_late`, with `late = "dead"`.
    Late,
    /// The consumer said `fail` at the end of the array.
    Failed,
    /// Five crashes in a row of an instance that held it.
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

/// What is asked about a job that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Store a job.
    Schedule,
    /// End a job.
    Cancel,
    /// Give a job another due time.
    Reschedule,
    /// Make a job due now.
    Fire,
    /// The consumer has done the job.
    Finish,
    /// The consumer could not do the job.
    Fail,
    /// Bring a dead job back.
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
    /// The id existed: new time, body and rules.
    Replaced,
    /// The same job is there already: nothing changed.
    Duplicate,
    /// The id exists and was kept: nothing changed.
    Kept,
    /// The id exists and the schedule asked to be rejected: nothing changed.
    Conflict,
    /// No delivery begins after this answer, and none was made.
    Cancelled,
    /// No new attempt begins; one whose outcome is unknown may still arrive.
    CancelledAfterAttempt,
    /// An attempt is out. To `cancel`: the job ends, the attempt may still arrive. To any other action: nothing changed.
    InFlight,
    /// The job has its new time.
    Rescheduled,
    /// The job is due now.
    Firing,
    /// The job is over.
    Finished,
    /// The job waits for its next attempt.
    Failed,
    /// The dead job is due now.
    Requeued,
    /// Too late: the job was confirmed or finished.
    Fired,
    /// The job is dead: `requeue` brings it back.
    Dead,
    /// Nothing changed: no attempt is out, or the job is not dead.
    Waiting,
    /// Meant for another schedule or attempt than the one that stands: nothing changed.
    Stale,
    /// No such job is here, which does not prove that it was not delivered.
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
