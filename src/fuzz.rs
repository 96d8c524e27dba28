//! Entry points to parsers that only this package calls, for the package `fuzz`.

use crate::http::api::fuzz;
use crate::request::{NewJob, NewSchedule, RequestRules};
use crate::store::reader::list;

/// The body of `POST /v1/jobs`; `None` if it is rejected.
#[must_use]
pub fn new_job(body: &[u8], rules: &RequestRules, now_ms: i64) -> Option<NewJob> {
    fuzz::new_job(body, rules, now_ms)
}

/// The body of `PUT /v1/schedules/{id}`; `None` if it is rejected.
#[must_use]
pub fn new_schedule(body: &[u8], rules: &RequestRules, now_ms: i64) -> Option<NewSchedule> {
    fuzz::new_schedule(body, rules, now_ms)
}

/// The query of `GET /v1/jobs` with its cursor; `None` if it is rejected.
#[must_use]
pub fn query(text: &str) -> Option<list::Query> {
    fuzz::query(text)
}
