//! `POST /v1/leases`: the words of consumers on the jobs that they fetched. A pop carries them too.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use utoipa::ToSchema;

use super::caller::Caller;
use super::empty;
use super::extract::Json as Body;
use super::state::Api;
use super::text::{Text, span};
use crate::http::server::account::Account;
use crate::http::server::{Problem, trace};
use crate::job::JobId;
use crate::queues::{MAX_ACKNOWLEDGEMENTS, QueueService, lease_actions};
use crate::request::{Code, Rejection};
use crate::store::error::StoreError;
use crate::store::jobs::acknowledge::{Acknowledged, Acknowledgement, LeaseAction, LeaseVerdict};
use crate::store::jobs::lease::Lease;
use crate::view::LeaseResult;

/// The memory of a task that carries out actions, besides that of the call.
const TASK_BYTES: usize = 4 << 10;

/// The actions on leases; at most 1000 together.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseActions {
    /// These jobs are done
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Finish>>, required = false)]
    pub(super) finish: Vec<Finish>,
    /// These attempts failed: the next wait of the retry array begins, or the job is dead
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Fail>>, required = false)]
    pub(super) fail: Vec<Fail>,
    /// These jobs go back, and nothing is burned
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Release>>, required = false)]
    pub(super) release: Vec<Release>,
    /// These leases last longer
    #[serde(default, deserialize_with = "empty::list")]
    #[schema(value_type = Option<Vec<Touch>>, required = false)]
    pub(super) touch: Vec<Touch>,
}

/// A lease
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Finish {
    /// The job's id
    id: String,
    /// The lease of the pop
    lease: String,
}

/// A failed attempt
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    /// The job's id
    id: String,
    /// The lease of the pop
    lease: String,
    /// The wait before the next attempt, instead of that of the retry array: `20s`, or
    /// milliseconds. At the end of the array the job is dead all the same
    #[serde(rename = "for")]
    wait: Option<Text>,
    /// Why: becomes the last error of the job
    error: Option<String>,
}

/// A job that goes back
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    /// The job's id
    id: String,
    /// The lease of the pop
    lease: String,
    /// How long until the job is due again: `20s`, or milliseconds; by default not at all
    #[serde(rename = "for")]
    wait: Option<Text>,
}

/// A longer lease
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Touch {
    /// The job's id
    id: String,
    /// The lease of the pop
    lease: String,
    /// How long the lease lasts from now: `20s`, or milliseconds; at most `limits.max_ttr`. By
    /// default as long as it was given
    ttr: Option<Text>,
}

/// The answers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Results {
    /// First those of `finish`, then `fail`, `release` and `touch`, each in its order.
    results: Vec<LeaseResult>,
}

/// An action on a lease, as a call names it.
pub(super) struct LeaseRequest {
    pub(super) id: String,
    /// `finish`, `fail`, `release` or `touch`.
    pub(super) action: &'static str,
    /// Or the verdict on a lease that cannot be read (`stale`) or is for a job of others
    /// (`not_found`).
    pub(super) acknowledgement: Result<Acknowledgement, LeaseVerdict>,
}

/// End or prolong leases
///
/// Takes at most 1000 actions and carries out `finish` first, then `fail`, `release` and `touch`.
/// The actions are independent of each other: each has its own verdict. An action may be sent
/// again: a repeated `fail` or `release` answers as before until the job is handed out again, a
/// repeated `finish` answers `fired`. Answers once the durability level holds.
#[utoipa::path(post, path = "/v1/leases", tag = "queues", request_body = LeaseActions, responses(
    (status = 200, body = Results, description = "A verdict for each lease"),
    (status = 400, body = Problem, content_type = "application/problem+json", description = "The call is malformed: nothing changed"),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "`redis`: send the call again"),
))]
pub(super) async fn leases(
    State(api): State<Api>,
    caller: Caller,
    account: Account,
    Body(actions): Body<LeaseActions>,
) -> Result<Json<Results>, Problem> {
    let requests = actions.requests(&api, &caller)?;
    let answers = carry_out_each(&api.inner.queues, &account, requests).await?;
    Ok(Json(Results { results: answers.into_iter().collect::<Result<_, StoreError>>()? }))
}

impl LeaseActions {
    /// Reads the actions, in the order in which they are carried out. One that is malformed refuses
    /// all.
    pub(super) fn requests(self, api: &Api, caller: &Caller) -> Result<Vec<LeaseRequest>, Problem> {
        let count = self.finish.len() + self.fail.len() + self.release.len() + self.touch.len();
        if count > MAX_ACKNOWLEDGEMENTS {
            return Err(Problem::bad(format!(
                "{count} leases in one call: at most {MAX_ACKNOWLEDGEMENTS}"
            )));
        }
        let mut requests = Vec::with_capacity(count);
        for Finish { id, lease } in self.finish {
            requests.push(read(caller, id, &lease, "finish", |_| LeaseAction::Finish)?);
        }
        let max_delay_ms = api.inner.rules.limits.max_delay.ms();
        for Fail { id, lease, wait: text, error } in self.fail {
            requests.push(fail(caller, id, &lease, wait(text, max_delay_ms)?, error)?);
        }
        for Release { id, lease, wait: text } in self.release {
            let wait_ms = wait(text, max_delay_ms)?.unwrap_or(0);
            let release = |_: &Lease| LeaseAction::Release { wait_ms };
            requests.push(read(caller, id, &lease, "release", release)?);
        }
        let longest = api.inner.queues.max_ttr_ms();
        for Touch { id, lease, ttr } in self.touch {
            let ttr_ms = span("ttr", ttr)?;
            if ttr_ms == Some(0) {
                return Err(Problem::bad("ttr: a lease lasts for at least 1 ms"));
            }
            let touch = |lease: &Lease| lease_actions::touch(lease, ttr_ms, longest);
            requests.push(read(caller, id, &lease, "touch", touch)?);
        }
        Ok(requests)
    }
}

/// Reads an action. A bad id is an error; an unreadable lease is stale.
pub(super) fn read(
    caller: &Caller,
    id: String,
    lease: &str,
    action: &'static str,
    of_lease: impl FnOnce(&Lease) -> LeaseAction,
) -> Result<LeaseRequest, Problem> {
    let job =
        JobId::new(id.as_str()).map_err(|why| Problem::from(Rejection::new(Code::BadId, why)))?;
    let acknowledgement = match Lease::read(lease) {
        None => Err(LeaseVerdict::Stale),
        Some(lease) if !caller.has_queue(&lease.queue) => Err(LeaseVerdict::NotFound),
        Some(lease) => Ok(Acknowledgement { id: job, action: of_lease(&lease), lease }),
    };
    Ok(LeaseRequest { id, action, acknowledgement })
}

/// The wait of a `fail` or a `release`, ms: at most `limits.max_delay`.
pub(super) fn wait(text: Option<Text>, max_delay_ms: u64) -> Result<Option<u64>, Problem> {
    let wait_ms = span("for", text)?;
    if wait_ms.is_some_and(|ms| ms > max_delay_ms) {
        return Err(Rejection::new(
            Code::DelayTooLong,
            "for: the wait exceeds limits.max_delay of the settings",
        )
        .into());
    }
    Ok(wait_ms)
}

/// Reads a `fail`: the wait of the call replaces that of the array, unless the array is at its end.
pub(super) fn fail(
    caller: &Caller,
    id: String,
    lease: &str,
    wait_ms: Option<u64>,
    error: Option<String>,
) -> Result<LeaseRequest, Problem> {
    read(caller, id, lease, "fail", |token| lease_actions::fail(token, wait_ms, error))
}

/// Carries out actions, in their order, in a task of their own: all are carried out whether or not
/// the client goes away, and their memory counts until then. Returns an answer for each: those of
/// other buckets are there where one fails.
pub(super) async fn carry_out_each(
    queues: &QueueService,
    account: &Account,
    requests: Vec<LeaseRequest>,
) -> Result<Vec<Result<LeaseResult, StoreError>>, Problem> {
    account.take(TASK_BYTES).await?;
    let (queues, account) = (queues.clone(), account.clone());
    let carried_out = async move {
        let answers = carry_out(&queues, requests).await;
        drop(account);
        answers
    };
    tokio::spawn(carried_out.in_current_span()).await.map_err(|error| {
        if let Ok(panic) = error.try_into_panic() {
            trace::note_panic(&*panic);
        }
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "there was no answer about the leases: their actions may have been carried out",
        )
    })
}

/// Carries out actions, in their order. Returns an answer for each.
pub(super) async fn carry_out(
    queues: &QueueService,
    requests: Vec<LeaseRequest>,
) -> Vec<Result<LeaseResult, StoreError>> {
    let acknowledgements: Vec<Acknowledgement> =
        requests.iter().filter_map(|request| request.acknowledgement.clone().ok()).collect();
    let mut answers = queues.acknowledge(&acknowledgements).await.into_iter();
    let refused = |verdict| Acknowledged { verdict, ms: None };
    requests
        .into_iter()
        .map(|LeaseRequest { id, action, acknowledgement }| {
            let answer = match acknowledgement {
                Ok(_) => answers.next().unwrap_or(Ok(refused(LeaseVerdict::Stale)))?,
                Err(verdict) => refused(verdict),
            };
            Ok(LeaseResult::of(id, action, answer))
        })
        .collect()
}
