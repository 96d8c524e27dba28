//! All sections as written, for the schema: `dwell schema` prints the docs of the fields as the
//! manual.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Broker, Compat, Delivery, Durability, Http, Ingest, Limits, Probes, QueueRules, RedisMode,
    Runtime, Shutdown, defaults,
};

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
#[serde(deny_unknown_fields)]
#[schemars(default)]
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
        defaults::section("redis")
    }
}
