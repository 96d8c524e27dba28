//! Actions on one job: `DELETE` and `PATCH /v1/jobs/{id}`, `POST …/fire`, `/finish`, `/fail`,
//! `/requeue`. Each answers with its verdict.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::caller::Caller;
use super::extract::{Id, InPath, Json as Body, MaybeJson};
use super::leases;
use super::state::Api;
use super::text::Text;
use crate::http::server::Problem;
use crate::job::{Action, JobId};
use crate::request::{Act, Code, Rejection, Request, act_on, due_stated};
use crate::store::jobs::acknowledge::LeaseAction;
use crate::units::parse_duration_ms;
use crate::view;

/// A new due time: exactly one of `for` and `until`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTime {
    /// The delay from now, by Redis's clock: `5m`, `PT5M`, or milliseconds
    #[serde(rename = "for")]
    #[schema(example = "5m")]
    delay_for: Option<Text>,
    /// The due time: RFC 3339 with an offset, or without one beside `time_zone`; or epoch
    /// milliseconds
    until: Option<Text>,
    /// The zone of an `until` without an offset, by its IANA name
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
}

/// What a consumer returns from the message that it received, so that the action applies to that
/// message only.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Seen {
    /// The `delayed-due` of the message; if the job has another schedule, the verdict is `stale`
    due_ms: Option<i64>,
    /// The `delayed-attempt` of the message; for `fail`, if the job has another attempt, the
    /// verdict is `stale`
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    attempt: Option<u32>,
    /// Of a job that was fetched from a queue: its lease. Without it, whoever holds the job
    lease: Option<String>,
    /// With a lease, for `fail`: the wait before the next attempt
    #[serde(rename = "for")]
    wait: Option<Text>,
    /// With a lease, for `fail`: why
    error: Option<String>,
}

/// A result with its status.
pub(super) fn answered(status: u16, result: impl Serialize) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(result)).into_response()
}

/// Cancel a job
#[utoipa::path(delete, path = "/v1/jobs/{id}", tag = "jobs", params(InPath), responses(
    (status = 200, body = view::ActionResult, description = "`cancelled`, or `cancelled_after_attempt`"),
    (status = 404, body = view::ActionResult, description = "`not_found`"),
    (status = 409, body = view::ActionResult, description = "`in_flight` (cancelled, but the attempt in flight may arrive), or `fired`"),
))]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, Problem> {
    api.act(&caller, act_on(Action::Cancel, id, None)).await
}

/// Give a job a new due time
#[utoipa::path(patch, path = "/v1/jobs/{id}", tag = "jobs", params(InPath), request_body = NewTime, responses(
    (status = 200, body = view::ActionResult, description = "`rescheduled`"),
    (status = 404, body = view::ActionResult, description = "`not_found`"),
    (status = 409, body = view::ActionResult, description = "`in_flight` (nothing changed), `dead`, `fired`, or `waiting` (the id is that of a recurring schedule)"),
))]
pub(super) async fn reschedule(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
    Body(time): Body<NewTime>,
) -> Result<Response, Problem> {
    let bad = |why: String| Rejection::new(Code::BadDelay, format!("for: {why}"));
    let delay_for =
        time.delay_for.map(|text| parse_duration_ms(&text.0)).transpose().map_err(bad)?;
    let until = time.until.map(|text| text.0);
    let max_ms = api.inner.rules.limits.max_delay.ms();
    let now_ms = api.inner.apply.store.now_ms();
    let due = due_stated(delay_for, until.as_deref(), time.time_zone.as_deref(), max_ms, now_ms)?
        .ok_or_else(|| {
        Rejection::new(
            Code::MissingDelay,
            "the request has no time: send `for` (5m) or `until` (2026-01-31T12:00:00Z)",
        )
    })?;
    api.act(&caller, act_on(Action::Reschedule, id, Some(due))).await
}

/// Publish a job now
#[utoipa::path(post, path = "/v1/jobs/{id}/fire", tag = "jobs", params(InPath), responses(
    (status = 200, body = view::ActionResult, description = "`firing`"),
    (status = 404, body = view::ActionResult, description = "`not_found`"),
    (status = 409, body = view::ActionResult, description = "`in_flight`, `dead`, or `fired`"),
    (status = 429, body = Problem, content_type = "application/problem+json", description = "`queue_full`: the id is that of a recurring schedule, whose queue has `max_jobs` jobs",
        headers(("retry-after" = String, description = "When to try again, in seconds"))),
))]
pub(super) async fn fire(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, Problem> {
    api.act(&caller, act_on(Action::Fire, id, None)).await
}

/// Finish a job for its consumer
#[utoipa::path(post, path = "/v1/jobs/{id}/finish", tag = "jobs", params(InPath), request_body = Option<Seen>, responses(
    (status = 200, body = view::ActionResult, description = "`finished`"),
    (status = 404, body = view::ActionResult, description = "`not_found`, also for a schedule that was never attempted"),
    (status = 409, body = view::ActionResult, description = "`stale`, `fired`, or `waiting` (the id is that of a recurring schedule)"),
))]
pub(super) async fn finish(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
    MaybeJson(seen): MaybeJson<Seen>,
) -> Result<Response, Problem> {
    api.act_for_consumer(&caller, Action::Finish, id, seen).await
}

/// Fail an attempt for its consumer
#[utoipa::path(post, path = "/v1/jobs/{id}/fail", tag = "jobs", params(InPath), request_body = Option<Seen>, responses(
    (status = 200, body = view::ActionResult, description = "`failed`"),
    (status = 404, body = view::ActionResult, description = "`not_found`, also for a schedule that was never attempted"),
    (status = 409, body = view::ActionResult, description = "`waiting` (no attempt is in flight, or the id is that of a recurring schedule), `stale`, `dead`, or `fired`"),
))]
pub(super) async fn fail(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
    MaybeJson(seen): MaybeJson<Seen>,
) -> Result<Response, Problem> {
    api.act_for_consumer(&caller, Action::Fail, id, seen).await
}

/// Schedule a dead job again, with attempts from 1
#[utoipa::path(post, path = "/v1/jobs/{id}/requeue", tag = "jobs", params(InPath), responses(
    (status = 200, body = view::ActionResult, description = "`requeued`"),
    (status = 404, body = view::ActionResult, description = "`not_found`"),
    (status = 409, body = view::ActionResult, description = "`waiting` (the job is not dead, or the id is that of a recurring schedule), or `fired`"),
))]
pub(super) async fn requeue(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, Problem> {
    api.act(&caller, act_on(Action::Requeue, id, None)).await
}

impl Api {
    async fn act_for_consumer(
        &self,
        caller: &Caller,
        action: Action,
        id: JobId,
        seen: Seen,
    ) -> Result<Response, Problem> {
        if let Some(lease) = &seen.lease {
            if seen.due_ms.is_some() || seen.attempt.is_some() {
                return Err(Problem::bad(
                    "a lease names its attempt: send neither `due_ms` nor `attempt` with it",
                ));
            }
            let id = id.as_str().to_owned();
            let said = match action {
                Action::Fail => {
                    let wait_ms = leases::wait(seen.wait, self.inner.rules.limits.max_delay.ms())?;
                    leases::fail(caller, id, lease, wait_ms, seen.error)?
                }
                _ => leases::read(caller, id, lease, "finish", |_| LeaseAction::Finish)?,
            };
            let mut results = leases::carry_out(&self.inner.queues, vec![said]).await;
            let result = results.pop().ok_or_else(|| Problem::bad("the lease has no answer"))??;
            return Ok(answered(result.status(), result));
        }
        if seen.wait.is_some() || seen.error.is_some() {
            return Err(Problem::bad("`for` and `error` need the `lease` of the job"));
        }
        self.act(
            caller,
            Act { seen_due: seen.due_ms, seen_attempt: seen.attempt, ..act_on(action, id, None) },
        )
        .await
    }

    /// Applies an action of the caller, and answers its verdict.
    pub(super) async fn act(&self, caller: &Caller, act: Act) -> Result<Response, Problem> {
        let (id, action) = (act.id.clone(), act.action);
        let answer = self
            .inner
            .apply
            .one(Request::Act(Act { own_queues: caller.own_queues(), ..act }))
            .await?;
        let result = view::ActionResult::of(id.as_str(), action, answer);
        Ok(answered(result.status(), result))
    }
}
