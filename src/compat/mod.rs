//! Listeners that speak the protocols of other delay queues, so that their clients need no change.
//! They are thin: each call is a call of [`Service`], which the protocols share.
//!
//! - [`delay_queue`]: that of ouqiang/delay-queue, and its older form with a single URL.
//! - [`lmstfy`]: that of bitleak/lmstfy.
//! - [`listeners`]: their addresses; [`access`]: the callers; [`service`]: the work of a call;
//!   `fields`: JSON as Go reads it.

pub mod access;
pub mod delay_queue;
mod fields;
pub mod listeners;
pub mod lmstfy;
pub mod service;

use std::any::Any;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use tower_layer::Layer;

use crate::http::server::later::caught;
use crate::http::server::trace;

pub use access::Access;
pub use service::Service;

/// Answers a call that panicked, in the words of its protocol.
type Panicked = fn(Box<dyn Any + Send>) -> Response;

/// Adds what every call of a protocol has, once around all routes: a request id, a log line, and an
/// answer if the call panics.
fn around(calls: Router, panicked: Panicked) -> Router {
    let calls = middleware::from_fn_with_state(panicked, carry_out).layer(calls);
    Router::new().fallback_service(middleware::from_fn(trace::request).layer(calls))
}

async fn carry_out(State(panicked): State<Panicked>, request: Request, next: Next) -> Response {
    caught(next.run(request), panicked).await
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use axum::routing::get;
    use tower_service::Service as _;

    use super::*;

    #[tokio::test]
    async fn a_call_that_panics_is_answered_in_the_words_of_its_protocol() {
        async fn panics() {
            assert_eq!(1, 2, "a bug");
        }
        let calls = Router::new().route("/", get(panics));
        let mut calls = around(calls, |_| StatusCode::IM_A_TEAPOT.into_response());
        let answer = calls.call(Request::new(Body::empty())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
        assert!(answer.headers().contains_key("x-request-id"));
    }
}
