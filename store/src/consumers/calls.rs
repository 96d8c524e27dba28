//! Calls that pop from one bucket, each for one or several pops.

use std::pin::pin;

use super::asking::{Answer, Asking};
use super::heads::SILENT_MASTER_TIMEOUT;
use super::watch::Call;
use super::{Consumers, PoppedJobs, guard};
use crate::clock;
use crate::events::JobEvent;
use crate::policy::{Fate, delivery};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::queue::acknowledge::{Acknowledged, Acknowledgement, LeaseAction, LeaseVerdict};
use crate::store::queue::pop::{PopLimits, Popped};
use crate::store::record::Nonce;

/// The pause of a bucket whose head cannot be read, µs.
const BLOCKED_RETRY_US: i64 = 1_000_000;

impl Consumers {
    /// Makes one call for these pops, and answers each: with its jobs, or with the error of the
    /// call. Those without a job ask again. A task of its own: if a consumer goes away, or gets
    /// jobs of another master first, its answer gives the jobs back.
    pub(super) async fn make(self, call: Call, mut pops: Vec<Asking>) {
        let limits: Vec<PopLimits> = pops.iter().map(|pop| pop.limits).collect();
        let popped = {
            let mut popping = pin!(self.pop_bucket(&call, &limits));
            loop {
                if !self.inner.store.is_cluster() {
                    break popping.as_mut().await;
                }
                match clock::timeout(SILENT_MASTER_TIMEOUT, popping.as_mut()).await {
                    Some(popped) => break popped,
                    None => {
                        pops.iter_mut().for_each(Asking::is_silent);
                        call.is_silent();
                    }
                }
            }
        };
        match popped {
            Ok(Some(popped)) => {
                let mut left = Vec::new();
                for (pop, jobs) in pops.into_iter().zip(popped) {
                    if pop.asks_again() && jobs.is_empty() && !jobs.is_closed() {
                        left.push(pop);
                    } else {
                        pop.answer(Ok(Answer::Popped(jobs)));
                    }
                }
                call.ask_again(left);
            }
            Ok(None) => pops.into_iter().for_each(|pop| pop.answer(Ok(Answer::Paused))),
            Err(error) => {
                pops.into_iter().for_each(|pop| pop.answer(Err(error.clone())));
                if error.class == Class::Timeout && !self.inner.store.is_cluster() {
                    call.fail_others(&error);
                }
            }
        }
    }

    /// Pops the jobs of each of these consumers; `None`: the queue is paused.
    async fn pop_bucket(
        &self,
        call: &Call,
        limits: &[PopLimits],
    ) -> Result<Option<Vec<PoppedJobs>>, StoreError> {
        let (nonce, bucket, queue): (Nonce, _, _) = (rand::random(), call.bucket, call.queue());
        let popped = match self.inner.store.queue.pop_for(nonce, bucket, queue, limits).await {
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
        // Only jobs that cannot be read are at the head: they stay, and more of them may follow.
        let is_blocked = popped.more
            && popped.jobs.is_empty()
            && popped.unknown > 0
            && !popped.portions.iter().any(|portion| portion.is_cut);
        let next = popped.next_ms.map(|ms| ms.saturating_mul(1000).saturating_sub(popped.now_us));
        call.took(popped.jobs.len(), if is_blocked { Some(BLOCKED_RETRY_US) } else { next });
        let mut jobs = popped.jobs.into_iter();
        let mut portions: Vec<Vec<Popped>> = popped
            .portions
            .iter()
            .map(|portion| jobs.by_ref().take(portion.jobs).collect())
            .collect();
        self.classify(queue, &mut portions, popped.now_us).await;
        let handed_out = portions.into_iter().zip(&popped.portions).map(|(jobs, portion)| {
            let mut jobs = PoppedJobs::of(self, nonce, bucket, queue, jobs);
            if portion.is_cut {
                jobs.close();
            }
            jobs
        });
        Ok(Some(handed_out.collect()))
    }

    /// Removes the jobs that are over by their own end, or too late at their first pop.
    async fn classify(&self, queue: &str, portions: &mut [Vec<Popped>], now_us: i64) {
        let mut acknowledgements = Vec::new();
        for jobs in portions {
            let mut kept = Vec::with_capacity(jobs.len());
            for popped in std::mem::take(jobs) {
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
            *jobs = kept;
        }
        if acknowledgements.is_empty() {
            return;
        }
        // After an error the lease ends, and the job is judged again.
        let answers = self.inner.store.queue.acknowledge(&acknowledgements).await;
        for (action, answer) in acknowledgements.iter().zip(answers) {
            let (set, id) = (DueSet::Queue(queue), &action.id);
            let event = match (&action.action, answer) {
                (
                    LeaseAction::Bury { reason, error },
                    Ok(Acknowledged { verdict: LeaseVerdict::Dead, .. }),
                ) => JobEvent::Dead { set: Some(set), id, reason: *reason, error },
                (LeaseAction::Drop, Ok(Acknowledged { verdict: LeaseVerdict::Dropped, .. })) => {
                    JobEvent::Dropped { set, id }
                }
                _ => continue,
            };
            self.inner.observer.observe(&event);
        }
    }
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
