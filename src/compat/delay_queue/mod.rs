//! The protocol of ouqiang/delay-queue, on `[compat] delay_queue`: JSON in the body of any method,
//! and always status 200 with a `code`, but for callers without a right. A topic is a queue.
//!
//! - `calls`: `/push`, `/pop`, `/finish`, `/delete`, `/get`; `classic`: the same on the single URL
//!   `/`, in the older form; `job`: a job in both.

mod calls;
mod classic;
mod job;

use std::any::Any;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Query, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router, middleware};
use serde::{Deserialize, Serialize};

use super::access::{self, Access, Denied};
use super::around;
use super::fields::Fields;
use super::service::Service;
use crate::budget::UsedUp;
use crate::clock;
use crate::http::api::caller::Caller;
use crate::http::api::extract::BODY_TIMEOUT;
use crate::http::server::account::Account;
use crate::http::server::trace;
use crate::http::server::waits::WaitShare;
use crate::store::error::{Class, StoreError};

/// A character of a body may take six in JSON.
const MAX_JSON_BYTES_PER_CHAR: u64 = 6;
/// The most bytes of a call besides its body.
const ENVELOPE_BYTES: u64 = 64 << 10;

/// The state that the calls share.
#[derive(Clone)]
pub(super) struct DelayQueue {
    service: Service,
    access: Access,
}

/// The calls of delay-queue.
pub fn router(service: Service, access: Access) -> Router {
    let limit = service
        .rules()
        .limits
        .max_body
        .bytes()
        .saturating_mul(MAX_JSON_BYTES_PER_CHAR)
        .saturating_add(ENVELOPE_BYTES);
    let guard = access.clone();
    let calls = Router::new()
        .route("/push", any(calls::push))
        .route("/pop", any(calls::pop))
        .route("/finish", any(calls::delete))
        .route("/delete", any(calls::delete))
        .route("/get", any(calls::get))
        .route("/", any(classic::call))
        .fallback(async || (StatusCode::NOT_FOUND, "404 page not found\n"))
        .layer(DefaultBodyLimit::max(usize::try_from(limit).unwrap_or(usize::MAX)))
        .layer(middleware::from_fn_with_state(guard, access::guard))
        .with_state(DelayQueue { service, access });
    around(calls, panicked)
}

/// A call: its fields, its caller, and the calls that may wait beside it.
pub(super) struct Call {
    caller: Caller,
    fields: Fields,
    share: WaitShare,
}

#[derive(Deserialize)]
struct InQuery {
    token: Option<String>,
}

impl FromRequest<DelayQueue> for Call {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &DelayQueue) -> Result<Self, Failed> {
        let (mut parts, body) = request.into_parts();
        let query: Result<Query<InQuery>, _> = Query::from_request_parts(&mut parts, &()).await;
        let sent = query.ok().and_then(|Query(query)| query.token).unwrap_or_default();
        let caller = state.access.caller(&sent)?;
        let account = parts.extensions.get::<Account>().cloned();
        let share = WaitShare::of(&parts.extensions);
        let body = match clock::timeout(
            BODY_TIMEOUT,
            Bytes::from_request(Request::from_parts(parts, body), &()),
        )
        .await
        {
            Some(Ok(body)) => body,
            Some(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(Failed::new(
                    "the call is larger than limits.max_body of the settings allows",
                ));
            }
            _ => return Err(Failed::new("the body of the call could not be read to its end")),
        };
        if let Some(account) = account
            && !account.read(&body).await?
        {
            return Err(Failed::new("the call has too many values to be read"));
        }
        Ok(Call { caller, fields: Fields::read(&body)?, share })
    }
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    status: StatusCode,
    text: String,
}

impl Failed {
    fn new(text: impl Into<String>) -> Self {
        Failed { status: StatusCode::OK, text: text.into() }
    }
}

impl From<String> for Failed {
    fn from(text: String) -> Self {
        Failed::new(text)
    }
}

impl From<UsedUp> for Failed {
    fn from(used_up: UsedUp) -> Self {
        Failed { status: StatusCode::SERVICE_UNAVAILABLE, text: format!("{used_up}: try again") }
    }
}

impl From<Denied> for Failed {
    fn from(denied: Denied) -> Self {
        let (status, text) = match denied {
            Denied::Missing => {
                (StatusCode::UNAUTHORIZED, "the URL has no token: add ?token=".to_owned())
            }
            Denied::Unknown => (
                StatusCode::UNAUTHORIZED,
                "no token of [http.tokens] is the one in the URL".to_owned(),
            ),
            Denied::Forbidden(why) => (StatusCode::FORBIDDEN, why),
        };
        Failed { status, text }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        if error.class == Class::Taken {
            return Failed::new(format!("`id`: {}: {}", error.message, error.hint));
        }
        if error.class == Class::QueueFull {
            return Failed::new(error.message);
        }
        if error.class == Class::Memory {
            return Failed { status: StatusCode::SERVICE_UNAVAILABLE, text: error.message };
        }
        if !error.is_told() {
            tracing::warn!(%error, hint = error.hint, "a call could not be carried out");
        }
        Failed::new(error.message)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut answer =
            (self.status, Json(Answer::<()> { code: 1, message: &self.text, data: None }))
                .into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

/// The answer to a call that panicked.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    trace::note_panic(&*panic);
    Failed::new("this is a bug in dwell: the log has details under this x-request-id")
        .into_response()
}

/// The answer to a call.
#[derive(Debug, Serialize)]
pub(super) struct Answer<'a, T> {
    /// 0: done; 1: failed.
    code: u8,
    message: &'a str,
    data: Option<T>,
}

impl<T> Answer<'_, T> {
    fn done(data: Option<T>) -> Self {
        Answer { code: 0, message: "ok", data }
    }
}
