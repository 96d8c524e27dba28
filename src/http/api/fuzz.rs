//! Entry points for `crate::fuzz`.

use axum::extract::Query;
use axum::http::Uri;

use super::extract::read;
use super::job_request::NewJobRequest;
use super::jobs::Filter;
use super::schedules;
use crate::job::JobId;
use crate::request::{NewJob, NewSchedule, RequestRules};
use crate::store::reader::list;

pub(crate) fn new_job(body: &[u8], rules: &RequestRules, now_ms: i64) -> Option<NewJob> {
    read::<NewJobRequest>(body).ok()?.read(rules, now_ms).ok()
}

pub(crate) fn new_schedule(body: &[u8], rules: &RequestRules, now_ms: i64) -> Option<NewSchedule> {
    schedules::read(body, &JobId::new("schedule").ok()?, rules, now_ms)
}

pub(crate) fn query(text: &str) -> Option<list::Query> {
    let uri: Uri = format!("/v1/jobs?{text}").parse().ok()?;
    let Query(filter) = Query::<Filter>::try_from_uri(&uri).ok()?;
    filter.read().ok()
}
