//! What a listener answers before there is anything behind it.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::Problem;

/// A door that is shut until [`Door::open`]: whoever asks before is told to come again. A clone is the same.
#[derive(Debug, Clone, Default)]
pub struct Door(Arc<OnceLock<Router>>);

impl Door {
    /// Every request goes through the door.
    pub fn router(&self) -> Router {
        let door = self.clone();
        Router::new().fallback(move |request: Request| async move { door.pass(request).await })
    }

    /// From now on this answers.
    pub fn open(&self, router: Router) {
        // Nobody opens it twice.
        let _ = self.0.set(router);
    }

    async fn pass(self, request: Request) -> Response {
        match self.0.get() {
            Some(router) => TowerToHyperService::new(router.clone()).call(request).await.into_response(),
            None => {
                let detail = "dwell starts, and waits for Redis: /readyz on the port of [probes] says why";
                let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                response
            }
        }
    }
}
