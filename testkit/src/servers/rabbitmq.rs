//! A private RabbitMQ: one node, with the user `guest`.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::port::Port;
use super::process::Process;
use super::server::{Server, ServerKind};
use super::{ServerError, find};
use dwell::clock;

/// The options of a private RabbitMQ. Default: the user `guest` with the password `guest`, no
/// plugins.
#[derive(Debug, Clone, Default)]
pub struct RabbitOptions {
    /// More lines of its `rabbitmq.conf` (`max_message_size = 1048576`).
    pub config: String,
}

/// A private RabbitMQ. Erlang's name server (epmd) that it may start keeps running. After a kill,
/// durable queues keep confirmed messages; but RabbitMQ 3.10 loses the leader of a quorum queue
/// that was created in the last seconds.
pub type RabbitServer = Server<Rabbit>;

/// The parts of a server of this kind alone.
#[derive(Debug)]
pub struct Rabbit {
    /// The Erlang cookie of its command-line tools.
    tools: Port,
}

impl ServerKind for Rabbit {
    /// Ready once it greets with the name of its node: the listener is the last step of the start.
    async fn is_ready(&self, port: u16, dir: &Path, _: u32) -> bool {
        let greeting = clock::timeout(Duration::from_secs(2), greeting(port)).await;
        let Some(Ok(greeting)) = greeting else { return false };
        let name = format!("{}@", name(dir));
        greeting.windows(name.len()).any(|part| part == name.as_bytes())
    }
}

impl RabbitServer {
    /// Starts a node and returns it ready, after about seven seconds.
    pub async fn start(options: RabbitOptions) -> Result<Self, ServerError> {
        let mut process = Process::new("rabbitmq-server", find::rabbitmq_server()?)?;
        let tools = Port::reserve()?;
        process.write("rabbitmq.conf", &config(&options, process.port()))?;
        process.write("plugins", "[].\n")?;
        let env = surroundings(process.dir(), tools.number);
        process.set_env(env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        Server::started(process, Rabbit { tools }).await
    }

    /// The version that the server reports.
    pub async fn version(&self) -> Option<String> {
        let greeting = clock::timeout(Duration::from_secs(2), greeting(self.port())).await?.ok()?;
        // A field table holds the name, `S`, the length in four bytes, the text.
        let name = b"\x07versionS";
        let text = greeting
            .windows(name.len())
            .position(|part| part == name)
            .and_then(|at| greeting.get(at + name.len()..))?;
        let (length, text) = text.split_first_chunk::<4>()?;
        let text = text.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// The environment of its command-line tools (`rabbitmqctl`).
    pub fn tools_environment(&self) -> Vec<(String, String)> {
        surroundings(self.dir(), self.kind.tools.number)
    }

    /// `amqp://127.0.0.1:PORT`, as `guest` on the vhost `/`.
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port())
    }
}

/// The node's name without its host: that of its folder, which is unique.
fn name(dir: &Path) -> String {
    let folder = dir.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    folder.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}

fn config(options: &RabbitOptions, port: u16) -> String {
    format!(
        "listeners.tcp.local = 127.0.0.1:{port}\ndisk_free_limit.absolute = 1MB\nlog.console = true\nlog.console.level = warning\n\
         log.file = false\n{}\n",
        options.config
    )
}

/// The environment of the node, without the settings of an installed RabbitMQ.
fn surroundings(dir: &Path, tools: u16) -> Vec<(String, String)> {
    let path = |name: &str| dir.join(name).display().to_string();
    let pairs = [
        ("HOME", path("")),
        ("RABBITMQ_NODENAME", format!("{}@localhost", name(dir))),
        ("RABBITMQ_CONF_ENV_FILE", path("none")),
        ("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf")),
        ("RABBITMQ_ADVANCED_CONFIG_FILE", path("none.config")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins")),
        ("RABBITMQ_MNESIA_BASE", path("data")),
        ("RABBITMQ_LOG_BASE", path("logs")),
        ("RABBITMQ_PID_FILE", path("pid")),
        ("RABBITMQ_DIST_PORT", tools.to_string()),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
        // These variables make the start script become the server, with the same process id.
        ("RABBITMQ_ALLOW_INPUT", "1".to_owned()),
        ("RABBITMQ_SERVER_START_ARGS", "-noinput".to_owned()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// The first frame of the server.
async fn greeting(port: u16) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"AMQP\0\0\x09\x01").await?;
    let mut head = [0; 7];
    stream.read_exact(&mut head).await?;
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    let mut frame = Vec::new();
    stream.take(u64::from(size)).read_to_end(&mut frame).await?;
    Ok(frame)
}
