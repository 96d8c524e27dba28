//! A private Kafka broker: one node that is its own controller.

use std::path::Path;
use std::process::Stdio;

use super::port::Port;
use super::process::{Probe, Process};
use super::server::{Server, ServerKind};
use super::{ServerError, find};

/// What the broker logs once it serves. It logs nothing else below a warning.
const STARTED: &str = "Kafka Server started";

/// How a private Kafka is set up. The default: no credentials, topics of one partition, none made by itself, messages up to 4 MiB.
#[derive(Debug, Clone, Default)]
pub struct KafkaOptions {
    /// More lines of its `server.properties` (`num.partitions=3`).
    pub config: String,
    /// The port on 127.0.0.1 of a proxy to [`KafkaServer::link_port`]: who comes by it is told to come back by it. Others speak to the broker itself.
    pub proxy: Option<u16>,
}

/// A private Kafka broker.
pub type KafkaServer = Server<Kafka>;

/// What is its own.
#[derive(Debug)]
pub struct Kafka {
    /// The controller's port, which brokers speak to.
    controller: Port,
    /// The port that a proxy leads to.
    link: Option<Port>,
}

impl ServerKind for Kafka {
    /// Ready: by its log, of which each start begins a new one.
    async fn probe(&self, _: u16, dir: &Path, _: u32) -> Probe {
        match tokio::fs::read_to_string(dir.join("log")).await {
            Ok(text) if text.contains(STARTED) => Probe::Ready,
            _ => Probe::NotYet,
        }
    }
}

impl KafkaServer {
    /// The name of its cluster. Any will do: no two of these know of each other.
    pub const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";

    /// Starts one and returns it ready. Takes three seconds or so.
    pub async fn start(options: KafkaOptions) -> Result<Self, ServerError> {
        let (java, libs) = (find::java()?, find::kafka_libs()?);
        let mut process = Process::new("kafka", java.clone())?;
        let controller = Port::reserve()?;
        let link = options.proxy.map(|_| Port::reserve()).transpose()?;
        let file = process.dir().join("server.properties");
        let config = config(&options, [process.port(), controller.number], link.as_ref().map(|link| link.number), process.dir());
        std::fs::write(&file, config).map_err(ServerError::prepare(format!("the file {}", file.display())))?;
        let args = |class: &str, rest: &[&str]| {
            // A small heap, and no time spent on code that will not run for long.
            let fixed = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"];
            let mut args: Vec<String> = fixed.iter().map(|&arg| arg.to_owned()).collect();
            args.push("-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info".to_owned());
            args.extend(["-cp".to_owned(), format!("{}/*", libs.display()), class.to_owned()]);
            args.extend(rest.iter().map(|&arg| arg.to_owned()));
            args
        };
        let format = args("kafka.tools.StorageTool", &["format", "-t", Self::CLUSTER, "-c", "server.properties"]);
        let formatted = tokio::process::Command::new(java).args(format).current_dir(process.dir()).stdin(Stdio::null()).output().await;
        let formatted = formatted.map_err(ServerError::prepare("kafka's storage"))?;
        if !formatted.status.success() {
            let log = String::from_utf8_lossy(&formatted.stderr).trim().to_owned();
            return Err(ServerError::Ended { program: "kafka", port: process.port(), status: formatted.status, log });
        }
        process.set_args(args("kafka.Kafka", &["server.properties"]));
        Server::started(process, Kafka { controller, link }).await
    }

    /// The port of its controller, which brokers speak to.
    #[must_use]
    pub fn controller_port(&self) -> u16 {
        self.kind.controller.number
    }

    /// Where the proxy of its options must lead; `None` without one.
    #[must_use]
    pub fn link_port(&self) -> Option<u16> {
        self.kind.link.as_ref().map(|link| link.number)
    }

    /// The version: that of its jars.
    pub fn version(&self) -> Option<String> {
        let jars = std::fs::read_dir(find::kafka_libs().ok()?).ok()?;
        let names = jars.filter_map(|jar| jar.ok()?.file_name().into_string().ok());
        names.into_iter().find_map(|name| name.strip_prefix("kafka-clients-")?.strip_suffix(".jar").map(str::to_owned))
    }

    /// `127.0.0.1:PORT`
    #[must_use]
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }
}

/// The settings that every private Kafka has.
const COMMON: &str = include_str!("kafka.properties");

/// One node, replicas of one, no waiting for more members of a group, and a controller that lets a broker that was killed come back within a second.
fn config(options: &KafkaOptions, [port, controller]: [u16; 2], link: Option<u16>, dir: &Path) -> String {
    let (listens, says) = match link.zip(options.proxy) {
        Some((link, proxy)) => (format!(",LINK://127.0.0.1:{link}"), format!(",LINK://127.0.0.1:{proxy}")),
        None => (String::new(), String::new()),
    };
    format!(
        "{COMMON}controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listens}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{says}
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT
log.dirs={}
{}
",
        dir.join("data").display(),
        options.config
    )
}
