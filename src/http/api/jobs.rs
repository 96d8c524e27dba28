//! `GET /v1/jobs` and `GET /v1/jobs/{id}`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::caller::Caller;
use super::extract::{Id, InPath, Query, flag, flag_schema, time};
use super::state::Api;
use crate::http::server::Problem;
use crate::http::server::account::Account;
use crate::store::reader::list::{self, Cursor};
use crate::store::reader::lookup::JobState;
use crate::units::quote;
use crate::view;

/// The default length of a page.
const DEFAULT_PAGE_JOBS: usize = 100;
/// The most jobs of a page.
const MAX_PAGE_JOBS: usize = 1000;

/// The most memory that a page takes while it is read.
const PAGE_MEMORY_BYTES: usize = 8 << 20;

/// The filter of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// `scheduled`, `ready` (of queues: due, and not fetched), `reserved` or `dead`; by default
    /// `scheduled`
    #[param(schema_with = state_schema)]
    state: Option<String>,
    /// Only jobs due at this time or later: RFC 3339 with an offset, or epoch milliseconds
    from: Option<String>,
    /// Only jobs due before this time
    to: Option<String>,
    /// Only jobs for this target: topic, subject or routing key; or exchange/routing key
    target: Option<String>,
    /// Only jobs of this queue
    queue: Option<String>,
    /// The maximum number of jobs; by default 100
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before, with the same filter
    cursor: Option<String>,
}

fn state_schema() -> utoipa::openapi::Object {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::Type::String)
        .enum_values(Some(["scheduled", "ready", "reserved", "dead"]))
        .build()
}

/// A page of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page {
    /// The jobs by due time, then by id, without bodies.
    jobs: Vec<view::Job>,
    /// The cursor of the next page; null on the last page.
    next: Option<String>,
    /// Jobs whose records cannot be read: run `dwell fsck`. Omitted if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<Unreadable>,
}

/// A job whose record cannot be read.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Unreadable {
    /// The job's id.
    id: String,
    /// Why the record cannot be read.
    why: String,
}

/// List jobs
///
/// Sorted by due time. A job that does not change is in exactly one page, whatever other jobs do.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(Filter), responses((status = 200, body = Page, description = "A page")))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    account: Account,
    Query(filter): Query<Filter>,
) -> Result<Json<Page>, Problem> {
    let query = list::Query { queues: caller.queue_filter(), ..filter.read()? };
    account.take(PAGE_MEMORY_BYTES).await?;
    let state = query.state;
    let page = api.inner.apply.store.reader.list(&query).await?;
    let jobs =
        page.jobs.iter().map(|found| view::Job::of(found, &api.inner.apply.retry_ms)).collect();
    // Nothing says whose job it is.
    let unreadable = if caller.is_restricted() { Vec::new() } else { page.unreadable };
    let unreadable = unreadable.into_iter().map(|(id, why)| Unreadable { id, why }).collect();
    Ok(Json(Page { jobs, next: page.next.map(|spot| cursor(state, &spot)), unreadable }))
}

/// Whether to include the body.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ShowJobParams {
    /// `1` adds the body as `body_base64`
    #[param(schema_with = flag_schema)]
    body: Option<String>,
}

/// Show a job
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(InPath, ShowJobParams), responses(
    (status = 200, body = view::Job, description = "The job"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such job: completed jobs are not kept"),
))]
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    Id(id): Id,
    Query(shown): Query<ShowJobParams>,
) -> Result<Json<view::Job>, Problem> {
    let with_body = flag("body", shown.body.as_deref())?.unwrap_or(false);
    let found =
        api.inner.apply.find(&id).await?.filter(|found| caller.sees(found.job())).ok_or_else(
            || {
                let detail = format!(
                    "there is no job {}: published, finished and cancelled jobs are not kept",
                    quote(id.as_str())
                );
                Problem::new(StatusCode::NOT_FOUND, detail)
            },
        )?;
    let job = view::Job::of(&found, &api.inner.apply.retry_ms);
    Ok(Json(if with_body { job.with_body(&found) } else { job }))
}

impl Filter {
    pub(super) fn read(self) -> Result<list::Query, Problem> {
        let state = match self.state.as_deref() {
            None => JobState::Scheduled,
            Some(word) => {
                [JobState::Scheduled, JobState::Ready, JobState::Reserved, JobState::Dead]
                    .into_iter()
                    .find(|state| state.as_str() == word)
                    .ok_or_else(|| {
                        Problem::bad(format!(
                            "state: {} is not one of scheduled, ready, reserved, dead",
                            quote(word)
                        ))
                    })?
            }
        };
        let limit = self.limit.unwrap_or(DEFAULT_PAGE_JOBS);
        if !(1..=MAX_PAGE_JOBS).contains(&limit) {
            return Err(Problem::bad(format!("limit: {limit} is not from 1 to {MAX_PAGE_JOBS}")));
        }
        let after = self.cursor.map(|text| {
            spot(state, &text)
                .ok_or_else(|| Problem::bad("cursor: this is not the `next` of a page of this state: start again without a cursor"))
        });
        Ok(list::Query {
            state,
            from_ms: time("from", self.from.as_deref())?,
            to_ms: time("to", self.to.as_deref())?,
            target: self.target,
            queue: self.queue,
            queues: None,
            after: after.transpose()?,
            limit,
        })
    }
}

/// A position in a list as an opaque text.
fn cursor(state: JobState, spot: &Cursor) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {} {}", state.as_str(), spot.at_ms, spot.id))
}

/// The position that a cursor of this list stands for.
fn spot(state: JobState, cursor: &str) -> Option<Cursor> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (at_ms, id) = text.strip_prefix(state.as_str())?.strip_prefix(' ')?.split_once(' ')?;
    Some(Cursor { at_ms: at_ms.parse().ok()?, id: id.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_and_to_no_other() {
        for id in ["x", "a b  c ", "ü\u{1F600}"] {
            let at = Cursor { at_ms: -5, id: id.to_owned() };
            let text = cursor(JobState::Dead, &at);
            assert_eq!(spot(JobState::Dead, &text), Some(at));
            assert_eq!(spot(JobState::Scheduled, &text), None);
        }
        for text in ["", "x", "ZGVhZA", "ZGVhZCBhIGI", "====", "\u{fc}"] {
            assert_eq!(spot(JobState::Dead, text), None, "{text}");
        }
    }
}
