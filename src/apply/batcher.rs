//! Batches requests that arrive at the same time, because each pass of the durability gate may take
//! a second.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Apply, BoundedRetry, RetryPolicy};
use crate::batcher::{Batch, Batcher, Bounds, Callers, Size, Turn, caught};
use crate::request::Request;
use crate::store::error::{Class, StoreError};
use crate::store::queue::batch::Answer;

/// The bounds of one batch for one master.
const MAX_REQUESTS: usize = 1024;
const MAX_BYTES: usize = 4 << 20;

type Answered = Result<Answer, StoreError>;

/// The requests of callers that wait for their batch, in a lane for each master; `None`: there is no
/// cluster. Clones share them.
#[derive(Clone)]
pub struct CallBatcher(Arc<Batcher<Option<String>, Request, Answered>>);

impl CallBatcher {
    /// At most so many batches run at once for one master: as many as wait side by side at the
    /// durability gate. Where none waits, one: what arrives meanwhile is the next batch, and more at
    /// once would be smaller and cost more.
    #[must_use]
    pub fn new(batches: usize) -> Self {
        CallBatcher(Arc::new(Batcher::new(Bounds {
            batches,
            requests: MAX_REQUESTS,
            bytes: MAX_BYTES,
            is_withdrawn: true,
        })))
    }

    /// As [`Batcher::add`].
    pub(super) fn add(
        &self,
        master: Option<String>,
        request: Request,
    ) -> (oneshot::Receiver<Answered>, Option<Turn<Request, Answered>>) {
        let size = Size { requests: 1, bytes: request.bytes() };
        self.0.add(master, request, size)
    }
}

/// Sends the batches of a turn, in a task of its own: a caller may go away, and the others do not.
pub(super) fn send_batches(apply: Apply, mut turn: Turn<Request, Answered>) {
    tokio::spawn(async move {
        while let Some(Batch { mut calls, callers }) = turn.next_batch() {
            let another = apply.clone();
            let mut of_batch = BatchCallers {
                callers,
                retry: BoundedRetry::default(),
                turn,
                start: move |next| send_batches(another.clone(), next),
            };
            let count = calls.len();
            let answers = caught(apply.all(&mut calls, &mut of_batch)).await.unwrap_or_else(|| {
                vec![Err(StoreError::new(Class::Other, "redis: a batch panicked")); count]
            });
            of_batch.callers.answer_all(answers);
            turn = of_batch.turn;
        }
    });
}

/// The callers of a batch; they share a bounded retry.
struct BatchCallers<F> {
    callers: Callers<Answered>,
    retry: BoundedRetry,
    /// The turn of the first try.
    turn: Turn<Request, Answered>,
    /// Sends the batches of another turn.
    start: F,
}

impl<F: Fn(Turn<Request, Answered>) + Send> RetryPolicy for BatchCallers<F> {
    async fn wait(&mut self, error: &StoreError) -> bool {
        // Later calls do not wait for the repeats of these.
        if let Some(next) = self.turn.pass_on() {
            (self.start)(next);
        }
        self.retry.wait(error).await
    }

    fn is_wanted(&self, place: usize) -> bool {
        self.callers.is_waiting(place)
    }

    fn answered(&mut self, place: usize, answer: &Answered) {
        self.callers.answer(place, answer.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;
    use crate::job::{Action, JobId, Verdict};
    use crate::request::act_on;

    fn cancel() -> Request {
        Request::Act(act_on(Action::Cancel, JobId::new("a").unwrap(), None))
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_no_repeat_of_another() {
        let batcher = CallBatcher::new(1);
        let (stored, turn) = batcher.add(None, cancel());
        let fails = batcher.add(None, cancel()).0;
        let mut turn = turn.unwrap();
        let Batch { calls, callers } = turn.next_batch().unwrap();
        assert_eq!(calls.len(), 2);
        let (start, started) = mpsc::channel();
        let start = move |next| start.send(next).unwrap();
        let mut batch = BatchCallers { callers, retry: BoundedRetry::default(), turn, start };
        let answer: Answered = Ok(Answer { verdict: Verdict::Cancelled, due_ms: None });
        batch.answered(0, &answer);
        assert_eq!(stored.await.unwrap().unwrap().verdict, Verdict::Cancelled);
        assert_eq!([0, 1].map(|place| batch.is_wanted(place)), [false, true]);
        let _later = batcher.add(None, cancel()).0;
        let error = StoreError::new(Class::Timeout, "redis: no answer");
        assert!(batch.wait(&error).now_or_never().is_none());
        let mut next: Turn<Request, Answered> = started.try_recv().unwrap();
        let later = next.next_batch().unwrap();
        assert_eq!(later.calls.len(), 1, "the batch is tried again beside later ones");
        batch.callers.answer_all([answer, Err(error)]);
        assert_eq!(fails.await.unwrap().unwrap_err().class, Class::Timeout);
    }
}
