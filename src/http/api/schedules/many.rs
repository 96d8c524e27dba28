//! `POST /v1/schedules/pause` and `/v1/schedules/resume`: many recurring schedules at once.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::http::api::caller::Caller;
use crate::http::api::extract::Json as Body;
use crate::http::api::state::Api;
use crate::http::server::Problem;
use crate::schedule::MAX_REASON_BYTES;
use crate::store::schedules::ScheduleFilter;
use crate::view;

/// Which schedules to pause or resume; without any field, all
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::api) struct Selected {
    /// Those whose id has this part
    q: Option<String>,
    /// Those of this queue: a name, or a pattern with `*`
    queue: Option<String>,
    /// Those for this target
    target: Option<String>,
    /// Of a pause: why, for people, at most 1000 bytes. Kept until a schedule is resumed
    #[schema(max_length = 1000)]
    reason: Option<String>,
}

/// Pause many recurring schedules
///
/// Schedules that are paused already stay as they are, and are not counted.
#[utoipa::path(post, path = "/v1/schedules/pause", operation_id = "pause_schedules", tag = "schedules", request_body = Selected, responses(
    (status = 200, body = view::Changed, description = "How many schedules were paused"),
))]
pub(in crate::http::api) async fn pause(
    State(api): State<Api>,
    caller: Caller,
    Body(selected): Body<Selected>,
) -> Result<Json<view::Changed>, Problem> {
    let reason = read_reason(selected.reason.as_deref())?.map(str::to_owned);
    let filter = selected.filter(&caller);
    let changed = api.inner.apply.store.schedules.pause_many(&filter, reason.as_deref()).await?;
    Ok(Json(view::Changed { changed }))
}

/// Resume many recurring schedules
///
/// Schedules that are not paused stay as they are, and are not counted.
#[utoipa::path(post, path = "/v1/schedules/resume", operation_id = "resume_schedules", tag = "schedules", request_body = Selected, responses(
    (status = 200, body = view::Changed, description = "How many schedules were resumed"),
))]
pub(in crate::http::api) async fn resume(
    State(api): State<Api>,
    caller: Caller,
    Body(selected): Body<Selected>,
) -> Result<Json<view::Changed>, Problem> {
    read_reason(selected.reason.as_deref())?;
    let filter = selected.filter(&caller);
    let changed = api.inner.apply.store.schedules.resume_many(&filter).await?;
    Ok(Json(view::Changed { changed }))
}

impl Selected {
    fn filter(self, caller: &Caller) -> ScheduleFilter {
        ScheduleFilter {
            q: self.q,
            paused: None,
            queue: self.queue,
            target: self.target,
            missed_since_ms: None,
            own_queues: caller.own_queues(),
        }
    }
}

/// The reason of a pause; an empty one is none.
pub(super) fn read_reason(reason: Option<&str>) -> Result<Option<&str>, Problem> {
    match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) if reason.len() > MAX_REASON_BYTES => Err(Problem::bad(format!(
            "reason: {} bytes are too many: write at most {MAX_REASON_BYTES}",
            reason.len()
        ))),
        reason => Ok(reason),
    }
}
