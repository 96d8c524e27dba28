//! Errors of the API, as problem details (RFC 9457).

use axum::Json;
use axum::body::to_bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::budget::UsedUp;
use crate::request::{Code, Rejection};
use crate::store::error::{Class, StoreError};
use crate::view;

/// The content type of a problem.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The most bytes of a plain error that become a detail.
const MAX_DETAIL_BYTES: usize = 4096;

/// What went wrong. `type` is `about:blank`: the status is the kind of problem, and `code` the
/// violated rule of requests.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status as text.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What went wrong and what to do, for people.
    detail: String,
    /// The violated rule of requests: `missing_delay`, `bad_delay`, `target_not_allowed`,
    /// and so on; `forbidden`: the token does not allow the call; `redis`: Redis does not answer;
    /// `memory`: other calls use up the memory for calls, or the places of pops that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// For `conflict`: the existing job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Box<view::Job>>,
    /// For `conflict`: the existing recurring schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<Box<view::Schedule>>,
    /// Of a pop that fails: the results of its acknowledgements that were carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<view::LeaseResult>>)]
    results: Option<Box<RawValue>>,
}

impl Problem {
    /// A problem with this status. The detail is shown to the caller; it must not have secrets.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        Problem {
            kind: "about:blank",
            title,
            status: status.as_u16(),
            detail: detail.into(),
            code: None,
            job: None,
            schedule: None,
            results: None,
        }
    }

    /// The request is not valid.
    #[must_use]
    pub fn bad(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The token does not allow the call.
    #[must_use]
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Problem { code: Some("forbidden"), ..Problem::new(StatusCode::FORBIDDEN, detail) }
    }

    /// A call took too long.
    pub(in crate::http) fn unanswered() -> Self {
        Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "there was no answer in time: the request may have been carried out",
        )
    }

    /// Makes the problem of a call whose answer finds no memory.
    pub(super) fn unsent() -> Self {
        let detail =
            "the memory for answers is used up by others: the request may have been carried out";
        Problem { code: Some("memory"), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// The same with this status.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        Problem { title, status: status.as_u16(), ..self }
    }

    /// Returns the problem and its remedy, for people.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Adds the existing job.
    #[must_use]
    pub fn job(mut self, job: Option<view::Job>) -> Self {
        self.job = job.map(Box::new);
        self
    }

    /// Adds the existing recurring schedule.
    #[must_use]
    pub fn schedule(mut self, schedule: Option<view::Schedule>) -> Self {
        self.schedule = schedule.map(Box::new);
        self
    }

    /// Adds the results of acknowledgements that were carried out before the failure.
    pub(in crate::http) fn with_results(self, results: Option<Box<RawValue>>) -> Self {
        Problem { results, ..self }
    }
}

impl From<UsedUp> for Problem {
    fn from(UsedUp: UsedUp) -> Self {
        let detail = "the memory for calls is used up by others: try again";
        Problem { code: Some("memory"), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let status = match rejection.code {
            Code::Conflict => StatusCode::CONFLICT,
            Code::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::QueueFull => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem { code: Some(rejection.code.as_str()), ..Problem::new(status, rejection.detail) }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if error.is_unreadable() {
            let detail = format!("{}: {}", error.message, error.hint);
            return Problem {
                code: Some(Code::UnreadableJob.as_str()),
                ..Problem::new(StatusCode::CONFLICT, detail)
            };
        }
        let status = match error.class {
            Class::QueueFull => {
                return Rejection::new(
                    Code::QueueFull,
                    format!("{}: {}", error.message, error.hint),
                )
                .into();
            }
            Class::Memory if error.hint.is_empty() => return UsedUp.into(),
            Class::Memory => {
                let detail = format!("{}: {}", error.message, error.hint);
                return Problem {
                    code: Some("memory"),
                    ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                };
            }
            Class::Taken | Class::TooManyPaused => {
                return Rejection::new(
                    Code::Conflict,
                    format!("{}: {}", error.message, error.hint),
                )
                .into();
            }
            Class::Script | Class::Outdated | Class::NoScript | Class::Other => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Class::Io
            | Class::Timeout
            | Class::Oom
            | Class::Readonly
            | Class::Moved
            | Class::Unserved
            | Class::Unshared
            | Class::Refused
            | Class::Settings => StatusCode::SERVICE_UNAVAILABLE,
        };
        let code = (status == StatusCode::SERVICE_UNAVAILABLE).then_some("redis");
        Problem { code, ..Problem::new(status, error.message) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
        // The jobs of a queue with `max_jobs` are counted once a second.
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Turns errors of the HTTP libraries, which are plain text or empty, into problems.
pub(in crate::http) async fn wrap(response: Response) -> Response {
    let status = response.status();
    let ours = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == CONTENT_TYPE || kind == "application/json");
    if ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_DETAIL_BYTES)
        .await
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let detail = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            "this path does not support the method: the header `allow` lists the supported ones"
                .to_owned()
        }
        StatusCode::GATEWAY_TIMEOUT => Problem::unanswered().detail,
        _ if text.is_empty() => status.canonical_reason().unwrap_or_default().to_owned(),
        _ => text,
    };
    let mut problem = Problem::new(status, detail).into_response();
    // The methods in `allow` of a 405.
    for (name, value) in parts.headers {
        if let Some(name) =
            name.filter(|name| *name != header::CONTENT_TYPE && *name != header::CONTENT_LENGTH)
        {
            problem.headers_mut().insert(name, value);
        }
    }
    problem
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pop_that_fails_has_the_results_of_its_acknowledgements() {
        let results = serde_json::value::to_raw_value(&["done"]).unwrap();
        let problem = Problem::from(UsedUp).with_results(Some(results));
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!((&json["code"], &json["results"]), (&json!("memory"), &json!(["done"])));
        let json = serde_json::to_value(problem.with_results(None)).unwrap();
        assert_eq!(json.get("results"), None);
    }

    #[test]
    fn a_want_of_memory_says_what_to_do() {
        let problem = |error: StoreError| {
            let Problem { status, code, detail, .. } = Problem::from(error);
            (status, code, detail)
        };
        let error = StoreError::new(Class::Memory, "all wait");
        assert_eq!(
            problem(error.clone()),
            (503, Some("memory"), Problem::from(UsedUp).detail().to_owned())
        );
        assert_eq!(
            problem(error.hint("wait less")),
            (503, Some("memory"), "all wait: wait less".to_owned())
        );
    }
}
