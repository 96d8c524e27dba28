//! `POST /v1/schedules/preview`

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use super::next_count;
use crate::http::api::extract::Json as Body;
use crate::http::api::job_request::given;
use crate::http::api::state::Api;
use crate::http::api::text::Text;
use crate::http::server::Problem;
use crate::request::{moment_ms, timing_from_fields};
use crate::view;

/// The times of a recurring schedule that is not stored
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::api) struct Previewed {
    /// The expression, as of a schedule
    #[schema(required = true, value_type = String, example = "0 9 * * MON-FRI")]
    schedule: Option<String>,
    /// The zone of the expression and of times without an offset, by its IANA name; by default UTC
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// The first moment, included
    start: Option<Text>,
    /// The last moment, included
    end: Option<Text>,
    /// The most times: 1 to 1000000000
    count: Option<Text>,
    /// Only times later than this, a time as `start`; by default now, by Redis's clock
    from: Option<Text>,
    /// How many next times; by default 5
    #[schema(minimum = 0, maximum = 1000)]
    next: Option<usize>,
}

/// Preview a recurring schedule
///
/// Stores nothing. Intervals without a start are counted from now.
#[utoipa::path(post, path = "/v1/schedules/preview", operation_id = "preview_schedule", tag = "schedules", request_body = Previewed, responses(
    (status = 200, body = view::Times, description = "The next times"),
    (status = 400, body = Problem, content_type = "application/problem+json", description = "`bad_schedule`: the schedule cannot be read, or has no time from now on"),
))]
pub(in crate::http::api) async fn preview(
    State(api): State<Api>,
    Body(previewed): Body<Previewed>,
) -> Result<Json<view::Times>, Problem> {
    let Previewed { schedule, time_zone, start, end, count, from, next } = previewed;
    let text = |text: Option<Text>| text.map(|text| text.0);
    let most = next_count(next)?;
    let now_ms = api.inner.apply.store.now_ms();
    let zone = time_zone.clone();
    let fields = given([
        ("schedule", schedule),
        ("time-zone", time_zone),
        ("start", text(start)),
        ("end", text(end)),
        ("count", text(count)),
    ]);
    let timing = timing_from_fields(&fields, now_ms)?;
    let from_ms = text(from).map(|text| moment_ms("from", &text, zone.as_deref())).transpose()?;
    Ok(Json(view::Times::of(&timing, now_ms, from_ms.unwrap_or(now_ms), most)))
}
