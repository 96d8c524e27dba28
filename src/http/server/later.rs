//! An answer that comes later: the result of a call that waits.
//!
//! A running call holds 13 kB in its layers: futures in boxes, services, headers that hold the
//! buffer they were read into. A waiting call therefore ends at once: it returns a placeholder and
//! keeps only the future of its answer. Each layer that changes the answer takes that future and
//! returns another one; the listener sends the result.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt;
use parking_lot::Mutex;

/// The answer of a call that waits. Dropped, the call ends.
pub(super) type DeferredResponse = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The placeholder in the extensions of the response that stands for an answer. Extensions must be
/// `Clone` and shared, so the first to take the future has it.
#[derive(Clone)]
struct Placeholder(Arc<Mutex<Option<DeferredResponse>>>);

/// The response that stands for this answer.
pub(crate) fn later(answer: impl Future<Output = Response> + Send + 'static) -> Response {
    let later: DeferredResponse = Box::pin(answer);
    let mut response = Response::default();
    // Nobody sees it, as long as the listener takes the answer.
    *response.status_mut() = StatusCode::ACCEPTED;
    response.extensions_mut().insert(Placeholder(Arc::new(Mutex::new(Some(later)))));
    response
}

/// The answer that this response stands for.
pub(super) fn take(response: &mut Response) -> Option<DeferredResponse> {
    let Placeholder(later) = response.extensions_mut().remove()?;
    later.lock().take()
}

/// The answer, or what `panicked` answers: the layer that does so for calls sees no panic of a
/// later answer.
pub(crate) fn caught(
    answer: impl Future<Output = Response>,
    panicked: fn(Box<dyn Any + Send>) -> Response,
) -> impl Future<Output = Response> {
    AssertUnwindSafe(answer).catch_unwind().map(move |answer| answer.unwrap_or_else(panicked))
}
