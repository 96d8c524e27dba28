//! A queue in memory with a clock that a test moves, for the unit tests of handlers: no Redis, no
//! waiting.
//!
//! ```
//! use std::time::Duration;
//!
//! use dwell_engine::testing::{Ran, TestQueue};
//! use dwell_engine::worker::{Context, Outcome, Routes, Task};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Remind {
//!     invoice: u64,
//! }
//!
//! impl Task for Remind {
//!     const QUEUE: &'static str = "invoices.remind";
//! }
//!
//! async fn remind(task: Remind, context: Context) -> Result<Outcome, String> {
//!     if context.attempt() < 2 { Err(format!("no mail server for {}", task.invoice)) } else { Ok(Outcome::Finish) }
//! }
//!
//! # async fn example() -> Result<(), dwell_engine::Error> {
//! let mut queue = TestQueue::new(Routes::new().task(remind))?.default_retry([Duration::from_secs(60)]);
//! let id = queue.enqueue(&Remind { invoice: 17 }, Duration::from_secs(3600))?;
//! assert!(queue.run_due().await.is_empty(), "not yet");
//!
//! queue.advance(Duration::from_secs(3600));
//! let error = "no mail server for 17".to_owned();
//! assert_eq!(queue.run_due().await, [(id.clone(), Ran::Failed { error, next_in: Duration::from_secs(60) })]);
//!
//! queue.advance(Duration::from_secs(60));
//! assert_eq!(queue.run_due().await, [(id, Ran::Finished)]);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(example()).expect("no error");
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dwell_store::clock::{span_ms, time_of};
use dwell_store::job::{Due, Job, JobId};
use dwell_store::policy::retry;
use dwell_store::request::NewJob;
use dwell_store::store::error::StoreError;
use dwell_store::store::jobs::acknowledge::LeaseAction;
use dwell_store::store::jobs::lease::Lease;

use crate::client::queues::refuse_invalid_queue;
use crate::worker::handler::{self, action_of};
use crate::worker::{Context, Routes, Task};

/// The first time of the clock of a new queue: 1 January 2030, epoch ms.
const START_MS: i64 = 1_893_456_000_000;

/// A queue in memory, with the handlers that it runs.
///
/// The queue knows due times, retry arrays, [`RetryIn`](crate::worker::Outcome::RetryIn), releases
/// and dead jobs as a [`Worker`](crate::Worker) does. Handlers run one after the other, and none
/// loses its lease. A schedule of an id that exists replaces the job, whatever its rule for
/// conflicts.
pub struct TestQueue {
    routes: Routes,
    retry_ms: Vec<u64>,
    now_ms: i64,
    jobs: BTreeMap<JobId, TestJob>,
}

/// A job of a [`TestQueue`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TestJob {
    /// The job.
    pub job: Job,
    /// The next due time, epoch ms by the queue's clock; `None`: the job is dead.
    next_ms: Option<i64>,
    /// The due time of the job in its schedule, epoch ms; its attempts do not change it.
    due_ms: i64,
    /// The attempts so far.
    pub attempts: u32,
    /// The error of the last attempt; empty if no attempt failed.
    pub last_error: String,
    step: u16,
}

/// The result of a job that a [`TestQueue`] ran.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ran {
    /// The job is done, and removed.
    Finished,
    /// The attempt failed for this reason. The next one is due after `next_in`.
    Failed {
        /// The handler's error, or the text of its panic.
        error: String,
        /// The wait.
        next_in: Duration,
    },
    /// The last attempt failed for this reason: the job is dead.
    Dead {
        /// The handler's error, or the text of its panic.
        error: String,
    },
    /// The job went back without an attempt burned, and is due after this time.
    Released(Duration),
}

impl TestJob {
    /// The next due time by the queue's clock; `None`: the job is dead.
    #[must_use]
    pub fn next_due(&self) -> Option<SystemTime> {
        self.next_ms.map(time_of)
    }

    /// The due time of the job in its schedule; its attempts do not change it.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        time_of(self.due_ms)
    }
}

impl TestQueue {
    /// An empty queue, whose clock stands at the beginning of 2030.
    ///
    /// # Errors
    /// As [`Worker::run`](crate::Worker::run) refuses routes.
    pub fn new(routes: Routes) -> Result<TestQueue, StoreError> {
        routes.clone().into_checked()?;
        Ok(TestQueue {
            routes,
            retry_ms: retry::DEFAULT_MS.to_vec(),
            now_ms: START_MS,
            jobs: BTreeMap::new(),
        })
    }

    /// As [`Client::default_retry`](crate::Client::default_retry).
    #[must_use]
    pub fn default_retry(mut self, waits: impl IntoIterator<Item = Duration>) -> Self {
        self.retry_ms = waits.into_iter().map(span_ms).collect();
        self
    }

    /// The clock of the queue.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        time_of(self.now_ms)
    }

    /// Moves the clock. Runs nothing.
    pub fn advance(&mut self, span: Duration) {
        self.now_ms = self.now_ms.saturating_add(ms(span));
    }

    /// Stores a job.
    ///
    /// # Errors
    /// [`Rejected`](crate::ErrorKind::Rejected) where the job belongs to no queue, or the name of
    /// its queue cannot be used.
    pub fn schedule(&mut self, new_job: &NewJob) -> Result<(), StoreError> {
        let queue = new_job.job.queue();
        refuse_invalid_queue(
            queue.ok_or_else(|| StoreError::rejected("a job of a broker is not for a queue"))?,
        )?;
        let due_ms = new_job.due.at_ms(self.now_ms);
        let job = TestJob {
            job: new_job.job.clone(),
            next_ms: Some(due_ms),
            due_ms,
            attempts: 0,
            last_error: String::new(),
            step: 0,
        };
        self.jobs.insert(new_job.id.clone(), job);
        Ok(())
    }

    /// As [`Client::enqueue`](crate::Client::enqueue).
    ///
    /// # Errors
    /// As [`Task::schedule`] and [`schedule`](TestQueue::schedule).
    pub fn enqueue<T: Task>(&mut self, task: &T, due: impl Into<Due>) -> Result<JobId, StoreError> {
        let new_job = task.schedule(due)?;
        self.schedule(&new_job)?;
        Ok(new_job.id)
    }

    /// Removes a job. False if the queue has no such job.
    pub fn cancel(&mut self, id: &JobId) -> bool {
        self.jobs.remove(id).is_some()
    }

    /// A job that waits or is dead; `None` if it is finished, cancelled, or was never here.
    #[must_use]
    pub fn get(&self, id: &JobId) -> Option<&TestJob> {
        self.jobs.get(id)
    }

    /// Runs the handler of each job that is due now, the earliest first, once. A job that its
    /// handler sends back waits for the next call. Jobs of queues without a handler stay.
    pub async fn run_due(&mut self) -> Vec<(JobId, Ran)> {
        let mut due: Vec<(i64, JobId)> = self
            .jobs
            .iter()
            .filter_map(|(id, job)| {
                job.next_ms.filter(|ms| *ms <= self.now_ms).map(|ms| (ms, id.clone()))
            })
            .collect();
        due.sort();
        let mut ran = Vec::new();
        for (_, id) in due {
            if let Some(end) = self.run(&id).await {
                ran.push((id, end));
            }
        }
        ran
    }

    async fn run(&mut self, id: &JobId) -> Option<Ran> {
        let stored = self.jobs.get_mut(id)?;
        let queue: Arc<str> = stored.job.queue()?.into();
        let route = self.routes.routes.iter().find(|route| route.queue == queue)?;
        stored.attempts += 1;
        let wait_ms = retry::wait_ms(&stored.job, stored.step, &self.retry_ms);
        let deadline_ms = self.now_ms.saturating_add(stored.job.ttr_ms.into());
        let context = Context::new(
            id.clone(),
            queue.clone(),
            stored.attempts,
            (stored.due_ms, deadline_ms),
            stored.job.headers.clone(),
        );
        let ended = handler::run(route.handler.clone(), stored.job.clone(), context).await;
        let lease = Lease {
            nonce: [0; 8],
            ttr_ms: stored.job.ttr_ms,
            wait_ms,
            expires_ms: None,
            queue: queue.to_string(),
            seal: [0; 8],
        };
        Some(match action_of(ended, &lease, false) {
            LeaseAction::Fail { wait_ms: Some(wait_ms), error } => {
                let next_in = Duration::from_millis(wait_ms);
                stored.step = stored.step.saturating_add(1);
                (stored.next_ms, stored.last_error) =
                    (Some(self.now_ms.saturating_add(ms(next_in))), error.clone());
                Ran::Failed { error, next_in }
            }
            LeaseAction::Fail { wait_ms: None, error } => {
                (stored.next_ms, stored.last_error) = (None, error.clone());
                Ran::Dead { error }
            }
            LeaseAction::Release { wait_ms } => {
                let pause = Duration::from_millis(wait_ms);
                stored.next_ms = Some(self.now_ms.saturating_add(ms(pause)));
                Ran::Released(pause)
            }
            // Of these actions, a handler causes `Finish` alone.
            LeaseAction::Finish
            | LeaseAction::Touch { .. }
            | LeaseAction::Drop
            | LeaseAction::Bury { .. } => {
                self.jobs.remove(id);
                Ran::Finished
            }
        })
    }
}

/// A span in ms.
fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
