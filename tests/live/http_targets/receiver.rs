//! A web server in the test's own process, which keeps each request and answers as it is told.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::wait_until;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) at_ms: i64,
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// A header that comes once, as text; empty where there is none.
    #[track_caller]
    pub(crate) fn text(&self, name: &str) -> &str {
        let all: Vec<_> = self.headers.get_all(name).iter().collect();
        assert!(all.len() <= 1, "{name}: {all:?}");
        all.first().map_or("", |value| std::str::from_utf8(value.as_bytes()).unwrap())
    }
}

/// The rule that makes the answer to the request of this number, from 1.
type Rule = Box<dyn Fn(usize, &Seen) -> Response + Send + Sync>;

struct Kept {
    seen: Mutex<Vec<Seen>>,
    rule: Rule,
}

/// Serves on a free port until dropped.
pub(crate) struct Receiver {
    address: String,
    kept: Arc<Kept>,
    _serving: JoinSet<()>,
}

impl Receiver {
    /// Answers each request with this status.
    pub(crate) async fn always(status: u16) -> Receiver {
        Receiver::start(move |_, _| answer(status, &[], "")).await
    }

    /// Answers by this rule.
    pub(crate) async fn start(
        rule: impl Fn(usize, &Seen) -> Response + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let kept = Arc::new(Kept { seen: Mutex::default(), rule: Box::new(rule) });
        let router = Router::new().fallback(keep).with_state(kept.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Receiver { address, kept, _serving: serving }
    }

    /// The URL of a path on it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests that have arrived.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.kept.seen.lock().clone()
    }

    /// Waits until so many requests arrived, and gives all.
    pub(crate) async fn until(&self, count: usize) -> Vec<Seen> {
        wait_until(&format!("{count} requests at {}", self.address), async || {
            (self.kept.seen.lock().len() >= count).then_some(())
        })
        .await;
        self.seen()
    }

    /// The requests of one job, in their order.
    pub(crate) fn of(&self, id: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.text("delayed-id") == id).collect()
    }
}

async fn keep(
    State(kept): State<Arc<Kept>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let at_ms =
        i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let seen = Seen { at_ms, method, uri, headers, body };
    let number = {
        let mut all = kept.seen.lock();
        all.push(seen.clone());
        all.len()
    };
    (kept.rule)(number, &seen)
}

/// An answer of this status with these headers.
pub(crate) fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Response {
    let mut response = (StatusCode::from_u16(status).unwrap(), body.to_owned()).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}
