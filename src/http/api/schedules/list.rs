//! `GET /v1/schedules`

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::http::api::caller::Caller;
use crate::http::api::extract::{Query, time};
use crate::http::api::state::Api;
use crate::http::server::Problem;
use crate::http::server::account::Account;
use crate::store::schedules::{ScheduleFilter, ScheduleQuery};
use crate::units::quote;
use crate::view;

/// The default length of a page.
const DEFAULT_PAGE_SCHEDULES: usize = 100;
/// The most schedules of a page.
const MAX_PAGE_SCHEDULES: usize = 1000;
/// The most memory that a page takes while it is read.
const PAGE_MEMORY_BYTES: usize = 8 << 20;

/// The filter of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http::api) struct Filter {
    /// Only schedules whose id has this part
    q: Option<String>,
    /// Only paused schedules, or only those that are not
    #[param(schema_with = paused_schema)]
    paused: Option<String>,
    /// Only schedules of this queue: a name, or a pattern with `*`
    queue: Option<String>,
    /// Only schedules for this target
    target: Option<String>,
    /// Only schedules that missed an occurrence at this time or later: RFC 3339 with an offset, or
    /// epoch milliseconds
    missed_since: Option<String>,
    /// The most schedules of the page; by default 100
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before, with the same filter
    cursor: Option<String>,
}

fn paused_schema() -> utoipa::openapi::Object {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::Type::String)
        .enum_values(Some(["true", "false", "1", "0"]))
        .build()
}

/// A page of recurring schedules.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SchedulePage)]
pub(in crate::http::api) struct Page {
    /// The schedules by id, without bodies.
    schedules: Vec<view::Schedule>,
    /// The cursor of the next page; null on the last page.
    next: Option<String>,
}

/// List recurring schedules
///
/// Sorted by id.
#[utoipa::path(get, path = "/v1/schedules", operation_id = "list_schedules", tag = "schedules", params(Filter), responses((status = 200, body = Page, description = "A page")))]
pub(in crate::http::api) async fn list(
    State(api): State<Api>,
    caller: Caller,
    account: Account,
    Query(filter): Query<Filter>,
) -> Result<Json<Page>, Problem> {
    let query = filter.read(&caller)?;
    account.take(PAGE_MEMORY_BYTES).await?;
    let page = api.inner.apply.store.schedules.list(&query).await?;
    let schedules = page.schedules.iter().map(|found| api.shown(found)).collect();
    Ok(Json(Page { schedules, next: page.next.map(|id| cursor(&id)) }))
}

impl Filter {
    fn read(self, caller: &Caller) -> Result<ScheduleQuery, Problem> {
        let paused = match self.paused.as_deref() {
            None => None,
            Some("true" | "1") => Some(true),
            Some("false" | "0") => Some(false),
            Some(other) => {
                let detail = format!("paused: {} is neither true nor false", quote(other));
                return Err(Problem::bad(detail));
            }
        };
        let limit = self.limit.unwrap_or(DEFAULT_PAGE_SCHEDULES);
        if !(1..=MAX_PAGE_SCHEDULES).contains(&limit) {
            return Err(Problem::bad(format!(
                "limit: {limit} is not from 1 to {MAX_PAGE_SCHEDULES}"
            )));
        }
        let after = self.cursor.map(|text| {
            id_of(&text).ok_or_else(|| {
                Problem::bad(
                    "cursor: this is not the `next` of a page: start again without a cursor",
                )
            })
        });
        let filter = ScheduleFilter {
            q: self.q,
            paused,
            queue: self.queue,
            target: self.target,
            missed_since_ms: time("missed_since", self.missed_since.as_deref())?,
            own_queues: caller.own_queues(),
        };
        Ok(ScheduleQuery { filter, limit, after: after.transpose()? })
    }
}

/// The last id of a page as an opaque text.
fn cursor(id: &str) -> String {
    URL_SAFE_NO_PAD.encode(id)
}

/// The id that a cursor stands for.
fn id_of(cursor: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_holds_any_id() {
        for id in ["x", "a b/c?", "ü\u{1F600}"] {
            assert_eq!(id_of(&cursor(id)).as_deref(), Some(id));
        }
        assert_eq!((id_of("="), id_of("_w")), (None, None));
    }
}
