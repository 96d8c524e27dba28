//! The calls of all protocols: they put and fetch jobs of queues in the same way as those of the
//! HTTP API.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Panicked;
use crate::apply::Apply;
use crate::clock;
use crate::config::QueueRules;
use crate::consumers::PoppedJobs;
use crate::http::api::pop::unsent;
use crate::http::server::later::{caught, later};
use crate::http::server::waits::WaitShare;
use crate::job::{Action, Conflict, Due, Job, JobId, Verdict, is_queue_name};
use crate::policy::expiry;
use crate::queues::QueueService;
use crate::request::{Act, NewJob, OwnQueues, Request, RequestRules, act_on};
use crate::store::error::{Class, StoreError};
use crate::store::jobs::claim::MAX_CLAIM_AHEAD;
use crate::store::jobs::ends::Over;
use crate::store::reader::list::Query;
use crate::store::reader::lookup::{JobState, StoredJob};
use crate::units::quote_address;

/// The most ready jobs that are looked at to find one whose time to live is not over.
const PEEK_JOBS: usize = 16;
/// The fewest dead jobs that are read at once: jobs whose time to live is over end together.
const MIN_DEAD_PAGE_JOBS: usize = 100;

/// The part of a running instance that serves the listeners. Clones share it.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    apply: Apply,
    queues: QueueService,
    rules: RequestRules,
}

impl Service {
    /// The service of an instance.
    #[must_use]
    pub fn new(apply: Apply, queues: QueueService, rules: RequestRules) -> Self {
        Service { inner: Arc::new(Inner { apply, queues, rules }) }
    }

    /// The settings that apply to requests.
    pub(super) fn rules(&self) -> &RequestRules {
        &self.inner.rules
    }

    /// The rules of this queue; `None` if it is not declared, or the name is not that of a queue,
    /// which a pattern may match all the same.
    pub(super) fn queue(&self, name: &str) -> Option<&QueueRules> {
        self.inner.queues.of(name).filter(|_| is_queue_name(name))
    }

    /// Why a job of this queue is refused, if it is.
    pub(super) fn refuses(&self, name: &str, bytes: usize) -> Option<Refusal> {
        if bytes as u64 > self.inner.rules.limits.max_body.bytes() {
            return Some(Refusal::TooLarge);
        }
        self.queue(name).is_none().then_some(Refusal::Undeclared)
    }

    /// About Redis's time, epoch ms.
    pub(super) fn now_ms(&self) -> i64 {
        self.inner.apply.store.now_ms()
    }

    /// Stores a job, instead of one of these queues that has its id. A full queue refuses a new id.
    ///
    /// # Errors
    /// [`Class::QueueFull`], [`Class::Taken`], or what Redis says.
    pub(super) async fn schedule(
        &self,
        id: JobId,
        job: Job,
        due: Due,
        own_queues: Option<OwnQueues>,
    ) -> Result<(), StoreError> {
        let rules = &self.inner.rules;
        let queue = job.queue().unwrap_or_default().to_owned();
        let new_job = NewJob {
            queue_full: rules.full_queues.is_full(&queue),
            own_queues,
            ..NewJob::new(job, due).id(id)
        };
        let stored = self.store_job(new_job).await.map(|_| ());
        // With the name of the queue and the setting.
        stored.map_err(|error| {
            if error.class == Class::QueueFull {
                StoreError::new(error.class, rules.queue_full(&queue).detail)
            } else {
                error
            }
        })
    }

    /// Stores a job with a new id, though the queue may be full: another job makes room.
    pub(super) async fn schedule_instead(
        &self,
        id: JobId,
        job: Job,
        due: Due,
    ) -> Result<(), StoreError> {
        let own_queues = job.queue().map(|queue| OwnQueues::new([queue]));
        self.store_job(NewJob { own_queues, ..NewJob::new(job, due).id(id) }).await.map(|_| ())
    }

    /// Stores a dead job anew, due now; false if it is not dead any more, or not of its queue.
    pub(super) async fn revive(&self, id: JobId, job: Job) -> Result<bool, StoreError> {
        let own_queues = job.queue().map(|queue| OwnQueues::new([queue]));
        let new_job = NewJob {
            own_queues,
            ..NewJob::new(job, Due::In(0)).id(id).on_conflict(Conflict::Keep)
        };
        match self.store_job(new_job).await {
            Err(error) if error.class == Class::Taken => Ok(false),
            verdict => verdict.map(|verdict| matches!(verdict, Verdict::Added | Verdict::Replaced)),
        }
    }

    /// Stores a job. No job here refuses another one of its id, so that a conflict is with a recurring
    /// schedule: the job is not stored, and the protocols know no such answer.
    async fn store_job(&self, new_job: NewJob) -> Result<Verdict, StoreError> {
        if let Some(remove_at_ms) = new_job.job.remove_at_ms
            && let Err(error) =
                self.inner.apply.store.jobs.note_end(&new_job.id, remove_at_ms).await
        {
            tracing::debug!(id = %new_job.id, %error, "the end of a job could not be noted");
        }
        match self.inner.apply.one(Request::NewJob(Box::new(new_job))).await?.verdict {
            Verdict::Conflict => Err(StoreError::new(
                Class::Taken,
                "a recurring schedule has the id, and the job was not stored",
            )
            .hint("send another id")),
            verdict => Ok(verdict),
        }
    }

    /// Hands out ready jobs by `answer`, in the words of the protocol. Where the call waits, its
    /// answer comes [`later`], or is that of `panicked`.
    pub(super) async fn pop(
        &self,
        asked: PopCall,
        answer: impl FnOnce(&Service, Result<PoppedJobs, StoreError>) -> Response + Send + 'static,
        panicked: Panicked,
    ) -> Response {
        let PopCall { queues, max, wait, ttr_ms, share } = asked;
        let until = clock::now() + wait;
        let asked = self.inner.queues.begin(queues, max, wait, ttr_ms);
        match self.inner.queues.pop_now(&asked).await {
            Ok(jobs) if jobs.is_empty() && clock::now() < until => {
                let (service, wait) = (self.clone(), share.wait(until));
                if let Err(error) = wait.check() {
                    let refused = answer(self, Err(error));
                    return wait.kept(std::future::ready(refused)).await;
                }
                let until = wait.until();
                let waited = async move {
                    let popped = service.inner.queues.pop_until(&asked, until).await;
                    answer(&service, popped)
                };
                later(wait.kept(caught(waited, panicked)))
            }
            popped => answer(self, popped),
        }
    }

    /// Answers 200 with this JSON, which hands out these jobs. They go back if the client went away
    /// before.
    pub(super) fn hand_out(&self, json: &impl Serialize, jobs: PoppedJobs) -> Response {
        match serde_json::to_vec(json) {
            Ok(json) => {
                unsent(json, jobs, self.inner.queues.clone(), self.inner.apply.store.now_us())
            }
            Err(error) => {
                tracing::error!(%error, "jobs could not be written as JSON: this is a bug in dwell");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }

    /// The job of this id, if it belongs to a queue, and to this one where a queue is named.
    pub(super) async fn find(
        &self,
        queue: Option<&str>,
        id: &str,
    ) -> Result<Option<StoredJob>, StoreError> {
        // Text that cannot be an id names no job.
        let Ok(id) = JobId::new(id) else { return Ok(None) };
        let found = self.inner.apply.find(&id).await?;
        let fits = |found: &StoredJob| {
            found.job().queue().is_some_and(|of| queue.is_none_or(|queue| of == queue))
        };
        Ok(found.filter(|found| fits(found) && !self.is_over(found)))
    }

    /// Whether the job's time to live is over, though it is still stored.
    fn is_over(&self, found: &StoredJob) -> bool {
        expiry::has_ended(found.job(), self.now_ms())
    }

    /// Ends a job of these queues for good, in any state: as its consumer, if it was ever handed
    /// out.
    pub(super) async fn end(
        &self,
        job: &StoredJob,
        own_queues: &OwnQueues,
    ) -> Result<(), StoreError> {
        // Mostly its consumer holds the job: the acknowledgements of many go together.
        let finish = act(Action::Finish, &job.id, own_queues);
        if self.inner.apply.finish(job, finish).await? == Verdict::NotFound {
            let cancel = act(Action::Cancel, &job.id, own_queues);
            let cancelled = self.inner.apply.one(Request::Act(cancel)).await?;
            // A pop had the job already, and hands it out at its due time. The answer comes after
            // that: then the job was deleted in the hands of its consumer.
            if cancelled.verdict == Verdict::InFlight {
                clock::sleep(MAX_CLAIM_AHEAD).await;
            }
        }
        Ok(())
    }

    /// Returns the number of ready or dead jobs of a queue.
    pub(super) async fn count(&self, queue: &str, state: JobState) -> Result<u64, StoreError> {
        self.inner.apply.store.reader.queue_count(queue, state).await
    }

    /// The ready job that has waited the longest.
    pub(super) async fn head(&self, queue: &str) -> Result<Option<StoredJob>, StoreError> {
        let reader = &self.inner.apply.store.reader;
        let query = Query {
            queue: Some(queue.to_owned()),
            limit: PEEK_JOBS,
            ..Query::new(JobState::Ready)
        };
        for found in
            reader.list(&query).await?.jobs.into_iter().filter(|found| !self.is_over(found))
        {
            if let Some(found) =
                self.inner.apply.reading(reader.with_bodies(vec![found])).await?.pop()
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns dead jobs of a queue, without their bodies. Ends jobs whose time to live is over.
    pub(super) async fn dead(
        &self,
        queue: &str,
        limit: usize,
    ) -> Result<Vec<StoredJob>, StoreError> {
        let store = &self.inner.apply.store;
        let query = Query {
            queue: Some(queue.to_owned()),
            limit: limit.max(MIN_DEAD_PAGE_JOBS),
            ..Query::new(JobState::Dead)
        };
        loop {
            let (over, mut alive): (Vec<_>, Vec<_>) = store
                .reader
                .list(&query)
                .await?
                .jobs
                .into_iter()
                .partition(|found| self.is_over(found));
            if over.is_empty() || alive.len() >= limit {
                alive.truncate(limit);
                return Ok(alive);
            }
            self.end_dead(queue, over).await?;
        }
    }

    /// Ends these dead jobs of a queue for good. A job that was made anew meanwhile stays.
    pub(super) async fn end_dead(
        &self,
        queue: &str,
        dead: Vec<StoredJob>,
    ) -> Result<(), StoreError> {
        let dead = dead.into_iter().map(|found| Over {
            id: found.id,
            queue: queue.to_owned(),
            generation: found.record.generation,
            size: found.size,
        });
        self.inner.apply.store.jobs.end_these(dead).await
    }

    /// Removes the ready jobs of a queue.
    pub(super) async fn purge_ready(&self, queue: &str) -> Result<u64, StoreError> {
        self.inner.apply.store.admin.purge(queue, JobState::Ready).await
    }
}

fn act(action: Action, id: &JobId, own_queues: &OwnQueues) -> Act {
    Act { own_queues: Some(own_queues.clone()), ..act_on(action, id.clone(), None) }
}

/// The request of a consumer.
pub(super) struct PopCall {
    /// Served in this order.
    pub(super) queues: Vec<String>,
    /// The most jobs.
    pub(super) max: usize,
    /// The longest wait for the first job.
    pub(super) wait: Duration,
    /// The lease; `None`: that of each job.
    pub(super) ttr_ms: Option<u64>,
    /// That of the listener.
    pub(super) share: WaitShare,
}

/// Why a new job is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The settings have neither the queue nor a pattern for it.
    Undeclared,
    /// The body is larger than `limits.max_body`.
    TooLarge,
}

impl Refusal {
    /// Returns the reason and the remedy.
    pub(super) fn text(self, queue: &str) -> String {
        match self {
            Refusal::Undeclared => {
                let queue = quote_address(queue);
                format!(
                    "no name or pattern of [queues] in the settings is for the queue {queue}, of 1 to 255 of A-Z a-z 0-9 . _ -"
                )
            }
            Refusal::TooLarge => "body too large".to_owned(),
        }
    }
}
