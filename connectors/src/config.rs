//! The list of brokers: a line each. `[brokers.NAME]` deserializes into a [`BrokerConfig`] by its
//! `type`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Capabilities, Connector, memory};

/// From each line, `Variant(folder, "cargo feature")`: the variant of [`BrokerConfig`], its
/// implementation of [`Connector`], and its [`Capabilities`].
macro_rules! brokers {
    ($($(#[$doc:meta])* $name:ident($folder:ident, $feature:literal),)+) => {
        /// One `[brokers.NAME]`, without the keys that are not the connector's (`allow`).
        #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "type", rename_all = "snake_case")]
        #[allow(clippy::large_enum_variant, reason = "one per broker of the settings")]
        pub enum BrokerConfig {
            $($(#[$doc])* #[cfg(feature = $feature)] $name(crate::$folder::Config),)+
            /// A broker in this process; never from settings.
            #[serde(skip)]
            Memory(memory::Config),
        }

        impl BrokerConfig {
            /// The kinds of brokers in this build.
            pub const KINDS: &[&Capabilities] = &[$(#[cfg(feature = $feature)] &crate::$folder::CAPABILITIES,)+];
        }

        impl std::ops::Deref for BrokerConfig {
            type Target = dyn Connector;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(#[cfg(feature = $feature)] BrokerConfig::$name(config) => config,)+
                    BrokerConfig::Memory(config) => config,
                }
            }
        }
    };
}

brokers! {
    /// AMQP 0-9-1: RabbitMQ.
    Amqp(amqp, "amqp"),
    /// NATS JetStream.
    Nats(nats, "nats"),
    /// Kafka.
    Kafka(kafka, "kafka"),
    /// URLs, which get POST requests.
    Http(http, "http"),
}
