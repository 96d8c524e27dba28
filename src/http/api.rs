//! `/v1` on `[http]`: what the calls share, and the way of a request to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events::Events;
use super::guard::{self, Guard};
use super::{Problem, Rates, Readiness, actions, dashboard, events, horizon, jobs, openapi, problem, schedule, stats, trace};
use crate::apply::Apply;
use crate::bridge::Roles;
use crate::clock;
use crate::config::Settings;
use crate::request::Rules;

/// How long a call may take: longer than every try of the store.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What a request may hold besides its body, in bytes.
const ENVELOPE: u64 = 64 << 10;

/// What the calls work on. A clone is the same.
#[derive(Clone)]
pub struct Api {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) apply: Apply,
    pub(super) rules: Rules,
    pub(super) rates: Rates,
    pub(super) readiness: Readiness,
    pub(super) about: About,
    pub(super) events: Events,
    guard: Guard,
}

/// What an instance tells of itself.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) started_ms: i64,
    pub(super) roles: Roles,
    /// Of each broker in the settings its kind, and whether this instance has a link to it for publishing.
    pub(super) brokers: BTreeMap<String, (&'static str, bool)>,
    /// Of each ingest its broker and what it reads.
    pub(super) ingests: BTreeMap<String, (String, String)>,
}

/// What an [`Api`] is made of.
pub struct Parts<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// What this instance does.
    pub roles: Roles,
    /// Its name.
    pub instance: &'a str,
    /// What requests are applied with.
    pub apply: Apply,
    /// What is counted per second.
    pub rates: Rates,
    /// What `/readyz` says.
    pub readiness: Readiness,
    /// The token of `http.token_file`. Without one, whoever reaches the address from this host may call.
    pub token: Option<&'a str>,
    /// Ends the streams of events.
    pub stop: CancellationToken,
}

impl Api {
    /// The API of an instance.
    #[must_use]
    pub fn new(parts: Parts<'_>) -> Self {
        let Parts { settings, roles, instance, apply, rates, readiness, token, stop } = parts;
        let linked = |name: &String| roles.dispatch || settings.ingest.values().any(|ingest| ingest.broker == *name);
        let brokers = settings.brokers.iter().map(|(name, broker)| (name.clone(), (broker.connector.kind(), linked(name))));
        let ingests = settings.ingest.iter().filter(|_| roles.ingest);
        let about = About {
            name: instance.to_owned(),
            namespace: settings.redis.namespace.clone(),
            started_ms: clock::wall_ms(),
            roles,
            brokers: brokers.collect(),
            ingests: ingests.map(|(name, ingest)| (name.clone(), (ingest.broker.clone(), ingest.topic.clone()))).collect(),
        };
        let rules = Rules::direct(settings);
        let inner = Inner { apply, rules, rates, readiness, about, events: Events::new(stop), guard: Guard::new(token) };
        Api { inner: Arc::new(inner) }
    }

    /// Every call, with what stands before it: a request id and a line in the log, problems for errors, who may call, and time-outs.
    pub fn router(self) -> Router {
        let body = self.inner.rules.limits.max_body / 3 * 4 + ENVELOPE;
        let (router, _) = calls().split_for_parts();
        let router = router
            .route("/openapi.json", axum::routing::get(openapi::document))
            .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
            .layer(DefaultBodyLimit::max(usize::try_from(body).unwrap_or(usize::MAX)));
        guarded(router, self.inner.guard.clone()).with_state(self)
    }
}

/// What stands before every call.
fn guarded<S: Clone + Send + Sync + 'static>(router: Router<S>, guard: Guard) -> Router<S> {
    router
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        // The pages themselves are for whoever asks: what they show comes by the calls.
        .merge(dashboard::router())
        .layer(CatchPanicLayer::custom(trace::panicked))
        .layer(middleware::map_response(problem::wrap))
        .layer(middleware::from_fn(trace::request))
}

/// The calls and their documentation.
pub(super) fn calls() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(jobs::list, schedule::schedule))
        .routes(routes!(jobs::show, actions::cancel, actions::reschedule))
        .routes(routes!(actions::fire))
        .routes(routes!(actions::finish))
        .routes(routes!(actions::fail))
        .routes(routes!(actions::requeue))
        .routes(routes!(stats::stats))
        .routes(routes!(horizon::horizon))
        .routes(routes!(events::events))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::http::Listener;

    /// The whole answer to `GET path`.
    async fn ask(router: &Router, path: &str) -> String {
        let listener = Listener::bind("http.listen", "127.0.0.1:0").await.unwrap();
        let mut link = TcpStream::connect(listener.address()).await.unwrap();
        let server = tokio::spawn(listener.serve(router.clone(), CancellationToken::new()));
        link.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        link.read_to_string(&mut answer).await.unwrap();
        server.abort();
        assert!(answer.contains("\r\nx-request-id: ") && answer.contains("\r\ncontent-type: application/problem+json\r\n"), "{answer}");
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_panics_or_hangs_is_a_problem() {
        async fn hangs() {
            clock::sleep(TIMEOUT * 2).await;
        }
        async fn panics() {
            assert_eq!(1, 2, "a secret of the call");
        }
        let router = guarded(Router::new().route("/hangs", get(hangs)).route("/panics", get(panics)), Guard::new(None));
        let answer = ask(&router, "/panics").await;
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("x-request-id\"") && !answer.contains("secret"), "{answer}");
        let answer = ask(&router, "/hangs").await;
        assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("may have been done"), "{answer}");
    }
}
