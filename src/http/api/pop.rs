//! `POST /v1/queues/{queue}/pop`

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::MaybeJson;
use super::queue_name::{InPath, QueueNames};
use super::state::Api;
use super::text::{Text, span};
use crate::clock::{self, Instant};
use crate::consumers::{PopRequest, PoppedJobs};
use crate::http::server::account::Account;
use crate::http::server::call_timeout::CALL_TIMEOUT;
use crate::http::server::later::{caught, later};
use crate::http::server::waits::WaitShare;
use crate::http::server::{Problem, trace};
use crate::queues::{MAX_POP_JOBS, MAX_POP_WAIT, QueueService};
use crate::view::{Fetched, FetchedJob};

/// The memory that must be free before a pop.
const POP_MEMORY_BYTES: usize = 1 << 20;

/// What to fetch. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// The most jobs; by default 1
    #[schema(minimum = 1, maximum = 1000)]
    max: Option<usize>,
    /// How long to wait for the first job: `20s`, or milliseconds; at most 60s, by default not at
    /// all
    #[schema(example = "20s")]
    wait: Option<Text>,
    /// The lease: how long the jobs are reserved, as `wait`; at most `limits.max_ttr`. By default
    /// the TTR of each job, or else of its queue
    ttr: Option<Text>,
}

/// Fetch jobs of a queue
///
/// Reserves due jobs for the caller and answers them, each with a lease. Nobody else gets a job
/// until its `deadline_ms`; until then `POST /v1/leases` finishes, fails, releases or touches it. A
/// lease that ran out makes the job ready again, or dead at the end of its retry array.
///
/// Several queues, separated by commas, are served in their order: the next one fills what is left
/// of `max`. A paused queue is skipped. An answer has at most 8 MiB of bodies, and at least one
/// job. With `wait` the call is held until a job is due. A call whose client goes away before the
/// answer is written gives its jobs back at once.
#[utoipa::path(post, path = "/v1/queues/{queue}/pop", tag = "queues", params(InPath), request_body = Option<Asked>, responses(
    (status = 200, body = Fetched<'_>, description = "The jobs, none if there are none within the wait"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_queue` or `bad_queue`"),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "`redis`: Redis does not answer; `memory`: other pops of the same address have its places to wait, other pops wait for too many queues, or other calls use up the memory"),
))]
pub(super) async fn pop(
    State(api): State<Api>,
    names: QueueNames,
    account: Account,
    share: WaitShare,
    MaybeJson(asked): MaybeJson<Asked>,
) -> Result<Response, Problem> {
    let queues = &api.inner.queues;
    let max = asked.max.unwrap_or(1);
    if !(1..=MAX_POP_JOBS).contains(&max) {
        return Err(Problem::bad(format!("max: {max} is not from 1 to {MAX_POP_JOBS}")));
    }
    let wait = Duration::from_millis(span("wait", asked.wait)?.unwrap_or(0));
    if wait > MAX_POP_WAIT {
        return Err(Problem::bad(format!("wait: at most {} s", MAX_POP_WAIT.as_secs())));
    }
    let ttr_ms = span("ttr", asked.ttr)?;
    if ttr_ms == Some(0) {
        return Err(Problem::bad("ttr: a lease lasts for at least 1 ms"));
    }
    account.has_room(POP_MEMORY_BYTES).await?;
    let until = clock::now() + wait;
    let asked = queues.begin(names.0, max, wait, ttr_ms);
    // The request is read.
    account.keep(0);
    let jobs = queues.pop_now(&asked).await?;
    if !jobs.is_empty() || clock::now() >= until {
        return Ok(answer(&api, account, jobs).await);
    }
    let wait = share.wait(until);
    if let Err(error) = wait.check() {
        let refused = Problem::from(error).into_response();
        return Ok(wait.kept(std::future::ready(refused)).await);
    }
    let waited = waited(api, account, asked, wait.until());
    Ok(later(wait.kept(caught(waited, trace::panicked))))
}

/// The answer to a pop that waits.
async fn waited(api: Api, account: Account, asked: PopRequest, until: Instant) -> Response {
    let limit = until.saturating_duration_since(clock::now()) + CALL_TIMEOUT;
    let popped = {
        // Pinned here: a future that is an argument has its place twice.
        let popped = pin!(api.inner.queues.pop_until(&asked, until));
        clock::timeout(limit, popped).await
    };
    match popped {
        // In a box: a wait holds no room for its answer.
        Some(Ok(jobs)) => Box::pin(answer(&api, account, jobs)).await,
        Some(Err(error)) => Problem::from(error).into_response(),
        None => Problem::unanswered().into_response(),
    }
}

async fn answer(api: &Api, account: Account, jobs: PoppedJobs) -> Response {
    match account
        .json(
            || jobs.iter().map(FetchedJob::popped),
            jobs.iter().map(|job| job.size).sum::<usize>(),
            usize::MAX,
        )
        .await
    {
        Ok(json) => {
            let mut response =
                unsent(json, jobs, api.inner.queues.clone(), api.inner.apply.store.now_us());
            response.extensions_mut().insert(account);
            response
        }
        Err(used_up) => Problem::from(used_up).into_response(),
    }
}

/// An answer of this JSON that hands out these jobs. Dropped before the connection takes it, it
/// gives the jobs back.
pub(crate) fn unsent(
    json: Vec<u8>,
    jobs: PoppedJobs,
    queues: QueueService,
    now_us: i64,
) -> Response {
    let body = UnsentBody { bytes: Some(json.into()), jobs: Some((jobs, queues, now_us)) };
    let mut response = Body::new(body).into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The body of [`unsent`].
struct UnsentBody {
    bytes: Option<Bytes>,
    jobs: Option<(PoppedJobs, QueueService, i64)>,
}

impl hyper::body::Body for UnsentBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        if let Some((jobs, queues, now_us)) = self.jobs.take() {
            queues.sent(jobs, now_us);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pop_that_waits_is_small() {
        fn size<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        // Ten thousand of them wait at a time.
        assert!(size(waited) <= 1072, "{} bytes", size(waited));
    }
}
