//! `[brokers.NAME]`.

use dwell_connectors::BrokerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A broker: its kind, its address, and the targets that producers may use.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("unevaluatedProperties" = false))]
pub struct Broker {
    /// Patterns of the targets that producers may use, with the broker's own wildcards. One that
    /// can match no target is an error.
    pub allow: Vec<String>,
    /// The kind, and the settings of that kind.
    #[serde(flatten)]
    pub connector: BrokerConfig,
}
