//! `GET /v1/horizon`

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::caller::Caller;
use super::extract::Query;
use super::state::Api;
use crate::http::server::Problem;
use crate::request::OwnQueues;
use crate::store::error::StoreError;
use crate::store::schedules::{ScheduleFilter, ScheduleQuery, Schedules};
use crate::units::parse_duration_ms;
use crate::view;

/// The most steps: each costs a count in every bucket for every broker.
const MAX_STEPS: u64 = 500;
/// The most recurring schedules that are read at once.
const PAGE_SCHEDULES: usize = 1000;

/// How far to look ahead, and the length of a step.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Ahead {
    /// The length of a step, as a duration: `1m`, `PT1H`; by default a minute
    #[param(example = "1m")]
    step: Option<String>,
    /// How far to look ahead, as a duration; at most 500 steps, by default 60
    #[param(example = "1h")]
    to: Option<String>,
}

/// Count the jobs per step ahead
///
/// The first step begins now, by Redis's clock. Overdue jobs are in no step. Of a recurring schedule
/// that is not paused, the next occurrence is counted. `limited` is as in `GET /v1/stats`. A token
/// with only some queues counts the jobs of these, and sees no limits.
#[utoipa::path(get, path = "/v1/horizon", tag = "state", params(Ahead), responses((status = 200, body = view::Horizon, description = "The steps")))]
pub(super) async fn horizon(
    State(api): State<Api>,
    caller: Caller,
    Query(ahead): Query<Ahead>,
) -> Result<Json<view::Horizon>, Problem> {
    let read = |name, text: &Option<String>| match text {
        Some(text) => {
            parse_duration_ms(text).map(Some).map_err(|why| Problem::bad(format!("{name}: {why}")))
        }
        None => Ok(None),
    };
    let step_ms = read("step", &ahead.step)?.unwrap_or(60_000);
    if step_ms == 0 {
        return Err(Problem::bad("step: a step is longer than zero: write 1m"));
    }
    let to_ms = read("to", &ahead.to)?.unwrap_or(step_ms.saturating_mul(60));
    let count = to_ms.div_ceil(step_ms);
    if count > MAX_STEPS {
        return Err(Problem::bad(format!(
            "that is {count} steps, and at most {MAX_STEPS} are counted: make `step` longer or `to` shorter"
        )));
    }
    let store = &api.inner.apply.store;
    let count = u32::try_from(count).unwrap_or(0);
    let mut steps = store.reader.horizon(step_ms, count, caller.queue_filter().as_ref()).await?;
    add_schedules(&store.schedules, caller.own_queues(), &mut steps, step_ms).await?;
    let limited = if caller.is_restricted() { Vec::new() } else { api.limited().await? };
    Ok(Json(view::Horizon {
        steps: steps.into_iter().map(|(from_ms, count)| view::Step { from_ms, count }).collect(),
        limited,
    }))
}

/// Adds the next time of each recurring schedule that is not paused. `own_queues`: only of the
/// schedules of these.
async fn add_schedules(
    schedules: &Schedules,
    own_queues: Option<OwnQueues>,
    steps: &mut [(i64, u64)],
    step_ms: u64,
) -> Result<(), StoreError> {
    let end_of = |from_ms: i64| from_ms.saturating_add_unsigned(step_ms);
    if own_queues.is_none() {
        let spans: Vec<(i64, i64)> =
            steps.iter().map(|(from_ms, _)| (*from_ms, end_of(*from_ms))).collect();
        let counts = schedules.upcoming_in(&spans).await?;
        steps.iter_mut().zip(counts).for_each(|((_, count), more)| *count += more);
        return Ok(());
    }
    // The index of next times does not know queues.
    let filter = ScheduleFilter { paused: Some(false), own_queues, ..ScheduleFilter::default() };
    let mut query = ScheduleQuery { filter, limit: PAGE_SCHEDULES, after: None };
    loop {
        let page = schedules.list(&query).await?;
        for next_ms in page.schedules.iter().filter_map(|found| found.progress.next_ms) {
            let is_in =
                |(from_ms, _): &&mut (i64, u64)| (*from_ms..end_of(*from_ms)).contains(&next_ms);
            if let Some((_, count)) = steps.iter_mut().find(is_in) {
                *count += 1;
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(()),
        }
    }
}
