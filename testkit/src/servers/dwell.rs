//! A private `dwell run`, with the probes on a port of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ServerError;
use super::port::Port;
use super::process::Process;
use super::server::{Server, ServerKind};
use dwell::clock;

/// A `dwell run` as a child. Its port is that of the probes.
pub type DwellServer = Server<Dwell>;

/// The parts of a server of this kind alone.
#[derive(Debug)]
pub struct Dwell {
    /// The port of `[http]`.
    http: Port,
}

impl ServerKind for Dwell {
    /// Ready once `/readyz` answers 200.
    async fn is_ready(&self, port: u16, _: &Path, _: u32) -> bool {
        let answer = clock::timeout(Duration::from_secs(2), get(port, "/readyz")).await;
        matches!(answer, Some(Ok(answer)) if answer.starts_with("HTTP/1.1 200"))
    }
}

impl DwellServer {
    /// Starts `program run` with these settings and returns it ready. The settings must not have
    /// `[probes]` or `[http]`.
    pub async fn start(program: PathBuf, settings: &str) -> Result<Self, ServerError> {
        let mut server = Self::prepare(program, settings)?;
        server.restart().await?;
        Ok(server)
    }

    /// As [`DwellServer::start`], but not started: [`DwellServer::restart`] starts it.
    pub fn prepare(program: PathBuf, settings: &str) -> Result<Self, ServerError> {
        let mut process = Process::new("dwell", program)?;
        let port = process.port();
        let http = Port::reserve()?;
        let own = format!(
            "[probes]\nlisten = \"127.0.0.1:{port}\"\n\n[http]\nlisten = \"127.0.0.1:{}\"\n",
            http.number
        );
        let file = process.write("dwell.toml", &format!("{settings}\n{own}"))?;
        process.set_args(vec!["run".to_owned(), "-c".to_owned(), file]);
        Ok(Server::over(process, Dwell { http }))
    }

    /// The port of `[http]`, which stays the same over restarts.
    pub fn http_port(&self) -> u16 {
        self.kind.http.number
    }

    /// The answer of this path of `[probes]`, head and body, over a new connection.
    pub async fn get(&self, path: &str) -> io::Result<String> {
        get(self.port(), path).await
    }

    /// The answer of `/metrics`.
    pub async fn metrics(&self) -> Result<String, ServerError> {
        let port = self.port();
        let answer = clock::timeout(Duration::from_secs(10), get(port, "/metrics")).await;
        let answer = answer.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        let metrics = answer.and_then(|answer| match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(io::Error::other("no 200 was answered")),
        });
        metrics.map_err(ServerError::prepare(format!("the metrics of dwell on port {port}")))
    }
}

async fn get(port: u16, path: &str) -> io::Result<String> {
    let mut link = TcpStream::connect(("127.0.0.1", port)).await?;
    link.write_all(
        format!("GET {path} HTTP/1.1\r\nhost: dwell\r\nconnection: close\r\n\r\n").as_bytes(),
    )
    .await?;
    let mut answer = String::new();
    link.read_to_string(&mut answer).await?;
    Ok(answer)
}
