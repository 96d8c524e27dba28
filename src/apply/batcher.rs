//! Batches requests that arrive at the same time, because each pass of the durability gate may take
//! a second.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Apply, BoundedRetry, RetryPolicy};
use crate::batcher::{Batch, Batcher, Bounds, Callers, Size, Turn, caught};
use crate::clock;
use crate::request::Request;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::batch::Answer;

/// The bounds of one batch for one master.
const MAX_REQUESTS: usize = 1024;
const MAX_BYTES: usize = 4 << 20;
/// The longest time that requests wait for a batch that takes long, where one runs at once: a batch
/// may read large jobs, or follow a slot that moves.
const MAX_TURN: Duration = Duration::from_millis(500);

type Answered = Result<Answer, StoreError>;

/// The requests of callers that wait for their batch, in a lane for each master; `None`: there is no
/// cluster. Clones share them.
#[derive(Clone)]
pub struct CallBatcher {
    lanes: Arc<Batcher<Option<String>, Request, Answered>>,
    /// After this time the requests that wait go beside the batch. `None`: others run beside it.
    max_turn: Option<Duration>,
}

impl CallBatcher {
    /// At most so many batches run at once for one master: as many as wait side by side at the
    /// durability gate. Where none waits, one: what arrives meanwhile is the next batch, and more at
    /// once would be smaller and cost more. A batch that takes long delays no later one by more than
    /// half a second.
    #[must_use]
    pub fn new(batches: usize) -> Self {
        let bounds =
            Bounds { batches, requests: MAX_REQUESTS, bytes: MAX_BYTES, is_withdrawn: true };
        let max_turn = (batches == 1).then_some(MAX_TURN);
        CallBatcher { lanes: Arc::new(Batcher::new(bounds)), max_turn }
    }

    /// As [`Batcher::add`].
    pub(super) fn add(
        &self,
        master: Option<String>,
        request: Request,
    ) -> (oneshot::Receiver<Answered>, Option<Turn<Request, Answered>>) {
        let size = Size { requests: 1, bytes: request.bytes() };
        self.lanes.add(master, request, size)
    }
}

/// Sends the batches of a turn, in a task of its own: a caller may go away, and the others do not.
pub(super) fn send_batches(apply: Apply, turn: Turn<Request, Answered>) {
    tokio::spawn(async move {
        let (turn, max_turn) = (Arc::new(Mutex::new(turn)), apply.batcher.max_turn);
        loop {
            let batch = turn.lock().next_batch();
            let Some(Batch { mut calls, callers }) = batch else { return };
            let (another, beside, taken) = (apply.clone(), apply.clone(), turn.clone());
            let mut of_batch = BatchCallers {
                callers,
                retry: BoundedRetry::default(),
                turn: turn.clone(),
                start: move |next| send_batches(another.clone(), next),
            };
            let pass_on = move || pass_on(&taken, |next| send_batches(beside.clone(), next));
            let count = calls.len();
            let passing = caught(apply.all(&mut calls, &mut of_batch));
            let answers = within_turn(max_turn, passing, pass_on).await;
            let answers = answers.unwrap_or_else(|| {
                vec![Err(StoreError::new(Class::Other, "redis: a batch panicked")); count]
            });
            of_batch.callers.answer_all(answers);
        }
    });
}

/// Waits for a batch. What waits behind the batch goes beside it if the batch takes long.
async fn within_turn<T>(
    max_turn: Option<Duration>,
    batch: impl Future<Output = T>,
    pass_on: impl FnOnce(),
) -> T {
    let mut batch = std::pin::pin!(batch);
    if let Some(max_turn) = max_turn {
        if let Some(answers) = clock::timeout(max_turn, batch.as_mut()).await {
            return answers;
        }
        pass_on();
    }
    batch.await
}

/// Ends this turn; `start` sends the batches of another one, if calls wait.
fn pass_on(turn: &Mutex<Turn<Request, Answered>>, start: impl Fn(Turn<Request, Answered>)) {
    let next = turn.lock().pass_on();
    if let Some(next) = next {
        start(next);
    }
}

/// The callers of a batch; they share a bounded retry.
struct BatchCallers<F> {
    callers: Callers<Answered>,
    retry: BoundedRetry,
    /// The turn of the first try.
    turn: Arc<Mutex<Turn<Request, Answered>>>,
    /// Sends the batches of another turn.
    start: F,
}

impl<F: Fn(Turn<Request, Answered>) + Send> RetryPolicy for BatchCallers<F> {
    async fn wait(&mut self, error: &StoreError) -> bool {
        // Later calls do not wait for the repeats of these.
        pass_on(&self.turn, &self.start);
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
        let turn = Arc::new(Mutex::new(turn));
        let (start, started) = mpsc::channel();
        let start = move |next| start.send(next).unwrap();
        let mut batch = BatchCallers { callers, retry: BoundedRetry::default(), turn, start };
        let answer: Answered = Ok(Answer::of(Verdict::Cancelled));
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

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_takes_long_delays_a_later_one_by_half_a_second() {
        let batcher = CallBatcher::new(1);
        let (_first, turn) = batcher.add(None, cancel());
        let mut turn = turn.unwrap();
        let slow = turn.next_batch().unwrap();
        let _later = batcher.add(None, cancel()).0;
        let (turn, begun) = (Mutex::new(turn), clock::now());
        let (start, started) = mpsc::channel();
        let batch = async {
            clock::sleep(Duration::from_secs(3)).await;
            slow.calls.len()
        };
        let start = |next| start.send((next, clock::now() - begun)).unwrap();
        let answers = within_turn(batcher.max_turn, batch, || pass_on(&turn, start)).await;
        assert_eq!((answers, clock::now() - begun), (1, Duration::from_secs(3)));
        let (mut next, after): (Turn<Request, Answered>, Duration) = started.try_recv().unwrap();
        assert_eq!((next.next_batch().unwrap().calls.len(), after), (1, MAX_TURN));
        assert!(turn.lock().next_batch().is_none(), "this turn is over");
        assert_eq!(CallBatcher::new(4).max_turn, None, "others run beside the batch");
    }
}
