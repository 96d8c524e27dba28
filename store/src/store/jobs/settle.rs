//! The ways to settle a claimed job: `complete`, `hold`, `release`, `retry`, `bury`.

use crate::job::{DeadReason, JobId};
use crate::policy::limit::Turn;
use crate::store::answer::Items;
use crate::store::call::script_call::ScriptCall;
use crate::store::call::time::Time;
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::record::{self, Nonce, StateRecord};
use crate::store::scripts::Name;

/// The name of a claim: the nonce of its claim or rescue call, and Redis's clock at its first
/// write. Another copy of the same call may write another claim under the same nonce later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimName {
    /// Random, drawn for one call.
    pub nonce: Nonce,
    /// Epoch µs, big-endian.
    pub created: [u8; 8],
}

/// Identifies a claimed job to settle.
#[derive(Debug, Clone)]
pub struct ClaimToken {
    /// The job's id.
    pub id: JobId,
    /// The claim.
    pub lease: ClaimName,
    /// The place of the job in the claim.
    pub position: u8,
    /// Redis has a state of the job.
    pub has_state: bool,
    /// The state when the claim began: nobody else changes the state of a job in a claim.
    pub state: StateRecord,
}

/// The result of a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleResult {
    /// The claim was valid, and the job is settled.
    Settled,
    /// Nothing changed: the claim is over. After a `complete` also: the same job does not continue,
    /// as far as Redis knows.
    Lost,
    /// Nothing changed: the claim is over, and the same job continues after this confirmed attempt.
    /// Another instance holds it, has fired it, or it is due again. Only `complete` answers this.
    TakenOver,
}

/// The reason why a job is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The broker confirmed it.
    Fired,
    /// The job was later than its `max_late`.
    Dropped,
}

/// A `release`: the job goes back to `due`.
#[derive(Debug, Clone)]
pub struct Release {
    /// The job.
    pub job: ClaimToken,
    /// The pause from now, ms.
    pub pause_ms: u64,
    /// Certainly nothing was published: the attempt does not count.
    pub unpublished: bool,
}

/// A `retry`: the attempt failed.
#[derive(Debug, Clone)]
pub struct Retry {
    /// The job.
    pub job: ClaimToken,
    /// The wait from now, ms.
    pub wait_ms: u64,
    /// Certainly nothing was published: the attempt does not count.
    pub unpublished: bool,
    /// The job dies for this reason: the next claim publishes it to the dead letters.
    pub dies: Option<DeadReason>,
    /// The reason of the failure.
    pub error: String,
}

/// A `bury`: the job moves to the dead letters.
#[derive(Debug, Clone)]
pub struct Bury {
    /// The job.
    pub job: ClaimToken,
    /// The reason of the death.
    pub reason: DeadReason,
    /// The last error.
    pub error: String,
}

impl Jobs {
    /// Completes the jobs; one result per job.
    pub async fn complete(
        &self,
        bucket: u16,
        jobs: &[ClaimToken],
        over: Completion,
    ) -> Result<Vec<SettleResult>, StoreError> {
        let outcome = match over {
            Completion::Fired => b'f',
            Completion::Dropped => b'd',
        };
        let call = self.namespace.script_call(Name::Complete, bucket, &[]);
        self.settle(
            call,
            jobs,
            |job| job,
            |call, group| {
                let places: Vec<u8> =
                    group.iter().flat_map(|job| [job.position, u8::from(job.has_state)]).collect();
                call.arg(places);
                for job in group {
                    let mut entry = [outcome; 26];
                    entry[1..].copy_from_slice(&job.state.completed_entry());
                    call.arg(job.id.as_str()).arg(&entry[..]);
                }
            },
        )
        .await
    }

    /// Holds the jobs for their consumers, each for its TTR in ms; one result per job.
    pub async fn hold(
        &self,
        bucket: u16,
        jobs: &[(ClaimToken, u32)],
    ) -> Result<Vec<SettleResult>, StoreError> {
        let call = self.namespace.script_call(Name::Hold, bucket, &[]);
        self.settle(
            call,
            jobs,
            |(job, _)| job,
            each(|call: &mut ScriptCall, (job, ttr_ms): &(ClaimToken, u32)| {
                let (in_flight, turn) = (job.state.clone().in_flight(), Turn::NONE);
                let state = StateRecord { held: true, crashes: 0, turn, ..in_flight };
                moved(call, job, Time::In((*ttr_ms).into()), Some(&state));
            }),
        )
        .await
    }

    /// Returns the jobs to `due` of this broker, or of `=` and a queue, at the same step; one
    /// result per job.
    pub async fn release(
        &self,
        bucket: u16,
        broker: &str,
        jobs: &[Release],
    ) -> Result<Vec<SettleResult>, StoreError> {
        let call = self.namespace.script_call(Name::Release, bucket, &[broker.to_owned()]);
        self.settle(
            call,
            jobs,
            |release| &release.job,
            each(|call: &mut ScriptCall, Release { job, pause_ms, unpublished }: &Release| {
                let mut state = idle(job, *unpublished);
                if *unpublished {
                    state.crashes = 0;
                    state.turn = job.state.turn;
                }
                let (at_ms, in_ms) = (state.due_ms, *pause_ms);
                match (state.attempt, in_ms) {
                    // The job is as if it had never been claimed.
                    (0, 0) if !job.has_state && state.turn == Turn::NONE => {
                        moved(call, job, Time::At(at_ms), None)
                    }
                    (0, _) => moved(call, job, Time::Later { at_ms, in_ms }, Some(&state)),
                    _ => moved(call, job, Time::In(in_ms), Some(&state)),
                }
            }),
        )
        .await
    }

    /// Records failed attempts: each job returns to `due` of this broker, or of `=` and a queue, at
    /// the next step or on its way to the dead letters. One result per job.
    pub async fn retry(
        &self,
        bucket: u16,
        broker: &str,
        jobs: &[Retry],
    ) -> Result<Vec<SettleResult>, StoreError> {
        let call = self.namespace.script_call(Name::Retry, bucket, &[broker.to_owned()]);
        self.settle(
            call,
            jobs,
            |retry| &retry.job,
            each(|call: &mut ScriptCall, retry: &Retry| {
                let state = failed(idle(&retry.job, retry.unpublished), retry.dies, &retry.error);
                moved(call, &retry.job, Time::In(retry.wait_ms), Some(&state));
            }),
        )
        .await
    }

    /// Moves the jobs to the dead letters; one result per job.
    pub async fn bury(&self, bucket: u16, jobs: &[Bury]) -> Result<Vec<SettleResult>, StoreError> {
        self.bury_of(bucket, None, jobs).await
    }

    /// Moves the jobs of a queue, or of brokers (`None`), to their dead.
    pub async fn bury_of(
        &self,
        bucket: u16,
        queue: Option<&str>,
        jobs: &[Bury],
    ) -> Result<Vec<SettleResult>, StoreError> {
        let sets: Vec<String> =
            queue.map(|queue| DueSet::Queue(queue).to_string()).into_iter().collect();
        let call = self.namespace.script_call(Name::Bury, bucket, &sets);
        self.settle(
            call,
            jobs,
            |bury| &bury.job,
            each(|call: &mut ScriptCall, Bury { job, reason, error }: &Bury| {
                let last_error = record::short_error(error).to_owned();
                let state = StateRecord {
                    reason: Some(*reason),
                    crashes: 0,
                    last_error,
                    ..idle(job, false)
                };
                moved(call, job, Time::In(0), Some(&state));
            }),
        )
        .await
    }

    /// Makes a call with the jobs in groups, one a claim, and returns the results in the order of
    /// the jobs.
    async fn settle<T>(
        &self,
        mut call: ScriptCall,
        jobs: &[T],
        token: impl Fn(&T) -> &ClaimToken,
        arguments: impl Fn(&mut ScriptCall, &[&T]),
    ) -> Result<Vec<SettleResult>, StoreError> {
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        let lease = |at: &usize| token(&jobs[*at]).lease;
        order.sort_by_key(lease);
        for group in order.chunk_by(|one, other| lease(one) == lease(other)) {
            let ClaimName { nonce, created } = lease(&group[0]);
            call.arg(&nonce[..]).arg(&created[..]).arg(group.len());
            let group: Vec<&T> = group.iter().map(|at| &jobs[*at]).collect();
            arguments(&mut call, &group);
        }
        let name = call.script().as_str();
        let mut items = Items::new(name, self.namespace.call(&call).await?)?;
        if items.left() != jobs.len() {
            return Err(StoreError::new(
                Class::Script,
                format!(
                    "redis: {name} answered for {} jobs instead of {}",
                    items.left(),
                    jobs.len()
                ),
            ));
        }
        let mut results = vec![SettleResult::Lost; jobs.len()];
        for at in order {
            results[at] = match items.text()?.as_str() {
                "done" => SettleResult::Settled,
                "taken_over" => SettleResult::TakenOver,
                _ => SettleResult::Lost,
            };
        }
        Ok(results)
    }
}

/// Appends the arguments of each job of a claim.
fn each<T>(arguments: impl Fn(&mut ScriptCall, &T)) -> impl Fn(&mut ScriptCall, &[&T]) {
    move |call, group| group.iter().for_each(|job| arguments(call, job))
}

/// The state of a job after a failed attempt. `state`: with the attempts that count. `dies`: the
/// job is on its way to the dead letters; a dying job keeps its reason.
pub(in crate::store) fn failed(
    state: StateRecord,
    dies: Option<DeadReason>,
    error: &str,
) -> StateRecord {
    let reason = state.reason.or(dies);
    let step = if reason.is_none() { state.step.saturating_add(1) } else { state.step };
    StateRecord {
        held: false,
        counted: false,
        crashes: 0,
        reason,
        step,
        last_error: record::short_error(error).to_owned(),
        ..state
    }
}

/// The state of a job that leaves its claim without being held. `unpublished`: the attempt does not
/// count.
fn idle(job: &ClaimToken, unpublished: bool) -> StateRecord {
    let state = job.state.clone();
    let state = if unpublished { state } else { state.in_flight() };
    StateRecord { held: false, counted: false, turn: Turn::NONE, ..state }
}

/// Appends a job that moves to another set at this time. `state`: the new one.
fn moved(call: &mut ScriptCall, job: &ClaimToken, time: Time, state: Option<&StateRecord>) {
    let state = state.map(StateRecord::encode).unwrap_or_default();
    call.arg(job.id.as_str()).arg(&[job.position][..]).arg(time).arg(state);
}
