//! Extractors: a JSON body, a query, a job's id. Input that cannot be read becomes a problem with
//! the reason.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query as AxumQuery, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;

use crate::clock;
use crate::config::Limits;
use crate::http::server::Problem;
use crate::http::server::account::Account;
use crate::job::JobId;
use crate::request::{Code, Rejection};
use crate::units::{parse_time_ms, quote};

/// The longest time that a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a request besides its body.
const ENVELOPE_BYTES: u64 = 64 << 10;

/// The most bytes of a call's body, which may hold one job in base64.
pub(in crate::http) fn largest_body(limits: &Limits) -> u64 {
    limits.max_body.bytes() / 3 * 4 + ENVELOPE_BYTES
}

/// A JSON body.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        read(&json(request, state).await?).map(Json)
    }
}

/// The bytes of a JSON body, not read yet.
pub(super) async fn json<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    if !is_json(request.headers().get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes)) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the body as `content-type: application/json`",
        ));
    }
    body(request, state).await
}

/// A JSON body, or none.
pub(super) struct MaybeJson<T>(pub(super) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for MaybeJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let says_json =
            is_json(request.headers().get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes));
        let bytes = body(request, state).await?;
        if bytes.is_empty() || (says_json && bytes.trim_ascii() == b"null") {
            return Ok(MaybeJson(T::default()));
        }
        if !says_json {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "send the body as `content-type: application/json`, or none",
            ));
        }
        read(&bytes).map(MaybeJson)
    }
}

async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    let account = request.extensions().get::<Account>().cloned();
    let bytes = whole_body(request, state).await?;
    match account {
        Some(account) if !account.read(&bytes).await? => {
            let detail = "the body has too many values to be read: send fewer in one call";
            Err(Rejection::new(Code::BodyTooLarge, detail).into())
        }
        _ => Ok(bytes),
    }
}

async fn whole_body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    match clock::timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let detail = "the request is larger than limits.max_body allows: store the body elsewhere and send a reference; \
                          text that is mostly escapes is shorter as body_base64";
            Err(Rejection::new(Code::BodyTooLarge, detail).into())
        }
        Some(Err(rejection)) => Err(Problem::new(
            rejection.into_response().status(),
            "the body could not be read to its end",
        )),
        None => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde would also take a list of the fields' values.
    if !bytes.is_empty() && bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::bad("the body does not fit this call: it must be a JSON object"));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::bad(format!("the body does not fit this call: {error}")))
}

/// `application/json`, with or without parameters, or `application/anything+json`.
fn is_json(kind: Option<&[u8]>) -> bool {
    let Some(kind) = kind.and_then(|kind| std::str::from_utf8(kind).ok()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The query.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = AxumQuery::from_request_parts(parts, state).await;
        query
            .map(|AxumQuery(query)| Query(query))
            .map_err(|rejection| Problem::bad(rejection.body_text()))
    }
}

/// The flag `name` of a query: `1` or `0`.
pub(super) fn flag(name: &str, text: Option<&str>) -> Result<Option<bool>, Problem> {
    match text {
        None => Ok(None),
        Some("0") => Ok(Some(false)),
        Some("1") => Ok(Some(true)),
        Some(other) => Err(Problem::bad(format!("{name}: {} is neither 1 nor 0", quote(other)))),
    }
}

/// The schema of a [`flag`].
pub(super) fn flag_schema() -> utoipa::openapi::Object {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::Type::String)
        .enum_values(Some(["0", "1"]))
        .build()
}

/// The time `name` of a query, epoch ms.
pub(super) fn time(name: &str, text: Option<&str>) -> Result<Option<i64>, Problem> {
    text.map(parse_time_ms).transpose().map_err(|why| Problem::bad(format!("{name}: {why}")))
}

/// The OpenAPI description of an [`Id`].
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "only described")]
pub(super) struct InPath {
    /// The id of the job or the schedule
    #[param(min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$")]
    id: String,
}

/// The id in the path.
pub(super) struct Id(pub(super) JobId);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text): Path<String> = Path::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Problem::bad(rejection.body_text()))?;
        JobId::new(text).map(Id).map_err(|why| Rejection::new(Code::BadId, why).into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_408() {
        use axum::body::Body;
        use futures_util::stream;
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let request =
            Request::builder().header("content-type", "application/json").body(body).unwrap();
        let problem = Json::<serde_json::Value>::from_request(request, &()).await.err().unwrap();
        assert_eq!(problem.into_response().status(), 408);
    }

    #[test]
    fn json_is_told_by_its_content_type() {
        for kind in
            ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"]
        {
            assert!(is_json(Some(kind.as_bytes())), "{kind}");
        }
        for kind in
            [None, Some("text/plain"), Some("application/jsonl"), Some("text/json"), Some("")]
        {
            assert!(!is_json(kind.map(str::as_bytes)), "{kind:?}");
        }
    }
}
