//! The time that a call may take.

use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::clock;
use crate::queues::MAX_POP_WAIT;

/// The longest time that a call may take: longer than all tries of the store.
pub(in crate::http) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Ends a call that takes too long. A pop may wait before.
pub(in crate::http) async fn limit_time(request: Request, next: Next) -> Response {
    let waits = request.uri().path().ends_with("/pop");
    let limit = if waits { CALL_TIMEOUT + MAX_POP_WAIT } else { CALL_TIMEOUT };
    clock::timeout(limit, next.run(request))
        .await
        .unwrap_or_else(|| StatusCode::GATEWAY_TIMEOUT.into_response())
}
