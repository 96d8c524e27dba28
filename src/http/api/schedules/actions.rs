//! Actions on one recurring schedule: `DELETE /v1/schedules/{id}`, `POST …/fire`, `/pause`,
//! `/resume`.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::many::read_reason;
use super::no_schedule;
use crate::http::api::actions::answered;
use crate::http::api::caller::Caller;
use crate::http::api::extract::{Id, InPath, MaybeJson};
use crate::http::api::state::Api;
use crate::http::server::Problem;
use crate::job::{Action, JobId, Verdict};
use crate::request::act_on;
use crate::store::jobs::batch::Answer;
use crate::view;

/// Why a schedule is paused
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::api) struct Reason {
    /// The reason, for people: at most 1000 bytes. Kept until the schedule is resumed
    #[schema(max_length = 1000)]
    reason: Option<String>,
}

/// End a recurring schedule
///
/// Cancels the newest occurrence too, if no attempt of it began. Occurrences that retry go on. A
/// job of this id is left alone.
#[utoipa::path(delete, path = "/v1/schedules/{id}", operation_id = "cancel_schedule", tag = "schedules", params(InPath), responses(
    (status = 200, body = view::ActionResult, description = "`cancelled`"),
    (status = 404, body = view::ActionResult, description = "`not_found`"),
    (status = 409, body = view::ActionResult, description = "`in_flight`: the schedule is ended, and its newest occurrence goes on"),
))]
pub(in crate::http::api) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, Problem> {
    api.act_on_schedule(&caller, Action::Cancel, id).await
}

/// Make an occurrence now
///
/// Also while the schedule is paused. The next time stays.
#[utoipa::path(post, path = "/v1/schedules/{id}/fire", operation_id = "fire_schedule", tag = "schedules", params(InPath), responses(
    (status = 200, body = view::ActionResult, description = "`firing`; the id of the occurrence ends in `@` and its `due_ms`"),
    (status = 404, body = view::ActionResult, description = "`not_found`"),
    (status = 429, body = Problem, content_type = "application/problem+json", description = "`queue_full`: the queue has `max_jobs` jobs",
        headers(("retry-after" = String, description = "When to try again, in seconds"))),
))]
pub(in crate::http::api) async fn fire(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, Problem> {
    api.act_on_schedule(&caller, Action::Fire, id).await
}

/// Pause a recurring schedule
///
/// No occurrence is made until the schedule is resumed; what falls due meanwhile is neither missed
/// nor caught up. A paused schedule may be paused again.
#[utoipa::path(post, path = "/v1/schedules/{id}/pause", operation_id = "pause_schedule", tag = "schedules", params(InPath), request_body = Option<Reason>, responses(
    (status = 200, body = view::Schedule, description = "The schedule"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such schedule"),
))]
pub(in crate::http::api) async fn pause(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
    MaybeJson(Reason { reason }): MaybeJson<Reason>,
) -> Result<Json<view::Schedule>, Problem> {
    let reason = read_reason(reason.as_deref())?;
    let own_queues = caller.own_queues();
    let schedules = &api.inner.apply.store.schedules;
    let paused = schedules.pause(&id, reason, own_queues.as_ref()).await?;
    paused.map(|stored| Json(api.shown(&stored))).ok_or_else(|| no_schedule(&id))
}

/// Resume a recurring schedule
///
/// A schedule that is not paused may be resumed.
#[utoipa::path(post, path = "/v1/schedules/{id}/resume", operation_id = "resume_schedule", tag = "schedules", params(InPath), responses(
    (status = 200, body = view::Schedule, description = "The schedule"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such schedule"),
))]
pub(in crate::http::api) async fn resume(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
) -> Result<Json<view::Schedule>, Problem> {
    let own_queues = caller.own_queues();
    let resumed = api.inner.apply.store.schedules.resume(&id, own_queues.as_ref()).await?;
    resumed.map(|stored| Json(api.shown(&stored))).ok_or_else(|| no_schedule(&id))
}

impl Api {
    /// Applies an action to the schedule of an id, and answers its verdict. A job of the id is left
    /// alone.
    async fn act_on_schedule(
        &self,
        caller: &Caller,
        action: Action,
        id: JobId,
    ) -> Result<Response, Problem> {
        let Some(found) = self.schedule(caller, &id).await? else {
            let answer = Answer::of(Verdict::NotFound);
            let result = view::ActionResult::of(id.as_str(), action, answer);
            return Ok(answered(result.status(), result));
        };
        let rules = &self.inner.rules;
        match found.job.queue() {
            Some(queue) if action == Action::Fire && rules.full_queues.is_full(queue) => {
                Err(rules.queue_full(queue).into())
            }
            _ => self.act(caller, act_on(action, id, None)).await,
        }
    }
}
