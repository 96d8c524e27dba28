//! Applies requests to the store, wherever they came from (a message, a command, HTTP): repeats
//! them until the store answers, and wakes the dispatchers.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clock;
use crate::events::{Facts, JobEvent, Observer, Settled};
use crate::job::{Action, DeadReason, JobId, Verdict};
use crate::reconnect::Backoff;
use crate::request::{Act, Request};
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::batch::{Answer, Applied, NewOccurrence, RequestRef};
use crate::store::reader::lookup::{JobState, StoredJob};
use crate::store::wake_up::WakeUp;
use crate::telemetry::Events;
use crate::telemetry::trace::Traces;
use crate::wake_ups::WakeUps;

mod batcher;
mod held_finish;

pub use batcher::CallBatcher;
use held_finish::HeldFinish;

/// Decides how long to retry requests that the store does not answer.
pub trait RetryPolicy: Send {
    /// Waits before the next try. False gives up: the error is the answer.
    fn wait(&mut self, error: &StoreError) -> impl Future<Output = bool> + Send;

    /// Whether to repeat the request at this index. A request whose caller went away is not
    /// repeated: the caller may have sent another one since.
    fn is_wanted(&self, _place: usize) -> bool {
        true
    }

    /// Takes the answer of the request at this index as soon as it is known: the repeats of the
    /// others may take long.
    fn answered(&mut self, _place: usize, _answer: &Result<Answer, StoreError>) {}
}

/// A bounded retry for calls of people: a retry tries, and only for errors that may pass.
#[derive(Debug)]
pub struct BoundedRetry {
    left: u32,
    backoff: Backoff,
}

impl Default for BoundedRetry {
    fn default() -> Self {
        BoundedRetry {
            left: 3,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(1)),
        }
    }
}

impl RetryPolicy for BoundedRetry {
    async fn wait(&mut self, error: &StoreError) -> bool {
        // A login that Redis refuses is read again from its file.
        let may_pass = matches!(
            error.class,
            Class::Io
                | Class::Timeout
                | Class::Readonly
                | Class::Moved
                | Class::Unserved
                | Class::Refused
        );
        if self.left == 0 || !may_pass {
            return false;
        }
        self.left -= 1;
        clock::sleep(self.backoff.pause()).await;
        true
    }
}

/// A batch of requests and their answers so far.
pub struct RequestBatch<'a> {
    requests: &'a mut [Request],
    answers: Vec<Result<Answer, StoreError>>,
    /// Indexes of the requests to send.
    open: Vec<usize>,
    /// Indexes of the requests that got their last answer since these were taken.
    settled: Vec<usize>,
    /// The occurrences of recurring schedules that were made since these were taken.
    made: Vec<NewOccurrence>,
    /// Indexes of the requests to `fail` of jobs that died of their expiry.
    expired: Vec<usize>,
}

impl<'a> RequestBatch<'a> {
    /// A batch of which nothing is sent yet.
    #[must_use]
    pub fn new(requests: &'a mut [Request]) -> Self {
        let unsent = || Err(StoreError::new(Class::Other, "redis: a request was not sent"));
        RequestBatch {
            answers: requests.iter().map(|_| unsent()).collect(),
            open: (0..requests.len()).collect(),
            settled: Vec::new(),
            made: Vec::new(),
            expired: Vec::new(),
            requests,
        }
    }

    /// Sends the requests without an answer, in their order. Returns the wake-ups of buckets with a
    /// new earliest job.
    pub async fn send(&mut self, store: &Store, default_retry_ms: &[u64]) -> Vec<WakeUp> {
        let (mut sending, mut all_wake_ups) = (std::mem::take(&mut self.open), Vec::new());
        while !sending.is_empty() {
            let asked: Vec<RequestRef<'_>> =
                sending.iter().map(|at| (&self.requests[*at]).into()).collect();
            let applied = store.jobs.apply(&asked, default_retry_ms).await;
            let Applied { answers, wake_ups, made, expired } = applied;
            all_wake_ups.extend(wake_ups);
            self.made.extend(
                made.into_iter().map(|made| NewOccurrence { at: sending[made.at], ..made }),
            );
            self.expired.extend(expired.into_iter().map(|at| sending[at]));
            for (at, answer) in std::mem::take(&mut sending).into_iter().zip(answers) {
                match &answer {
                    Ok(Answer { verdict: Verdict::Duplicate, .. })
                        if self.requests[at].take_another_id() =>
                    {
                        sending.push(at)
                    }
                    // A refusal comes again.
                    Err(error) if !error.is_refusal() => {
                        // The request may have been applied, and must not be applied twice.
                        self.requests[at].origin_mut().maybe_redelivered = true;
                        self.open.push(at);
                    }
                    _ => self.settled.push(at),
                }
                self.answers[at] = answer;
            }
        }
        self.open.sort_unstable();
        all_wake_ups
    }

    /// Drops the requests that are not wanted from the next try.
    fn keep(&mut self, is_wanted: impl Fn(usize) -> bool) {
        self.open.retain(|at| is_wanted(*at));
    }

    /// The error that makes another try necessary; `None` where each request has its answer.
    #[must_use]
    pub fn failed(&self) -> Option<&StoreError> {
        self.open.first().and_then(|at| self.answers[*at].as_ref().err())
    }

    /// An answer for each request, in their order. A refusal is an error of that request alone;
    /// after any other error the request may have been applied or not.
    #[must_use]
    pub fn answers(self) -> Vec<Result<Answer, StoreError>> {
        self.answers
    }
}

/// The parts of a running instance that apply requests.
#[derive(Clone)]
pub struct Apply {
    /// The store.
    pub store: Arc<Store>,
    /// Sends the wake-ups.
    pub wake_ups: WakeUps,
    /// The subscribers to what becomes of the requests.
    pub events: Events,
    /// Where spans go.
    pub traces: Traces,
    /// `delivery.retry`, ms.
    pub retry_ms: Vec<u64>,
    /// Batches calls that arrive at the same time.
    pub batcher: CallBatcher,
    /// Bounds the jobs that callers read.
    pub reads: Reads,
}

/// The most jobs that callers read at a time. Each comes with its body, which nothing else counts.
const MAX_CONCURRENT_READS: usize = 16;

/// The jobs that callers read at a time. Clones share their bound.
#[derive(Debug, Clone)]
pub struct Reads(Arc<Semaphore>);

impl Default for Reads {
    fn default() -> Reads {
        Reads(Arc::new(Semaphore::new(MAX_CONCURRENT_READS)))
    }
}

impl Apply {
    /// The job of an id, for a caller.
    ///
    /// # Errors
    /// The store does not answer, or the job cannot be read.
    pub async fn find(&self, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        self.reading(self.store.reader.find(id)).await
    }

    /// Reads for a caller, once a turn is free.
    pub async fn reading<T>(&self, read: impl Future<Output = T>) -> T {
        // Never closed.
        let _turn = self.reads.0.acquire().await;
        read.await
    }

    /// Applies requests, those for one id in their order, with one pass of the durability gate;
    /// reports them, and wakes the dispatchers. Each has its own answer, as in
    /// [`RequestBatch::answers`]; the retry policy covers all of them, and has each as soon as it
    /// is known.
    pub async fn all(
        &self,
        requests: &mut [Request],
        retry: &mut impl RetryPolicy,
    ) -> Vec<Result<Answer, StoreError>> {
        let mut batch = RequestBatch::new(requests);
        loop {
            let wake_ups = batch.send(&self.store, &self.retry_ms).await;
            self.wake_ups.wake(wake_ups).await;
            for at in std::mem::take(&mut batch.settled) {
                let answer = &batch.answers[at];
                if let Ok(answer) = answer {
                    self.report(&batch.requests[at], *answer, batch.expired.contains(&at));
                }
                retry.answered(at, answer);
            }
            for made in std::mem::take(&mut batch.made) {
                self.report_made(&batch.requests[made.at], &made);
            }
            match batch.failed() {
                Some(error) if retry.wait(error).await => batch.keep(|at| retry.is_wanted(at)),
                _ => return batch.answers(),
            }
        }
    }

    /// Finishes a job without a lease to show: as its consumer, if one holds it as it did when the
    /// job was read; by `otherwise` if not. Reports the end of the lease too: if Redis answers the
    /// acknowledgement, whether or not the caller is still there.
    ///
    /// # Errors
    /// As [`Apply::one`].
    pub async fn finish(&self, job: &StoredJob, otherwise: Act) -> Result<Verdict, StoreError> {
        let finish = Arc::new(HeldFinish {
            events: self.events.clone(),
            due_ms: job.due_ms(),
            is_reserved: job.state == JobState::Reserved,
        });
        let held = self.store.jobs.finish_held(job, finish.clone()).await;
        if matches!(held, Ok(true)) {
            return Ok(Verdict::Finished);
        }
        let verdict = self.one(Request::Act(otherwise)).await?.verdict;
        Ok(match job.job().queue() {
            Some(queue) => finish.acted(queue, &job.id, verdict, held.is_ok()),
            None => verdict,
        })
    }

    /// Reports the occurrence that a request on a recurring schedule made.
    fn report_made(
        &self,
        request: &Request,
        NewOccurrence { id, set, due_ms, number, .. }: &NewOccurrence,
    ) {
        self.events.observe(&JobEvent::OccurrenceMade {
            schedule: request.id(),
            id,
            set: DueSet::named(set),
            to: None,
            due_ms: *due_ms,
            number: *number,
            is_caught_up: false,
        });
    }

    /// Reports the effect of a request. `is_expired`: of a `fail` that ended its job because the next
    /// wait would have ended past the expiry.
    fn report(&self, request: &Request, answer: Answer, is_expired: bool) {
        let Answer { verdict, due_ms, .. } = answer;
        let (id, action, set, to) = match request {
            Request::NewJob(new_job) => {
                let job = &new_job.job;
                (&new_job.id, Action::Add, Some(DueSet::of(job)), job.destination())
            }
            // A recurring schedule is no job: its occurrences are told.
            Request::NewSchedule(_) => return,
            Request::Act(act) => (&act.id, act.action, None, None),
        };
        self.events.observe(&JobEvent::Applied { id, set, to, action, verdict, due_ms });
        // A dying job is due at once: it waits for nothing.
        if (action, verdict) == (Action::Fail, Verdict::Failed)
            && due_ms.is_some_and(|due_ms| due_ms > self.store.now_ms())
        {
            let (end, facts) = (Settled::Retried { error: "" }, Facts::default());
            self.events.observe(&JobEvent::Settled { set, id, end, facts });
        }
        // A queue's job that died by this call; one that was dead before has a due time.
        if action == Action::Fail && answer.is_death() {
            let reason = if is_expired { DeadReason::Expired } else { DeadReason::Failed };
            let (error, facts) = ("", Facts::default());
            self.events.observe(&JobEvent::Dead { set, id, reason, error, facts });
        }
    }

    /// Applies a request in one batch with those for the same master that arrive at the same time,
    /// with a bounded retry.
    ///
    /// # Errors
    /// The last error of the store: the request may have been applied or not.
    pub async fn one(&self, request: Request) -> Result<Answer, StoreError> {
        let master = self.store.master_of_job(request.id());
        let (answer, turn) = self.batcher.add(master, request);
        if let Some(turn) = turn {
            batcher::send_batches(self.clone(), turn);
        }
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::new(Class::Other, "the instance ended before the store answered"))
        })
    }
}
