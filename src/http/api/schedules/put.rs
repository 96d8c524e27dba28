//! `PUT /v1/schedules/{id}`

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::keep::keep;
use super::no_schedule;
use super::request::NewScheduleRequest;
use crate::http::api::caller::Caller;
use crate::http::api::extract::{Id, InPath, Json as Body};
use crate::http::api::new_jobs::location;
use crate::http::api::state::Api;
use crate::http::server::Problem;
use crate::job::{JobId, Verdict};
use crate::request::NewSchedule;
use crate::request::{Code, Rejection, Request};
use crate::store::error::{Class, ErrorKind, StoreError};
use crate::store::reader::lookup::JobState;
use crate::view;

/// Store a recurring schedule
///
/// Answers the schedule as it is in the store. The same request again changes nothing; another one
/// for the id replaces the schedule. What was made already is left. With `keep`, parts of the stored
/// schedule stay as they are.
#[utoipa::path(put, path = "/v1/schedules/{id}", operation_id = "put_schedule", tag = "schedules", params(InPath), request_body = NewScheduleRequest, responses(
    (status = 201, body = view::Schedule, description = "`added` or `replaced`", headers(("location" = String, description = "The schedule"))),
    (status = 200, body = view::Schedule, description = "`duplicate` or `kept`: nothing changed"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no schedule of which `keep` could keep anything"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`conflict`: a job has the id; or a schedule has the id, and `on_conflict` is `reject`"),
    (status = 413, body = Problem, content_type = "application/problem+json", description = "`body_too_large`"),
))]
pub(in crate::http::api) async fn put(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
    Body(new): Body<NewScheduleRequest>,
) -> Result<Response, Problem> {
    let apply = &api.inner.apply;
    caller.check_receiver(new.queue())?;
    let now_ms = apply.store.now_ms();
    let parts = new.keeps()?;
    // A schedule of others is neither replaced nor shown.
    let mut new =
        NewSchedule { own_queues: caller.own_queues(), ..new.read(&id, &api.inner.rules, now_ms)? };
    if !parts.is_empty() {
        let stored = api.schedule(&caller, &id).await?.ok_or_else(|| no_schedule(&id))?;
        new = keep(&parts, &stored.job, new)?;
    }
    let answer = apply
        .one(Request::NewSchedule(Box::new(new.clone())))
        .await
        .map_err(|error| refused(&id, error))?;
    if answer.verdict == Verdict::Conflict {
        return Err(api.conflict_of(&caller, &id).await?);
    }
    let is_new = matches!(answer.verdict, Verdict::Added | Verdict::Replaced);
    let found = match api.schedule(&caller, &id).await {
        // The schedule is stored, even if it cannot be read now.
        Err(error) if is_new => {
            tracing::warn!(%error, "a schedule was stored, but reading it failed");
            None
        }
        found => found?,
    };
    // The schedule may be over already.
    let shown = api.shown(&found.unwrap_or_else(|| new.begun(now_ms, answer.due_ms)));
    if !is_new {
        return Ok(Json(shown).into_response());
    }
    let location = location("schedules", id.as_str());
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(shown)).into_response())
}

/// The problem of a schedule that was not stored.
fn refused(id: &JobId, error: StoreError) -> Problem {
    match error.class {
        Class::Taken => Rejection::taken(id).into(),
        // The next time stays where the times are replaced by like ones, and may be over the end.
        _ if error.kind() == ErrorKind::Rejected => {
            Rejection::new(Code::BadSchedule, error.message).into()
        }
        _ => error.into(),
    }
}

impl Api {
    /// The problem of a new schedule whose id exists, with the schedule or the job that has it, as
    /// far as the caller may know of either.
    async fn conflict_of(&self, caller: &Caller, id: &JobId) -> Result<Problem, StoreError> {
        let apply = &self.inner.apply;
        if let Some(found) = self.schedule(caller, id).await? {
            let problem = Problem::from(Rejection::conflict(id));
            return Ok(problem.schedule(Some(self.shown(&found))));
        }
        let found = apply.find(id).await?;
        let found = found.filter(|found| found.state != JobState::Dead && caller.sees(found.job()));
        let problem = Problem::from(Rejection::clash(id, "job"));
        Ok(problem.job(found.map(|found| view::Job::of(&found, &apply.retry_ms))))
    }
}
