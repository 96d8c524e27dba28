//! An environment for the demo and the load generator: private servers, and the settings that lead
//! to them.
//!
//! - [`Environment`]: the servers and the settings.
//! - [`distance`]: proxies that put the servers at a distance.
//! - [`traffic`]: a producer and a consumer, over the same connectors as the runtime.

pub mod distance;
pub mod traffic;

use dwell_connectors::{BrokerConfig, ConnectorError, Destination, Role};

use distance::{Distance, Wires};

use crate::servers::{
    BrokerKind, BrokerServer, DwellServer, KafkaOptions, KafkaServer, RedisOptions, RedisServer,
    ServerError, find,
};
use dwell::cli::exit::{Exit, Stop};
use dwell::config::{self, Overrides, Problem, Settings};
use dwell::store::error::StoreError;

/// The Redis of an environment.
#[derive(Debug, Clone)]
pub enum Store {
    /// A private Redis.
    Private(RedisOptions),
    /// A running Redis at this URL, or a Cluster at several URLs with commas between them.
    At(String),
}

/// The result of what an environment does.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The environment or its traffic failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "what the parts of an environment say")]
pub enum Failure {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the settings of the environment are refused: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Settings(Vec<Problem>),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An unexpected result.
    #[error("{0}")]
    Unexpected(String),
}

impl From<String> for Failure {
    fn from(unexpected: String) -> Self {
        Failure::Unexpected(unexpected)
    }
}

impl From<&str> for Failure {
    fn from(unexpected: &str) -> Self {
        Failure::Unexpected(unexpected.to_owned())
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        match failure {
            Failure::Io(error) => error.into(),
            Failure::Unexpected(_) | Failure::Settings(_) => Stop::because(Exit::Failed, text, ""),
            Failure::Server(_) => Stop::because(Exit::Unavailable, text, ""),
            Failure::Connector(error) => Stop::because(Exit::Unavailable, text, error.hint),
            Failure::Store(error) => Stop::because(Exit::Unavailable, text, error.hint),
        }
    }
}

/// Private servers, and settings that lead to them. The servers stop when the value is dropped.
pub struct Environment {
    redis: Option<RedisServer>,
    broker: BrokerServer,
    settings: Settings,
    /// The settings of `dwell run`, which lead through the wires if there are any.
    text: String,
    _wires: Option<Wires>,
}

impl Environment {
    /// Starts the servers and makes the settings: the defaults, a namespace of its own, `declare`,
    /// the destinations that producers may name (`allow`: subjects, topics or queues), and more
    /// lines of `[redis]` (`buckets = 4`). The servers are perhaps at a distance from Dwell, which
    /// needs a private Redis.
    pub async fn start(
        kind: BrokerKind,
        store: Store,
        allow: &[&str],
        of_redis: &str,
        distance: Option<Distance>,
    ) -> Result<Environment> {
        let (redis, redis_url) = match store {
            Store::Private(options) => {
                let redis = RedisServer::start(options).await?;
                let url = redis.url();
                (Some(redis), url)
            }
            Store::At(url) => (None, url),
        };
        let (broker, wires) = match (distance, &redis) {
            (None, _) => (start_broker(kind, None).await?, None),
            (Some(distance), Some(redis)) => {
                let (broker, wires) = Wires::start(kind, redis, distance).await?;
                (broker, Some(wires))
            }
            (Some(_), None) => {
                return Err("a Redis of yours cannot be put at a distance".into());
            }
        };
        let text = settings_text(&redis_url, of_redis, &broker, allow);
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("dwell.toml");
        std::fs::write(&file, &text)?;
        // This process's environment variables do not apply: they may name other servers.
        let settings = config::load_from(Some(&file), &[], &Overrides::default())
            .map_err(Failure::Settings)?;
        let text = match (&wires, &redis) {
            (Some(wires), Some(redis)) => wires.settings(&text, &broker, redis),
            _ => text,
        };
        Ok(Environment { redis, broker, settings, text, _wires: wires })
    }

    /// The settings of `dwell run`.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The settings of `dwell run` as the text of a file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The broker, for producers and consumers.
    pub fn broker(&self) -> &BrokerConfig {
        &self.settings.brokers["main"].connector
    }

    /// Creates these destinations, as their consumers would.
    pub async fn declare(&self, destinations: &[&str], role: Role) -> Result<()> {
        for destination in destinations {
            self.broker().declare(&Destination::new(*destination), role).await?;
        }
        Ok(())
    }

    /// A `dwell run` with these settings, not started yet.
    pub fn dwell_to_start(&self) -> Result<DwellServer> {
        Ok(DwellServer::prepare(find::dwell(), &self.text)?)
    }

    /// The broker's name and version, if known.
    pub async fn broker_version(&self) -> Option<String> {
        self.broker.version().await
    }

    /// The private Redis; `None` if the environment uses another one.
    pub fn redis(&self) -> Option<&RedisServer> {
        self.redis.as_ref()
    }

    /// The process id of the broker.
    pub fn broker_pid(&self) -> Option<u32> {
        self.broker.pid()
    }

    /// The port of the broker.
    pub fn broker_port(&self) -> u16 {
        self.broker.port()
    }

    /// The names and ports of the servers, for people.
    pub fn describe(&self) -> String {
        let redis = self.redis.as_ref().map_or_else(
            || "a redis of yours".to_owned(),
            |redis| format!("redis-server on port {}", redis.port()),
        );
        format!("{redis}, {}", self.broker)
    }

    /// Stops the servers in order.
    pub async fn stop(mut self) -> Result<()> {
        self.broker.stop().await?;
        if let Some(redis) = &mut self.redis {
            redis.stop().await?;
        }
        Ok(())
    }
}

/// Starts a broker. A Kafka topic gets four partitions, since a producer has one batch on its way
/// to each. `proxy`: where a Kafka leads its clients.
async fn start_broker(kind: BrokerKind, proxy: Option<u16>) -> Result<BrokerServer, ServerError> {
    match kind {
        BrokerKind::Kafka => {
            let options = KafkaOptions { config: "num.partitions=4\n".to_owned(), proxy };
            Ok(BrokerServer::Kafka(KafkaServer::start(options).await?))
        }
        BrokerKind::Nats | BrokerKind::Amqp => BrokerServer::start(kind).await,
    }
}

fn settings_text(redis: &str, of_redis: &str, broker: &BrokerServer, allow: &[&str]) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let allow: Vec<String> =
        allow.iter().map(|destination| quoted(&broker.kind().pattern(destination))).collect();
    let namespace = format!("testkit-{:08x}", rand::random::<u32>());
    // A password may contain a comma.
    let nodes: Vec<&str> = if redis.split(',').all(|url| url.contains("://")) {
        redis.split(',').collect()
    } else {
        vec![redis]
    };
    let urls: Vec<String> = nodes.iter().map(|url| quoted(url.trim())).collect();
    let mode = if urls.len() > 1 { "cluster" } else { "single" };
    format!(
        "[redis]\nmode = \"{mode}\"\nurls = [{}]\nnamespace = \"{namespace}\"\n{of_redis}\n\n[brokers.main]\n{}allow = [{}]\n\n[ingest.main]\nbroker = \"main\"\ndeclare = true\n",
        urls.join(", "),
        broker.settings(),
        allow.join(", ")
    )
}
