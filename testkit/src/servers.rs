//! Private servers: a redis-server, nats-server, rabbitmq-server or Kafka broker on a free loopback
//! port, in a temporary folder.
//!
//! The servers are real: child processes that a caller can kill, stop, freeze and restart on the
//! same port and data. In reading order:
//! - [`RedisServer`], [`NatsServer`], [`RabbitServer`] and [`KafkaServer`]: options, arguments,
//!   readiness and URL of each kind.
//! - [`RedisCluster`] and [`RedisSentinel`]: several Redis servers with failover.
//! - [`BrokerServer`]: a broker of any kind.
//! - [`DwellServer`]: `dwell run` as a child process.
//! - [`Server`]: a server of any kind; [`Process`]: the child, its port, its folder, its signals.
//! - `port`: a port that no other run takes at the same time.
//! - [`find`]: the paths of the programs.

mod broker;
mod dwell;
pub mod find;
mod kafka;
mod nats;
mod port;
mod process;
mod rabbitmq;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod resp;
mod server;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ::dwell::clock;

pub use self::broker::{BrokerKind, BrokerServer};
pub use self::dwell::DwellServer;
pub use self::kafka::{KafkaOptions, KafkaServer};
pub use self::nats::{NatsOptions, NatsServer};
pub use self::port::Port;
pub use self::process::Process;
pub use self::rabbitmq::{RabbitOptions, RabbitServer};
pub use self::redis::{AppendFsync, RedisOptions, RedisServer};
pub use self::redis_cluster::RedisCluster;
pub use self::redis_sentinel::{RedisSentinel, SentinelServer};
pub use self::server::Server;

/// The longest start and stop. Far above the usual time, so that only a broken server reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A private server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program was not found.
    #[error(
        "no {program} found: looked at {variable}, in .servers/bin and on PATH; run `make servers`, or install {program}, or set {variable} to its path"
    )]
    NotFound {
        /// `redis-server`, `nats-server`, `rabbitmq-server`, `java`
        program: &'static str,
        /// The environment variable that names its path.
        variable: &'static str,
    },
    /// The jars of Kafka were not found.
    #[error(
        "no Kafka found: looked at DWELL_KAFKA_LIBS and .servers/kafka; run `make kafka`, or set DWELL_KAFKA_LIBS to a folder of its jars"
    )]
    NoKafka,
    /// The program did not start.
    #[error("cannot start {}: {error}", program.display())]
    Spawn {
        /// The path of the program.
        program: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The process ended before it was ready, and not because of a taken port.
    #[error("{program} on port {port} ended before it was ready ({status}); its last words: {log}")]
    Ended {
        /// The name of the program.
        program: &'static str,
        /// The port of the server.
        port: u16,
        /// The exit status.
        status: std::process::ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// The process did not start or end in time.
    #[error("{program} on port {port} {what} within {} s; its last words: {log}", TIMEOUT.as_secs())]
    Late {
        /// The name of the program.
        program: &'static str,
        /// The port of the server.
        port: u16,
        /// `was not ready`, `did not end`
        what: &'static str,
        /// The last lines of its log.
        log: String,
    },
    /// The operation needs a running server.
    #[error("{program} on port {port} is not running")]
    NotRunning {
        /// The name of the program.
        program: &'static str,
        /// The port of the server.
        port: u16,
    },
    /// A folder, a file or a port is not available.
    #[error("cannot prepare {what}: {error}")]
    Prepare {
        /// The folder, the file or the port.
        what: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl ServerError {
    fn missing(what: impl Into<String>) -> Self {
        ServerError::Prepare { what: what.into(), error: io::ErrorKind::NotFound.into() }
    }

    fn prepare(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| ServerError::Prepare { what, error }
    }
}

/// Waits for a condition on several servers, with the timeout of a start.
async fn until(what: &str, condition: impl AsyncFn() -> bool) -> Result<(), ServerError> {
    let waited = clock::timeout(TIMEOUT, async {
        while !condition().await {
            clock::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
    waited.ok_or_else(|| ServerError::prepare(what)(io::ErrorKind::TimedOut.into()))
}
