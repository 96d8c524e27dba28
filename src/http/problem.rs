//! An error of the API: problem details as RFC 9457 has them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::store::error::{Class, StoreError};

/// What went wrong. `type` is `about:blank`: the status says what kind of problem it is, and `code` which rule of requests was broken.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: String,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

impl Problem {
    /// A problem of this status; the detail is for people, and holds no secret.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        Problem { kind: "about:blank", title, status: status.as_u16(), detail: detail.into(), code: None }
    }

    /// The same with the code of the rule that was broken.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let status = match error.class {
            Class::Script | Class::NoScript | Class::Other => StatusCode::INTERNAL_SERVER_ERROR,
            Class::Io | Class::Timeout | Class::Oom | Class::Readonly | Class::Settings => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, error.message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
