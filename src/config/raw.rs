//! The settings as they are written: durations and sizes are text. The docs of the fields are the manual: `dwell schema` prints them.

use std::collections::BTreeMap;

use dwell_connectors::BrokerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Durability, RedisMode};
use crate::job::{Confirm, Late};

/// Settings of Dwell: a TOML file, then environment variables (`DWELL_REDIS__NAMESPACE`), then `--set redis.namespace=…`.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Dwell settings")]
pub struct Settings {
    /// Where jobs are kept.
    pub redis: Redis,
    /// The brokers, by name: lower-case letters, digits, `-` and `_`, at most 64.
    pub brokers: BTreeMap<String, Broker>,
    /// Where delay requests are read, by name: lower-case letters, digits, `-` and `_`, at most 64.
    pub ingest: BTreeMap<String, Ingest>,
    /// How due jobs are published.
    pub delivery: Delivery,
    /// What a request may ask for.
    pub limits: Limits,
    /// Admin API and dashboard.
    pub http: Http,
    /// `/livez`, `/readyz` and `/metrics`.
    pub probes: Probes,
    /// What SIGTERM does.
    pub shutdown: Shutdown,
}

/// Where jobs are kept.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Redis {
    /// What the URLs lead to.
    pub mode: RedisMode,
    /// One server; or several of a cluster; or several sentinels. `redis://` or, with TLS, `rediss://user:password@host:port/db`.
    pub urls: Vec<String>,
    /// A file that holds the URLs instead, one a line: for URLs with passwords.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls_file: Option<String>,
    /// The name of the master that the sentinels watch.
    pub master: String,
    /// Prefix of every key. Instances with the same namespace share their jobs.
    pub namespace: String,
    /// Into how many parts the jobs are split, 1 to 1024. Fixed when the namespace is first used.
    #[schemars(range(min = 1, max = 1024))]
    pub buckets: u16,
    /// What the inbound ack waits for.
    pub durability: Durability,
    /// The server is known to fsync each write, but does not tell (managed Redis).
    pub assume_fsync: bool,
}

impl Default for Redis {
    fn default() -> Self {
        Redis {
            mode: RedisMode::Single,
            urls: vec!["redis://127.0.0.1:6379".to_owned()],
            urls_file: None,
            master: "mymaster".to_owned(),
            namespace: "dwell".to_owned(),
            buckets: 16,
            durability: Durability::Memory,
            assume_fsync: false,
        }
    }
}

/// A broker: its kind, how to reach it, and what producers may reach on it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("unevaluatedProperties" = false))]
pub struct Broker {
    /// Patterns of the targets that producers may reach, in the broker's own wildcards.
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
    /// The name of the broker that is read, as in `[brokers.NAME]`.
    #[schemars(transform = without_default)]
    pub broker: String,
    /// The topic, queue or subject that is read.
    pub topic: String,
    /// The consumer group or durable consumer. Instances with the same group share the messages.
    pub group: String,
    /// Where a request's rules stand: in `delay-*` headers, or with the body in a JSON envelope.
    pub format: Format,
    /// What `delay-for` counts from: the message's own timestamp, or its receipt.
    pub delay_from: DelayFrom,
    /// Create what is missing: the topic, quorum queue or stream of the ingest, `rejected` and `dead`.
    pub declare: bool,
    /// AMQP: the queue to which the dead-letter exchange of the topic's queue leads what expires there; it is read too. Empty: none, or with
    /// `declare` the topic's name and `.expired`, which is made.
    pub expired_queue: String,
    /// Where bad requests go, on the same broker.
    pub rejected: String,
    /// Where requests go that name no target. Empty: they are rejected.
    pub target: String,
    /// AMQP: publish on this exchange where a request names none.
    pub exchange: String,
    /// What becomes of a message without a delay.
    pub missing_delay: MissingDelay,
    /// Kafka: `key` takes a message's key as the job's id where the message names none, and a tombstone cancels. Empty: an id is made.
    pub id_from: IdFrom,
    /// How long requests are held while Redis is away, before they are given back for another instance. At least 1s.
    pub hold: String,
    /// Where a group or durable consumer begins that is new: `earliest`, `latest` or a time (RFC 3339). One that the broker knows goes on where it
    /// was. Not for queues: they have no log.
    pub start: String,
    /// How old a request's message may be; an older one is rejected as `too_old`. Empty: none is too old.
    pub max_age: String,
}

impl Default for Ingest {
    fn default() -> Self {
        Ingest {
            broker: String::new(),
            topic: "delay.in".to_owned(),
            group: "dwell".to_owned(),
            format: Format::Headers,
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
        }
    }
}

fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

/// Where a request's rules stand.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// In `delay-*` headers; the body is opaque.
    Headers,
    /// The body is JSON that holds the rules and the body to publish.
    Envelope,
}

/// What `delay-for` counts from.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelayFrom {
    /// The message's own timestamp.
    Message,
    /// Its receipt, by Redis's clock.
    Receipt,
}

/// What becomes of a message without a delay.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingDelay {
    /// It goes to `rejected`.
    Reject,
    /// It is published at once.
    Immediate,
}

/// What the id of a job is taken from where its message names none.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdFrom {
    /// It is made.
    #[serde(rename = "")]
    Made,
    /// The message's key.
    Key,
}

/// How due jobs are published. Durations are `500ms`, `90s`, `1h30m` or `PT15M`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Delivery {
    /// How long one attempt may take until its consumer confirms it. At most `limits.max_ttr`.
    pub ttr: String,
    /// An attempt without a broker's confirm in this time has failed. 100ms to 10m.
    pub publish_timeout: String,
    /// Waits between attempts; at its end the job is dead. Empty: a single attempt.
    pub retry: Vec<String>,
    /// Who confirms an attempt.
    pub confirm: Confirm,
    /// What becomes of a job found overdue by more than `max_late`.
    pub late: Late,
    /// How much overdue a job may be at its first attempt. Empty: it is never too late.
    pub max_late: String,
    /// Where dead letters go, on the target's broker. Empty: they are kept in Redis only.
    pub dead: String,
    /// How long dead jobs are kept in Redis. The namespace keeps it: what stands there is followed, until `dwell check --adopt`.
    pub dead_retention: String,
    /// How long a job that is over is remembered, so that its redelivered request changes nothing. At least 1s. The namespace keeps it, as above.
    pub dedupe_window: String,
    /// How many jobs may be out for publishing at once.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_in_flight: u64,
    /// How many bytes of jobs may be out for publishing at once: `64MiB`, `100kB`. At least `limits.max_body`.
    pub max_in_flight_bytes: String,
}

impl Default for Delivery {
    fn default() -> Self {
        Delivery {
            ttr: "30s".to_owned(),
            publish_timeout: "15s".to_owned(),
            retry: ["2m", "10m", "10m", "1h", "2h", "6h", "15h"].map(str::to_owned).to_vec(),
            confirm: Confirm::Broker,
            late: Late::Fire,
            max_late: String::new(),
            dead: "delay.dead".to_owned(),
            dead_retention: "14d".to_owned(),
            dedupe_window: "2m".to_owned(),
            max_in_flight: 1024,
            max_in_flight_bytes: "64MiB".to_owned(),
        }
    }
}

/// What a request may ask for.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The longest delay; a request beyond it is rejected.
    pub max_delay: String,
    /// The largest body. At most 256MiB.
    pub max_body: String,
    /// The most steps of a retry array.
    #[schemars(range(min = 0, max = 1000))]
    pub max_retries: u64,
    /// How often a message that Dwell published may come back as a new request.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub max_rounds: u64,
    /// The longest time to run where the consumer confirms. At most 49d.
    pub max_ttr: String,
    /// How many bytes of memory may be read and not stored, for each ingest: `64MiB`, `100kB`. At least `limits.max_body`. Empty: 64MiB, or `max_body`
    /// where that is more.
    pub max_inbound_bytes: String,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_delay: "366d".to_owned(),
            max_body: "1MiB".to_owned(),
            max_retries: 64,
            max_rounds: 64,
            max_ttr: "12h".to_owned(),
            max_inbound_bytes: String::new(),
        }
    }
}

/// Admin API and dashboard.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// IP address and port. Without a token only a loopback address.
    pub listen: String,
    /// A file that holds the bearer token. Empty: no token.
    pub token_file: String,
}

impl Default for Http {
    fn default() -> Self {
        Http { listen: "127.0.0.1:7464".to_owned(), token_file: String::new() }
    }
}

/// `/livez`, `/readyz` and `/metrics`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Probes {
    /// IP address and port.
    pub listen: String,
}

impl Default for Probes {
    fn default() -> Self {
        Probes { listen: "0.0.0.0:9464".to_owned() }
    }
}

/// What SIGTERM does.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// How long to wait for confirms before unfinished claims are given back. At most 1h.
    pub drain: String,
}

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown { drain: "10s".to_owned() }
    }
}
