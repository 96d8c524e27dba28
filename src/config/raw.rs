//! The settings as written: durations and sizes are text. `dwell schema` prints the docs of the
//! fields as the manual.

mod listeners;

use std::collections::BTreeMap;

use dwell_connectors::BrokerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Delivery, Durability, Limits, QueueRules, RedisMode, Runtime, Shutdown};

pub use listeners::{Compat, Http, Probes, Scope, Token};

/// Settings of Dwell: a TOML file, then environment variables (`DWELL_REDIS__NAMESPACE`), then
/// `--set redis.namespace=…`.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Dwell settings")]
pub struct Settings {
    /// Where jobs are kept.
    pub redis: Redis,
    /// The brokers, each with a name: up to 64 lower-case letters, digits, `-` and `_`.
    pub brokers: BTreeMap<String, Broker>,
    /// The topics with delay requests, each with a name: up to 64 lower-case letters, digits, `-`
    /// and `_`.
    pub ingest: BTreeMap<String, Ingest>,
    /// The queues from which consumers fetch jobs, each with a name of 1 to 255 letters, digits,
    /// `.`, `_` and `-`; or a pattern, where `*` is any characters. An exact name applies before a
    /// pattern, and of several patterns the one with the most characters besides `*`.
    pub queues: BTreeMap<String, QueueRules>,
    /// How due jobs are published.
    pub delivery: Delivery,
    /// The limits of a request.
    pub limits: Limits,
    /// Admin API and dashboard.
    pub http: Http,
    /// Listeners that speak the protocols of other delay queues, so that their clients need no
    /// change.
    pub compat: Compat,
    /// `/livez`, `/readyz` and `/metrics`.
    pub probes: Probes,
    /// The drain after SIGTERM.
    pub shutdown: Shutdown,
    /// What the process takes of its host.
    pub runtime: Runtime,
}

/// Where jobs are kept.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Redis {
    /// The kind of Redis at the URLs.
    pub mode: RedisMode,
    /// The URL of one server, or the URLs of a cluster's servers or of sentinels:
    /// `redis://user:password@host:port/db`, or `rediss://` for TLS.
    pub urls: Vec<String>,
    /// A file with the URLs, one per line, instead of `urls`: for URLs with passwords. Read again
    /// for each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls_file: Option<String>,
    /// The user of the sentinels; without it their default user. User and password in the URLs of
    /// sentinels are those of Redis itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_user: Option<String>,
    /// The password of the sentinels, if they ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_password: Option<String>,
    /// A file with the password of the sentinels, instead of `sentinel_password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_password_file: Option<String>,
    /// The name of the master that the sentinels monitor.
    pub master: String,
    /// Prefix of every key. Instances with the same namespace share their jobs.
    pub namespace: String,
    /// The number of parts that the jobs are split into, 1 to 1024. Fixed by the first use of the
    /// namespace.
    #[schemars(range(min = 1, max = 1024))]
    pub buckets: u16,
    /// What must have the job before the request is acknowledged.
    pub durability: Durability,
    /// Assume that the server syncs each write to disk although it does not report that (managed
    /// Redis).
    pub assume_fsync: bool,
}

impl Default for Redis {
    fn default() -> Self {
        let dwell_engine::Redis {
            mode,
            urls,
            master,
            namespace,
            buckets,
            durability,
            assume_fsync,
            ..
        } = dwell_engine::Redis::new("redis://127.0.0.1:6379");
        Redis {
            mode,
            urls,
            urls_file: None,
            sentinel_user: None,
            sentinel_password: None,
            sentinel_password_file: None,
            master,
            namespace,
            buckets,
            durability,
            assume_fsync,
        }
    }
}

/// A broker: its kind, its address, and the targets that producers may use.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("unevaluatedProperties" = false))]
pub struct Broker {
    /// Patterns of the targets that producers may use, with the broker's own wildcards.
    pub allow: Vec<String>,
    /// The kind, and the settings of that kind.
    #[serde(flatten)]
    pub connector: BrokerConfig,
}

/// Where delay requests are read.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["broker"]))]
pub struct Ingest {
    /// The broker to read, by its name in `[brokers.NAME]`.
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
    pub expired_queue: String,
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
    pub hold: String,
    /// Where a new group or durable consumer starts: `earliest`, `latest` or a time (RFC 3339). An
    /// existing one continues where it was. Not for queues, which have no log.
    pub start: String,
    /// The maximum age of a request; an older one is rejected as `too_old`. Empty: no maximum.
    pub max_age: String,
    /// A header of the producers' own that holds the due time, in a form that `delay-until` takes.
    /// It is passed on. A message where it is absent, null or empty has no due time by it. Empty:
    /// none is read.
    pub due_header: String,
}

impl Default for Ingest {
    fn default() -> Self {
        Ingest {
            broker: String::new(),
            topic: "delay.in".to_owned(),
            group: "dwell".to_owned(),
            format: Format::Headers,
            deliver_to: DeliverTo::Target,
            delay_from: DelayFrom::Message,
            declare: false,
            expired_queue: String::new(),
            rejected: "delay.rejected".to_owned(),
            target: String::new(),
            exchange: String::new(),
            missing_delay: MissingDelay::Reject,
            id_from: IdFrom::Made,
            hold: "15s".to_owned(),
            start: "earliest".to_owned(),
            max_age: String::new(),
            due_header: String::new(),
        }
    }
}

fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

/// The format of a request.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// In `delay-*` headers; the body is opaque.
    Headers,
    /// The body is JSON with the fields of the request and the body to publish.
    Envelope,
}

/// What the `topic` of an envelope names.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliverTo {
    /// A target on the broker, as `delay-target` does.
    Target,
    /// A queue of Dwell, as `delay-queue` does.
    Queue,
}

/// The start of `delay-for`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelayFrom {
    /// The message's own timestamp.
    Message,
    /// Its receipt, by Redis's clock.
    Receipt,
}

/// What happens to a message without a delay.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingDelay {
    /// The message goes to `rejected`.
    Reject,
    /// The message is published at once.
    Immediate,
}

/// The id of a job whose message has no `delay-id`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdFrom {
    /// Generated.
    #[serde(rename = "")]
    Made,
    /// The message's key.
    Key,
}
