//! Jobs and errors as lmstfy writes them.

use std::any::Any;
use std::collections::BTreeMap;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;

use super::ids::published_ms;
use crate::compat::access::Denied;
use crate::compat::service::Refusal;
use crate::http::server::trace;
use crate::job::{Job, JobId};
use crate::store::error::{Class, StoreError};
use crate::store::reader::lookup::{JobState, StoredJob};

/// The prefix of the headers that keep attributes.
pub(super) const ATTRIBUTE_HEADER_PREFIX: &str = "Job-Attr-";

/// A job.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    msg: Option<&'static str>,
    namespace: &'a str,
    queue: &'a str,
    job_id: &'a str,
    /// In base64.
    data: String,
    /// The remaining life of the job, s; 0: for ever.
    ttl: i64,
    elapsed_ms: i64,
    /// The number of hand-outs that are left.
    remain_tries: u16,
    attributes: Option<BTreeMap<String, String>>,
}

impl<'a> View<'a> {
    /// A job of this namespace. `left`: how often it will be handed out again, see [`left`].
    pub(super) fn new(
        namespace: &'a str,
        id: &'a JobId,
        job: &'a Job,
        left: u16,
        now_ms: i64,
    ) -> Self {
        let queue = job.queue().unwrap_or_default();
        let published = published_ms(id.as_str()).unwrap_or(job.created_ms);
        View {
            msg: None,
            namespace,
            queue: queue
                .strip_prefix(namespace)
                .and_then(|rest| rest.strip_prefix('.'))
                .unwrap_or(queue),
            job_id: id.as_str(),
            data: STANDARD.encode(&job.body),
            // To the next second, as Redis tells what lmstfy answers; a job that is there is not
            // over.
            ttl: job
                .remove_at_ms
                .map_or(0, |remove_at_ms| ((remove_at_ms - now_ms + 500) / 1000).max(1)),
            elapsed_ms: (now_ms - published).max(0),
            remain_tries: left,
            attributes: attributes(job),
        }
    }

    /// A job that was looked at.
    pub(super) fn of(namespace: &'a str, found: &'a StoredJob, now_ms: i64) -> Self {
        let step = found.state_record.as_ref().map_or(0, |state| state.step);
        let left = match found.state {
            JobState::Dead => 0,
            JobState::Reserved => left(found.job(), step),
            JobState::Scheduled | JobState::Ready => left(found.job(), step).saturating_add(1),
        };
        let view = View::new(namespace, &found.id, found.job(), left, now_ms);
        // A dead job stays until it is deleted or respawned.
        if found.state == JobState::Dead { View { ttl: 0, ..view } } else { view }
    }

    /// The same as the answer to a consumer.
    pub(super) fn handed(self) -> Self {
        View { msg: Some("new job"), ..self }
    }
}

/// Returns the hand-outs that are left to a job that is handed out at this step.
pub(super) fn left(job: &Job, step: u16) -> u16 {
    let tries = match (job.tries, &job.retry) {
        (Some(0), _) => u16::MAX,
        (Some(tries), _) => tries,
        (None, Some(waits)) => u16::try_from(waits.len() + 1).unwrap_or(u16::MAX),
        (None, None) => 1,
    };
    tries.saturating_sub(step).saturating_sub(1)
}

fn attributes(job: &Job) -> Option<BTreeMap<String, String>> {
    let attribute = |header: &dwell_connectors::Header| {
        let name = header
            .name
            .get(..ATTRIBUTE_HEADER_PREFIX.len())
            .filter(|start| start.eq_ignore_ascii_case(ATTRIBUTE_HEADER_PREFIX))
            .map(|_| &header.name[ATTRIBUTE_HEADER_PREFIX.len()..])?;
        Some((name.to_ascii_lowercase(), header.value.plain()?.into_owned()))
    };
    let found: BTreeMap<String, String> = job.headers.iter().filter_map(attribute).collect();
    Some(found).filter(|found| !found.is_empty())
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(super) struct Error {
    status: StatusCode,
    /// The member of the answer that has the text: `error`, or `msg`.
    member: &'static str,
    text: String,
}

impl Error {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Error { status, member: "error", text: text.into() }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Error::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Error::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn no_job() -> Self {
        Error { member: "msg", ..Error::not_found("no job available") }
    }

    pub(super) fn no_such_call() -> Self {
        Error::not_found("api not found")
    }

    pub(super) fn no_such_pool() -> Self {
        Error::not_found("pool not found")
    }

    /// Too many calls of this kind.
    pub(super) fn many(text: &str) -> Self {
        Error::new(StatusCode::TOO_MANY_REQUESTS, text)
    }

    /// A bug in dwell.
    pub(super) fn bug() -> Self {
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
    }

    /// The queue is not declared: jobs cannot be fetched from it or read.
    pub(super) fn undeclared(queue: &str) -> Self {
        Error::not_found(Refusal::Undeclared.text(queue))
    }

    /// A new job of this queue is refused.
    pub(super) fn refused(refusal: Refusal, queue: &str) -> Self {
        let status = match refusal {
            Refusal::Undeclared => StatusCode::BAD_REQUEST,
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        };
        Error::new(status, refusal.text(queue))
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Missing => Error::new(StatusCode::UNAUTHORIZED, "token not found"),
            Denied::Unknown => Error::new(StatusCode::UNAUTHORIZED, "invalid token"),
            Denied::Forbidden(why) => Error::new(StatusCode::FORBIDDEN, why),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        if error.class == Class::Taken {
            return Error::new(StatusCode::CONFLICT, error.message);
        }
        if error.class == Class::QueueFull {
            return Error::new(StatusCode::TOO_MANY_REQUESTS, error.message);
        }
        if !error.is_told() && error.class != Class::Memory {
            tracing::warn!(%error, hint = error.hint, "a call could not be carried out");
        }
        // Clients try again after a status of 500 and above.
        Error::new(StatusCode::SERVICE_UNAVAILABLE, error.message)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut answer = (self.status, Json(json!({ self.member: self.text }))).into_response();
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

/// The answer to a call that panicked.
pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    trace::note_panic(&*panic);
    Error::bug().into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_connectors::Value;

    #[test]
    fn tries_are_counted_down_to_none() {
        let job = |tries, retry| Job { tries, retry, ..Job::for_queue("n.q", "") };
        assert_eq!([0, 1, 2, 3].map(|step| left(&job(Some(3), None), step)), [2, 1, 0, 0]);
        assert_eq!(
            (
                left(&job(Some(0), None), 7),
                left(&job(None, Some(vec![1, 1])), 1),
                left(&job(None, None), 0)
            ),
            (u16::MAX - 8, 1, 0)
        );
    }

    #[test]
    fn a_job_is_written_as_lmstfy_writes_it() {
        let mut job =
            Job { remove_at_ms: Some(10_499), created_ms: 0, ..Job::for_queue("n.q", "hello") };
        job.headers.push("Job-Attr-hello", Value::from("world"));
        job.headers.push("other", Value::from("x"));
        let id = JobId::new("an-id").unwrap_or_else(|why| panic!("{why}"));
        let json = |now_ms| {
            serde_json::to_value(View::new("n", &id, &job, 2, now_ms).handed()).unwrap_or_default()
        };
        let wanted = json!({"msg": "new job", "namespace": "n", "queue": "q", "job_id": "an-id", "data": "aGVsbG8=", "ttl": 10,
            "elapsed_ms": 0, "remain_tries": 2, "attributes": {"hello": "world"}});
        assert_eq!(json(0), wanted);
        assert_eq!(
            (json(10_400)["ttl"].clone(), json(7)["elapsed_ms"].clone()),
            (json!(1), json!(7))
        );
    }
}
