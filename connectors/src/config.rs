//! The settings of one broker, and how to open its sources and sinks.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ConnectorError, Destination, Outcomes, Sink, Source, SourceOptions, memory};

/// One `[brokers.NAME]`, without the keys that are not the connector's (`allow`).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "one for each broker of the settings")]
pub enum BrokerConfig {
    /// AMQP 0-9-1: RabbitMQ.
    #[cfg(feature = "amqp")]
    Amqp(crate::amqp::Config),
    /// NATS JetStream.
    #[cfg(feature = "nats")]
    Nats(crate::nats::Config),
    /// Kafka.
    #[cfg(feature = "kafka")]
    Kafka(crate::kafka::Config),
    /// A broker in this process; never from settings.
    #[serde(skip)]
    Memory(memory::Config),
}

/// What a missing destination is to be used for: decides what `declare` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Read by an ingest.
    Ingest,
    /// Takes rejected requests or dead letters.
    Letters,
}

/// What a source would find of its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// It is there, and fit.
    Exists,
    /// It is there; [`BrokerConfig::source`] would change what it can be changed in.
    Changed,
    /// [`BrokerConfig::source`] would make it, and this is what it would begin with, where that can be told.
    Made(Option<FirstRead>),
}

/// What a reader that is new would begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirstRead {
    /// How many messages at most.
    pub messages: u64,
    /// The time of the oldest of them, epoch ms, where it is known.
    pub oldest_ms: Option<i64>,
}

/// What is not wrong, and yet somebody should know of it before anything is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caution {
    /// What it is about.
    pub kind: CautionKind,
    /// What was found, for people.
    pub message: String,
    /// What a person can do about it.
    pub hint: String,
}

/// What a [`Caution`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CautionKind {
    /// The time of a message is its producer's word.
    ProducerTime,
    /// A message that comes back too often is dropped.
    Drops,
    /// A message whose time to live is over before it is read is dropped, or goes where nobody reads it.
    Expires,
}

/// What `declare` found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// It was there.
    Existed,
    /// It is there now.
    Created,
}

impl BrokerConfig {
    /// Opens a source: connected, its consumer found or made, ready for `recv`. The consumer is made where it is missing, the topic never.
    pub async fn source(&self, options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError> {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(config) => Box::pin(crate::amqp::source::open(config, options)).await,
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(config) => Ok(Box::new(Box::pin(crate::nats::source::open(config, options)).await?)),
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(config) => Ok(Box::new(crate::kafka::source::open(config, options).await?)),
            BrokerConfig::Memory(config) => Ok(Box::new(memory::source(config, options)?)),
        }
    }

    /// Looks whether a source could be opened, and changes nothing. The error is that of [`BrokerConfig::source`]: `Missing` for the topic.
    pub async fn look(&self, options: &SourceOptions) -> Result<Reader, ConnectorError> {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(config) => Box::pin(crate::amqp::source::look(config, options)).await,
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(config) => Box::pin(crate::nats::source::look(config, options)).await,
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(config) => crate::kafka::source::look(config, options).await,
            BrokerConfig::Memory(config) => memory::look(config, options),
        }
    }

    /// What somebody should know of what a source would read, where the broker shows it. Changes nothing.
    pub async fn cautions(&self, options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(config) => Box::pin(crate::amqp::source::cautions(config, options)).await,
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(config) => crate::kafka::cautions(config, &options.topic).await,
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(_) => Ok(Vec::new()),
            BrokerConfig::Memory(config) => memory::look(config, options).map(|_| Vec::new()),
        }
    }

    /// Opens a sink. `publish_timeout`: how long a publication may go without an answer before the sink reports it as unknown.
    pub async fn sink(&self, publish_timeout: Duration) -> Result<(Box<dyn Sink>, Outcomes), ConnectorError> {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(config) => {
                let (sink, outcomes) = Box::pin(crate::amqp::sink::open(config, publish_timeout)).await?;
                Ok((Box::new(sink), outcomes))
            }
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(config) => {
                let (sink, outcomes) = Box::pin(crate::nats::sink::open(config, publish_timeout)).await?;
                Ok((Box::new(sink), outcomes))
            }
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(config) => {
                let (sink, outcomes) = crate::kafka::sink::open(config, publish_timeout).await?;
                Ok((Box::new(sink), outcomes))
            }
            BrokerConfig::Memory(config) => {
                let (sink, outcomes) = memory::sink(config, publish_timeout)?;
                Ok((Box::new(sink), outcomes))
            }
        }
    }

    /// Makes the destination where it is missing; what exists is left as it is.
    pub async fn declare(&self, to: &Destination, role: Role) -> Result<Declared, ConnectorError> {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(config) => Box::pin(crate::amqp::declare(config, to)).await,
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(config) => Box::pin(crate::nats::declare(config, to, role)).await,
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(config) => crate::kafka::declare(config, to, role).await,
            BrokerConfig::Memory(config) => memory::declare(config, to, role),
        }
    }

    /// Makes what a source of these options reads, where it is missing; what exists is left as it is.
    pub async fn declare_source(&self, options: &SourceOptions) -> Result<Declared, ConnectorError> {
        #[cfg(feature = "amqp")]
        if let BrokerConfig::Amqp(config) = self {
            return Box::pin(crate::amqp::declare_source(config, options)).await;
        }
        self.declare(&Destination::new(&options.topic), Role::Ingest).await
    }

    /// The problems of these settings that show without a connection, each as a sentence; empty when there are none.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(config) => config.problems(),
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(config) => config.problems(),
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(config) => config.problems(),
            BrokerConfig::Memory(_) => Vec::new(),
        }
    }

    /// Why this can be no pattern of `allow` on this kind of broker, and what to write instead; or `None`.
    #[must_use]
    #[cfg_attr(not(feature = "amqp"), allow(unused_variables, reason = "only AMQP's patterns have a form"))]
    pub fn pattern_problem(&self, pattern: &str) -> Option<(String, String)> {
        #[cfg(feature = "amqp")]
        if let BrokerConfig::Amqp(_) = self {
            return crate::amqp::pattern_problem(pattern);
        }
        None
    }

    /// Whether this pattern of `allow` is for many destinations.
    #[must_use]
    pub fn is_pattern(&self, pattern: &str) -> bool {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(_) => pattern.contains('*'),
            _ => self.forbidden(&Destination::new(pattern)).is_some(),
        }
    }

    /// Whether this pattern of `allow` is for something on this exchange.
    #[must_use]
    #[cfg_attr(not(feature = "amqp"), allow(unused_variables, reason = "only AMQP has exchanges"))]
    pub fn allows_exchange(&self, pattern: &str, exchange: &str) -> bool {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(_) => crate::amqp::allows_exchange(pattern, exchange),
            _ => false,
        }
    }

    /// Whether a target that producers name is allowed by this pattern, by the broker's own rules.
    #[must_use]
    pub fn allows(&self, pattern: &str, to: &Destination) -> bool {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(_) => crate::amqp::allows(pattern, to),
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(_) => crate::nats::allows(pattern, to),
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(_) => crate::kafka::allows(pattern, to),
            BrokerConfig::Memory(_) => memory::allows(pattern, to),
        }
    }

    /// Whether this destination belongs to the broker or its clients (`$JS.>`, `_INBOX.>`), or is no destination at all (a wildcard):
    /// why not, or `None`.
    #[must_use]
    pub fn forbidden(&self, to: &Destination) -> Option<String> {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(_) => crate::amqp::forbidden(to),
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(_) => crate::nats::forbidden(to),
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(_) => crate::kafka::forbidden(to),
            BrokerConfig::Memory(_) => memory::forbidden(to),
        }
    }

    /// The kind of broker, as in `type`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(_) => "amqp",
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(_) => "nats",
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(_) => "kafka",
            BrokerConfig::Memory(_) => "memory",
        }
    }

    /// Where it is, for people: the URL without its password.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            #[cfg(feature = "amqp")]
            BrokerConfig::Amqp(config) => config.place(),
            #[cfg(feature = "nats")]
            BrokerConfig::Nats(config) => config.place(),
            #[cfg(feature = "kafka")]
            BrokerConfig::Kafka(config) => config.place(),
            BrokerConfig::Memory(_) => "memory".to_owned(),
        }
    }
}
