//! `POST /v1/jobs`

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use dwell_connectors::Message;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{AnyOfBuilder, OneOfBuilder, SchemaType};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::caller::Caller;
use super::empty;
use super::one_or_many::{self, OneOrMany};
use super::state::Api;
use super::text::{Text, TextOrBytes, decode, header_values};
use crate::apply::{Apply, BoundedRetry};
use crate::http::server::Problem;
use crate::http::server::account::Account;
use crate::job::{Job, JobId, Verdict, is_queue_name};
use crate::request::{Code, NewJob, Rejection, Request, RequestRules, from_fields};
use crate::store::error::{Class, StoreError};
use crate::store::queue::batch::Answer;
use crate::units::{quote, quote_address};
use crate::view;

/// The memory of a job's headers as JSON values and as text, in multiples of their size.
const MEMORY_PER_HEADER_BYTE: usize = 3;
/// The most jobs of an array that are read from the store at once.
const CONCURRENT_LOOKUPS: usize = 32;

/// A new job. Values have the form of the `delay-*` headers of a message and obey the same rules.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewJob)]
#[serde(deny_unknown_fields)]
pub(super) struct NewJobRequest {
    /// The job's id: 1 to 256 bytes without control characters; by default generated
    #[schema(min_length = 1, max_length = 256)]
    id: Option<String>,
    /// The delay from receipt, by Redis's clock: `90s`, `1h30m`, `PT15M`, or milliseconds. Either
    /// this or `until`
    #[serde(rename = "for")]
    #[schema(example = "5m")]
    delay_for: Option<Text>,
    /// The due time: RFC 3339 with an offset, or epoch milliseconds
    until: Option<Text>,
    /// The target: Kafka topic, NATS subject, AMQP routing key
    #[schema(example = "orders.close")]
    target: Option<String>,
    /// The AMQP exchange; empty is the default exchange, whose routing key is a queue
    exchange: Option<String>,
    /// The `[brokers.NAME]` to publish to; optional if the settings have one ingest or one broker
    broker: Option<String>,
    /// The queue from which consumers fetch the job, instead of `target`, `exchange` and `broker`
    #[schema(min_length = 1, max_length = 255, pattern = r"^[A-Za-z0-9._-]+$")]
    queue: Option<String>,
    /// The Kafka key: text, or `{"base64": "…"}`
    key: Option<TextOrBytes>,
    /// The headers by name: text, a number, a boolean, null, `{"base64": "…"}`, or a list of these
    /// for a repeated name (AMQP: a value of type list)
    #[serde(default, deserialize_with = "empty::object")]
    #[schema(schema_with = empty::object_schema, required = false)]
    headers: BTreeMap<String, serde_json::Value>,
    /// The time to run: how long one attempt may take until it is confirmed
    ttr: Option<Text>,
    /// The waits between attempts; empty for a single attempt
    retry: Option<Vec<Text>>,
    /// Who confirms an attempt: `broker` or `consumer`
    confirm: Option<String>,
    /// What happens to a job that is overdue by more than `max_late` at its first attempt: `fire`,
    /// `drop` or `dead`
    late: Option<String>,
    /// How long the job may be overdue at its first attempt
    max_late: Option<Text>,
    /// What happens if the id exists: `replace`, `keep` or `reject`
    on_conflict: Option<String>,
    /// The body as text. Either this or `body_base64`
    body: Option<String>,
    /// The body in base64
    body_base64: Option<String>,
}

/// A new job, or an array. The array may hold anything: each element has its own answer.
pub(super) struct NewJobsRequest;

impl PartialSchema for NewJobsRequest {
    fn schema() -> RefOr<Schema> {
        let job = || RefOr::<Schema>::from(Ref::from_schema_name(NewJobRequest::name()));
        let anything = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        let element = AnyOfBuilder::new().item(job()).item(anything);
        let array = ArrayBuilder::new()
            .items(RefOr::T(element.into()))
            .max_items(Some(one_or_many::MAX_ELEMENTS));
        OneOfBuilder::new().item(job()).item(array).into()
    }
}

impl ToSchema for NewJobsRequest {
    fn name() -> Cow<'static, str> {
        "NewJobs".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((NewJobRequest::name().into_owned(), NewJobRequest::schema()));
        NewJobRequest::schemas(schemas);
    }
}

/// A job; or for an array what became of each element.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only described")]
pub(super) enum Scheduled {
    One(Box<view::Job>),
    Many(Vec<Element>),
}

/// What became of one element: its job, or why there is none.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Element {
    Job(Box<view::Job>),
    Problem(Box<Problem>),
}

/// Schedule a job, or several
///
/// Answers the current job: for `kept`, `duplicate` and `conflict` the existing one. An array of at
/// most 1000 jobs is answered with 200 and an array in the same order: of each element the job, or
/// the problem. The elements are independent of each other.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = NewJobsRequest, responses(
    (status = 201, body = view::Job, description = "`added` or `replaced`", headers(("location" = String, description = "The job"))),
    (status = 200, body = Scheduled, description = "`duplicate` or `kept`: nothing changed; or the answers to an array"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`conflict`: the id exists, and `on_conflict` is `reject`"),
    (status = 413, body = Problem, content_type = "application/problem+json", description = "`body_too_large`"),
    (status = 429, body = Problem, content_type = "application/problem+json", description = "`queue_full`: the queue has `max_jobs` jobs",
        headers(("retry-after" = String, description = "When to try again, in seconds"))),
))]
pub(super) async fn schedule(
    State(api): State<Api>,
    caller: Caller,
    account: Account,
    new: OneOrMany<NewJobRequest>,
) -> Result<Response, Problem> {
    match new {
        OneOrMany::One(new) => one(&api, &caller, &account, new).await,
        OneOrMany::Many(new) => Ok(Json(many(&api, &caller, &account, new).await).into_response()),
    }
}

async fn one(
    api: &Api,
    caller: &Caller,
    account: &Account,
    new: NewJobRequest,
) -> Result<Response, Problem> {
    let apply = &api.inner.apply;
    let new_job = allowed(api, caller, new, apply.store.now_ms())?;
    let (id, job) = (new_job.id.clone(), new_job.job.clone());
    let answer = apply
        .one(Request::NewJob(Box::new(new_job)))
        .await
        .map_err(|error| refused(api, &id, &job, error))?;
    let shown = stored(api, caller, account, &id, job, answer).await?;
    match answer.verdict {
        Verdict::Added | Verdict::Replaced => {
            Ok((StatusCode::CREATED, [(header::LOCATION, location(id.as_str()))], Json(shown))
                .into_response())
        }
        _ => Ok(Json(shown).into_response()),
    }
}

/// Schedules the jobs that can be read, in one pass of the durability gate.
async fn many(
    api: &Api,
    caller: &Caller,
    account: &Account,
    new: Vec<Result<NewJobRequest, Problem>>,
) -> Vec<Element> {
    let apply = &api.inner.apply;
    let now_ms = apply.store.now_ms();
    let (mut requests, mut jobs, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for new in new {
        read.push(new.and_then(|new| allowed(api, caller, new, now_ms)).map(|new_job| {
            jobs.push(new_job.job.clone());
            requests.push(Request::NewJob(Box::new(new_job)));
        }));
    }
    // The caller may go away: the jobs are stored and the dispatchers woken all the same.
    let applying = apply.clone();
    let applied = tokio::spawn(async move {
        let answers = applying.all(&mut requests, &mut BoundedRetry::default()).await;
        requests.into_iter().zip(answers).collect::<Vec<_>>()
    });
    let answers = applied.await.unwrap_or_default();
    let looked_up =
        answers.into_iter().zip(jobs).map(async |((request, answer), job)| match request {
            Request::NewJob(new_job) => {
                let answer = answer.map_err(|error| refused(api, &new_job.id, &job, error))?;
                stored(api, caller, account, &new_job.id, job, answer).await
            }
            Request::NewSchedule(_) | Request::Act(_) => Err(lost()),
        });
    let mut looked_up = stream::iter(looked_up).buffered(CONCURRENT_LOOKUPS);
    let mut elements = Vec::new();
    for read in read {
        let shown = match read {
            Ok(()) => looked_up.next().await.unwrap_or_else(|| Err(lost())),
            Err(problem) => Err(problem),
        };
        elements.push(shown.map_or_else(
            |problem| Element::Problem(Box::new(problem)),
            |job| Element::Job(Box::new(job)),
        ));
    }
    elements
}

/// The request as the rules have it, if the caller may send it.
fn allowed(api: &Api, caller: &Caller, new: NewJobRequest, now_ms: i64) -> Result<NewJob, Problem> {
    match &new.queue {
        Some(queue) => caller.check_queue(queue)?,
        None => caller.check_targets()?,
    }
    // A job of others is neither replaced nor shown.
    Ok(NewJob { own_queues: caller.own_queues(), ..new.read(&api.inner.rules, now_ms)? })
}

/// The problem of a job that was not stored.
fn refused(api: &Api, id: &JobId, job: &Job, error: StoreError) -> Problem {
    match job.queue() {
        _ if error.class == Class::Taken => Rejection::taken(id).into(),
        Some(queue) if error.class == Class::QueueFull => api.inner.rules.queue_full(queue).into(),
        _ => error.into(),
    }
}

/// The store has answered nothing about a job.
fn lost() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "there was no answer about this job: it may have been stored",
    )
}

/// The job after this answer: a new one as requested, another one as it is in the store. `job`: as
/// requested.
async fn stored(
    api: &Api,
    caller: &Caller,
    account: &Account,
    id: &JobId,
    job: Job,
    answer: Answer,
) -> Result<view::Job, Problem> {
    let Apply { store, retry_ms, .. } = &api.inner.apply;
    if let (Verdict::Added | Verdict::Replaced, Some(due_ms)) = (answer.verdict, answer.due_ms) {
        return Ok(view::Job::asked(id, job, due_ms, store.now_ms(), retry_ms));
    }
    let found = match api.inner.apply.find(id).await {
        // The job is stored, even if it cannot be read now.
        Err(error) if matches!(answer.verdict, Verdict::Added | Verdict::Replaced) => {
            tracing::warn!(%error, "a job was stored, but reading it failed");
            None
        }
        found => found?.filter(|found| caller.sees(found.job())),
    };
    // The jobs of an array wait for each other.
    account.grow(
        found.as_ref().map_or(0, |found| found.job().headers.footprint() * MEMORY_PER_HEADER_BYTE),
    )?;
    let found = found.map(|found| view::Job::of(&found, retry_ms));
    if answer.verdict == Verdict::Conflict {
        return Err(Problem::from(Rejection::conflict(id)).job(found));
    }
    // The job may be gone already.
    Ok(found.unwrap_or_else(|| {
        view::Job::asked(id, job, answer.due_ms.unwrap_or_default(), i64::MIN, retry_ms)
    }))
}

/// The path of a job; reserved characters are escaped.
fn location(id: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    format!("/v1/jobs/{}", id.bytes().map(escape).collect::<String>())
}

impl NewJobRequest {
    /// The request as the rules have it.
    pub(super) fn read(self, rules: &RequestRules, now_ms: i64) -> Result<NewJob, Problem> {
        // Headers of messages are taken without the white space around them.
        if let Some(queue) = self.queue.as_ref().filter(|queue| !is_queue_name(queue)) {
            let detail = format!(
                "queue: {} is not the name of a queue: write 1 to 255 of A-Z a-z 0-9 . _ -",
                quote_address(queue)
            );
            return Err(Rejection::new(Code::BadQueue, detail).into());
        }
        if let Some(broker) = self.broker.as_ref().filter(|broker| broker.trim() != **broker) {
            return Err(Rejection::new(
                Code::UnknownBroker,
                format!("broker: no [brokers] of the settings is {}", quote_address(broker)),
            )
            .into());
        }
        let body = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => {
                return Err(Problem::bad(
                    "the request has both `body` and `body_base64`: send one",
                ));
            }
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => {
                decode(&base64).map_err(|why| Problem::bad(format!("body_base64: {why}")))?
            }
            (None, None) => Bytes::new(),
        };
        let broker = self.broker.as_deref().unwrap_or(&rules.ingest.broker);
        let has_lists = self.queue.is_none()
            && rules.brokers.get(broker).is_some_and(|broker| broker.capabilities().typed_headers);
        let mut message = Message::new(body);
        message.key = self.key.map(|key| key.0);
        for (name, value) in self.headers {
            let bad =
                |why| Rejection::new(Code::BadHeader, format!("header {}: {why}", quote(&name)));
            let values = header_values(value, has_lists).map_err(bad)?;
            values.into_iter().for_each(|value| message.headers.push(name.clone(), value));
        }
        let retry = self.retry.map(|waits| match waits.is_empty() {
            true => "none".to_owned(),
            false => waits.into_iter().map(|wait| wait.0).collect::<Vec<_>>().join(","),
        });
        let text = |text: Option<Text>| text.map(|text| text.0);
        let fields = [
            ("id", self.id),
            ("for", text(self.delay_for)),
            ("until", text(self.until)),
            ("target", self.target),
            ("exchange", self.exchange),
            ("broker", self.broker),
            ("queue", self.queue),
            ("ttr", text(self.ttr)),
            ("retry", retry),
            ("confirm", self.confirm),
            ("late", self.late),
            ("max-late", text(self.max_late)),
            ("on-conflict", self.on_conflict),
        ];
        let given: Vec<(&str, String)> =
            fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Ok(from_fields(&given, &message, rules, now_ms)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_holds_any_id() {
        assert_eq!(location("a-b.c_d~1"), "/v1/jobs/a-b.c_d~1");
        assert_eq!(location("a/b?ü"), "/v1/jobs/a%2Fb%3F%C3%BC");
    }
}
