//! The tokens of applications.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::queues::matches;
use super::values::without_default;

/// The token of an application: what its bearer may do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["may"]))]
pub struct Token {
    /// The token. Better in `token_file`.
    // Once the settings are checked, also that of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub token: Option<Secret>,
    /// A file with the token; a line end after it is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// What the bearer may do; none implies another.
    #[serde(default)]
    #[schemars(transform = without_default)]
    pub may: Vec<Scope>,
    /// The queues of the bearer: names, or patterns where `*` is any characters. Only `*` allows
    /// targets on brokers too.
    #[serde(default = "all_queues")]
    pub queues: Vec<String>,
}

fn all_queues() -> Vec<String> {
    vec!["*".to_owned()]
}

/// What the bearer of a token may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Schedule jobs.
    Schedule,
    /// Fetch jobs; finish, fail, release and touch them.
    Consume,
    /// Read jobs, queues and counts.
    Read,
    /// Everything else: cancel, reschedule, fire, requeue, pause, resume, purge.
    Act,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 4] = [Scope::Schedule, Scope::Consume, Scope::Read, Scope::Act];

    /// The word in the settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Schedule => "schedule",
            Scope::Consume => "consume",
            Scope::Read => "read",
            Scope::Act => "act",
        }
    }
}

impl Token {
    /// The token as its bearer sends it. Empty, which nobody's is, before the settings are checked.
    #[must_use]
    pub fn secret(&self) -> &str {
        self.token.as_ref().map_or("", Secret::expose)
    }

    /// Whether the bearer may make calls of this kind.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.may.contains(&scope)
    }

    /// Whether the bearer may use this queue.
    #[must_use]
    pub fn has_queue(&self, queue: &str) -> bool {
        self.queues.iter().any(|pattern| matches(pattern, queue))
    }

    /// Whether the bearer may use every queue, and so the targets on brokers too.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.queues.iter().any(|pattern| pattern == "*")
    }
}

/// A secret that no log shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A secret of this text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Secret(text)
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}
