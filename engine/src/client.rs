//! The client for applications: schedules jobs, acts on them, reads them.
//!
//! - [`queues`]: fetches the jobs of queues.
//! - `recurring`: recurring schedules.
//! - `fetching`: the pops of this process, and its connection for wake-ups.

mod fetching;
pub(crate) mod queues;
pub(crate) mod recurring;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use dwell_store::clock::{self, Instant};
use dwell_store::config::Redis;
use dwell_store::job::{Action, Due, JobId, Verdict};
use dwell_store::policy::retry;
use dwell_store::request::{Act, AttemptRef, NewJob};
use dwell_store::store::admin::upgrade::{Upgraded, upgrade};
use dwell_store::store::error::{Class, StoreError};
use dwell_store::store::jobs::batch::{Answer, RequestRef};
use dwell_store::store::reader::counts::Counts;
use dwell_store::store::reader::list::{Page, Query};
use dwell_store::store::reader::lookup::StoredJob;
use dwell_store::store::{Store, Unobserved};
use parking_lot::Mutex;

use self::fetching::Fetching;

#[cfg(test)]
mod tests;

/// The age at which the client reads the brokers again: a program that joins later adds its own.
const BROKERS_TTL: Duration = Duration::from_secs(5);

/// A namespace of jobs in one Redis. Cheap to clone; every method may be called by any task.
///
/// Each change is one atomic script in Redis; [`fail`](Client::fail) reads the job before. A change
/// returns when it is as durable as [`Redis::durability`] says. Reads are not atomic and wait for
/// nothing.
///
/// A call that fails may have been carried out: its answer can be lost on the way. Send the same
/// [`NewJob`] or [`Act`] again at once, before any later request for that id: the engine
/// recognises the repeat and answers as before. It remembers, at least:
///
/// - a schedule while its job exists, and then for `delivery.dedupe_window` of the instances;
/// - an action that changed something for 24 h;
/// - of each, about the newest million of the namespace.
///
/// An action that changed nothing is carried out again.
///
/// A call whose future is dropped may be carried out within the next 4 seconds.
///
/// A client and its clones belong to one runtime: a task of one call sends those of others too, and
/// they fail if the runtime of that task ends.
///
/// Every action answers [`Verdict::Fired`] where it came too late.
#[derive(Clone)]
pub struct Client {
    pub(crate) store: Arc<Store>,
    pub(crate) retry_ms: Arc<[u64]>,
    brokers_read: Arc<Mutex<Instant>>,
    pub(crate) fetching: Arc<Fetching>,
}

/// Makes ring the cryptography of this process: `rediss://` needs one. A program that has chosen
/// another keeps it.
fn install_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Client {
    /// Opens the namespace of `config` and creates it if it is new. Refuses a namespace of another
    /// schema; for an older one there is [`upgrade`](Client::upgrade). `brokers` are the names under
    /// which this program schedules jobs: the `[brokers.NAME]` of the instances that deliver them;
    /// none where it uses queues alone. Makes ring the cryptography of rustls in this process, unless
    /// the program chose another.
    ///
    /// # Errors
    /// [`Configuration`](crate::ErrorKind::Configuration) where a name or the number of buckets
    /// cannot be used, where Redis cannot give the durability or may evict jobs, or where the
    /// namespace has another number of buckets.
    /// [`Incompatible`](crate::ErrorKind::Incompatible) where it has another schema. Any other
    /// kind where Redis does not answer, is a replica, lacks the replica that the durability needs,
    /// or refuses the user.
    pub async fn connect(config: &Redis, brokers: &[&str]) -> Result<Client, StoreError> {
        config.refuse_invalid(brokers)?;
        install_cryptography();
        let brokers: Vec<String> = brokers.iter().map(|broker| (*broker).to_owned()).collect();
        let store = Store::open(config, &brokers, Arc::new(Unobserved)).await?;
        Ok(Client::over(store, config))
    }

    /// Brings the namespace of `config` to the schema that this version writes, as `dwell upgrade`
    /// does. No other call does: [`connect`](Client::connect) refuses a namespace of an older schema. A
    /// namespace that has the schema of this version stays as it is, and so does one that is refused.
    /// Makes ring the cryptography of rustls in this process, unless the program chose another.
    ///
    /// # Errors
    /// [`Incompatible`](crate::ErrorKind::Incompatible) where the schema is newer, or where no step
    /// leads from an older one: the hint says which version of Dwell reads the namespace. No step
    /// leads from before 0.1.0. [`Configuration`](crate::ErrorKind::Configuration) where the namespace
    /// does not exist, or its name cannot be used. Any other kind where Redis does not answer or
    /// refuses the user.
    pub async fn upgrade(config: &Redis) -> Result<Upgraded, StoreError> {
        config.refuse_invalid(&[])?;
        install_cryptography();
        upgrade(config).await
    }

    fn over(store: Store, config: &Redis) -> Client {
        let store = Arc::new(store);
        let brokers_read = Arc::new(Mutex::new(clock::now()));
        let fetching = Arc::new(Fetching::new(store.clone(), config));
        Client { store, retry_ms: retry::DEFAULT_MS.into(), brokers_read, fetching }
    }

    /// The waits between the attempts of jobs without a retry array. [`fail`](Client::fail) counts by
    /// them; give the `delivery.retry` of the instances. A job of a queue is stored with them.
    /// Default: 2m, 10m, 10m, 1h, 2h, 6h, 15h.
    #[must_use]
    pub fn default_retry(mut self, waits: impl IntoIterator<Item = Duration>) -> Self {
        self.retry_ms = waits.into_iter().map(clock::span_ms).collect();
        self
    }

    /// Stores a job, durably by the time this returns. Answers `Added`; or, where the id exists, by
    /// the [`conflict`](NewJob::conflict) of the schedule: `Replaced`, `Kept` or `Conflict`;
    /// `Duplicate` where the same job is there.
    ///
    /// # Errors
    /// [`Rejected`](crate::ErrorKind::Rejected) where nobody ever joined the namespace for the
    /// job's broker: no instance would deliver the job; and where the name of its queue cannot be
    /// used. [`Full`](crate::ErrorKind::Full) where Redis is full. Else as
    /// [`connect`](Client::connect).
    pub async fn schedule(&self, new_job: &NewJob) -> Result<Answer, StoreError> {
        if let Some(queue) = new_job.job.queue() {
            queues::refuse_invalid_queue(queue)?;
            if !self.has_fresh_brokers() {
                self.rejoin().await?;
            }
        }
        if let Some(broker) = new_job.job.broker() {
            self.refuse_unknown_broker(broker).await?;
        }
        self.apply(RequestRef::NewJob(&self.with_rules(new_job))).await
    }

    /// Cancels a job. `Cancelled`: it was not delivered and will not be. `CancelledAfterAttempt`:
    /// it ends; an earlier attempt may have arrived, or may still arrive. `InFlight`: it ends, and
    /// the attempt in flight may still arrive. `NotFound`: it is not here, which does not prove
    /// that it was not delivered.
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn cancel(&self, id: &JobId) -> Result<Verdict, StoreError> {
        self.act(&Act::new(Action::Cancel, id.clone())).await
    }

    /// Gives a job another due time: `Rescheduled`; `InFlight` while an attempt is in flight,
    /// `Dead` if only [`requeue`](Client::requeue) helps, or `NotFound`: nothing changed.
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn reschedule(&self, id: &JobId, due: impl Into<Due>) -> Result<Verdict, StoreError> {
        let act = Act::new(Action::Reschedule, id.clone()).due(due);
        self.act(&act).await
    }

    /// Makes a job due now: `Firing`; `InFlight`, `Dead` or `NotFound` as in
    /// [`reschedule`](Client::reschedule).
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn fire(&self, id: &JobId) -> Result<Verdict, StoreError> {
        self.act(&Act::new(Action::Fire, id.clone())).await
    }

    /// Reports that the consumer has done the job ([`Confirm::Consumer`](crate::Confirm)):
    /// `Finished`, also where the job waits for another attempt or is dead; `Stale` where `attempt`
    /// belongs to another schedule of the id (`None`: any); `NotFound` where the job was never
    /// attempted.
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn finish(
        &self,
        id: &JobId,
        attempt: Option<AttemptRef>,
    ) -> Result<Verdict, StoreError> {
        self.act(&Act::new(Action::Finish, id.clone()).of(attempt)).await
    }

    /// Reports that the consumer could not do the job: `Failed`, and the job waits for its next
    /// attempt, or dies after the last one. `Dead` where the job was dead before; `Waiting` where
    /// no attempt is in flight; `Stale` where `attempt` is not the latest one; `NotFound` as in
    /// [`finish`](Client::finish).
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn fail(
        &self,
        id: &JobId,
        attempt: Option<AttemptRef>,
    ) -> Result<Verdict, StoreError> {
        self.act(&Act::new(Action::Fail, id.clone()).of(attempt)).await
    }

    /// Makes a dead job due now: `Requeued`; `Waiting` if the job is not dead, or `NotFound`.
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn requeue(&self, id: &JobId) -> Result<Verdict, StoreError> {
        self.act(&Act::new(Action::Requeue, id.clone())).await
    }

    /// Carries out an action. Keep the [`Act`] to repeat a call whose answer was lost.
    ///
    /// # Errors
    /// [`Unreadable`](crate::ErrorKind::Unreadable) where the stored job cannot be read: nothing
    /// changed. [`Rejected`](crate::ErrorKind::Rejected) where the action is `Schedule`, or a
    /// `Reschedule` without a `due`: nothing was sent. Any other kind where Redis did not answer or
    /// did not take the call.
    pub async fn act(&self, act: &Act) -> Result<Verdict, StoreError> {
        match (act.action, act.due) {
            (Action::Add, _) => {
                return Err(StoreError::rejected("`schedule` is no action on a job that exists")
                    .hint("call Client::schedule"));
            }
            (Action::Reschedule, None) => {
                return Err(StoreError::rejected("a `reschedule` without a due time")
                    .hint("set `due`, or call Client::reschedule"));
            }
            _ => {}
        }
        Ok(self.apply(RequestRef::Act(act)).await?.verdict)
    }

    /// Looks a job up, with its body. `None` where the namespace has no such job.
    ///
    /// # Errors
    /// [`Configuration`](crate::ErrorKind::Configuration) where Redis lost the namespace; the next
    /// [`schedule`](Client::schedule), and every instance, creates it again. Else as
    /// [`act`](Client::act).
    pub async fn get(&self, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        self.refresh_brokers().await?;
        self.store.reader.find(id).await
    }

    /// Lists jobs by due time, then by id, without their bodies. [`Page::next`] leads to the next
    /// page.
    ///
    /// # Errors
    /// As [`get`](Client::get).
    pub async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.refresh_brokers().await?;
        self.store.reader.list(query).await
    }

    /// Counts the jobs of the namespace, by state and by broker.
    ///
    /// # Errors
    /// As [`get`](Client::get).
    pub async fn stats(&self) -> Result<Counts, StoreError> {
        self.refresh_brokers().await?;
        self.store.reader.counts(&[]).await
    }

    /// Applies one request, and wakes the instances that deliver the job sooner than they expect.
    async fn apply(&self, request: RequestRef<'_>) -> Result<Answer, StoreError> {
        let mut applied = self.store.jobs.apply(&[request], &self.retry_ms).await;
        // The clock that the deadline was computed from was too old. Redis's answer carries the new
        // one.
        if applied
            .answers
            .iter()
            .any(|answer| matches!(answer, Err(error) if error.late().is_some()))
        {
            applied = self.store.jobs.apply(&[request], &self.retry_ms).await;
        }
        // After a lost wake-up a job is late by the poll interval of its bucket at most.
        self.fetching.consumers.wake_all(applied.wake_ups).await;
        let none = || Err(StoreError::new(Class::Other, "redis: a request has no answer"));
        applied.answers.into_iter().next().unwrap_or_else(none)
    }

    /// The same schedule; a job of a queue carries its retry array, so that its rescuer knows the
    /// array.
    fn with_rules<'a>(&self, new_job: &'a NewJob) -> Cow<'a, NewJob> {
        let job = &new_job.job;
        if job.queue().is_none() || job.retry.is_some() || job.tries.is_some() {
            return Cow::Borrowed(new_job);
        }
        let mut new_job = new_job.clone();
        new_job.job.retry = Some(self.retry_ms.to_vec());
        Cow::Owned(new_job)
    }

    /// Creates the namespace again where Redis lost it: a job outside of any namespace could not be
    /// read.
    async fn rejoin(&self) -> Result<(), StoreError> {
        self.store.rejoin().await?;
        *self.brokers_read.lock() = clock::now();
        Ok(())
    }

    /// Reads the brokers of the namespace again where they are older than [`BROKERS_TTL`].
    async fn refresh_brokers(&self) -> Result<(), StoreError> {
        if self.has_fresh_brokers() {
            return Ok(());
        }
        self.store.reread().await?;
        *self.brokers_read.lock() = clock::now();
        Ok(())
    }

    fn has_fresh_brokers(&self) -> bool {
        clock::now().duration_since(*self.brokers_read.lock()) < BROKERS_TTL
    }

    /// Refuses a broker that the namespace does not have.
    async fn refuse_unknown_broker(&self, broker: &str) -> Result<(), StoreError> {
        let is_known = || self.store.brokers().iter().any(|known| known == broker);
        if self.has_fresh_brokers() && is_known() {
            return Ok(());
        }
        self.rejoin().await?;
        if is_known() {
            return Ok(());
        }
        let known = self.store.brokers().join(", ");
        Err(StoreError::rejected(format!("no instance of this namespace delivers to a broker `{broker}`; known: {known}"))
            .hint("name the broker as `[brokers.NAME]` of the instances does, or pass its name to Client::connect"))
    }
}
