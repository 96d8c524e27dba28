//! `GET /v1/queues`, `GET /v1/queues/{queue}` with `peek`, `pause`, `resume` and `purge`.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::caller::Caller;
use super::extract::{Json as Body, Query};
use super::queue_name::{InPath, QueueName};
use super::state::Api;
use crate::http::server::Problem;
use crate::http::server::account::Account;
use crate::queues::{MAX_POP_BYTES, MAX_POP_JOBS};
use crate::store::reader::lookup::JobState;
use crate::store::reader::queues::QueueCounts;
use crate::units::quote;
use crate::view::{Fetched, FetchedJob, Queue};

/// The default number of jobs of a peek.
const DEFAULT_PEEK_JOBS: usize = 10;

/// The most paused queues of a namespace, besides those that settings name.
const MAX_PAUSED_QUEUES: usize = 1000;
/// The most while a token with only some queues may pause another: the rest is for the others.
const MAX_PAUSED_BY_RESTRICTED: usize = MAX_PAUSED_QUEUES * 3 / 4;

/// All queues.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueList {
    /// Those that the settings name, and all that have jobs or are paused, by name.
    queues: Vec<Queue>,
}

impl Api {
    fn queue(&self, counts: QueueCounts) -> Queue {
        let waiting = self.inner.queues.waiting(&counts.queue);
        Queue::of(counts, Some(waiting))
    }

    /// The most paused queues of the namespace after this caller's pause of this queue.
    fn most_paused(&self, caller: &Caller, queue: &str) -> usize {
        if self.inner.queues.rules().is_named(queue) {
            // The settings bound their number.
            usize::MAX
        } else if caller.is_restricted() {
            MAX_PAUSED_BY_RESTRICTED
        } else {
            MAX_PAUSED_QUEUES
        }
    }

    async fn counts_of(&self, queue: String) -> Result<Json<Queue>, Problem> {
        let counts = self.inner.apply.store.reader.queue_counts(&[queue]).await?;
        counts
            .into_iter()
            .next()
            .map(|counts| Json(self.queue(counts)))
            .ok_or_else(|| Problem::bad("no queue was counted"))
    }
}

/// List the queues
///
/// Lists the names in the settings, and every queue that has jobs or is paused, by name. A token
/// with only some queues sees only these.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "queues", responses((status = 200, body = QueueList, description = "The queues")))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
) -> Result<Json<QueueList>, Problem> {
    let mut counts =
        api.inner.apply.store.reader.active_counts(|queue| caller.has_queue(queue)).await?;
    counts.name(api.inner.queues.rules().names().filter(|name| caller.has_queue(name)));
    Ok(Json(QueueList {
        queues: counts.queues.into_values().map(|counts| api.queue(counts)).collect(),
    }))
}

/// Show a queue
#[utoipa::path(get, path = "/v1/queues/{queue}", operation_id = "show_queue", tag = "queues", params(InPath), responses(
    (status = 200, body = Queue, description = "The queue"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_queue` or `bad_queue`"),
))]
pub(super) async fn show(
    State(api): State<Api>,
    QueueName(queue): QueueName,
) -> Result<Json<Queue>, Problem> {
    api.counts_of(queue).await
}

/// How many jobs to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Peeked {
    /// The most jobs; by default 10
    #[param(minimum = 1, maximum = 1000)]
    max: Option<usize>,
}

/// Show ready jobs without fetching them
///
/// The oldest first, over the whole queue, with their bodies. The answer ends with the job with
/// which its bodies, or its text, reach 8 MiB.
#[utoipa::path(get, path = "/v1/queues/{queue}/peek", tag = "queues", params(InPath, Peeked), responses(
    (status = 200, body = Fetched<'_>, description = "The ready jobs, the oldest first; without a lease"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_queue` or `bad_queue`"),
))]
pub(super) async fn peek(
    State(api): State<Api>,
    QueueName(queue): QueueName,
    account: Account,
    Query(peeked): Query<Peeked>,
) -> Result<Response, Problem> {
    let max = peeked.max.unwrap_or(DEFAULT_PEEK_JOBS);
    if !(1..=MAX_POP_JOBS).contains(&max) {
        return Err(Problem::bad(format!("max: {max} is not from 1 to {MAX_POP_JOBS}")));
    }
    account.take(2 * MAX_POP_BYTES).await?;
    let found = api.inner.apply.store.reader.peek(&queue, max, MAX_POP_BYTES).await?;
    let bytes: usize = found.iter().map(|job| job.size + job.job().headers.footprint()).sum();
    account.keep(bytes);
    let due_ms = |at: usize| {
        found[at].state_record.as_ref().map_or(found[at].score_ms, |state| state.due_ms)
    };
    let jobs = || {
        found.iter().enumerate().map(|(at, job)| {
            FetchedJob::peeked(job.id.as_str(), job.job(), job.attempts(), due_ms(at))
        })
    };
    let json = account.json(jobs, None, bytes, MAX_POP_BYTES).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

/// Pause a queue
///
/// The queue hands nothing out, at any instance, until it is resumed. Leases and their ends go on,
/// and new jobs are taken. A paused queue may be paused again. A queue under a pattern of the
/// settings can be paused while fewer than 1000 queues are, with a token with only some queues
/// while fewer than 750 are; a queue that the settings name itself, always.
#[utoipa::path(post, path = "/v1/queues/{queue}/pause", tag = "queues", params(InPath), responses(
    (status = 200, body = Queue, description = "The queue"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_queue` or `bad_queue`"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`conflict`: too many other queues are paused"),
))]
pub(super) async fn pause(
    State(api): State<Api>,
    caller: Caller,
    QueueName(queue): QueueName,
) -> Result<Json<Queue>, Problem> {
    let most = api.most_paused(&caller, &queue);
    api.inner.apply.store.admin.pause(&queue, most).await?;
    api.counts_of(queue).await
}

/// Resume a queue
///
/// Waiting pops get what is ready. A queue that is not paused may be resumed.
#[utoipa::path(post, path = "/v1/queues/{queue}/resume", tag = "queues", params(InPath), responses(
    (status = 200, body = Queue, description = "The queue"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_queue` or `bad_queue`"),
))]
pub(super) async fn resume(
    State(api): State<Api>,
    QueueName(queue): QueueName,
) -> Result<Json<Queue>, Problem> {
    api.inner.queues.resume(&queue).await?;
    api.counts_of(queue).await
}

/// Which jobs to remove
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PurgedState {
    /// `scheduled`, `ready` or `dead`
    state: String,
}

/// What was removed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Purged {
    /// The number of removed jobs.
    removed: u64,
}

/// Remove the jobs of a queue
///
/// Removes all jobs in one state, which cannot be restored. Jobs that a consumer holds are in none
/// of these states. Of a job that a message scheduled, a redelivery does not bring the job back.
#[utoipa::path(post, path = "/v1/queues/{queue}/purge", tag = "queues", params(InPath), request_body = PurgedState, responses(
    (status = 200, body = Purged, description = "The jobs of this state are removed"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_queue` or `bad_queue`"),
))]
pub(super) async fn purge(
    State(api): State<Api>,
    QueueName(queue): QueueName,
    Body(PurgedState { state }): Body<PurgedState>,
) -> Result<Json<Purged>, Problem> {
    let wanted = [JobState::Scheduled, JobState::Ready, JobState::Dead]
        .into_iter()
        .find(|wanted| wanted.as_str() == state);
    let wanted = wanted.ok_or_else(|| {
        Problem::bad(format!("state: {} is not one of scheduled, ready, dead", quote(&state)))
    })?;
    Ok(Json(Purged { removed: api.inner.apply.store.admin.purge(&queue, wanted).await? }))
}
