//! Private servers: a redis-server, nats-server, rabbitmq-server or Kafka broker of our own, on a free loopback port, in a folder that goes when the value goes.
//!
//! The tests and the laboratory run on them. They are real servers, started as child processes and ended by their process
//! id, so that a caller can do to them what happens in production: kill them, stop them, freeze them, start them again on the same port
//! and data. In reading order:
//! - [`RedisServer`], [`NatsServer`], [`RabbitServer`] and [`KafkaServer`]: one kind of server each: its options, its arguments, when it is ready, its URL.
//! - [`RedisCluster`] and [`RedisSentinel`]: several of them that take over from each other.
//! - [`BrokerServer`]: a broker of whichever kind.
//! - [`DwellServer`]: `dwell run` itself, as a child, for whoever wants its CPU time or its end.
//! - [`Server`]: what can be done to each of them; `process`: the child, its port, its folder, its signals.
//! - `port`: a port that no other run takes at the same time.
//! - [`find`]: where the programs are.

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
pub use self::rabbitmq::{RabbitOptions, RabbitServer};
pub use self::redis::{AppendFsync, RedisOptions, RedisServer};
pub use self::redis_cluster::RedisCluster;
pub use self::redis_sentinel::{RedisSentinel, SentinelServer};
pub use self::server::Server;

/// How long a server may take to get ready or to end. Far more than any needs, so that only a broken one meets it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How often is looked whether it is so far.
const POLL: Duration = Duration::from_millis(20);

/// Why a private server could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No program of this name was found.
    #[error(
        "no {program} found: looked at {variable}, in .servers/bin and on PATH; run `make servers`, or install {program}, or set {variable} to its path"
    )]
    NotFound {
        /// `redis-server`, `nats-server`, `rabbitmq-server`, `java`
        program: &'static str,
        /// The environment variable that names its path.
        variable: &'static str,
    },
    /// No jars of Kafka were found.
    #[error(
        "no Kafka found: looked at DWELL_KAFKA_LIBS and .servers/kafka; run `make kafka`, or set DWELL_KAFKA_LIBS to a folder of its jars"
    )]
    NoKafka,
    /// The program would not run.
    #[error("cannot start {}: {error}", program.display())]
    Spawn {
        /// Its path.
        program: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It ended before it was ready, for another reason than a taken port.
    #[error("{program} on port {port} ended before it was ready ({status}); its last words: {log}")]
    Ended {
        /// Its name.
        program: &'static str,
        /// Its port.
        port: u16,
        /// The exit status.
        status: std::process::ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// It did not get ready, or did not end, in time.
    #[error("{program} on port {port} {what} within {} s; its last words: {log}", TIMEOUT.as_secs())]
    Late {
        /// Its name.
        program: &'static str,
        /// Its port.
        port: u16,
        /// `was not ready`, `did not end`
        what: &'static str,
        /// The last lines of its log.
        log: String,
    },
    /// It is not running, and was asked for something that only a running server does.
    #[error("{program} on port {port} is not running")]
    NotRunning {
        /// Its name.
        program: &'static str,
        /// Its port.
        port: u16,
    },
    /// A folder, a file or a port could not be had.
    #[error("cannot prepare {what}: {error}")]
    Prepare {
        /// What.
        what: String,
        /// What the system said.
        error: io::Error,
    },
}

impl ServerError {
    fn prepare(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| ServerError::Prepare { what, error }
    }
}

/// Waits for what several servers have to agree on, as long as for one of them to get ready.
async fn until(what: &str, condition: impl AsyncFn() -> bool) -> Result<(), ServerError> {
    let waited = clock::timeout(TIMEOUT, async {
        while !condition().await {
            clock::sleep(POLL).await;
        }
    })
    .await;
    waited.ok_or_else(|| ServerError::prepare(what)(io::ErrorKind::TimedOut.into()))
}
