//! The settings: a file, then the environment, then flags. All mistakes are reported at once.
//!
//! Each section is one struct, which documents its settings, has their bounds in the types of
//! [`values`], and takes what is left out from `defaults`, the file of defaults. That of Redis is
//! the store's own. `layers` merges the sources and records where each value was written. `walk`
//! finds unknown keys and values of the wrong type, by the `shape` of the JSON Schema.
//! `resolve` reads the sections, checks the rules between settings, and makes [`Settings`].

mod brokers;
mod content;
mod defaults;
mod delivery;
mod events;
mod ingest;
mod layers;
mod limits;
mod listeners;
pub mod problem;
mod process;
mod queues;
mod resolve;
mod rules;
mod schedules;
mod secret;
mod shape;
mod target_limits;
#[cfg(all(test, feature = "nats", feature = "kafka"))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
mod tokens;
pub mod values;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub use brokers::Broker;
pub(crate) use content::decode as decode_base64;
pub use content::{HeaderTexts, TextOrBytes};
pub use delivery::Delivery;
pub use dwell_store::config::{Durability, Redis, RedisMode};
pub use events::{EventKind, Events};
pub use ingest::{DelayFrom, DeliverTo, Format, IdFrom, Ingest, MissingDelay};
pub use limits::Limits;
pub use listeners::{Compat, Http, Probes};
pub use problem::Problem;
pub use process::{Runtime, Shutdown};
pub use queues::{QueueRules, Queues};
pub use schedules::{CatchUp, Overlap, Schedule};
use schemars::JsonSchema;
pub(crate) use secret::{Mask, read as read_secret};
use serde::{Deserialize, Serialize};
pub use target_limits::TargetLimit;
pub use tokens::{Scope, Secret, Token};

/// Settings from flags. Flags override the environment, which overrides the file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Settings with their values, such as `("delivery.ttr", "10s")`; lists as `a,b`.
    pub set: Vec<(String, String)>,
}

/// Reads the settings: defaults, then the file, then this process's environment, then flags.
///
/// # Errors
/// Every mistake, in the order of the sections; never empty. No mistake shows a secret.
pub fn load(file: Option<&Path>, overrides: Overrides) -> Result<Settings, Vec<Problem>> {
    let mut env = Vec::new();
    let mut problems = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        match value.into_string() {
            Ok(value) => env.push((name, value)),
            Err(_) if layers::is_setting(&name) => {
                let (message, hint) = (
                    "the value of this variable is not UTF-8 text".to_owned(),
                    "write UTF-8, or use a file".to_owned(),
                );
                problems.push(Problem { key: String::new(), source: name, message, hint });
            }
            Err(_) => {}
        }
    }
    match load_from(file, &env, &overrides) {
        Ok(settings) if problems.is_empty() => Ok(settings),
        result => {
            problems.extend(result.err().unwrap_or_default());
            Err(problems)
        }
    }
}

/// As [`load`], with these variables as the environment.
///
/// # Errors
/// As [`load`].
pub fn load_from(
    file: Option<&Path>,
    env: &[(String, String)],
    overrides: &Overrides,
) -> Result<Settings, Vec<Problem>> {
    let shape = shape::Shape::of_settings();
    let (layers, mut problems) = layers::Layers::read(file, env, overrides);
    let result = if problems.is_empty() {
        problems.extend(walk::near_misses(env, shape));
        let (value, found) = walk::walk(&layers, shape);
        problems.extend(found);
        resolve::resolve(&layers, &value, problems)
    } else {
        // Without the file everything else would look missing.
        Err(problems)
    };
    result.map_err(|problems| masked(problems, &layers, overrides))
}

/// The problems without the secrets that stand in the wrong settings, or as names.
fn masked(
    mut problems: Vec<Problem>,
    layers: &layers::Layers,
    overrides: &Overrides,
) -> Vec<Problem> {
    let mut texts = layers.texts();
    texts.extend(overrides.set.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]));
    let mask = secret::Mask::of_settings(texts);
    for problem in &mut problems {
        for text in [&mut problem.key, &mut problem.source, &mut problem.message, &mut problem.hint]
        {
            *text = mask.over(text);
        }
    }
    problems
}

/// The JSON Schema of the settings file.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Settings).to_value()
}

/// The candidate most similar to `word`, if any is similar.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = candidates
        .map(|candidate| (strsim::damerau_levenshtein(&word.to_lowercase(), candidate), candidate));
    distances
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Settings of Dwell: a TOML file, then environment variables (`DWELL_REDIS__NAMESPACE`), then
/// `--set redis.namespace=…`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
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
    #[schemars(with = "BTreeMap<String, QueueRules>")]
    pub queues: Arc<Queues>,
    /// Recurring schedules that an instance which delivers jobs stores at its start, each with its
    /// id as its name: up to 240 bytes, in quotes where it holds other than letters, digits, `-`
    /// and `_`. One that is no longer in the settings of any instance is ended.
    pub schedules: BTreeMap<String, Schedule>,
    /// How due jobs are published.
    pub delivery: Delivery,
    /// Events of jobs as messages: an audit trail.
    pub events: Events,
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

impl Settings {
    /// The rules of this queue; `None` if the settings have neither its name nor a pattern for it.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&QueueRules> {
        self.queues.get(name)
    }
}
