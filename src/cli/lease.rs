//! `dwell finish|fail|release|touch ID --lease LEASE`: a word on the lease of a fetched job,
//! directly on Redis.

use tokio_util::sync::CancellationToken;

use super::common::{Common, job_id};
use super::exit::{Exit, Stop};
use super::pop::{consumers, ttr_ms};
use super::table::{clean, local};
use crate::apply::{BoundedRetry, RetryPolicy};
use crate::job::JobId;
use crate::queues::lease_actions;
use crate::store::jobs::acknowledge::{Acknowledged, Acknowledgement, LeaseAction, LeaseVerdict};
use crate::store::jobs::lease::Lease;
use crate::units::parse_duration_ms;
use crate::view::LeaseResult;

/// `dwell release`
#[derive(Debug, Clone, clap::Args)]
pub struct Release {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// The lease, as `dwell pop` prints it
    #[arg(long, allow_hyphen_values = true)]
    pub lease: String,
    /// When the job is due again: 5000 (ms), 90s; by default now
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration_ms)]
    pub wait_ms: Option<u64>,
}

/// `dwell touch`
#[derive(Debug, Clone, clap::Args)]
pub struct Touch {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// The lease, as `dwell pop` prints it
    #[arg(long, allow_hyphen_values = true)]
    pub lease: String,
    /// How long the lease lasts from now; by default as long as it was given
    #[arg(long, value_name = "DURATION", value_parser = ttr_ms)]
    pub ttr: Option<u64>,
}

/// Ends the job of this lease.
pub(super) async fn finish(common: &Common, id: JobId, lease: &str) -> Result<Exit, Stop> {
    say(common, id, lease, "finish", |_, _| LeaseAction::Finish).await
}

/// Fails the attempt of this lease.
pub(super) async fn fail(
    common: &Common,
    id: JobId,
    lease: &str,
    wait_ms: Option<u64>,
    error: Option<String>,
) -> Result<Exit, Stop> {
    say(common, id, lease, "fail", |token, _| lease_actions::fail(token, wait_ms, error)).await
}

/// Gives a job back.
pub(super) async fn release(common: &Common, args: Release) -> Result<Exit, Stop> {
    let wait_ms = args.wait_ms.unwrap_or(0);
    say(common, args.id, &args.lease, "release", |_, _| LeaseAction::Release { wait_ms }).await
}

/// Prolongs a lease.
pub(super) async fn touch(common: &Common, args: Touch) -> Result<Exit, Stop> {
    say(common, args.id, &args.lease, "touch", |token, longest_ms| {
        lease_actions::touch(token, args.ttr, longest_ms)
    })
    .await
}

/// Carries out an action and prints its verdict. Exits with 2 if nothing changed.
async fn say(
    common: &Common,
    id: JobId,
    lease: &str,
    action: &'static str,
    of_lease: impl FnOnce(&Lease, u64) -> LeaseAction,
) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let answer = match Lease::read(lease) {
        None => Acknowledged { verdict: LeaseVerdict::Stale, ms: None },
        Some(lease) => {
            let lease_action = of_lease(&lease, settings.limits.max_ttr.ms());
            let consumers = consumers(&settings, &CancellationToken::new()).await?;
            let acknowledgements =
                [Acknowledgement { id: id.clone(), lease, action: lease_action }];
            let mut retry = BoundedRetry::default();
            loop {
                match consumers.acknowledge(&acknowledgements).await.pop() {
                    Some(Err(error)) if retry.wait(&error).await => {}
                    Some(answer) => break answer?,
                    None => {
                        return Err(Stop::because(Exit::Failed, "the action has no answer", ""));
                    }
                }
            }
        }
    };
    let result = LeaseResult::of(id.as_str().to_owned(), action, answer);
    common.answer(&result, &text(&result, answer.verdict))?;
    Ok(if answer.verdict.is_done() { Exit::Ok } else { Exit::NotFound })
}

fn text(result: &LeaseResult, verdict: LeaseVerdict) -> String {
    let time = |name: &str, ms: Option<i64>| {
        ms.map_or(String::new(), |ms| format!(", {name} {}", local(ms)))
    };
    let times = format!("{}{}", time("due", result.due_ms), time("until", result.deadline_ms));
    format!("{}: {}{times}: {}", clean(&result.id), result.verdict, meaning(verdict))
}

/// Explains a verdict.
fn meaning(verdict: LeaseVerdict) -> &'static str {
    match verdict {
        LeaseVerdict::Finished => "the job is done",
        LeaseVerdict::Failed => "the attempt counts as failed",
        LeaseVerdict::Dead => "its last attempt failed: the job is dead",
        LeaseVerdict::Released => "the job went back, and no attempt was burned",
        LeaseVerdict::Touched => "the lease lasts longer",
        LeaseVerdict::Dropped => "the job was too late",
        LeaseVerdict::Stale => "nothing changed: the lease is over, or another's by now",
        LeaseVerdict::Fired => "nothing changed: the job was already finished",
        LeaseVerdict::NotFound => "nothing changed: there is no such job",
    }
}
