//! Refuses a request with two values of a header that decides who calls, or what: a proxy in front
//! of Dwell may go by the other value.

use axum::extract::Request;
use axum::http::{HeaderName, header};
use axum::middleware::Next;
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

/// Passes a request on, unless it has one of these headers twice.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    let doubled = SINGLETON_HEADERS
        .iter()
        .find(|name| request.headers().get_all(*name).iter().nth(1).is_some());
    match doubled {
        None => next.run(request).await,
        Some(name) => {
            Problem::bad(format!("the request has the header `{name}` twice: send it once"))
                .into_response()
        }
    }
}
