//! `GET /v1/schedules/{id}`

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{next_count, no_schedule};
use crate::http::api::caller::Caller;
use crate::http::api::extract::{Id, InPath, Query, flag, flag_schema, time};
use crate::http::api::state::Api;
use crate::http::server::Problem;
use crate::view;

/// Which next times to show, and whether to include the body.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http::api) struct ShowScheduleParams {
    /// How many next times; by default 5
    #[param(minimum = 0, maximum = 1000)]
    next: Option<usize>,
    /// Only times later than this: RFC 3339 with an offset, or epoch milliseconds; by default now,
    /// by Redis's clock
    from: Option<String>,
    /// `1` adds the body as `body_base64`
    #[param(schema_with = flag_schema)]
    body: Option<String>,
}

/// Show a recurring schedule
///
/// `next` has the next nominal times within `start`, `end` and what is left of `count`, also while
/// the schedule is paused.
#[utoipa::path(get, path = "/v1/schedules/{id}", operation_id = "show_schedule", tag = "schedules", params(InPath, ShowScheduleParams), responses(
    (status = 200, body = view::Schedule, description = "The schedule"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such schedule"),
))]
pub(in crate::http::api) async fn show(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
    Query(shown): Query<ShowScheduleParams>,
) -> Result<Json<view::Schedule>, Problem> {
    let with_body = flag("body", shown.body.as_deref())?.unwrap_or(false);
    let most = next_count(shown.next)?;
    let from_ms = time("from", shown.from.as_deref())?;
    let found = api.schedule(&caller, &id).await?.ok_or_else(|| no_schedule(&id))?;
    let apply = &api.inner.apply;
    let now_ms = apply.store.now_ms();
    let next = found.upcoming_after(now_ms, from_ms.unwrap_or(now_ms), most);
    let schedule = view::Schedule::of(&found, next, &apply.retry_ms);
    Ok(Json(if with_body { schedule.with_body(&found) } else { schedule }))
}
