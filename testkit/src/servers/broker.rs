//! A private broker of any kind.

use std::ops::{Deref, DerefMut};

use super::process::Process;
use super::{
    KafkaOptions, KafkaServer, NatsOptions, NatsServer, RabbitOptions, RabbitServer, ServerError,
};

/// The kinds of brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum BrokerKind {
    /// NATS JetStream
    Nats,
    /// Kafka
    Kafka,
    /// RabbitMQ
    Amqp,
}

impl BrokerKind {
    /// All kinds of brokers.
    pub const ALL: [BrokerKind; 3] = [BrokerKind::Nats, BrokerKind::Kafka, BrokerKind::Amqp];

    /// The value of `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            BrokerKind::Nats => "nats",
            BrokerKind::Kafka => "kafka",
            BrokerKind::Amqp => "amqp",
        }
    }

    /// The pattern in `allow` for a subject, a topic, or a queue behind the default exchange.
    pub fn pattern(self, destination: &str) -> String {
        match self {
            BrokerKind::Nats | BrokerKind::Kafka => destination.to_owned(),
            BrokerKind::Amqp => format!("/{destination}"),
        }
    }
}

/// A private broker, with the operations of its [`Process`]. It is killed and its data is removed
/// when the value is dropped.
#[derive(Debug)]
#[allow(missing_docs, reason = "one for each kind")]
pub enum BrokerServer {
    Nats(NatsServer),
    Kafka(KafkaServer),
    Amqp(RabbitServer),
}

impl BrokerServer {
    /// Starts a broker with default options and returns it ready.
    pub async fn start(kind: BrokerKind) -> Result<Self, ServerError> {
        Ok(match kind {
            BrokerKind::Nats => Self::Nats(NatsServer::start(NatsOptions::default()).await?),
            BrokerKind::Kafka => Self::Kafka(KafkaServer::start(KafkaOptions::default()).await?),
            BrokerKind::Amqp => Self::Amqp(RabbitServer::start(RabbitOptions::default()).await?),
        })
    }

    /// The kind of the broker.
    pub fn kind(&self) -> BrokerKind {
        match self {
            BrokerServer::Nats(_) => BrokerKind::Nats,
            BrokerServer::Kafka(_) => BrokerKind::Kafka,
            BrokerServer::Amqp(_) => BrokerKind::Amqp,
        }
    }

    /// The lines of `[brokers.NAME]`: type and address.
    pub fn settings(&self) -> String {
        let address = match self {
            BrokerServer::Nats(_) | BrokerServer::Amqp(_) => "url",
            BrokerServer::Kafka(_) => "bootstrap",
        };
        format!(
            "type = \"{}\"\n{address} = {}\n",
            self.kind().as_str(),
            toml::Value::from(self.address())
        )
    }

    /// The address in the form that its clients take.
    pub fn address(&self) -> String {
        match self {
            BrokerServer::Nats(server) => server.url(),
            BrokerServer::Kafka(server) => server.bootstrap(),
            BrokerServer::Amqp(server) => server.url(),
        }
    }

    /// Name and version (`nats-server 2.11.4`), if known.
    pub async fn version(&self) -> Option<String> {
        let version = match self {
            BrokerServer::Nats(server) => server.version().await?,
            BrokerServer::Kafka(server) => server.version()?,
            BrokerServer::Amqp(server) => server.version().await?,
        };
        Some(format!("{} {version}", self.name()))
    }

    /// SIGTERM; waits for the end of the process.
    pub async fn stop(&mut self) -> Result<(), ServerError> {
        Process::stop(self).await.map(drop)
    }

    /// Starts the broker on the same port and data, and returns once it is ready. A running broker
    /// is killed first.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        match self {
            BrokerServer::Nats(server) => server.restart().await,
            BrokerServer::Kafka(server) => server.restart().await,
            BrokerServer::Amqp(server) => server.restart().await,
        }
    }
}

impl Deref for BrokerServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        match self {
            BrokerServer::Nats(server) => &server.process,
            BrokerServer::Kafka(server) => &server.process,
            BrokerServer::Amqp(server) => &server.process,
        }
    }
}

impl DerefMut for BrokerServer {
    fn deref_mut(&mut self) -> &mut Process {
        match self {
            BrokerServer::Nats(server) => &mut server.process,
            BrokerServer::Kafka(server) => &mut server.process,
            BrokerServer::Amqp(server) => &mut server.process,
        }
    }
}

impl std::fmt::Display for BrokerServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on port {}", self.name(), self.port())
    }
}
