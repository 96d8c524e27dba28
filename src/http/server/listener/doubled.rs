//! Refuses a request with two values of a header that decides who calls, or what: a proxy in front
//! of Dwell may go by the other value.

use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};

use crate::http::server::problem::Problem;

static SINGLETON_HEADERS: [HeaderName; 7] = [
    header::HOST,
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::ORIGIN,
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("x-token"),
];

/// The answer to a request that has one of these headers twice.
pub(super) fn refused(headers: &HeaderMap) -> Option<Response> {
    let doubled =
        SINGLETON_HEADERS.iter().find(|name| headers.get_all(*name).iter().nth(1).is_some())?;
    let why = format!("the request has the header `{doubled}` twice: send it once");
    Some(Problem::bad(why).into_response())
}
