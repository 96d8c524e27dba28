//! A link to the HTTP API of an instance: one call at a time, kept open.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use dwell::clock;
use dwell_testkit::environment::Failure;

/// Longer than any wait of a pop.
const CALL_TIMEOUT: Duration = Duration::from_secs(75);

/// Jobs of one call.
const JOBS: usize = 500;

/// A link.
pub(crate) struct Link {
    port: u16,
    stream: Option<TcpStream>,
    read: Vec<u8>,
}

/// The answer to a pop.
#[derive(Debug, Deserialize)]
pub(super) struct Fetched<'a> {
    #[serde(borrow)]
    pub(super) jobs: Vec<Job<'a>>,
}

/// A fetched job.
#[derive(Debug, Deserialize)]
pub(super) struct Job<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) lease: Cow<'a, str>,
    pub(super) attempt: u32,
    pub(super) due_ms: i64,
    pub(super) deadline_ms: i64,
    #[serde(borrow)]
    pub(super) body: Cow<'a, str>,
}

/// The answer to words on leases.
#[derive(Debug, Deserialize)]
pub(super) struct Results {
    pub(super) results: Vec<Answer>,
}

/// The answer to one word.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) verdict: String,
}

impl Link {
    pub(crate) fn to(port: u16) -> Link {
        Link { port, stream: None, read: Vec::new() }
    }

    /// A POST with a JSON body. The status and the body of the answer. After an error the next call
    /// connects anew.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.call([head.as_bytes(), body].concat()).await
    }

    /// A GET.
    pub(crate) async fn get(&mut self, path: &str) -> io::Result<(u16, Vec<u8>)> {
        self.call(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()).await
    }

    /// A DELETE.
    pub(crate) async fn delete(&mut self, path: &str) -> io::Result<(u16, Vec<u8>)> {
        self.call(format!("DELETE {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()).await
    }

    /// Schedules these jobs, [`JOBS`] of them in a call.
    ///
    /// # Errors
    /// A job was refused, or an answer did not come.
    pub(crate) async fn schedule(
        &mut self,
        jobs: impl IntoIterator<Item = serde_json::Value>,
    ) -> Result<(), Failure> {
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let batch: Vec<_> = jobs.by_ref().take(JOBS).collect();
            let asked = serde_json::to_vec(&batch).unwrap_or_default();
            let (status, answer) = self
                .post("/v1/jobs", &asked)
                .await
                .map_err(|error| Failure::Unexpected(error.to_string()))?;
            let answer = String::from_utf8_lossy(&answer);
            if status != 200 || answer.contains("\"status\":") {
                return Err(Failure::Unexpected(format!(
                    "POST /v1/jobs answered {status}: {}",
                    answer.chars().take(2000).collect::<String>()
                )));
            }
        }
        Ok(())
    }

    /// Closes the link, without waiting for an answer.
    pub(crate) fn hang_up(&mut self) {
        self.stream = None;
        self.read.clear();
    }

    async fn call(&mut self, request: Vec<u8>) -> io::Result<(u16, Vec<u8>)> {
        let answer = clock::timeout(CALL_TIMEOUT, self.exchange(request)).await;
        let answer = answer.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        if answer.is_err() {
            self.hang_up();
        }
        answer
    }

    async fn exchange(&mut self, request: Vec<u8>) -> io::Result<(u16, Vec<u8>)> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.set_nodelay(true)?;
            self.stream = Some(stream);
        }
        // A future that is dropped half way leaves a link that nobody can use.
        let Some(mut stream) = self.stream.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        stream.write_all(&request).await?;
        self.read.clear();
        let head = loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let text = String::from_utf8_lossy(&self.read[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let (Some(status), Some(length)) = (status, length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        while self.read.len() < head + length {
            if stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let body = self.read[head..head + length].to_vec();
        if !text.contains("connection: close") {
            self.stream = Some(stream);
        }
        Ok((status, body))
    }
}
