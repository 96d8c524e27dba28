//! The router of `[http]`: the calls and the dashboard, behind their middleware.

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;

use super::api::Api;
use super::guard::{self, Guard};
use super::{Problem, dashboard, openapi, problem, routes, trace};
use crate::clock;
use crate::config::Limits;
use crate::queues::MAX_POP_WAIT;

/// The longest time that a call may take: longer than all tries of the store.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a request besides its body.
const ENVELOPE_BYTES: u64 = 64 << 10;

/// The calls behind their middleware: request id and log line, errors as problems, authentication,
/// time-outs.
pub fn router(api: Api) -> Router {
    let body = largest_body(&api.inner.rules.limits);
    let (router, _) = routes::calls().split_for_parts();
    let router = router
        .route("/openapi.json", axum::routing::get(openapi::document))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .layer(DefaultBodyLimit::max(usize::try_from(body).unwrap_or(usize::MAX)));
    guarded(router, api.inner.guard.clone()).with_state(api)
}

/// Ends a call that takes too long. A pop may wait before.
async fn limit_time(request: Request, next: Next) -> Response {
    let waits = request.uri().path().ends_with("/pop");
    let limit = if waits { CALL_TIMEOUT + MAX_POP_WAIT } else { CALL_TIMEOUT };
    clock::timeout(limit, next.run(request))
        .await
        .unwrap_or_else(|| StatusCode::GATEWAY_TIMEOUT.into_response())
}

/// The most bytes of a call's body, which may hold one job in base64.
pub(super) fn largest_body(limits: &Limits) -> u64 {
    limits.max_body / 3 * 4 + ENVELOPE_BYTES
}

/// Adds the middleware of every call.
fn guarded<S: Clone + Send + Sync + 'static>(router: Router<S>, guard: Guard) -> Router<S> {
    router
        .layer(middleware::from_fn(limit_time))
        .layer(middleware::from_fn_with_state(guard.clone(), guard::check))
        .merge(dashboard::router().layer(middleware::from_fn_with_state(guard, guard::check_page)))
        .layer(CatchPanicLayer::custom(trace::panicked))
        .layer(middleware::map_response(problem::wrap))
        .layer(middleware::from_fn(trace::request))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeMap;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::Listener;

    /// The whole answer to `GET path`.
    async fn ask(router: &Router, path: &str) -> String {
        let listener = Listener::bind("http.listen", "127.0.0.1:0").await.unwrap();
        let mut link = TcpStream::connect(listener.address()).await.unwrap();
        let server = tokio::spawn(listener.serve(router.clone(), CancellationToken::new()));
        link.write_all(
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        )
        .await
        .unwrap();
        let mut answer = String::new();
        link.read_to_string(&mut answer).await.unwrap();
        server.abort();
        assert!(
            answer.contains("\r\nx-request-id: ")
                && answer.contains("\r\ncontent-type: application/problem+json\r\n"),
            "{answer}"
        );
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_panics_or_hangs_is_a_problem() {
        async fn hangs() {
            clock::sleep(CALL_TIMEOUT * 2).await;
        }
        async fn panics() {
            assert_eq!(1, 2, "a secret of the call");
        }
        let router = guarded(
            Router::new().route("/hangs", get(hangs)).route("/panics", get(panics)),
            Guard::new(None, &BTreeMap::new()),
        );
        let answer = ask(&router, "/panics").await;
        assert!(
            answer.starts_with("HTTP/1.1 500 ")
                && answer.contains("x-request-id\"")
                && !answer.contains("secret"),
            "{answer}"
        );
        let answer = ask(&router, "/hangs").await;
        assert!(
            answer.starts_with("HTTP/1.1 504 ") && answer.contains("may have been carried out"),
            "{answer}"
        );
    }
}
