//! `acknowledge` ends the leases of jobs that consumers fetched, or prolongs them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::batcher::{Batch, Batcher, Bounds, Size, Turn};
use crate::clock;
use crate::job::{DeadReason, JobId};
use crate::store::client::RESPONSE_TIMEOUT;
use crate::store::error::{Class, StoreError};
use crate::store::namespace::Namespace;
use crate::store::queue::Queue;
use crate::store::queue::lease::Lease;
use crate::words::words;

mod pass;

/// The most acknowledgements of one batch, but for a single caller with more.
const MAX_PER_BATCH: usize = 1024;
/// The most bytes of one batch, but for a single larger call.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The longest time that acknowledgements wait for a batch that hangs, where no batch waits for
/// durability.
const MAX_TURN: Duration = Duration::from_millis(500);

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

/// The answers to the acknowledgements of one caller, in their order.
type Answers = Vec<Result<Acknowledged, StoreError>>;

/// The acknowledgements of callers that wait for their batch.
pub(super) type Calls = Batcher<Vec<Acknowledgement>, Answers>;

/// A batcher with a batch at a time for each connection of the gate: the next one on a connection
/// would stand behind the wait for durability.
pub(super) fn calls(namespace: &Namespace) -> Calls {
    Batcher::new(Bounds {
        batches: namespace.gate.links(),
        requests: MAX_PER_BATCH,
        bytes: MAX_BATCH_BYTES,
    })
}

impl Queue {
    /// Carries out acknowledgements, several for one id in their order, behind the durability gate.
    /// Returns one answer per acknowledgement, in their order. An acknowledgement whose call failed
    /// may have been carried out: send it again.
    ///
    /// Callers share the script calls of those that come while a call to the same master is out. A
    /// caller that goes away before its acknowledgements are sent takes them back.
    pub async fn acknowledge(
        &self,
        acknowledgements: &[Acknowledgement],
    ) -> Vec<Result<Acknowledged, StoreError>> {
        let layout = self.namespace.layout();
        let mut by_master: HashMap<Option<String>, Vec<usize>> = HashMap::new();
        for (at, Acknowledgement { id, .. }) in acknowledgements.iter().enumerate() {
            let bucket = self.namespace.keys.bucket_of(id.as_str());
            let master =
                layout.as_ref().and_then(|layout| self.namespace.master_of(layout, bucket));
            by_master.entry(master).or_default().push(at);
        }
        let mut calls = Vec::with_capacity(by_master.len());
        for (master, places) in by_master {
            let call: Vec<Acknowledgement> =
                places.iter().map(|at| acknowledgements[*at].clone()).collect();
            let bytes = call.iter().map(Acknowledgement::bytes).sum();
            let size = Size { requests: call.len(), bytes };
            let (answers, turn) = self.acknowledging.add(master, call, size);
            if let Some(turn) = turn {
                send_batches(self.namespace.clone(), turn);
            }
            calls.push((places, answers));
        }
        let mut answers = unsent(acknowledgements.len());
        for (places, of_call) in calls {
            // An error: the runtime of the task that sends ended.
            for (at, answer) in places.into_iter().zip(of_call.await.unwrap_or_default()) {
                answers[at] = answer;
            }
        }
        answers
    }
}

impl Acknowledgement {
    fn bytes(&self) -> usize {
        let error = match &self.action {
            LeaseAction::Fail { error, .. } | LeaseAction::Bury { error, .. } => error.len(),
            _ => 0,
        };
        self.id.as_str().len() + self.lease.queue.len() + error
    }
}

fn unsent(count: usize) -> Answers {
    vec![Err(StoreError::new(Class::Other, "redis: an action was not sent")); count]
}

/// Sends the batches of a turn, in a task of its own.
fn send_batches(namespace: Arc<Namespace>, mut turn: Turn<Vec<Acknowledgement>, Answers>) {
    let max_turn = if namespace.gate.links() == 1 { MAX_TURN } else { RESPONSE_TIMEOUT };
    tokio::spawn(async move {
        while let Some(Batch { calls, mut callers }) = turn.next_batch() {
            let apart = repeating(&calls);
            let mut together: Vec<Acknowledgement> = Vec::new();
            let mut counts = Vec::with_capacity(calls.len());
            for (at, call) in calls.into_iter().enumerate() {
                if apart[at] {
                    send_apart(namespace.clone(), call, callers.take(at));
                } else {
                    counts.push((at, call.len()));
                    together.extend(call);
                }
            }
            if together.is_empty() {
                continue;
            }
            let mut passing = std::pin::pin!(pass::carry_out(&namespace, &together));
            let in_time = clock::timeout(max_turn, passing.as_mut()).await;
            let answers = match in_time {
                Some(answers) => answers,
                None => {
                    if let Some(next) = turn.pass_on() {
                        send_batches(namespace.clone(), next);
                    }
                    passing.await
                }
            };
            let mut answers = answers.into_iter();
            for (at, count) in counts {
                callers.answer(at, answers.by_ref().take(count).collect());
            }
        }
    });
}

/// Whether each call names an id again, of its own or of a call before. Each repeat of an id is a
/// round trip more, for which the other callers do not wait.
fn repeating(calls: &[Vec<Acknowledgement>]) -> Vec<bool> {
    let mut ids = HashSet::new();
    calls
        .iter()
        .map(|call| !call.iter().all(|acknowledgement| ids.insert(&acknowledgement.id)))
        .collect()
}

fn send_apart(
    namespace: Arc<Namespace>,
    call: Vec<Acknowledgement>,
    caller: Option<oneshot::Sender<Answers>>,
) {
    tokio::spawn(async move {
        let answers = pass::carry_out(&namespace, &call).await;
        // The caller may have gone away.
        let _ = caller.map(|caller| caller.send(answers));
    });
}

#[cfg(test)]
mod tests;
