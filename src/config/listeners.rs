//! `[http]`, `[compat]` and `[probes]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use super::tokens::Token;
use super::values::Optional;

/// Admin API and dashboard.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Http {
    /// The IP address and port to listen on. Without a token only a loopback address.
    pub listen: String,
    /// A file with the bearer token that may do everything. Empty: no such token.
    pub token_file: Optional<PathBuf>,
    /// The tokens of applications, each with a name: up to 64 lower-case letters, digits, `-` and
    /// `_`. The log names the token of a call.
    #[serde(default)]
    pub tokens: BTreeMap<String, Token>,
}

impl Default for Http {
    fn default() -> Self {
        defaults::section("http")
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
