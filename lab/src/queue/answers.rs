//! The answers of the HTTP API to consumers.

use std::borrow::Cow;

use serde::Deserialize;

/// The answer to a pop.
#[derive(Debug, Deserialize)]
pub(super) struct Fetched<'a> {
    #[serde(borrow)]
    pub(super) jobs: Vec<Job<'a>>,
}

/// A fetched job.
#[derive(Debug, Deserialize)]
pub(super) struct Job<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) lease: Cow<'a, str>,
    pub(super) attempt: u32,
    pub(super) due_ms: i64,
    pub(super) deadline_ms: i64,
    #[serde(borrow)]
    pub(super) body: Cow<'a, str>,
}

/// The answer to words on leases.
#[derive(Debug, Deserialize)]
pub(super) struct Results {
    pub(super) results: Vec<Answer>,
}

/// The answer to one word.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) verdict: String,
}
