//! `[ingest.NAME]`.

use dwell_connectors::Start;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use super::rules::MAX_DURATION_MS;
use super::values::{self, Millis, Optional, without_default};

/// Where delay requests are read.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default, extend("required" = ["broker"]))]
pub struct Ingest {
    /// The broker to read, by its name in `[brokers.NAME]`.
    #[serde(default)]
    #[schemars(transform = without_default)]
    pub broker: String,
    /// The topic, queue or subject to read.
    pub topic: String,
    /// The consumer group or durable consumer. Instances with the same group share the messages.
    pub group: String,
    /// The format of a request: `delay-*` headers, or a JSON envelope around the body.
    pub format: Format,
    /// What the `topic` of an envelope names.
    pub deliver_to: DeliverTo,
    /// The start of `delay-for`: the message's own timestamp, or its receipt.
    pub delay_from: DelayFrom,
    /// Create what is missing: the topic, quorum queue or stream of the ingest, `rejected` and
    /// `dead`.
    pub declare: bool,
    /// AMQP: the queue that the dead-letter exchange of the topic's queue routes expired messages
    /// to. Dwell reads this queue too. Empty: none, or with `declare` the topic's name and
    /// `.expired`, which is created.
    pub expired_queue: Optional<String>,
    /// The destination of rejected requests, on the same broker.
    pub rejected: String,
    /// The target of requests that name none. Empty: such requests are rejected.
    pub target: String,
    /// AMQP: the exchange of requests that name none.
    pub exchange: String,
    /// What happens to a message without a delay.
    pub missing_delay: MissingDelay,
    /// Kafka: `key` makes the message's key the job id where the message has no `delay-id`, and a
    /// tombstone cancels the job. Empty: Dwell generates an id.
    pub id_from: IdFrom,
    /// How long to hold requests while Redis is unreachable, before they go back to the broker for
    /// another instance. At least 1s.
    pub hold: Millis<1000, MAX_DURATION_MS>,
    /// Where a new group or durable consumer starts: `earliest`, `latest` or a time (RFC 3339). An
    /// existing one continues where it was. Not for queues, which have no log.
    #[serde(with = "values::start")]
    #[schemars(with = "String")]
    pub start: Start,
    /// The maximum age of a request; an older one is rejected as `too_old`. Empty: no maximum.
    #[serde(deserialize_with = "values::blank_or")]
    pub max_age: Optional<Millis<1, MAX_DURATION_MS>>,
    /// A header of the producers' own that holds the due time, in a form that `delay-until` takes.
    /// It is passed on. A message where it is absent, null or empty has no due time by it. Empty:
    /// none is read.
    pub due_header: Optional<String>,
    /// The same for the expiry, as a time in `delay-expire`.
    pub expire_header: Optional<String>,
}

impl Default for Ingest {
    fn default() -> Self {
        defaults::section("ingest")
    }
}

impl Ingest {
    /// The topics and queues that the ingest reads.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.topic.as_str()).chain(self.expired_queue.as_deref())
    }
}

/// The format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// In `delay-*` headers; the body is opaque.
    Headers,
    /// The body is JSON with the fields of the request and the body to publish.
    Envelope,
}

/// What the `topic` of an envelope names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliverTo {
    /// A target on the broker, as `delay-target` does.
    Target,
    /// A queue of Dwell, as `delay-queue` does.
    Queue,
}

/// The start of `delay-for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelayFrom {
    /// The message's own timestamp.
    Message,
    /// Its receipt, by Redis's clock.
    Receipt,
}

/// What happens to a message without a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingDelay {
    /// The message goes to `rejected`.
    Reject,
    /// The message is published at once.
    Immediate,
}

/// The id of a job whose message has no `delay-id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdFrom {
    /// Generated.
    #[serde(rename = "")]
    Made,
    /// The message's key.
    Key,
}
