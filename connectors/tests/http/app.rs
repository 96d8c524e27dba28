//! A small application that gets requests, keeps them, and answers as each path is told to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The answer of a path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    /// Never.
    held: bool,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Answer { status: StatusCode::from_u16(status).unwrap(), ..Answer::default() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(self, body: impl Into<Bytes>) -> Self {
        Answer { body: body.into(), ..self }
    }

    pub(crate) fn held(self) -> Self {
        Answer { held: true, ..self }
    }
}

/// An application on a free loopback port, until the value is dropped.
pub(crate) struct App {
    address: SocketAddr,
    shared: Arc<Shared>,
    _end: DropGuard,
}

#[derive(Default)]
struct Shared {
    paths: Mutex<HashMap<String, Answer>>,
    received: Mutex<HashMap<String, Vec<Received>>>,
}

impl App {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(accept(
            listener,
            Arc::clone(&shared),
            end.clone(),
        )));
        App { address, shared, _end: end.drop_guard() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Makes a path; others answer 404.
    pub(crate) fn answer(&self, path: &str, answer: Answer) {
        self.shared.paths.lock().insert(path.to_owned(), answer);
    }

    /// The requests of this path that have come so far.
    pub(crate) fn received(&self, path: &str) -> Vec<Received> {
        self.shared.received.lock().get(path).cloned().unwrap_or_default()
    }

    /// Waits until this many requests of the path have come.
    pub(crate) async fn arrived(&self, path: &str, count: usize) -> Vec<Received> {
        let come = || self.shared.received.lock().get(path).map_or(0, Vec::len);
        crate::until(&format!("{count} requests of {path}"), || come() >= count).await;
        self.received(path)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, end: CancellationToken) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        stream.set_nodelay(true).unwrap();
        let service = service_fn(move |request| respond(Arc::clone(&shared), request));
        let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(end.clone().run_until_cancelled_owned(serving));
    }
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (path, query) =
        (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
    let header = |name: &str, usual: &str| {
        head.headers.get(name).map_or(usual, |value| value.to_str().unwrap()).to_owned()
    };
    let place = format!("{}://{}{path}", header("x-scheme", "http"), header("host", ""));
    let received = Received { query, headers: head.headers, body };
    shared.received.lock().entry(path.clone()).or_default().push(received);
    let nothing = || Answer::status(404).body(format!("nothing is at {place}"));
    let answer = shared.paths.lock().get(&path).cloned().unwrap_or_else(nothing);
    if answer.held {
        std::future::pending::<()>().await;
    }
    Ok(made(answer))
}

fn made(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    for (name, value) in answer.headers {
        response.headers_mut().append(name, value.parse().unwrap());
    }
    response
}
