//! `/livez`, `/readyz` and `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::json;

use crate::clock::{self, Instant};
use crate::readiness::{Readiness, Waiting};
use crate::store::refusals::Refusals;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::Exposition;

/// The probes.
///
/// - `/livez` is 200 while the runtime runs (a failed agent ends the process).
/// - `/readyz` is 200 or 503, with what is waited for and why, why an ingest is paused, and why
///   Redis refuses the login. The latter two do not make it 503.
/// - `/metrics` encodes the metrics; the counts of jobs are at most five seconds old.
pub fn router(readiness: Readiness, metrics: Metrics, redis: Refusals) -> Router {
    Router::new()
        .route("/livez", get(async || Json(json!({ "alive": true }))))
        .route("/readyz", get(readyz).with_state((readiness, metrics.clone(), redis)))
        .route(
            "/metrics",
            get(scrape).with_state(Arc::new(Scrapes { metrics, last: Mutex::default() })),
        )
}

async fn readyz(
    State((readiness, metrics, redis)): State<(Readiness, Metrics, Refusals)>,
) -> Response {
    let waiting = readiness.waiting();
    let ready = readiness.is_ready();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut names: Vec<String> = waiting.iter().map(|(what, _)| what.to_string()).collect();
    // Several brokers can lack what one setting names.
    names.dedup();
    let why = waiting
        .iter()
        .filter(|(_, why)| !why.is_empty())
        .map(|(what, why)| (what.to_string(), why));
    let paused = metrics
        .paused_ingests()
        .into_iter()
        .map(|(name, reason)| (format!("ingest.{name}"), format!("paused: {}", reason.as_str())));
    let refused = redis.now().map(|why| (Waiting::Store.to_string(), why));
    let mut detail: BTreeMap<String, String> = paused.chain(refused).collect();
    for (what, why) in why {
        detail
            .entry(what)
            .and_modify(|known| *known = format!("{known}; {why}"))
            .or_insert_with(|| why.clone());
    }
    (status, Json(json!({ "ready": ready, "waiting_for": names, "detail": detail })))
        .into_response()
}

/// The last answer, shared by concurrent scrapes, so that many cost little more than one.
struct Scrapes {
    metrics: Metrics,
    /// The last answer: its format, and when its encoding began.
    last: Mutex<Option<(Exposition, Instant, Bytes)>>,
}

impl Scrapes {
    /// The metrics as of now or later, encoded once for all concurrent scrapes.
    async fn answer(&self, form: Exposition) -> Bytes {
        let asked = clock::now();
        // A scrape that was waiting shares the answer.
        tokio::task::yield_now().await;
        let mut last = self.last.lock();
        match &*last {
            Some((known, begun, answer)) if *known == form && *begun >= asked => answer.clone(),
            _ => {
                let begun = clock::now();
                let answer = Bytes::from(self.metrics.encode_as(form));
                *last = Some((form, begun, answer.clone()));
                answer
            }
        }
    }
}

async fn scrape(State(scrapes): State<Arc<Scrapes>>, headers: HeaderMap) -> Response {
    scrapes.metrics.gauges().fresh().await;
    let form =
        Exposition::accepted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    (
        [(header::CONTENT_TYPE, form.content_type()), (header::VARY, "accept")],
        scrapes.answer(form).await,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::server::Listener;
    use crate::telemetry::PauseReason;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_util::sync::CancellationToken;

    /// The whole answer, head and body.
    async fn ask(address: SocketAddr, path: &str) -> String {
        ask_for(address, path, "*/*").await
    }

    async fn ask_for(address: SocketAddr, path: &str, accept: &str) -> String {
        let mut link = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: dwell\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
        );
        link.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        link.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn probes_follow_what_the_agents_tell() {
        let readiness = Readiness::new(["main"]);
        let listener = Listener::bind("probes.listen", "127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let shutdown = CancellationToken::new();
        let metrics = Metrics::new(["main"], ["main"]);
        let router = router(readiness.clone(), metrics.clone(), Refusals::default());
        let server = tokio::spawn(listener.serve(router, shutdown.clone()));

        let answer = ask(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(
            answer
                .ends_with(r#"{"detail":{},"ready":false,"waiting_for":["redis","ingest.main"]}"#),
            "{answer}"
        );
        let answer = ask(address, "/livez").await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"alive":true}"#),
            "{answer}"
        );

        readiness.store_reached();
        readiness.ingest_reads("main");
        let paused = metrics.ingest_paused(
            PauseReason::Redis,
            metrics.ingest("main").map(|ingest| ingest.reading().clone()),
        );
        let answer = ask(address, "/readyz").await;
        assert!(
            answer.starts_with("HTTP/1.1 200")
                && answer.ends_with(
                    r#"{"detail":{"ingest.main":"paused: redis"},"ready":true,"waiting_for":[]}"#
                ),
            "{answer}"
        );
        drop(paused);

        // A broker that is only published to is listed, but does not block readiness.
        let broker = Waiting::Broker("far".to_owned());
        readiness.waits_for(broker.clone());
        readiness.missing(&broker, "refused");
        let answer = ask(address, "/readyz").await;
        let told =
            r#"{"detail":{"brokers.far":"refused"},"ready":true,"waiting_for":["brokers.far"]}"#;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(told), "{answer}");
        readiness.reached(&broker);

        // So is a destination; two brokers may lack what one setting names. A broker or destination
        // that is lost later does not block readiness.
        for broker in ["far", "near"] {
            let dead = Waiting::Destination {
                setting: "delivery.dead".to_owned(),
                broker: broker.to_owned(),
            };
            readiness.missing(&dead, &format!("not on {broker}"));
        }
        readiness.missing(&Waiting::Ingest("main".to_owned()), "deleted");
        let answer = ask(address, "/readyz").await;
        let told = r#"{"detail":{"delivery.dead":"not on far; not on near","ingest.main":"deleted"},"ready":true,"waiting_for":["delivery.dead","ingest.main"]}"#;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(told), "{answer}");

        let answer = ask(address, "/metrics").await;
        assert!(
            answer.contains("content-type: text/plain; version=0.0.4")
                && answer.contains("# TYPE dwell_ingest_total counter"),
            "{answer}"
        );
        let answer = ask_for(address, "/metrics", "application/openmetrics-text").await;
        assert!(
            answer.contains("content-type: application/openmetrics-text; version=1.0.0"),
            "{answer}"
        );
        assert!(
            answer.contains("dwell_jobs{state=\"scheduled\"} 0") && answer.ends_with("# EOF\n"),
            "{answer}"
        );

        readiness.shutting_down();
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 503"));
        shutdown.cancel();
        server.await.unwrap().unwrap();
    }
}
