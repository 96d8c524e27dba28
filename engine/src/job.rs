//! A job: its message, destination and rules.

mod id;
mod rules;
mod verdict;

use bytes::Bytes;
use dwell_core::{Destination, Headers, Properties};
use serde::{Deserialize, Serialize};

pub use self::id::JobId;
pub use self::rules::{Confirm, Conflict, Due, Late};
pub use self::verdict::{Action, DeadReason, Verdict};

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
