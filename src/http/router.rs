//! The router of `[http]`: the calls and the dashboard, behind their middleware.

use std::convert::Infallible;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::api::guard::{self, Guard};
use super::api::{Api, extract, openapi, routes};
use super::dashboard;
use super::server::{Problem, call_timeout, later, problem, trace};

/// The calls behind their middleware: request id and log line, errors as problems, authentication,
/// time-outs.
pub fn router(api: Api) -> Router {
    let body = extract::largest_body(api.limits());
    let (router, _) = routes::calls().split_for_parts();
    let router = router
        .route("/openapi.json", axum::routing::get(openapi::document))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"));
    let router = guarded(router, api.guard().clone()).with_state(api);
    around(DefaultBodyLimit::max(usize::try_from(body).unwrap_or(usize::MAX)).layer(router))
}

/// Adds the middleware that asks for the route of a call.
fn guarded<S: Clone + Send + Sync + 'static>(router: Router<S>, guard: Guard) -> Router<S> {
    router
        .layer(middleware::from_fn_with_state(guard.clone(), guard::check))
        .merge(dashboard::router().layer(middleware::from_fn_with_state(guard, guard::check_page)))
}

/// Adds the middleware of every call, once around all routes: a layer of a router is a box around
/// each route, and each call clones the boxes that lie in a box.
fn around<S>(calls: S) -> Router
where
    S: Service<Request, Error = Infallible, Future: Send + 'static> + Clone + Send + Sync + 'static,
    S::Response: IntoResponse,
{
    let calls = middleware::from_fn(carry_out).layer(calls);
    Router::new().fallback_service(middleware::from_fn(trace::request).layer(calls))
}

/// Answers each call with a problem where it fails, panics or takes too long.
async fn carry_out(request: Request, next: Next) -> Response {
    let answer = call_timeout::limit_time(request, next);
    problem::wrap(later::caught(answer, trace::panicked).await).await
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
    use crate::clock;
    use crate::http::server::Listener;
    use crate::http::server::call_timeout::CALL_TIMEOUT;

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
        let router = around(router);
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
