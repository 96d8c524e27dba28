//! `/v1/schedules`: recurring schedules.
//!
//! - `put`: stores a schedule, from the body in `request`; `keep`: the parts of the stored one that
//!   stay; `preview`: the times of an expression.
//! - `show` and `list`: schedules as they are stored.
//! - `actions`: actions on one schedule; `many`: pause and resume of many.

pub(super) mod actions;
mod keep;
pub(super) mod list;
pub(super) mod many;
pub(super) mod preview;
pub(super) mod put;
mod request;
pub(super) mod show;

use axum::http::StatusCode;

use super::caller::Caller;
use super::state::Api;
use crate::http::server::Problem;
use crate::job::JobId;
use crate::request::Rejection;
use crate::schedule::StoredSchedule;
use crate::store::error::StoreError;
use crate::units::quote;
use crate::view;

/// The default number of next times.
const DEFAULT_NEXT: usize = 5;
/// The most next times of an answer.
const MAX_NEXT: usize = 1000;

/// The schedule in the body of a `PUT`, for `crate::fuzz`.
#[cfg(feature = "fuzz")]
pub(super) fn read(
    body: &[u8],
    id: &JobId,
    rules: &crate::request::RequestRules,
    now_ms: i64,
) -> Option<crate::request::NewSchedule> {
    let request = super::extract::read::<request::NewScheduleRequest>(body).ok()?;
    request.read(id, rules, now_ms).ok()
}

/// The number of next times to show.
fn next_count(next: Option<usize>) -> Result<usize, Problem> {
    match next.unwrap_or(DEFAULT_NEXT) {
        next if next <= MAX_NEXT => Ok(next),
        next => Err(Problem::bad(format!("next: {next} is not from 0 to {MAX_NEXT}"))),
    }
}

/// The problem of a schedule that does not exist, or that the caller must not know of.
fn no_schedule(id: &JobId) -> Problem {
    let detail = format!(
        "there is no recurring schedule {}: cancelled ones, and those without a further time, are not kept",
        quote(id.as_str())
    );
    Problem::new(StatusCode::NOT_FOUND, detail)
}

impl Api {
    /// The schedule of an id, if the caller may know of it.
    async fn schedule(
        &self,
        caller: &Caller,
        id: &JobId,
    ) -> Result<Option<StoredSchedule>, StoreError> {
        let apply = &self.inner.apply;
        let found = apply.reading(apply.store.schedules.find(id)).await?;
        Ok(found.filter(|found| caller.sees(&found.job)))
    }

    /// A schedule with its next few times from now.
    fn shown(&self, stored: &StoredSchedule) -> view::Schedule {
        let apply = &self.inner.apply;
        let next = stored.upcoming(apply.store.now_ms(), DEFAULT_NEXT);
        view::Schedule::of(stored, next, &apply.retry_ms)
    }

    /// The problem of a new job whose id is that of a recurring schedule, as far as the caller may
    /// know of the schedule.
    pub(super) async fn conflict_with_schedule(
        &self,
        caller: &Caller,
        id: &JobId,
    ) -> Result<Problem, StoreError> {
        let Some(found) = self.schedule(caller, id).await? else {
            return Ok(Rejection::conflict(id).into());
        };
        let problem = Problem::from(Rejection::clash(id, "schedule"));
        Ok(problem.schedule(Some(self.shown(&found))))
    }
}
