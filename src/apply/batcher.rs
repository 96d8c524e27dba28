//! Batches calls that arrive at the same time, because each pass of the durability gate may take a
//! second.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::{BoundedRetry, RetryPolicy};
use crate::request::Request;
use crate::store::error::StoreError;
use crate::store::queue::schedule::Answer;

/// The most batches that run at once: as many as wait side by side at the gate. Later calls go with
/// the next batch.
const MAX_CONCURRENT_BATCHES: usize = 4;
/// The most calls of one batch.
const MAX_CALLS_PER_BATCH: usize = 1024;
/// The most bytes of bodies in one batch, but for a single larger one.
const MAX_BATCH_BYTES: usize = 4 << 20;

type Answered = Result<Answer, StoreError>;

/// The calls that wait for their batch.
#[derive(Clone)]
pub struct CallBatcher(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<(Request, oneshot::Sender<Answered>)>>,
    permits: Semaphore,
}

impl Default for CallBatcher {
    fn default() -> Self {
        CallBatcher(Arc::new(Inner {
            waiting: Mutex::default(),
            permits: Semaphore::new(MAX_CONCURRENT_BATCHES),
        }))
    }
}

impl CallBatcher {
    /// Adds a call. The caller must call `next_batch` once for each call.
    pub(super) fn add(&self, request: Request) -> oneshot::Receiver<Answered> {
        let (sender, answer) = oneshot::channel();
        self.0.waiting.lock().push_back((request, sender));
        answer
    }

    /// Waits for a free permit and takes the waiting calls; `None` where they went with another
    /// batch.
    pub(super) async fn next_batch(&self) -> Option<CallBatch<'_>> {
        // The semaphore is never closed.
        let permit = self.0.permits.acquire().await.ok()?;
        let mut waiting = self.0.waiting.lock();
        let mut bytes = 0;
        let mut fits = |(request, _): &(Request, _)| {
            bytes += request.bytes();
            bytes <= MAX_BATCH_BYTES
        };
        let count = waiting
            .iter()
            .take(MAX_CALLS_PER_BATCH)
            .take_while(|call| fits(call))
            .count()
            .max(1)
            .min(waiting.len());
        let (requests, callers) =
            waiting.drain(..count).filter(|(_, caller)| !caller.is_closed()).unzip();
        let callers = Callers { callers, retry: BoundedRetry::default() };
        Some(CallBatch { requests, callers, _permit: permit })
            .filter(|group| !group.requests.is_empty())
    }
}

/// Calls of one batch.
pub(super) struct CallBatch<'a> {
    pub(super) requests: Vec<Request>,
    pub(super) callers: Callers,
    _permit: SemaphorePermit<'a>,
}

/// The callers, one a request; they share a bounded retry.
pub(super) struct Callers {
    callers: Vec<oneshot::Sender<Answered>>,
    retry: BoundedRetry,
}

impl RetryPolicy for Callers {
    async fn wait(&mut self, error: &StoreError) -> bool {
        self.retry.wait(error).await
    }

    fn is_wanted(&self, index: usize) -> bool {
        self.callers.get(index).is_some_and(|caller| !caller.is_closed())
    }
}

impl Callers {
    /// Sends each caller its answer.
    pub(super) fn answer(self, answers: Vec<Answered>) {
        for (caller, answer) in self.callers.into_iter().zip(answers) {
            // The caller may have gone away.
            let _ = caller.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Action, JobId};
    use crate::request::act_on;

    fn cancel() -> Request {
        Request::Act(act_on(Action::Cancel, JobId::new("a").unwrap(), None))
    }

    #[tokio::test]
    async fn a_call_whose_caller_went_away_is_not_sent_and_not_sent_again() {
        let batcher = CallBatcher::default();
        let (gone, stays, goes) =
            (batcher.add(cancel()), batcher.add(cancel()), batcher.add(cancel()));
        drop(gone);
        let group = batcher.next_batch().await.unwrap();
        assert_eq!(group.requests.len(), 2, "one caller went away before the batch was sent");
        drop(goes);
        assert_eq!([0, 1].map(|index| group.callers.is_wanted(index)), [true, false]);
        drop(stays);
        assert!(batcher.next_batch().await.is_none());
    }
}
