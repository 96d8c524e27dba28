//! A client of the HTTP API of an instance: one call at a time, over a connection that stays open.
//! `answers`: those to consumers.

pub(crate) mod answers;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use dwell::clock;
use dwell_testkit::environment::Result;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

/// Longer than any wait of a pop.
const CALL_TIMEOUT: Duration = Duration::from_secs(75);
/// Jobs of one call.
const JOBS_PER_CALL: usize = 500;

/// A link to an instance.
pub(crate) struct Link {
    address: SocketAddr,
    open: Option<Connection>,
}

/// A connection, which is closed when it is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    async fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // The call in progress returns the error of the connection.
        let driver = tokio::spawn(async move {
            let _ = driver.await;
        });
        Ok(Connection { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    async fn call(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<(u16, Bytes)> {
        let answer = self.sender.send_request(request).await?;
        Ok((answer.status().as_u16(), answer.into_body().collect().await?.to_bytes()))
    }
}

impl Link {
    /// A link to this port of this machine.
    pub(crate) fn to(port: u16) -> Link {
        Link::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    pub(crate) fn at(address: SocketAddr) -> Link {
        Link { address, open: None }
    }

    pub(crate) async fn get(&mut self, path: &str) -> io::Result<(u16, Bytes)> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> io::Result<(u16, Bytes)> {
        self.call(Method::DELETE, path, Bytes::new()).await
    }

    /// A POST of this JSON.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> io::Result<(u16, Bytes)> {
        self.call(Method::POST, path, serde_json::to_vec(body)?).await
    }

    /// The status and the body of the answer. After an error, and after a call that is dropped
    /// before its answer, the next call opens another connection.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> io::Result<(u16, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))
            .map_err(io::Error::other)?;
        let exchange = async {
            let mut connection = self.take().await?;
            let answer = connection.call(request).await.map_err(io::Error::other)?;
            self.open = Some(connection);
            Ok::<_, io::Error>(answer)
        };
        let answer = clock::timeout(CALL_TIMEOUT, exchange).await;
        answer.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Opens the connection, unless it is open.
    pub(crate) async fn connect(&mut self) -> io::Result<()> {
        self.open = Some(self.take().await?);
        Ok(())
    }

    async fn take(&mut self) -> io::Result<Connection> {
        if let Some(mut open) = self.open.take()
            && open.sender.ready().await.is_ok()
        {
            return Ok(open);
        }
        Connection::open(self.address).await
    }

    /// Schedules these jobs, [`JOBS_PER_CALL`] of them in a call.
    ///
    /// # Errors
    /// A job was refused, or an answer did not come.
    pub(crate) async fn schedule(&mut self, jobs: impl IntoIterator<Item = Value>) -> Result<()> {
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let batch: Vec<_> = jobs.by_ref().take(JOBS_PER_CALL).collect();
            let (status, answer) = self.post("/v1/jobs", &batch).await?;
            let answer = String::from_utf8_lossy(&answer);
            if status != 200 || answer.contains("\"status\":") {
                return Err(format!(
                    "POST /v1/jobs answered {status}: {}",
                    answer.chars().take(2000).collect::<String>()
                )
                .into());
            }
        }
        Ok(())
    }
}
