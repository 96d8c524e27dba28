//! Calls that pop from one bucket, each for one or several pops.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::asking::{Answer, Asking};
use super::heads::SILENT_MASTER_TIMEOUT;
use super::watch::{Call, Watch};
use super::{Consumers, PoppedJobs, guard};
use crate::clock;
use crate::events::{Facts, JobEvent};
use crate::policy::{Fate, delivery};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::acknowledge::{Acknowledged, Acknowledgement, LeaseAction, LeaseVerdict};
use crate::store::jobs::claim::MAX_CLAIM_AHEAD;
use crate::store::jobs::pop::{PopLimits, Popped, Return};
use crate::store::record::Nonce;

/// The pause of a bucket whose head cannot be read, µs.
const BLOCKED_RETRY_US: i64 = 1_000_000;

/// The answer of a call.
struct Answered {
    /// The jobs of each pop.
    portions: Vec<Portion>,
    /// The jobs that are over by their own end, or too late at their first pop.
    over: Vec<Acknowledgement>,
    /// How many jobs consumers get: those that are over take no turn.
    count: usize,
}

/// The jobs that one of the pops of a call gets.
struct Portion {
    jobs: PoppedJobs,
    /// Others were over.
    had_over: bool,
}

impl Consumers {
    /// Makes one call for these pops, and answers each: with its jobs, or with the error of the
    /// call. Those without a job ask again. A task of its own: if a consumer goes away, or gets
    /// jobs of another master first, its answer gives the jobs back.
    pub(super) async fn make(self, call: Call, mut pops: Vec<Asking>) {
        let places = self.take_places(&call, &mut pops).await;
        // A job without a place takes no turn.
        if pops.is_empty() {
            return;
        }
        let turns = self.take_turns(&call, &mut pops).await;
        if pops.is_empty() {
            if let Some(places) = places {
                self.give_places_back(&call, places).await;
            }
            return;
        }
        let limits: Vec<PopLimits> = pops.iter().map(|pop| pop.limits).collect();
        let silent = || {
            pops.iter_mut().for_each(Asking::is_silent);
            call.is_silent();
        };
        let answered = self.wait_for(self.pop_bucket(&call, &limits), silent).await;
        match answered {
            Ok(Some(Answered { portions, over, count })) => {
                if let Some(turns) = &turns {
                    self.give_turns_back(&call, turns, count).await;
                }
                if let Some(places) = places {
                    let of_jobs = |portion: &Portion| self.places_of(&call, &portion.jobs);
                    let of_jobs = portions.iter().flat_map(of_jobs).collect();
                    if let Err(error) = self.keep_places(&call, places, of_jobs).await {
                        // Dropped, the jobs go back. Those that are over do not.
                        drop(portions);
                        pops.into_iter().for_each(|pop| pop.answer(Err(error.clone())));
                        let watch = call.watch();
                        drop(call);
                        if !over.is_empty() {
                            self.remove(&watch, &over, Vec::new()).await;
                        }
                        return;
                    }
                }
                let (mut left, mut waiting) = (Vec::new(), Vec::new());
                for (pop, Portion { jobs, had_over }) in pops.into_iter().zip(portions) {
                    if had_over {
                        waiting.push((pop, jobs));
                    } else if let Some(pop) = hand_out(pop, jobs) {
                        left.push(pop);
                    }
                }
                call.ask_again(left);
                // The end of a job may wait for the durability level. The next calls do not.
                let watch = call.watch();
                drop(call);
                if !over.is_empty() {
                    self.remove(&watch, &over, waiting).await;
                }
            }
            Ok(None) => {
                if let Some(turns) = &turns {
                    self.give_turns_back(&call, turns, 0).await;
                }
                if let Some(places) = places {
                    self.give_places_back(&call, places).await;
                }
                pops.into_iter().for_each(|pop| pop.answer(Ok(Answer::Paused)));
            }
            Err(error) => {
                // A call without an answer may have popped jobs.
                if let Some(places) = places.filter(|_| !error.is_away()) {
                    self.give_places_back(&call, places).await;
                }
                if error.class == Class::Timeout && !self.inner.store.is_cluster() {
                    call.fail_others(&error);
                }
                pops.into_iter().for_each(|pop| pop.answer(Err(error.clone())));
            }
        }
    }

    /// Waits for an answer, and tells each time that a master of a cluster has been silent for
    /// [`SILENT_MASTER_TIMEOUT`].
    async fn wait_for<T>(&self, answer: impl Future<Output = T>, mut silent: impl FnMut()) -> T {
        let mut answer = pin!(answer);
        while self.inner.store.is_cluster() {
            match clock::timeout(SILENT_MASTER_TIMEOUT, answer.as_mut()).await {
                Some(answer) => return answer,
                None => silent(),
            }
        }
        answer.await
    }

    /// Pops the jobs of each of these consumers; `None`: the queue is paused.
    async fn pop_bucket(
        &self,
        call: &Call,
        limits: &[PopLimits],
    ) -> Result<Option<Answered>, StoreError> {
        let (nonce, bucket, queue): (Nonce, _, _) = (rand::random(), call.bucket, call.queue());
        let store = &self.inner.store;
        let ahead = if call.is_ahead { MAX_CLAIM_AHEAD } else { Duration::ZERO };
        let popped = match store.jobs.pop_for(nonce, bucket, queue, limits, ahead).await {
            Ok(popped) => popped,
            Err(error) => {
                if !error.was_not_run() {
                    guard::give_back_later(
                        self.clone(),
                        (nonce, Return::Due),
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
        let received = clock::now();
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
        if popped.jobs.is_empty()
            && call.is_ahead
            && let Some(ahead_us) = next
        {
            call.got_nothing(ahead_us);
        }
        call.took(popped.jobs.len(), if is_blocked { Some(BLOCKED_RETRY_US) } else { next });
        // The jobs may have been popped before they are due. Redis read its clock before the answer
        // was received.
        let handed_us = popped.now_us.saturating_add(popped.wait_us);
        let ready = (popped.wait_us > 0).then(|| received + clock::micros(popped.wait_us));
        let (mut count, mut jobs, mut over) = (0, popped.jobs.into_iter(), Vec::new());
        let portions = popped.portions.iter().map(|portion| {
            let mine = jobs.by_ref().take(portion.jobs).collect();
            let kept = self.without_over(mine, handed_us, &mut over);
            let had_over = kept.len() < portion.jobs;
            count += kept.len();
            let mut jobs = PoppedJobs::of(self, nonce, bucket, queue, kept);
            jobs.hold_until(ready);
            if portion.is_cut {
                jobs.close();
            }
            Portion { jobs, had_over }
        });
        let portions = portions.collect();
        Ok(Some(Answered { portions, over, count }))
    }

    /// These jobs without those that are over, whose ends are added to `over`.
    fn without_over(
        &self,
        jobs: Vec<Popped>,
        now_us: i64,
        over: &mut Vec<Acknowledgement>,
    ) -> Vec<Popped> {
        let mut kept = Vec::with_capacity(jobs.len());
        for popped in jobs {
            let (job, state) = (&popped.record.job, popped.state.progress());
            match delivery::popped(job, state, self.inner.rules, now_us / 1000) {
                None => kept.push(popped),
                Some(fate) => over.push(Acknowledgement {
                    id: popped.id,
                    lease: popped.lease,
                    action: action_of(fate),
                }),
            }
        }
        kept
    }

    /// Removes jobs that are over, and then answers the pops that had some of them. One that is
    /// left without a job goes on with other masters where this one is silent.
    async fn remove(
        &self,
        watch: &Arc<Watch>,
        over: &[Acknowledgement],
        mut waiting: Vec<(Asking, PoppedJobs)>,
    ) {
        let silent = || {
            let left = waiting.iter_mut().filter(|(_, jobs)| jobs.is_empty());
            left.for_each(|(pop, _)| pop.is_silent());
        };
        // After an error the lease ends, and the job is judged again.
        let answers = self.wait_for(self.inner.store.jobs.acknowledge(over), silent).await;
        for (action, answer) in over.iter().zip(answers) {
            let (set, id) = (DueSet::Queue(&watch.queue), &action.id);
            let event = match (&action.action, answer) {
                (
                    LeaseAction::Bury { reason, error },
                    Ok(Acknowledged { verdict: LeaseVerdict::Dead, .. }),
                ) => JobEvent::Dead {
                    set: Some(set),
                    id,
                    reason: *reason,
                    error,
                    facts: Facts::default(),
                },
                (LeaseAction::Drop, Ok(Acknowledged { verdict: LeaseVerdict::Dropped, .. })) => {
                    JobEvent::Dropped { set, id }
                }
                _ => continue,
            };
            self.inner.observer.observe(&event);
        }
        let left = waiting.into_iter().filter_map(|(pop, jobs)| hand_out(pop, jobs)).collect();
        watch.join_again(self, left);
    }
}

/// Answers a pop with these jobs. A pop that asks again, for want of a job, is returned.
fn hand_out(pop: Asking, jobs: PoppedJobs) -> Option<Asking> {
    if pop.asks_again() && jobs.is_empty() && !jobs.is_closed() {
        return Some(pop);
    }
    pop.answer(Ok(Answer::Popped(jobs)));
    None
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
