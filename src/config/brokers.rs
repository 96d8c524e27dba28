//! `[brokers.NAME]`.

use std::collections::BTreeMap;

use dwell_connectors::BrokerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::target_limits::TargetLimit;

/// A broker: its kind, its address, and the targets that producers may use.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("unevaluatedProperties" = false))]
pub struct Broker {
    /// Patterns of the targets that producers may use, with the broker's own wildcards. One that
    /// can match no target is an error.
    pub allow: Vec<String>,
    /// Limits of targets over all instances, by patterns as in `allow`, in quotes. The targets of a
    /// pattern share its limit. Of several patterns the one with the most characters besides `*`
    /// counts alone. A job that waits for its turn burns no attempt, and holds up no other target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, TargetLimit>,
    /// The kind, and the settings of that kind.
    #[serde(flatten)]
    pub connector: BrokerConfig,
}
