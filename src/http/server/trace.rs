//! Middleware of every call: a request id, a log line, security headers, and an answer if the call
//! panics.

use std::any::Any;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{Instrument, Level, Span};

use super::later;
use super::problem::Problem;
use crate::clock::{self, Instant};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A caller's request id that is longer than this is replaced.
const MAX_REQUEST_ID_BYTES: usize = 128;
/// The most characters of a path in the log.
const MAX_PATH_CHARS: usize = 300;

/// Gives a request its id (the caller's, if usable), runs it, and logs one line without query,
/// headers or body.
pub(crate) async fn request(request: Request, next: Next) -> Response {
    let begun = clock::now();
    let id =
        request.headers().get(&REQUEST_ID).filter(|id| is_fit(id)).cloned().unwrap_or_else(|| {
            HeaderValue::from_str(&format!("{:032x}", rand::random::<u128>()))
                .expect("hexadecimal digits are a header's value")
        });
    let method = request.method().clone();
    let path = begin(request.uri().path());
    // The guard fills in the name of the token.
    let shown = id.to_str().unwrap_or_default();
    let span = tracing::info_span!("http", request_id = shown, token = tracing::field::Empty);
    let mut response = next.run(request).instrument(span.clone()).await;
    let call = Call { begun, id, method, path, span };
    match later::take(&mut response) {
        None => call.end(response),
        Some(answer) => {
            let call = call.without_buffers();
            later::later(async move {
                let response = answer.instrument(call.span.clone()).await;
                call.end(response)
            })
        }
    }
}

/// The part of a path that the log shows.
fn begin(path: &str) -> String {
    let end = path.char_indices().nth(MAX_PATH_CHARS).map_or(path.len(), |(at, _)| at);
    path[..end].to_owned()
}

/// A call that runs.
struct Call {
    begun: Instant,
    id: HeaderValue,
    method: Method,
    path: String,
    span: Span,
}

impl Call {
    /// The same without a part of the buffer that the request was read into.
    fn without_buffers(self) -> Call {
        let id = HeaderValue::from_bytes(self.id.as_bytes()).unwrap_or(self.id);
        Call { id, ..self }
    }

    /// Logs the call, and marks its answer.
    fn end(self, mut response: Response) -> Response {
        let Call { begun, id, method, path, span } = self;
        let status = response.status().as_u16();
        let took_ms =
            u64::try_from(clock::now().duration_since(begun).as_millis()).unwrap_or(u64::MAX);
        span.in_scope(|| match level(&method, &path, &response) {
            Level::WARN => tracing::warn!(%method, path, status, took_ms, "request failed"),
            Level::DEBUG => tracing::debug!(%method, path, status, took_ms, "request"),
            _ => tracing::info!(%method, path, status, took_ms, "request"),
        });
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        response
    }
}

/// Marks the answer to a successful call that consumers make all the time, where the path does not
/// tell.
#[derive(Debug, Clone, Copy)]
struct OfConsumers;

/// Answers a successful call that consumers make all the time.
pub(crate) fn of_consumers(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.extensions_mut().insert(OfConsumers);
    response
}

/// The level of the line about a call.
fn level(method: &Method, path: &str, response: &Response) -> Level {
    let status = response.status().as_u16();
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let of_consumers = status < 300
        && (is_of_consumers(path) || response.extensions().get::<OfConsumers>().is_some());
    match status {
        500.. => Level::WARN,
        _ if reads || of_consumers => Level::DEBUG,
        _ => Level::INFO,
    }
}

/// Whether consumers make this call all the time.
fn is_of_consumers(path: &str) -> bool {
    path == "/v1/leases" || path.starts_with("/v1/queues/") && path.ends_with("/pop")
}

fn is_fit(id: &HeaderValue) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// The answer to a call that panicked.
pub(in crate::http) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    note_panic(&*panic);
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "this is a bug in dwell: the log has details under this x-request-id",
    )
    .into_response()
}

/// Logs why a call panicked.
pub(crate) fn note_panic(panic: &(dyn Any + Send)) {
    let why = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(why, "a call panicked: this is a bug in dwell");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_cut_between_letters() {
        assert_eq!(begin("/v1/jobs"), "/v1/jobs");
        let long = "ü".repeat(MAX_PATH_CHARS + 1);
        assert_eq!(begin(&long), &long["ü".len()..]);
    }

    #[test]
    fn successful_calls_of_consumers_are_debug_and_what_changes_or_fails_stands_out() {
        let level = |method: Method, path: &str, status: u16, marked: bool| {
            let answer = StatusCode::from_u16(status).unwrap_or_default();
            super::level(
                &method,
                path,
                &if marked { of_consumers(answer) } else { answer.into_response() },
            )
        };
        for path in ["/v1/queues/emails/pop", "/v1/leases"] {
            assert_eq!(level(Method::POST, path, 200, false), Level::DEBUG, "{path}");
            assert_eq!(level(Method::POST, path, 400, false), Level::INFO, "{path}");
        }
        // The drop-in listeners mark their answers: delay-queue answers 200 to failed calls, too.
        for (method, path, status) in [
            (Method::POST, "/pop", 200),
            (Method::POST, "/", 200),
            (Method::DELETE, "/api/n/q/job/a", 204),
        ] {
            assert_eq!(level(method.clone(), path, status, true), Level::DEBUG, "{path}");
            assert_eq!(level(method.clone(), path, status, false), Level::INFO, "{path}");
            assert_eq!(level(method, path, 503, true), Level::WARN, "{path}");
        }
        assert_eq!(level(Method::POST, "/v1/jobs", 201, false), Level::INFO);
        assert_eq!(level(Method::GET, "/v1/jobs", 200, false), Level::DEBUG);
    }
}
