//! A server of HTTP targets, which answers as it is told.

use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dwell::clock;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A request that a receiver took.
pub(crate) struct Arrival {
    /// The header `host`: the address to which the client connected, and the port.
    pub(crate) host: String,
    /// When its body was read, epoch µs.
    pub(crate) at_us: i64,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Arrival {
    /// The text of a header.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The number of a header.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }
}

/// The reaction of a receiver to a request.
pub(crate) enum Answer {
    /// It answers.
    Send(Response<Full<Bytes>>),
    /// It answers after this time.
    Late(Response<Full<Bytes>>, Duration),
    /// It says nothing, and keeps the connection.
    Nothing,
    /// It closes the connection.
    Close,
}

/// Decides the reaction to a request.
pub(crate) type Handler = Arc<dyn Fn(Arrival) -> Answer + Send + Sync>;

/// A running receiver; when dropped, its port and its connections are closed.
pub(crate) struct Receiver {
    port: u16,
    serving: JoinSet<()>,
}

impl Receiver {
    /// Listens on this port of 127.0.0.1; 0: on a free one.
    pub(crate) async fn start(port: u16, handler: Handler) -> io::Result<Receiver> {
        Receiver::start_on(Ipv4Addr::LOCALHOST, port, handler).await
    }

    /// The same on this address; unspecified: on all.
    pub(crate) async fn start_on(
        address: Ipv4Addr,
        port: u16,
        handler: Handler,
    ) -> io::Result<Receiver> {
        let listener = TcpListener::bind((address, port)).await?;
        let port = listener.local_addr()?.port();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        if let Ok((stream, _)) = accepted {
                            connections.spawn(serve(stream, Arc::clone(&handler)));
                        }
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Receiver { port, serving })
    }

    /// Closes the port and the connections, and returns once they are closed.
    pub(crate) async fn stop(mut self) {
        self.serving.shutdown().await;
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

async fn serve(stream: TcpStream, handler: Handler) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request| one(request, &handler));
    // The client may close the connection at any time.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

async fn one(
    request: Request<Incoming>,
    handler: &Handler,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let (at_us, path) = (clock::wall_us(), head.uri.path().to_owned());
    let host = head
        .headers
        .get(http::header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    match handler(Arrival { host, at_us, path, headers: head.headers, body }) {
        Answer::Send(response) => Ok(response),
        Answer::Late(response, wait) => {
            clock::sleep(wait).await;
            Ok(response)
        }
        Answer::Nothing => pending().await,
        Answer::Close => Err(io::ErrorKind::ConnectionReset.into()),
    }
}

/// An answer with this status and no body.
pub(crate) fn status(status: u16) -> Answer {
    let mut response = Response::new(Full::default());
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    Answer::Send(response)
}

/// The same, and when to try again, s.
pub(crate) fn later(of: u16, secs: u64) -> Answer {
    match status(of) {
        Answer::Send(mut response) => {
            response.headers_mut().insert(http::header::RETRY_AFTER, secs.into());
            Answer::Send(response)
        }
        other => other,
    }
}
