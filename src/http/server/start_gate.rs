//! Answers on `[http]` before the instance has started.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::problem::Problem;

/// Answers 503 until [`StartGate::open`] gives the router. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StartGate(Arc<OnceLock<Router>>);

impl StartGate {
    /// The router to serve from the start.
    pub fn router(&self) -> Router {
        let gate = self.clone();
        Router::new().fallback(move |request: Request| async move { gate.pass(request).await })
    }

    /// Passes all further requests to this router.
    pub fn open(&self, router: Router) {
        // The caller opens the gate once.
        let _ = self.0.set(router);
    }

    async fn pass(self, request: Request) -> Response {
        match self.0.get() {
            Some(router) => {
                TowerToHyperService::new(router.clone()).call(request).await.into_response()
            }
            None => {
                let detail = "dwell is starting and waits for Redis; /readyz on the port of [probes] has the reason";
                let mut response =
                    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                response
            }
        }
    }
}
