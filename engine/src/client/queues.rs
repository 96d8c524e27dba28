//! Fetches the jobs of queues, and ends or prolongs their leases.

use std::time::{Duration, SystemTime};

use dwell_store::clock::{span_ms, time_of};
use dwell_store::consumers::{MAX_POP_BYTES, MAX_POP_JOBS, MAX_POP_WAIT, PopRequest};
use dwell_store::job::{Job, JobId, is_queue_name};
use dwell_store::policy::retry;
use dwell_store::store::error::{Class, StoreError};
use dwell_store::store::jobs::acknowledge::{Acknowledged, Acknowledgement, LeaseAction};
use dwell_store::store::jobs::lease::Lease;
use dwell_store::store::jobs::pop::Popped;

use super::Client;

/// The request of a consumer: the queues, the number of jobs, the wait, and the span of the leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pop {
    queues: Vec<String>,
    max: usize,
    wait: Duration,
    ttr: Option<Duration>,
}

/// A job that this consumer holds until its [`deadline`](Fetched::deadline).
///
/// End the lease by [`finish`](Fetched::finish), [`fail`](Fetched::fail) or
/// [`release`](Fetched::release), or prolong it by [`touch`](Fetched::touch). Dropped without that,
/// the job is handed out again once its lease is over.
#[derive(Clone)]
pub struct Fetched {
    client: Client,
    popped: Popped,
}

impl Pop {
    /// Asks for one job of this queue, without a wait, under the job's TTR.
    #[must_use]
    pub fn from_queue(queue: impl Into<String>) -> Self {
        Pop { queues: vec![queue.into()], max: 1, wait: Duration::ZERO, ttr: None }
    }

    /// Asks this queue for the jobs that the queues before it lack.
    #[must_use]
    pub fn or_queue(mut self, queue: impl Into<String>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// The most jobs, 1 to 1000.
    #[must_use]
    pub fn max(mut self, jobs: usize) -> Self {
        self.max = jobs.clamp(1, MAX_POP_JOBS);
        self
    }

    /// The wait for the first job, at most 60 s.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.min(MAX_POP_WAIT);
        self
    }

    /// The span of the leases, in place of the TTR of each job.
    #[must_use]
    pub fn ttr(mut self, ttr: Duration) -> Self {
        self.ttr = Some(ttr);
        self
    }

    pub(crate) fn request(&self) -> PopRequest {
        PopRequest {
            queues: self.queues.clone(),
            max: self.max,
            max_bytes: MAX_POP_BYTES,
            wait: self.wait,
            ttr_ms: self.ttr.map(span_ms),
            max_ttr_ms: u32::MAX.into(),
        }
    }
}

impl Client {
    /// Fetches due jobs, each under a lease of its own. Empty if no job was due within the wait.
    /// Dropping this future gives the fetched jobs back.
    ///
    /// # Errors
    /// [`Rejected`](crate::ErrorKind::Rejected) where a queue's name cannot be used. Any other kind
    /// where Redis does not answer, also during the wait.
    pub async fn pop(&self, pop: &Pop) -> Result<Vec<Fetched>, StoreError> {
        pop.queues.iter().try_for_each(|queue| refuse_invalid_queue(queue))?;
        if pop.wait > Duration::ZERO {
            self.fetching.listen();
        }
        let popped = self.fetching.consumers.pop(&pop.request()).await?.sent();
        let fetched = popped
            .into_iter()
            .map(|popped| Fetched { client: self.clone(), popped: self.with_wait(popped) });
        Ok(fetched.collect())
    }

    /// Ends a lease: the job is done. `Finished`; or, where nothing changed: `Stale` where the
    /// lease is over or another's, `Fired` where the job was finished before, `NotFound`.
    ///
    /// # Errors
    /// As [`act`](Client::act). The call may have been carried out: repeat it.
    pub async fn finish_lease(
        &self,
        id: &JobId,
        lease: &Lease,
    ) -> Result<Acknowledged, StoreError> {
        self.say(id, lease, LeaseAction::Finish).await
    }

    /// Ends a lease: the attempt failed for this reason. `Failed`, and the job waits for its next
    /// attempt, `wait` where given, else by its retry array; `Dead` at the end of the array; or as
    /// [`finish_lease`](Client::finish_lease).
    ///
    /// # Errors
    /// As [`finish_lease`](Client::finish_lease).
    pub async fn fail_lease(
        &self,
        id: &JobId,
        lease: &Lease,
        wait: Option<Duration>,
        error: &str,
    ) -> Result<Acknowledged, StoreError> {
        self.say(id, lease, fail(lease, wait, error)).await
    }

    /// Ends a lease without an attempt burned: the job is due again after `wait`. `Released`, or as
    /// [`finish_lease`](Client::finish_lease).
    ///
    /// # Errors
    /// As [`finish_lease`](Client::finish_lease).
    pub async fn release(
        &self,
        id: &JobId,
        lease: &Lease,
        wait: Duration,
    ) -> Result<Acknowledged, StoreError> {
        self.say(id, lease, LeaseAction::Release { wait_ms: span_ms(wait) }).await
    }

    /// Prolongs a lease to `ttr` from now, or to its own span (`None`). `Touched` with the new
    /// deadline, or as [`finish_lease`](Client::finish_lease).
    ///
    /// # Errors
    /// As [`finish_lease`](Client::finish_lease).
    pub async fn touch(
        &self,
        id: &JobId,
        lease: &Lease,
        ttr: Option<Duration>,
    ) -> Result<Acknowledged, StoreError> {
        self.say(id, lease, touch(lease, ttr)).await
    }

    async fn say(
        &self,
        id: &JobId,
        lease: &Lease,
        action: LeaseAction,
    ) -> Result<Acknowledged, StoreError> {
        let action = Acknowledgement { id: id.clone(), lease: lease.clone(), action };
        let none = || Err(StoreError::new(Class::Other, "redis: an action has no answer"));
        self.fetching.consumers.acknowledge(&[action]).await.pop().unwrap_or_else(none)
    }

    /// The same job with the next wait of this client where the job has no retry array.
    pub(crate) fn with_wait(&self, mut popped: Popped) -> Popped {
        let job = &popped.record.job;
        if job.retry.is_none() && job.tries.is_none() {
            popped.lease.wait_ms = retry::wait_ms(job, popped.state.step, &self.retry_ms);
        }
        popped
    }
}

impl Fetched {
    /// The job's id.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.popped.id
    }

    /// The job, with its body.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.popped.record.job
    }

    /// The lease, by which a call of [`Client`], another process or HTTP ends it.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.popped.lease
    }

    /// The number of this hand-out of the job, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.popped.state.attempt
    }

    /// The due time of the job in its schedule; its retries do not change it.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        time_of(self.popped.due_ms())
    }

    /// The end of the lease by Redis's clock.
    #[must_use]
    pub fn deadline(&self) -> SystemTime {
        time_of(self.popped.deadline_ms)
    }

    /// As [`Client::finish_lease`].
    ///
    /// # Errors
    /// As [`Client::finish_lease`].
    pub async fn finish(&self) -> Result<Acknowledged, StoreError> {
        self.client.finish_lease(self.id(), self.lease()).await
    }

    /// As [`Client::fail_lease`], by the job's retry array.
    ///
    /// # Errors
    /// As [`Client::finish_lease`].
    pub async fn fail(&self, error: &str) -> Result<Acknowledged, StoreError> {
        self.client.fail_lease(self.id(), self.lease(), None, error).await
    }

    /// As [`Client::fail_lease`], with the next attempt after `wait`.
    ///
    /// # Errors
    /// As [`Client::finish_lease`].
    pub async fn retry_in(&self, wait: Duration, error: &str) -> Result<Acknowledged, StoreError> {
        self.client.fail_lease(self.id(), self.lease(), Some(wait), error).await
    }

    /// As [`Client::release`].
    ///
    /// # Errors
    /// As [`Client::finish_lease`].
    pub async fn release(&self, wait: Duration) -> Result<Acknowledged, StoreError> {
        self.client.release(self.id(), self.lease(), wait).await
    }

    /// As [`Client::touch`]. The deadline of this value follows.
    ///
    /// # Errors
    /// As [`Client::finish_lease`].
    pub async fn touch(&mut self, ttr: Option<Duration>) -> Result<Acknowledged, StoreError> {
        let answer = self.client.touch(self.id(), self.lease(), ttr).await?;
        if answer.verdict.is_done() {
            self.popped.deadline_ms = answer.ms.unwrap_or(self.popped.deadline_ms);
        }
        Ok(answer)
    }
}

impl std::fmt::Debug for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fetched").field(&self.popped).finish()
    }
}

/// Refuses a text that is no name of a queue.
pub(crate) fn refuse_invalid_queue(queue: &str) -> Result<(), StoreError> {
    if is_queue_name(queue) {
        return Ok(());
    }
    Err(StoreError::rejected(format!("queue `{}`: this name cannot be used", queue.escape_debug()))
        .hint("write 1 to 255 letters, digits, . _ and -"))
}

/// The lease action for a failed attempt.
pub(crate) fn fail(lease: &Lease, wait: Option<Duration>, error: &str) -> LeaseAction {
    LeaseAction::Fail {
        wait_ms: lease.wait_ms.map(|next| wait.map_or(next, span_ms)),
        error: error.to_owned(),
    }
}

/// The lease action that prolongs a lease.
pub(crate) fn touch(lease: &Lease, ttr: Option<Duration>) -> LeaseAction {
    LeaseAction::Touch { ttr_ms: ttr.map_or(lease.ttr_ms.into(), span_ms) }
}
