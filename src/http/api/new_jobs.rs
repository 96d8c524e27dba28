//! `POST /v1/jobs`

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use utoipa::openapi::schema::{AnyOfBuilder, OneOfBuilder, SchemaType};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::caller::Caller;
use super::job_request::NewJobRequest;
use super::one_or_many::{self, OneOrMany};
use super::state::Api;
use crate::apply::{Apply, BoundedRetry};
use crate::http::server::Problem;
use crate::http::server::account::Account;
use crate::job::{Job, JobId, Verdict};
use crate::request::{NewJob, Rejection, Request};
use crate::store::error::{Class, StoreError};
use crate::store::jobs::batch::Answer;
use crate::store::reader::lookup::JobState;
use crate::view;

/// The memory of a job's headers as JSON values and as text, in multiples of their size.
const MEMORY_PER_HEADER_BYTE: usize = 3;
/// The most jobs of an array that are read from the store at once.
const CONCURRENT_LOOKUPS: usize = 32;

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
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`conflict`: the id exists, and `on_conflict` is `reject`; or a recurring schedule has the id"),
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
            let location = location("jobs", id.as_str());
            Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(shown)).into_response())
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
    caller.check_receiver(new.queue())?;
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
    let Apply { retry_ms, .. } = &api.inner.apply;
    if let (Verdict::Added | Verdict::Replaced, Some(due_ms)) = (answer.verdict, answer.due_ms) {
        return Ok(view::Job::asked(id, job, due_ms, answer.is_due, retry_ms));
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
    if answer.verdict == Verdict::Conflict {
        // A dead job stands in nobody's way.
        let found = found.filter(|found| found.state != JobState::Dead);
        let Some(found) = found else { return Err(api.conflict_with_schedule(caller, id).await?) };
        let problem = Problem::from(Rejection::conflict(id));
        return Err(problem.job(Some(view::Job::of(&found, retry_ms))));
    }
    let found = found.map(|found| view::Job::of(&found, retry_ms));
    // The job may be gone already.
    Ok(found.unwrap_or_else(|| {
        view::Job::asked(id, job, answer.due_ms.unwrap_or_default(), false, retry_ms)
    }))
}

/// The path of a job or a schedule in its collection; reserved characters are escaped.
pub(super) fn location(collection: &str, id: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    format!("/v1/{collection}/{}", id.bytes().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_holds_any_id() {
        assert_eq!(location("jobs", "a-b.c_d~1"), "/v1/jobs/a-b.c_d~1");
        assert_eq!(location("schedules", "a/b?ü"), "/v1/schedules/a%2Fb%3F%C3%BC");
    }
}
