//! Jobs of queues as consumers see them, and what their words on leases did.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::job::Job;
use crate::store::jobs::acknowledge::{Acknowledged, LeaseVerdict};
use crate::store::jobs::pop::Popped;
use crate::store::reader::queues::QueueCounts;

/// The fetched jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Fetched<'a> {
    /// The jobs; empty if none was there within the wait.
    jobs: Vec<FetchedJob<'a>>,
    /// The results of the acknowledgements of the pop, in the order of `POST /v1/leases`. Absent
    /// without any, and in a peek.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<LeaseResult>>)]
    results: Option<&'a RawValue>,
}

impl<'a> Fetched<'a> {
    /// The answer with these jobs. `results`: the [`LeaseResult`]s as JSON.
    #[must_use]
    pub fn of(jobs: Vec<FetchedJob<'a>>, results: Option<&'a RawValue>) -> Self {
        Fetched { jobs, results }
    }
}

/// A fetched job. Its consumer ends the lease by `POST /v1/leases`.
#[derive(Debug, Serialize, ToSchema)]
pub struct FetchedJob<'a> {
    /// The job's id.
    pub id: &'a str,
    /// The queue that the job came from.
    pub queue: &'a str,
    /// The lease: an opaque text, to be sent back as it is. Absent in a peek.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// How often the job was handed out, this time included.
    #[schema(value_type = u64)]
    pub attempt: u32,
    /// When the job was due, epoch ms; the same over its retries.
    pub due_ms: i64,
    /// The end of the lease, epoch ms. Absent in a peek.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// The headers by name; a repeated name has a list of values.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub headers: serde_json::Map<String, serde_json::Value>,
    /// The body, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<&'a str>,
    /// The body in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

impl<'a> FetchedJob<'a> {
    /// A ready job, without a lease.
    #[must_use]
    pub fn peeked(id: &'a str, job: &'a Job, attempt: u32, due_ms: i64) -> FetchedJob<'a> {
        let body = std::str::from_utf8(&job.body).ok();
        FetchedJob {
            id,
            queue: job.queue().unwrap_or_default(),
            lease: None,
            attempt,
            due_ms,
            deadline_ms: None,
            headers: super::headers(&job.headers),
            body,
            body_base64: body.is_none().then(|| STANDARD.encode(&job.body)),
        }
    }

    /// A job that its consumer holds.
    #[must_use]
    pub fn popped(popped: &'a Popped) -> FetchedJob<'a> {
        FetchedJob {
            lease: Some(popped.lease.text()),
            deadline_ms: Some(popped.deadline_ms),
            ..FetchedJob::peeked(
                popped.id.as_str(),
                &popped.record.job,
                popped.state.attempt,
                popped.due_ms(),
            )
        }
    }
}

/// The answer to a word on a lease.
#[derive(Debug, Serialize, ToSchema)]
pub struct LeaseResult {
    /// The job's id.
    pub id: String,
    /// `finish`, `fail`, `release` or `touch`.
    #[schema(value_type = String)]
    pub action: &'static str,
    /// `finished`, `failed`, `released`, `touched`: done. `dead`: the `fail` was at the end of the
    /// retry array. Nothing changed: `stale` (the lease is over, or another's), `fired` (the job
    /// was finished before), `not_found`.
    #[schema(value_type = String)]
    pub verdict: &'static str,
    /// When the job is due again, epoch ms; null if it is not.
    pub due_ms: Option<i64>,
    /// Until when the lease lasts, epoch ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
}

impl LeaseResult {
    /// The result of this word on this job.
    #[must_use]
    pub fn of(
        id: String,
        action: &'static str,
        Acknowledged { verdict, ms }: Acknowledged,
    ) -> Self {
        let (due_ms, deadline_ms) =
            if verdict == LeaseVerdict::Touched { (None, ms) } else { (ms, None) };
        LeaseResult { id, action, verdict: verdict.as_str(), due_ms, deadline_ms }
    }

    /// The HTTP status where the word is a call of its own; a command exits with 0 if it is 2xx.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self.verdict {
            "not_found" => 404,
            "stale" | "fired" => 409,
            _ => 200,
        }
    }
}

/// A queue and its jobs by state.
#[derive(Debug, Serialize, ToSchema)]
pub struct Queue {
    /// The queue.
    pub queue: String,
    /// Jobs that are due later.
    pub scheduled: u64,
    /// Jobs that are due and not fetched.
    pub ready: u64,
    /// Fetched jobs with a lease.
    pub reserved: u64,
    /// Dead jobs.
    pub dead: u64,
    /// Since when the oldest ready job has been due, epoch ms; null without one.
    pub oldest_ready_ms: Option<i64>,
    /// The pops that wait at the answering instance; null for the command `dwell queues`.
    pub waiting: Option<usize>,
    /// Whether the queue hands nothing out.
    pub paused: bool,
}

impl Queue {
    /// A queue with these counts. `waiting`: the pops that wait at an instance.
    #[must_use]
    pub fn of(counts: QueueCounts, waiting: Option<usize>) -> Self {
        let QueueCounts { queue, scheduled, ready, reserved, dead, oldest_ready_ms, paused } =
            counts;
        Queue { queue, scheduled, ready, reserved, dead, oldest_ready_ms, waiting, paused }
    }
}
