//! A private nats-server with JetStream.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

use super::process::Process;
use super::server::{Server, ServerKind};
use super::{ServerError, find};
use dwell::clock;

/// The options of a private NATS. Default: JetStream on disk, no credentials.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    /// More lines of its configuration file (`authorization { … }`, `max_payload: 1MB`).
    pub config: String,
    /// `user:password` for the URL, if `config` asks for them.
    pub credentials: Option<String>,
}

/// A private nats-server.
pub type NatsServer = Server<Nats>;

/// The parts of a server of this kind alone.
#[derive(Debug)]
pub struct Nats {
    options: NatsOptions,
}

impl ServerKind for Nats {
    /// Ready once the first line of the server has its name and says that JetStream is enabled.
    async fn is_ready(&self, port: u16, dir: &Path, _: u32) -> bool {
        let Some(info) = info(port).await else { return false };
        info["server_name"] == name(dir) && info["jetstream"] == true
    }
}

impl NatsServer {
    /// Starts a server and returns it ready.
    pub async fn start(options: NatsOptions) -> Result<Self, ServerError> {
        let mut process = Process::new("nats-server", find::nats_server()?)?;
        let config = config(&options, process.port(), process.dir());
        let file = process.write("nats.conf", &config)?;
        process.set_args(vec!["--config".to_owned(), file]);
        Server::started(process, Nats { options }).await
    }

    /// The version that the server reports.
    pub async fn version(&self) -> Option<String> {
        info(self.port()).await?["version"].as_str().map(str::to_owned)
    }

    /// `nats://127.0.0.1:PORT`, with the credentials if there are any.
    pub fn url(&self) -> String {
        let credentials = self.kind.options.credentials.as_ref();
        let login = credentials.map_or(String::new(), |credentials| format!("{credentials}@"));
        format!("nats://{login}127.0.0.1:{}", self.port())
    }
}

/// The INFO line of the server.
async fn info(port: u16) -> Option<serde_json::Value> {
    let greeting = clock::timeout(Duration::from_secs(2), greeting(port)).await?.ok()?;
    serde_json::from_str(greeting.strip_prefix("INFO ")?).ok()
}

/// The server's name: that of its folder, which is unique.
fn name(dir: &Path) -> String {
    dir.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

fn config(options: &NatsOptions, port: u16, dir: &Path) -> String {
    format!(
        "host: \"127.0.0.1\"\nport: {port}\nserver_name: \"{}\"\njetstream {{ store_dir: \"{}\" }}\n{}\n",
        name(dir),
        dir.join("jetstream").display(),
        options.config
    )
}

async fn greeting(port: u16) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?).read_line(&mut line).await?;
    Ok(line)
}
