//! Pops from the buckets of a queue, always from the one whose first job is the oldest.

use std::sync::Arc;

use super::asking::{Answer, Asking, Awaited};
use super::watch::{Call, Watch};
use super::{Consumers, PopRequest, PoppedJobs};
use crate::clock;
use crate::store::error::{Class, StoreError};

/// The most queues of which a process remembers the first jobs between pops, besides the queues
/// with a waiting pop.
const MAX_REMEMBERED_QUEUES: usize = 1024;

/// The calls of one pop of one queue.
#[derive(Default)]
struct Calls {
    /// A master answered.
    is_answered: bool,
    /// The last failure.
    failed: Option<StoreError>,
    /// A call whose master has not answered yet.
    late: Option<Awaited>,
}

/// What follows the answer of a call.
enum Next {
    /// The next bucket.
    Bucket,
    /// A look: no known job is due.
    Look,
    /// Nothing: the queue is paused.
    End,
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
        let (pop, answer) = Asking::new(jobs.limits(asked), false);
        let consumers = self.clone();
        tokio::spawn(async move { consumers.make(call, vec![pop]).await });
        receive(answer, &mut jobs, &mut calls).await;
        // Dropped meanwhile, the jobs go back.
        jobs.until_due().await;
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
            let (pop, answer) = Asking::new(jobs.limits(asked), true);
            watch.join(self, pop);
            match receive(answer, jobs, &mut calls).await {
                Next::Bucket => {
                    let is_of_bucket = |error: &StoreError| {
                        is_cluster || matches!(error.class, Class::Script | Class::Moved)
                    };
                    if calls.failed.as_ref().is_some_and(|error| !is_of_bucket(error)) {
                        break;
                    }
                }
                Next::Look if !has_looked => {
                    has_looked = true;
                    match watch.look_since(self, came).await {
                        Ok(()) => calls.is_answered = true,
                        Err(error) => {
                            calls.failed = Some(error);
                            break;
                        }
                    }
                }
                Next::Look | Next::End => break,
            }
        }
        if jobs.is_empty()
            && !calls.is_answered
            && let Some(late) = calls.late.take()
            && let Answer::Popped(popped) = late.late().await?
        {
            jobs.add(popped);
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
}

/// Waits for the answer of a call, and adds the jobs that it popped.
async fn receive(answer: Awaited, jobs: &mut PoppedJobs, calls: &mut Calls) -> Next {
    match answer.or_silence().await {
        Ok(Ok(Answer::Popped(popped))) => {
            calls.is_answered = true;
            jobs.add(popped);
            Next::Bucket
        }
        Ok(Ok(Answer::Paused)) => {
            calls.is_answered = true;
            Next::End
        }
        Ok(Ok(Answer::NoneDue)) => Next::Look,
        Ok(Err(error)) => {
            calls.failed = Some(error);
            Next::Bucket
        }
        Err(late) => {
            calls.late.get_or_insert(late);
            Next::Bucket
        }
    }
}
