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
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use super::caller::Caller;
use super::empty;
use super::extract::MaybeJson;
use super::leases::{Fail, Finish, LeaseActions, LeaseRequest, Release, Touch, carry_out_each};
use super::queue_name::{InPath, QueueNames};
use super::state::Api;
use super::text::{Text, span};
use crate::budget::UsedUp;
use crate::clock::{self, Instant};
use crate::consumers::{PopRequest, PoppedJobs};
use crate::http::server::account::{Account, WaitRoom};
use crate::http::server::call_timeout::CALL_TIMEOUT;
use crate::http::server::later::{caught, later};
use crate::http::server::waits::WaitShare;
use crate::http::server::{Problem, trace};
use crate::queues::{MAX_POP_JOBS, MAX_POP_WAIT, QueueService};
use crate::view::{Fetched, FetchedJob};

/// The memory that must be free before a pop.
const POP_MEMORY_BYTES: usize = 1 << 20;

/// What to fetch, and the acknowledgements that are carried out before. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = Asked)]
#[serde(deny_unknown_fields)]
pub(super) struct PopBody {
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
    /// These jobs are done; at most 1000 leases over `finish`, `fail`, `release` and `touch`
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Finish>>, required = false)]
    finish: Vec<Finish>,
    /// These attempts failed: the next wait of the retry array begins, or the job is dead
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Fail>>, required = false)]
    fail: Vec<Fail>,
    /// These jobs go back, and nothing is burned
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Release>>, required = false)]
    release: Vec<Release>,
    /// These leases last longer
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Touch>>, required = false)]
    touch: Vec<Touch>,
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
///
/// `finish`, `fail`, `release` and `touch` are carried out first, as by `POST /v1/leases` and for
/// jobs of any queue of the token, and the answer has their `results`. What was carried out stands
/// whatever becomes of the pop: a problem then has the `results` too. After a problem of the
/// server, those without a result may have been carried out, and no job is handed out: send them
/// again.
#[utoipa::path(post, path = "/v1/queues/{queue}/pop", tag = "queues", params(InPath), request_body = Option<PopBody>, responses(
    (status = 200, body = Fetched<'_>, description = "The jobs, none if there are none within the wait"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_queue` or `bad_queue`"),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "`redis`: Redis does not answer; `memory`: other pops of the same address have its places to wait, other pops wait for too many queues, or other calls use up the memory; `results` where acknowledgements were carried out"),
))]
pub(super) async fn pop(
    State(api): State<Api>,
    names: QueueNames,
    caller: Caller,
    account: Account,
    share: WaitShare,
    MaybeJson(asked): MaybeJson<PopBody>,
) -> Result<Response, Problem> {
    let queues = &api.inner.queues;
    let PopBody { max, wait, ttr, finish, fail, release, touch } = asked;
    let max = max.unwrap_or(1);
    if !(1..=MAX_POP_JOBS).contains(&max) {
        return Err(Problem::bad(format!("max: {max} is not from 1 to {MAX_POP_JOBS}")));
    }
    let wait = Duration::from_millis(span("wait", wait)?.unwrap_or(0));
    if wait > MAX_POP_WAIT {
        return Err(Problem::bad(format!("wait: at most {} s", MAX_POP_WAIT.as_secs())));
    }
    let ttr_ms = span("ttr", ttr)?;
    if ttr_ms == Some(0) {
        return Err(Problem::bad("ttr: a lease lasts for at least 1 ms"));
    }
    let requests = LeaseActions { finish, fail, release, touch }.requests(&api, &caller)?;
    // Before the acknowledgements: a call that is refused here has changed nothing.
    account.has_room(POP_MEMORY_BYTES).await?;
    let until = clock::now() + wait;
    // A pop is counted whatever becomes of its acknowledgements.
    let mut asked = queues.begin(names.0, max, wait, ttr_ms);
    let results = acknowledge(queues, &account, requests).await?;
    // The request is read.
    account.keep(results.as_ref().map_or(0, |results| results.get().len()));
    let mut reply = Box::new(Reply { account, results, room: None });
    asked.wait = until.saturating_duration_since(clock::now());
    let jobs = match queues.pop_now(&asked).await {
        Ok(jobs) => jobs,
        Err(error) => return Ok(reply.failed(error)),
    };
    if !jobs.is_empty() || clock::now() >= until {
        return Ok(answer(&api, reply, jobs).await);
    }
    if let Err(used_up) = reply.take_room() {
        return Ok(reply.failed(used_up));
    }
    let wait = share.wait(until);
    if let Err(error) = wait.check() {
        let refused = reply.failed(error);
        return Ok(wait.kept(std::future::ready(refused)).await);
    }
    let waited = waited(api, reply, asked, wait.until());
    Ok(later(wait.kept(caught(waited, trace::panicked))))
}

/// Carries out the acknowledgements of a pop. Returns their results as JSON, `None` without any.
///
/// Where some have no answer, nothing is popped, and the problem has the results of the others.
/// Those without may have been carried out: the consumer sends them again.
async fn acknowledge(
    queues: &QueueService,
    account: &Account,
    requests: Vec<LeaseRequest>,
) -> Result<Option<Box<RawValue>>, Problem> {
    if requests.is_empty() {
        return Ok(None);
    }
    let answers = carry_out_each(queues, account, requests).await?;
    let (mut results, mut failed) = (Vec::with_capacity(answers.len()), None);
    for answer in answers {
        match answer {
            Ok(result) => results.push(result),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let known = if results.is_empty() { None } else { to_raw_value(&results).ok() };
    match failed {
        None => Ok(known),
        Some(error) => Err(Problem::from(error).with_results(known)),
    }
}

/// The answer to a pop, as far as it is known before its jobs. In a box: thousands of pops wait.
struct Reply {
    account: Account,
    /// The results of the acknowledgements, as JSON.
    results: Option<Box<RawValue>>,
    /// The room of the results while the pop waits. Else they are a part of the account.
    room: Option<WaitRoom>,
}

impl Reply {
    /// Takes the room of the results for a wait.
    fn take_room(&mut self) -> Result<(), UsedUp> {
        if let Some(results) = &self.results {
            // The room takes their place.
            self.account.keep(0);
            self.room = Some(self.account.for_wait(results.get().len())?);
        }
        Ok(())
    }

    /// The pop waits no longer: the results count until the answer does.
    fn end_wait(&mut self) {
        if let Some(room) = self.room.take() {
            self.account.end_wait(room);
        }
    }

    /// The answer of a pop that failed after its acknowledgements were carried out.
    fn failed(mut self, problem: impl Into<Problem>) -> Response {
        self.end_wait();
        let mut response = problem.into().with_results(self.results).into_response();
        response.extensions_mut().insert(self.account);
        response
    }
}

/// The answer to a pop that waits.
async fn waited(api: Api, reply: Box<Reply>, asked: PopRequest, until: Instant) -> Response {
    let limit = until.saturating_duration_since(clock::now()) + CALL_TIMEOUT;
    let popped = {
        // Pinned here: a future that is an argument has its place twice.
        let popped = pin!(api.inner.queues.pop_until(&asked, until));
        clock::timeout(limit, popped).await
    };
    match popped {
        // In a box: a wait holds no room for its answer.
        Some(Ok(jobs)) => Box::pin(answer(&api, reply, jobs)).await,
        Some(Err(error)) => reply.failed(error),
        None => reply.failed(Problem::unanswered()),
    }
}

async fn answer(api: &Api, mut reply: Box<Reply>, jobs: PoppedJobs) -> Response {
    reply.end_wait();
    match reply
        .account
        .json(
            || jobs.iter().map(FetchedJob::popped),
            reply.results.as_deref(),
            jobs.iter().map(|job| job.size).sum::<usize>(),
            usize::MAX,
        )
        .await
    {
        Ok(json) => {
            let mut response =
                unsent(json, jobs, api.inner.queues.clone(), api.inner.apply.store.now_us());
            response.extensions_mut().insert(reply.account);
            response
        }
        // The jobs go back.
        Err(used_up) => reply.failed(used_up),
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
    use crate::http::api::extract::read;

    #[test]
    fn a_pop_takes_the_words_of_leases() {
        let text = br#"{"finish":[{"id":"a","lease":"x"}],"fail":null,"touch":[]}"#;
        let asked = read::<PopBody>(text).unwrap();
        let words = [asked.fail.len(), asked.release.len(), asked.touch.len()];
        assert_eq!((asked.finish.len(), words, asked.max), (1, [0; 3], None));
        for text in [r#"{"finish":[{"id":"a"}]}"#, r#"{"finish":{}}"#, r#"{"end":[]}"#] {
            assert!(read::<PopBody>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pop_that_waits_is_small() {
        fn size<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        // Ten thousand of them wait at a time.
        assert!(size(waited) <= 1080, "{} bytes", size(waited));
    }
}
