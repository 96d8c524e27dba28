//! Pops from the buckets of a queue, always from the one whose first job is the oldest.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::heads::SILENT_MASTER_TIMEOUT;
use super::watch::{Call, Watch};
use super::{Consumers, PopRequest, PoppedJobs, guard};
use crate::clock;
use crate::events::JobEvent;
use crate::policy::{Fate, delivery};
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::queue::acknowledge::{Acknowledged, Acknowledgement, LeaseAction, LeaseVerdict};
use crate::store::queue::pop::{PopLimits, Popped};
use crate::store::record::Nonce;

/// The pause of a bucket whose head cannot be read, µs.
const BLOCKED_RETRY_US: i64 = 1_000_000;
/// The most queues of which a process remembers the first jobs between pops, besides the queues
/// with a waiting pop.
const MAX_REMEMBERED_QUEUES: usize = 1024;

/// The jobs that one call popped; `None`: the queue is paused.
type FromBucket = Result<Option<PoppedJobs>, StoreError>;

/// The calls of one pop of one queue.
#[derive(Default)]
struct Calls {
    /// A master answered.
    is_answered: bool,
    /// The last failure.
    failed: Option<StoreError>,
    /// A call whose master has not answered yet.
    late: Option<JoinHandle<FromBucket>>,
}

impl Consumers {
    /// The first half of a [`pop`](Consumers::pop): pops the jobs that are due now, the queues in
    /// their order.
    ///
    /// # Errors
    /// As [`pop`](Consumers::pop).
    pub async fn pop_now(&self, asked: &PopRequest) -> Result<PoppedJobs, StoreError> {
        let jobs = self.pop_more(PoppedJobs::none(self), asked).await?;
        // A pop that waits has time until there is room.
        if asked.wait.is_zero() {
            jobs.check_memory()?;
        }
        Ok(jobs)
    }

    /// Adds the jobs that are due now, the queues in their order. A failure after the first job
    /// does not fail this pop.
    async fn pop_more(
        &self,
        mut jobs: PoppedJobs,
        asked: &PopRequest,
    ) -> Result<PoppedJobs, StoreError> {
        for queue in asked.queues.iter() {
            if !jobs.has_room(asked) {
                break;
            }
            match self.fill(&mut jobs, asked, queue).await {
                Err(error) if jobs.is_empty() => return Err(error),
                // The jobs popped before are handed out.
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(jobs)
    }

    /// Pops from the granted bucket, and then the other due jobs.
    pub(super) async fn pop_granted(
        &self,
        asked: &PopRequest,
        call: Call,
    ) -> Result<PoppedJobs, StoreError> {
        let (mut jobs, mut calls) = (PoppedJobs::none(self), Calls::default());
        self.make(call, &mut jobs, asked, &mut calls).await;
        match calls.failed {
            // The pop waits for the other masters again.
            Some(error) if !(self.inner.store.is_cluster() && error.class != Class::Script) => {
                Err(error)
            }
            // The rest of a larger batch.
            _ if !jobs.is_empty() && jobs.has_room(asked) => self.pop_more(jobs, asked).await,
            _ => Ok(jobs),
        }
    }

    /// Adds the due jobs of this queue. A master of a cluster that does not answer is left out. An
    /// error if none answers, or if the only due jobs are in a damaged bucket.
    async fn fill(
        &self,
        jobs: &mut PoppedJobs,
        asked: &PopRequest,
        queue: &str,
    ) -> Result<(), StoreError> {
        let (watch, came, is_cluster) =
            (self.remembered(queue), clock::now(), self.inner.store.is_cluster());
        let (mut calls, mut has_looked) = (Calls::default(), false);
        while jobs.has_room(asked) {
            if let Some(call) = watch.begin(self, (asked.max - jobs.len()).min(CALL_JOBS)) {
                let is_of_bucket = |error: &StoreError| {
                    is_cluster || matches!(error.class, Class::Script | Class::Moved)
                };
                if !self.make(call, jobs, asked, &mut calls).await
                    || calls.failed.as_ref().is_some_and(|error| !is_of_bucket(error))
                {
                    break;
                }
            } else if !has_looked {
                has_looked = true;
                match watch.look_since(self, came).await {
                    Ok(()) => calls.is_answered = true,
                    Err(error) => {
                        calls.failed = Some(error);
                        break;
                    }
                }
            } else {
                break;
            }
        }
        if jobs.is_empty()
            && !calls.is_answered
            && let Some(late) = calls.late.take()
        {
            jobs.add(ended(late.await)?.unwrap_or_else(|| PoppedJobs::none(self)));
        }
        match calls.failed {
            Some(error) if !(is_cluster && calls.is_answered) || error.class == Class::Script => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The watch of a queue, which runs; one for this pop alone if the queue has none and there are
    /// so many already.
    fn remembered(&self, queue: &str) -> Arc<Watch> {
        let most = MAX_REMEMBERED_QUEUES.min(self.inner.places.queues);
        self.watch(queue, most).unwrap_or_else(|| self.lone_watch(queue))
    }

    /// Makes one call and adds the jobs that it popped. False if the queue is paused.
    async fn make(
        &self,
        call: Call,
        jobs: &mut PoppedJobs,
        asked: &PopRequest,
        calls: &mut Calls,
    ) -> bool {
        let left = asked.max_bytes.saturating_sub(jobs.bytes());
        let limits = PopLimits {
            ttr_ms: asked.ttr_ms,
            max_ttr_ms: asked.max_ttr_ms,
            most: (asked.max - jobs.len()).min(CALL_JOBS),
            most_bytes: left.min(CALL_BYTES),
            room: (!jobs.is_empty()).then_some(left),
        };
        // The call has a task of its own: if the consumer goes away, or gets jobs of another master
        // first, the end of the task gives the jobs back.
        let consumers = self.clone();
        let mut task = tokio::spawn(async move { consumers.pop_bucket(call, limits).await });
        let answer = if self.inner.store.is_cluster() {
            let Some(answer) = clock::timeout(SILENT_MASTER_TIMEOUT, &mut task).await else {
                calls.late.get_or_insert(task);
                return true;
            };
            answer
        } else {
            task.await
        };
        match ended(answer) {
            Ok(popped) => {
                calls.is_answered = true;
                let is_paused = popped.is_none();
                popped.into_iter().for_each(|popped| jobs.add(popped));
                !is_paused
            }
            Err(error) => {
                calls.failed = Some(error);
                true
            }
        }
    }

    /// Makes one call.
    async fn pop_bucket(&self, call: Call, limits: PopLimits) -> FromBucket {
        let (nonce, bucket, queue): (Nonce, _, _) = (rand::random(), call.bucket, call.queue());
        let popped = match self.inner.store.queue.pop(nonce, bucket, queue, limits).await {
            Ok(popped) => popped,
            Err(error) => {
                if !error.was_not_run() {
                    guard::give_back_later(
                        self.clone(),
                        nonce,
                        bucket,
                        queue.to_owned(),
                        Vec::new(),
                    );
                }
                if error.is_away() {
                    call.is_unanswered();
                } else {
                    call.took(0, Some(BLOCKED_RETRY_US));
                }
                return Err(error);
            }
        };
        if popped.paused {
            call.is_paused();
            return Ok(None);
        }
        let is_cut = popped.portions.iter().any(|portion| portion.is_cut);
        // Only jobs that cannot be read are at the head: they stay, and more of them may follow.
        let is_blocked = popped.more && popped.jobs.is_empty() && popped.unknown > 0 && !is_cut;
        let next = popped.next_ms.map(|ms| ms.saturating_mul(1000).saturating_sub(popped.now_us));
        call.took(popped.jobs.len(), if is_blocked { Some(BLOCKED_RETRY_US) } else { next });
        let jobs = self.classify(queue, popped.jobs, popped.now_us).await;
        let mut jobs = PoppedJobs::of(self, nonce, bucket, queue, jobs);
        if is_cut {
            jobs.close();
        }
        Ok(Some(jobs))
    }

    /// Removes the jobs that are over by their own end, or too late at their first pop.
    async fn classify(&self, queue: &str, jobs: Vec<Popped>, now_us: i64) -> Vec<Popped> {
        let (mut kept, mut acknowledgements) = (Vec::with_capacity(jobs.len()), Vec::new());
        for popped in jobs {
            let (job, state) = (&popped.record.job, popped.state.progress());
            match delivery::popped(job, state, self.inner.rules, now_us / 1000) {
                None => kept.push(popped),
                Some(fate) => acknowledgements.push(Acknowledgement {
                    id: popped.id,
                    lease: popped.lease,
                    action: action_of(fate),
                }),
            }
        }
        if !acknowledgements.is_empty() {
            // After an error the lease ends, and the job is judged again.
            let answers = self.inner.store.queue.acknowledge(&acknowledgements).await;
            for (action, answer) in acknowledgements.iter().zip(answers) {
                let (set, id) = (DueSet::Queue(queue), &action.id);
                let event = match (&action.action, answer) {
                    (
                        LeaseAction::Bury { reason, error },
                        Ok(Acknowledged { verdict: LeaseVerdict::Dead, .. }),
                    ) => JobEvent::Dead { set: Some(set), id, reason: *reason, error },
                    (
                        LeaseAction::Drop,
                        Ok(Acknowledged { verdict: LeaseVerdict::Dropped, .. }),
                    ) => JobEvent::Dropped { set, id },
                    _ => continue,
                };
                self.inner.observer.observe(&event);
            }
        }
        kept
    }
}

/// The result of the task of a call.
fn ended(answer: Result<FromBucket, tokio::task::JoinError>) -> FromBucket {
    answer.unwrap_or_else(|_| Err(StoreError::new(Class::Other, "the process ended during a pop")))
}

/// The lease action that gives a popped job this fate.
fn action_of(fate: Fate) -> LeaseAction {
    match fate {
        Fate::Release { .. } => LeaseAction::Release { wait_ms: 0 },
        Fate::Retry { wait_ms, error } => LeaseAction::Fail { wait_ms: Some(wait_ms), error },
        Fate::Die { reason, error, .. } | Fate::Bury { reason, error } => {
            LeaseAction::Bury { reason, error }
        }
        Fate::Drop => LeaseAction::Drop,
    }
}
