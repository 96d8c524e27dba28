//! `[http]`, `[compat]` and `[probes]` as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::defaults;
use crate::config::values::{Optional, without_default};

/// Admin API and dashboard.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// The IP address and port to listen on. Without a token only a loopback address.
    pub listen: String,
    /// A file with the bearer token that may do everything. Empty: no such token.
    pub token_file: String,
    /// The tokens of applications, each with a name: up to 64 lower-case letters, digits, `-` and
    /// `_`. The log names the token of a call.
    pub tokens: BTreeMap<String, Token>,
}

impl Default for Http {
    fn default() -> Self {
        Http {
            listen: "127.0.0.1:7464".to_owned(),
            token_file: String::new(),
            tokens: BTreeMap::new(),
        }
    }
}

/// The token of an application: what its bearer may do.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["may"]))]
pub struct Token {
    /// The token. Better in `token_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A file with the token; a line end after it is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// What the bearer may do; none implies another.
    #[schemars(transform = without_default)]
    pub may: Vec<Scope>,
    /// The queues of the bearer: names, or patterns where `*` is any characters. Only `*` allows
    /// targets on brokers too.
    pub queues: Vec<String>,
}

impl Default for Token {
    fn default() -> Self {
        Token { token: None, token_file: None, may: Vec::new(), queues: vec!["*".to_owned()] }
    }
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

/// Listeners that speak the protocols of other delay queues, so that their clients need no change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Compat {
    /// The IP address and port for clients of ouqiang/delay-queue, such as `127.0.0.1:9277`. Other
    /// than loopback only if there is a token, which clients send as `?token=`. Empty: off.
    pub delay_queue: Optional<String>,
    /// The IP address and port for clients of lmstfy, such as `127.0.0.1:7777`. Other than loopback
    /// only if there is a token, which clients send as `X-Token`. Empty: off.
    pub lmstfy: Optional<String>,
}

impl Default for Compat {
    fn default() -> Self {
        defaults::section("compat")
    }
}

/// `/livez`, `/readyz` and `/metrics`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Probes {
    /// The IP address and port to listen on. `[::]` takes IPv4 too; on a host without IPv6 it is
    /// `0.0.0.0`.
    pub listen: String,
}

impl Default for Probes {
    fn default() -> Self {
        defaults::section("probes")
    }
}
