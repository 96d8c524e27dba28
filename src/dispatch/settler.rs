//! Settles jobs in the store, in batches, and repeats each call until the store answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::Destination;
use tokio_util::sync::CancellationToken;

use super::settle_queue::{SettleCall, SettleQueue, Settlement};
use crate::clock::{self, Instant};
use crate::events::{Facts, JobEvent, Observer, Settled};
use crate::job::JobId;
use crate::publisher::Publisher;
use crate::reconnect::Backoff;
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::claim::ClaimedJob;
use crate::store::jobs::settle::{Bury, ClaimToken, Completion, Release, Retry, SettleResult};
use crate::telemetry::{Events, GivenBack};

/// Settles the jobs of one broker.
pub(super) struct Settler {
    caller: Caller,
    events: Events,
    given_back: Option<GivenBack>,
    queue: SettleQueue,
    publisher: Publisher,
    /// The facts of the jobs that are not settled yet, if a subscriber wants them.
    noted: Option<HashMap<JobId, Noted>>,
}

/// The facts of a job that is not settled yet.
#[derive(Debug)]
pub(super) struct Noted {
    to: Option<Destination>,
    attempt: Option<u32>,
    due_ms: Option<i64>,
    schedule: Option<String>,
    occurrence: Option<u64>,
}

impl From<Facts<'_>> for Noted {
    fn from(facts: Facts<'_>) -> Noted {
        let Facts { to, attempt, due_ms, schedule, occurrence } = facts;
        let (to, schedule) = (to.cloned(), schedule.map(str::to_owned));
        Noted { to, attempt, due_ms, schedule, occurrence }
    }
}

impl Noted {
    fn facts(&self) -> Facts<'_> {
        let Noted { to, attempt, due_ms, schedule, occurrence } = self;
        Facts {
            to: to.as_ref(),
            attempt: *attempt,
            due_ms: *due_ms,
            schedule: schedule.as_deref(),
            occurrence: *occurrence,
        }
    }
}

/// A settle call that was answered or given up.
pub(super) struct SettleAnswer {
    pub(super) bucket: u16,
    pub(super) call: SettleCall,
    /// The result of each job; `None` where the call was given up.
    results: Option<Vec<SettleResult>>,
}

impl SettleAnswer {
    /// The jobs that were to be held, how long each, ms, and whether it may be held: a call that was
    /// given up may have been carried out.
    pub(super) fn held(&self) -> impl Iterator<Item = (&ClaimToken, u32, bool)> {
        let jobs = match &self.call {
            SettleCall::Hold(jobs) => jobs.as_slice(),
            _ => &[],
        };
        let is_held = |at: usize| {
            self.results
                .as_ref()
                .is_none_or(|results| results.get(at) == Some(&SettleResult::Settled))
        };
        jobs.iter().enumerate().map(move |(at, (job, ttr_ms))| (job, *ttr_ms, is_held(at)))
    }

    /// After how long each job that went back to due is due again.
    pub(super) fn due_again(&self) -> impl Iterator<Item = Duration> {
        let (retries, releases) = match &self.call {
            SettleCall::Retry(jobs) if self.results.is_some() => (jobs.as_slice(), [].as_slice()),
            SettleCall::Release(jobs) if self.results.is_some() => ([].as_slice(), jobs.as_slice()),
            _ => Default::default(),
        };
        let waits = retries
            .iter()
            .map(|retry| retry.wait_ms)
            .chain(releases.iter().map(|release| release.pause_ms));
        waits.map(Duration::from_millis)
    }
}

impl Settler {
    /// `lease`: how long a claim holds its jobs.
    pub(super) fn new(
        store: Arc<Store>,
        broker: Arc<str>,
        lease: Duration,
        publisher: Publisher,
        events: Events,
    ) -> Self {
        let given_back =
            events.metrics().broker(&broker).map(|metrics| metrics.given_back().clone());
        let noted = events.wants_facts().then(HashMap::new);
        let caller = Caller { store, broker, lease };
        Settler { caller, events, given_back, queue: SettleQueue::default(), publisher, noted }
    }

    /// The facts of a job after so many attempts, for [`Settler::note`]; `None` if no subscriber
    /// wants them.
    pub(super) fn facts_of(&self, lease: &ClaimedJob, attempt: u32) -> Option<(JobId, Noted)> {
        self.noted.as_ref()?;
        let facts = Facts::of(&lease.record.job, attempt, lease.state.due_ms);
        Some((lease.id.clone(), facts.into()))
    }

    /// Keeps the facts of a job until it is settled.
    pub(super) fn note(&mut self, facts: Option<(JobId, Noted)>) {
        if let Some(noted) = &mut self.noted {
            noted.extend(facts);
        }
    }

    pub(super) fn push(&mut self, bucket: u16, settlement: Settlement) {
        self.queue.push(bucket, settlement);
    }

    /// The next call to the store, not running yet. It ends with an answer, or with `give_up`.
    pub(super) fn next_call(
        &mut self,
        give_up: &CancellationToken,
    ) -> Option<impl Future<Output = SettleAnswer> + use<>> {
        let (bucket, call) = self.queue.next(clock::now())?;
        let (caller, give_up) = (self.caller.clone(), give_up.clone());
        Some(async move {
            let results = caller.run(bucket, &call, &give_up).await;
            SettleAnswer { bucket, call, results }
        })
    }

    /// When the next call may start although no running one is answered; `None` if none waits for
    /// that.
    #[must_use]
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.queue.next_at()
    }

    /// Ends a call and reports its results.
    pub(super) fn answered(&mut self, answer: &SettleAnswer) {
        let SettleAnswer { bucket, call, results } = answer;
        self.queue.answered(*bucket, call);
        self.tell(call, results.as_deref().unwrap_or_default());
        let Some(results) = results else { return };
        let broker = &*self.caller.broker;
        let of = |wanted: SettleResult| results.iter().filter(|result| **result == wanted).count();
        let taken_over = of(SettleResult::TakenOver);
        let count = (of(SettleResult::Lost) + taken_over) as u64;
        if count > 0 {
            // Only these may be duplicates: a dropped job was not published, and a `hold` also
            // finds no lease if the consumer finished the job first.
            let is_fired = matches!(call, SettleCall::Complete(Completion::Fired, _));
            let duplicates = if is_fired { taken_over as u64 } else { 0 };
            self.events.observe(&JobEvent::Lost { broker, bucket: *bucket, count, duplicates });
        }
        if let SettleCall::Release(jobs) = call {
            self.gave_back(jobs, results);
        }
    }

    /// Tells what became of the jobs of a call, and forgets their facts. No results: the call was
    /// given up.
    fn tell(&mut self, call: &SettleCall, results: &[SettleResult]) {
        let Settler { caller, events, publisher, noted, .. } = self;
        let set = Some(DueSet::Broker(&caller.broker));
        let is_settled = |at: usize| results.get(at) == Some(&SettleResult::Settled);
        let connector = publisher.connector();
        let mut forget = |id: &JobId| noted.as_mut().and_then(|noted| noted.remove(id));
        let tell = |id: &JobId, end: Settled<'_>, noted: &Noted| {
            events.observe(&JobEvent::Settled { set, id, end, facts: noted.facts() });
        };
        match call {
            SettleCall::Complete(over, jobs) => {
                let end = match over {
                    Completion::Fired => Settled::Delivered,
                    Completion::Dropped => Settled::Dropped,
                };
                for (at, job) in jobs.iter().enumerate() {
                    if let Some(noted) = forget(&job.id).filter(|_| is_settled(at)) {
                        tell(&job.id, end, &noted);
                    }
                }
            }
            SettleCall::Retry(jobs) => {
                for (at, Retry { job, dies, error, .. }) in jobs.iter().enumerate() {
                    let noted = forget(&job.id).filter(|_| is_settled(at) && dies.is_none());
                    if let Some(noted) = noted {
                        let error = connector.without_answer(error);
                        tell(&job.id, Settled::Retried { error }, &noted);
                    }
                }
            }
            SettleCall::Bury(jobs) => {
                for (at, Bury { job, reason, error }) in jobs.iter().enumerate() {
                    let noted = forget(&job.id);
                    if is_settled(at) {
                        let facts = noted.as_ref().map(Noted::facts).unwrap_or_default();
                        let error = connector.without_answer(error);
                        let (id, reason) = (&job.id, *reason);
                        events.observe(&JobEvent::Dead { set, id, reason, error, facts });
                    }
                }
            }
            SettleCall::Hold(jobs) => jobs.iter().for_each(|(job, _)| drop(forget(&job.id))),
            SettleCall::Release(jobs) => jobs.iter().for_each(|job| drop(forget(&job.job.id))),
        }
    }

    /// Counts jobs that went back to due for later. A job with an attempt counts from now: the time
    /// of its retry is in the store only until its claim. One that waits for its turn is not overdue.
    fn gave_back(&self, jobs: &[Release], results: &[SettleResult]) {
        let Some(given_back) = &self.given_back else { return };
        let now_ms = self.caller.store.now_us() / 1000;
        let settled =
            jobs.iter().zip(results).filter(|(_, result)| **result == SettleResult::Settled);
        let times = settled.map(|(Release { job, pause_ms, .. }, _)| {
            let since_ms = if job.state.attempt == 0 { job.state.due_ms } else { now_ms };
            (since_ms.max(job.state.turn.at_ms()), *pause_ms)
        });
        given_back.add(now_ms, times);
    }
}

/// Makes the calls to the store.
#[derive(Clone)]
struct Caller {
    store: Arc<Store>,
    broker: Arc<str>,
    lease: Duration,
}

impl Caller {
    /// Calls until the store answers or `give_up`. In a damaged bucket, only until the leases have
    /// expired: time does not repair the bucket.
    ///
    /// Returns the result of each job; `None` if the call was given up: then the leases expire. A
    /// call without an answer may have settled the jobs. Its repeat finds no lease for any of them,
    /// and the jobs count as settled.
    async fn run(
        &self,
        bucket: u16,
        call: &SettleCall,
        give_up: &CancellationToken,
    ) -> Option<Vec<SettleResult>> {
        let (started, mut backoff) = (clock::now(), Backoff::link());
        let broker = &*self.broker;
        let mut failed = false;
        loop {
            match self.call(bucket, call).await {
                Ok(results) if failed && !results.contains(&SettleResult::Settled) => {
                    return Some(vec![SettleResult::Settled; results.len()]);
                }
                Ok(results) => return Some(results),
                Err(error) if error.class == Class::Script && started.elapsed() >= self.lease => {
                    let hint = "run `dwell fsck --repair`; jobs that were delivered will be delivered again";
                    tracing::error!(broker, bucket, %error, hint, jobs = call.len(), "settling failed until the leases expired");
                    return None;
                }
                Err(error) if error.is_told() => {}
                Err(error) => {
                    tracing::warn!(broker, bucket, %error, "settling failed, trying again")
                }
            }
            failed = true;
            tokio::select! {
                () = give_up.cancelled() => return None,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    }

    async fn call(&self, bucket: u16, call: &SettleCall) -> Result<Vec<SettleResult>, StoreError> {
        let (store, broker) = (&self.store, &*self.broker);
        match call {
            SettleCall::Complete(over, jobs) => store.jobs.complete(bucket, jobs, *over).await,
            SettleCall::Hold(jobs) => store.jobs.hold(bucket, jobs).await,
            SettleCall::Release(jobs) => store.jobs.release(bucket, broker, jobs).await,
            SettleCall::Retry(jobs) => store.jobs.retry(bucket, broker, jobs).await,
            SettleCall::Bury(jobs) => store.jobs.bury(bucket, jobs).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settle_queue::tests::job;
    use super::*;

    #[test]
    fn a_job_is_held_unless_its_hold_found_no_claim() {
        let held = |results: Option<Vec<SettleResult>>| {
            let call = SettleCall::Hold(vec![(job(), 5), (job(), 7)]);
            let answer = SettleAnswer { bucket: 0, call, results };
            answer.held().map(|(_, ttr_ms, is_held)| (ttr_ms, is_held)).collect::<Vec<_>>()
        };
        let results = Some(vec![SettleResult::Lost, SettleResult::Settled]);
        assert_eq!(held(results), [(5, false), (7, true)]);
        assert_eq!(held(None), [(5, true), (7, true)], "nobody knows");
        let complete = SettleCall::Complete(Completion::Fired, vec![job()]);
        let answer = SettleAnswer { bucket: 0, call: complete, results: None };
        assert_eq!(answer.held().count(), 0);
    }
}
