//! The answers of the HTTP API to consumers.

use std::borrow::Cow;

use serde::Deserialize;

/// The answer to a pop.
#[derive(Debug, Deserialize)]
pub(crate) struct Fetched<'a> {
    #[serde(borrow)]
    pub(crate) jobs: Vec<Job<'a>>,
}

/// A fetched job.
#[derive(Debug, Deserialize)]
pub(crate) struct Job<'a> {
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) lease: Cow<'a, str>,
    pub(crate) attempt: u32,
    pub(crate) due_ms: i64,
    pub(crate) deadline_ms: i64,
    pub(crate) headers: Headers,
    /// Empty if it is no text.
    #[serde(borrow, default)]
    pub(crate) body: Cow<'a, str>,
}

/// The headers of a fetched job.
#[derive(Debug, Deserialize)]
pub(crate) struct Headers {
    /// 0 if it is no occurrence of a schedule.
    #[serde(rename = "delayed-occurrence", default)]
    pub(crate) occurrence: u64,
}

/// The answer to words on leases.
#[derive(Debug, Deserialize)]
pub(crate) struct Results {
    pub(crate) results: Vec<Answer>,
}

/// The answer to one word.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: String,
    pub(crate) verdict: String,
}
