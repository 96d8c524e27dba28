//! The destination of a message: a subject, a topic, or an exchange with a routing key.

use serde::{Deserialize, Serialize};

/// A destination or an origin: a NATS subject, a Kafka topic, or an AMQP exchange with its routing
/// key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Destination {
    /// AMQP exchange; empty is the default exchange, and the only value on other brokers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exchange: String,
    /// Subject, topic or routing key.
    pub address: String,
}

impl Destination {
    /// A subject, a topic, or an AMQP queue through the default exchange.
    pub fn new(address: impl Into<String>) -> Self {
        Destination { exchange: String::new(), address: address.into() }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.exchange.is_empty() {
            f.write_str(&self.address)
        } else {
            write!(f, "{}/{}", self.exchange, self.address)
        }
    }
}
