//! A private RabbitMQ: one node, with the user `guest`.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::port::Port;
use super::process::{Look, Process};
use super::{ServerError, find};
use crate::clock;

/// How a private RabbitMQ is set up. The default: the user `guest` with the password `guest`, and no plugin.
#[derive(Debug, Clone, Default)]
pub struct RabbitOptions {
    /// More lines of its `rabbitmq.conf` (`max_message_size = 1048576`).
    pub config: String,
}

/// A private RabbitMQ. Dropped, it is killed, and its queues go. A name server of Erlang's (epmd) that it started for the machine stays.
#[derive(Debug)]
pub struct RabbitServer {
    process: Process,
    /// For its own tools.
    tools: Port,
}

impl RabbitServer {
    /// Starts one and returns it ready. Takes seven seconds or so.
    pub async fn start(options: RabbitOptions) -> Result<Self, ServerError> {
        let mut process = Process::new("rabbitmq-server", find::rabbitmq_server()?)?;
        let tools = Port::reserve()?;
        for (file, text) in [("rabbitmq.conf", config(&options, process.port())), ("plugins", "[].\n".to_owned())] {
            let path = process.dir().join(file);
            std::fs::write(&path, text).map_err(ServerError::prepare(format!("the file {}", path.display())))?;
        }
        process.set_env(surroundings(process.dir(), tools.number));
        let mut server = RabbitServer { process, tools };
        server.restart().await?;
        Ok(server)
    }

    /// What its own tools (`rabbitmqctl`) need in their environment to speak to it.
    #[must_use]
    pub fn tools_environment(&self) -> Vec<(String, String)> {
        surroundings(self.process.dir(), self.tools.number)
    }

    /// `amqp://127.0.0.1:PORT`: as `guest`, on the vhost `/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port())
    }

    /// The port on 127.0.0.1: the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.process.port()
    }

    /// The process id; `None` while it is down.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// The folder with its data, its `rabbitmq.conf` and its `log`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.process.dir()
    }

    /// SIGKILL. What it confirmed of durable queues is there after a restart; but RabbitMQ 3.10 loses the leader of a quorum queue that was made in
    /// the last seconds.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        self.process.kill()
    }

    /// SIGTERM, and waits for its end.
    pub async fn stop(&mut self) -> Result<(), ServerError> {
        self.process.stop().await.map(drop)
    }

    /// Starts it on the same port and data, and returns when it is ready. One that runs is killed first.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.process.kill()?;
        let (port, name) = (self.process.port(), name(self.process.dir()));
        self.process.start(async |_| look(port, &name).await).await
    }

    /// SIGSTOP: it keeps its connections and answers nothing, as a host that hangs.
    pub fn freeze(&self) -> Result<(), ServerError> {
        self.process.freeze()
    }

    /// SIGCONT after [`RabbitServer::freeze`].
    pub fn thaw(&self) -> Result<(), ServerError> {
        self.process.thaw()
    }
}

/// The node's name without its host: its folder's, which no other node of the machine has.
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

/// What it reads from its surroundings: nothing of the machine's own RabbitMQ.
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
        // With these its start script becomes the server, under the same process id.
        ("RABBITMQ_ALLOW_INPUT", "1".to_owned()),
        ("RABBITMQ_SERVER_START_ARGS", "-noinput".to_owned()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// Ready: it greets, with the name of its node. Its listener is the last step of its start.
async fn look(port: u16, name: &str) -> Look {
    let Some(Ok(greeting)) = clock::timeout(Duration::from_secs(2), greeting(port)).await else { return Look::NotYet };
    let named = greeting.windows(name.len() + 1).any(|part| part.strip_suffix(b"@") == Some(name.as_bytes()));
    if named { Look::Ready } else { Look::NotYet }
}

/// The frame that the server sends first.
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
