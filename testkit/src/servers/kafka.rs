//! A private Kafka broker: one node that is its own controller.

use std::path::Path;
use std::process::Stdio;

use super::port::Port;
use super::process::Process;
use super::server::{Server, ServerKind};
use super::{ServerError, find};

/// The log line of a broker that serves. Other lines below a warning are not logged.
const START_LOG_LINE: &str = "Kafka Server started";

/// The options of a private Kafka. Default: no credentials, one partition a topic, no automatic
/// topics, messages up to 4 MiB.
#[derive(Debug, Clone, Default)]
pub struct KafkaOptions {
    /// More lines of its `server.properties` (`num.partitions=3`).
    pub config: String,
    /// The port on 127.0.0.1 of a proxy to [`KafkaServer::link_port`]. Clients that connect through
    /// the proxy are led back to it.
    pub proxy: Option<u16>,
}

/// A private Kafka broker.
pub type KafkaServer = Server<Kafka>;

/// The parts of a server of this kind alone.
#[derive(Debug)]
pub struct Kafka {
    /// The port of the controller.
    controller: Port,
    /// The port that the proxy leads to.
    link: Option<Port>,
}

impl ServerKind for Kafka {
    /// Ready once the log has the start line. Each start begins a new log.
    async fn is_ready(&self, _: u16, dir: &Path, _: u32) -> bool {
        let log = tokio::fs::read_to_string(dir.join("log")).await;
        log.is_ok_and(|log| log.contains(START_LOG_LINE))
    }
}

impl KafkaServer {
    /// The cluster's name. All private clusters share it: they do not know each other.
    pub const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";

    /// Starts a broker and returns it ready, after about three seconds.
    pub async fn start(options: KafkaOptions) -> Result<Self, ServerError> {
        let (java, libs) = (find::java()?, find::kafka_libs()?);
        let mut process = Process::new("kafka", java.clone())?;
        let controller = Port::reserve()?;
        let link = options.proxy.map(|_| Port::reserve()).transpose()?;
        let config = config(
            &options,
            [process.port(), controller.number],
            link.as_ref().map(|link| link.number),
            process.dir(),
        );
        process.write("server.properties", &config)?;
        let jars = format!("{}/*", libs.display());
        // A small heap and the fast compiler: the process is short-lived.
        let fixed = [
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
            "-cp",
            &jars,
        ];
        let format = ["format", "-t", Self::CLUSTER, "-c", "server.properties"];
        let formatted = tokio::process::Command::new(java)
            .args(fixed)
            .arg("kafka.tools.StorageTool")
            .args(format)
            .current_dir(process.dir())
            .stdin(Stdio::null())
            .output()
            .await;
        let formatted = formatted.map_err(ServerError::prepare("kafka's storage"))?;
        if !formatted.status.success() {
            let log = String::from_utf8_lossy(&formatted.stderr).trim().to_owned();
            return Err(ServerError::Ended {
                program: "kafka",
                port: process.port(),
                status: formatted.status,
                log,
            });
        }
        let args = fixed.into_iter().chain(["kafka.Kafka", "server.properties"]);
        process.set_args(args.map(str::to_owned).collect());
        Server::started(process, Kafka { controller, link }).await
    }

    /// The port of the controller.
    pub fn controller_port(&self) -> u16 {
        self.kind.controller.number
    }

    /// The port that the proxy of the options must lead to; `None` without a proxy.
    pub fn link_port(&self) -> Option<u16> {
        self.kind.link.as_ref().map(|link| link.number)
    }

    /// The version of the jars.
    pub fn version(&self) -> Option<String> {
        let jars = std::fs::read_dir(find::kafka_libs().ok()?).ok()?;
        let names = jars.filter_map(|jar| jar.ok()?.file_name().into_string().ok());
        names.into_iter().find_map(|name| {
            name.strip_prefix("kafka-clients-")?.strip_suffix(".jar").map(str::to_owned)
        })
    }

    /// `127.0.0.1:PORT`
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }
}

/// The settings that every private Kafka has.
const COMMON: &str = include_str!("kafka.properties");

/// The settings of one server.
fn config(
    options: &KafkaOptions,
    [port, controller]: [u16; 2],
    link: Option<u16>,
    dir: &Path,
) -> String {
    let (listens, says) = match link.zip(options.proxy) {
        Some((link, proxy)) => {
            (format!(",LINK://127.0.0.1:{link}"), format!(",LINK://127.0.0.1:{proxy}"))
        }
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
