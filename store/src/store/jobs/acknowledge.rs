//! `acknowledge` ends the leases of jobs that consumers fetched, or prolongs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock;
use crate::job::{DeadReason, JobId};
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::jobs::lease::Lease;
use crate::store::reader::lookup::StoredJob;
use crate::store::record::{self, Nonce};
use crate::words::words;

mod joined;
mod lanes;
mod observer;
mod pass;
mod places;

use lanes::Key;
pub(super) use lanes::Lanes;
pub use observer::LeaseObserver;

/// The effect of an acknowledgement on the job under the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    /// The job is done.
    Finish,
    /// The attempt failed: the next wait begins, ms; `None`: the job is dead.
    Fail {
        /// The wait before the next attempt, ms.
        wait_ms: Option<u64>,
        /// The reason.
        error: String,
    },
    /// The consumer gives the job back without an attempt burned: the job is due again after the
    /// wait.
    Release {
        /// ms from now.
        wait_ms: u64,
    },
    /// The lease lasts so many ms from now.
    Touch {
        /// ms from now.
        ttr_ms: u64,
    },
    /// The job is too late, and is dropped.
    Drop,
    /// The job is dead for this reason.
    Bury {
        /// The reason.
        reason: DeadReason,
        /// The last error.
        error: String,
    },
}

/// An acknowledgement of one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The job's id.
    pub id: JobId,
    /// The lease.
    pub lease: Lease,
    /// The lease action.
    pub action: LeaseAction,
}

/// The answer to an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Acknowledged {
    /// The result of the lease action.
    pub verdict: LeaseVerdict,
    /// The new due time of the job, or the new end of its lease, epoch ms.
    #[doc(hidden)]
    pub ms: Option<i64>,
}

impl Acknowledged {
    /// The new due time of the job, or the new end of its lease, if known.
    #[must_use]
    pub fn until(&self) -> Option<SystemTime> {
        self.ms.map(clock::time_of)
    }
}

words! {
    /// The result of a lease action.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
    pub enum LeaseVerdict {
        /// The job is done.
        Finished = "finished",
        /// The job waits for its next attempt.
        Failed = "failed",
        /// The job is dead by this acknowledgement.
        Dead = "dead",
        /// The job is due again.
        Released = "released",
        /// The lease lasts longer.
        Touched = "touched",
        /// The job was dropped.
        Dropped = "dropped",
        /// Nothing changed: the lease is another's by now, or over.
        Stale = "stale",
        /// Nothing changed: the job was finished before.
        Fired = "fired",
        /// Nothing changed: there is no such job.
        NotFound = "not_found",
    }
}

impl LeaseVerdict {
    /// Whether the lease action was carried out.
    #[must_use]
    pub fn is_done(self) -> bool {
        !matches!(self, LeaseVerdict::Stale | LeaseVerdict::Fired | LeaseVerdict::NotFound)
    }
}

/// An acknowledgement with the proof of its lease, which the state of the job has.
struct Proven {
    id: JobId,
    queue: String,
    proof: Nonce,
    /// Whether the lease is one of ours. Of a forged one the proof is random, and matches none.
    is_sealed: bool,
    /// The time from which the job is expired, epoch ms.
    expires_ms: Option<i64>,
    action: LeaseAction,
}

impl Proven {
    fn bytes(&self) -> usize {
        let error = match &self.action {
            LeaseAction::Fail { error, .. } | LeaseAction::Bury { error, .. } => error.len(),
            _ => 0,
        };
        self.id.as_str().len() + self.queue.len() + error
    }
}

/// Why an acknowledgement failed that no call took.
const UNSENT: &str = "redis: an action was not sent";

/// The answers to the acknowledgements of one caller, in their order.
type Answers = Vec<Result<Acknowledged, StoreError>>;

impl Jobs {
    /// Carries out acknowledgements, several for one id in their order, behind the durability gate.
    /// Returns one answer per acknowledgement, in their order. An acknowledgement whose call failed
    /// may have been carried out: send it again.
    ///
    /// The acknowledgements of all callers that come while a call of their bucket is out share the
    /// next one. They are sent even if their caller goes away meanwhile.
    pub async fn acknowledge(
        &self,
        acknowledgements: &[Acknowledgement],
    ) -> Vec<Result<Acknowledged, StoreError>> {
        self.acknowledge_observed(acknowledgements, Arc::new(())).await
    }

    /// As [`acknowledge`](Jobs::acknowledge). The observer has the verdicts before the caller, and
    /// also if the caller goes away.
    pub async fn acknowledge_observed(
        &self,
        acknowledgements: &[Acknowledgement],
        observer: Arc<dyn LeaseObserver>,
    ) -> Vec<Result<Acknowledged, StoreError>> {
        self.acknowledge_proven(self.prove(acknowledgements), observer).await
    }

    fn prove(&self, acknowledgements: &[Acknowledgement]) -> Vec<Proven> {
        let mut all = Vec::with_capacity(acknowledgements.len());
        let mut last: Option<(&Lease, Nonce)> = None;
        for Acknowledgement { id, lease, action } in acknowledgements {
            let is_sealed = lease.seal == self.namespace.seal(id, lease);
            let proof = match last {
                _ if !is_sealed => rand::random(),
                // Most jobs of a call come from one pop.
                Some((other, proof))
                    if other.nonce == lease.nonce && other.queue == lease.queue =>
                {
                    proof
                }
                _ => self.namespace.pop_proof(lease.nonce, &lease.queue),
            };
            if is_sealed {
                last = Some((lease, proof));
            }
            // What waits in a lane outlives its caller: a long error is cut before.
            let action = match action {
                LeaseAction::Fail { wait_ms, error } => LeaseAction::Fail {
                    wait_ms: *wait_ms,
                    error: record::short_error(error).to_owned(),
                },
                LeaseAction::Bury { reason, error } => LeaseAction::Bury {
                    reason: *reason,
                    error: record::short_error(error).to_owned(),
                },
                action => action.clone(),
            };
            let (id, queue, expires_ms) = (id.clone(), lease.queue.clone(), lease.expires_ms);
            all.push(Proven { id, queue, proof, is_sealed, expires_ms, action });
        }
        all
    }

    /// Finishes a job for a consumer that has no lease to show, if a consumer held the job when it
    /// was read and still does. False: it does not. The observer has the verdict as in
    /// [`acknowledge_observed`](Jobs::acknowledge_observed).
    ///
    /// # Errors
    /// Redis gave no answer: the job may be finished.
    pub async fn finish_held(
        &self,
        job: &StoredJob,
        observer: Arc<dyn LeaseObserver>,
    ) -> Result<bool, StoreError> {
        let (Some(queue), Some(proof)) = (job.job().queue(), job.held_by) else {
            return Ok(false);
        };
        let (id, queue, action) = (job.id.clone(), queue.to_owned(), LeaseAction::Finish);
        let finish = Proven { id, queue, proof, is_sealed: true, expires_ms: None, action };
        let answer = self.acknowledge_proven(vec![finish], observer).await.pop();
        let is_finished = |answer: Acknowledged| answer.verdict == LeaseVerdict::Finished;
        Ok(answer.transpose()?.is_some_and(is_finished))
    }

    async fn acknowledge_proven(
        &self,
        all: Vec<Proven>,
        observer: Arc<dyn LeaseObserver>,
    ) -> Answers {
        let mut answers = failed(all.len(), UNSENT);
        let layout = self.namespace.layout();
        let mut by_lane: HashMap<Key, (Vec<usize>, Vec<Proven>)> = HashMap::new();
        for (at, proven) in all.into_iter().enumerate() {
            let bucket = self.namespace.keys.bucket_of(proven.id.as_str());
            let key = Key::of(&self.namespace, layout.as_ref(), bucket);
            let (places, call) = by_lane.entry(key).or_default();
            places.push(at);
            call.push(proven);
        }
        let mut calls = Vec::with_capacity(by_lane.len());
        for (key, (places, call)) in by_lane {
            let of_call = self.lanes.add(&self.namespace, key, (call, observer.clone()));
            calls.push((places, of_call));
        }
        for (places, of_call) in calls {
            let of_call = of_call.await.unwrap_or_else(|_| {
                failed(places.len(), "the instance ended before the store answered")
            });
            for (at, answer) in places.into_iter().zip(of_call) {
                answers[at] = answer;
            }
        }
        answers
    }
}

fn failed(count: usize, why: &str) -> Answers {
    vec![Err(StoreError::new(Class::Other, why)); count]
}

#[cfg(test)]
mod tests;
