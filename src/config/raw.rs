//! All sections as written, for the schema: `dwell schema` prints the docs of the fields as the
//! manual.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Broker, Compat, Delivery, Http, Ingest, Limits, Probes, QueueRules, Redis, Runtime, Shutdown,
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
