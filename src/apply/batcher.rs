//! Batches calls that arrive at the same time, because each pass of the durability gate may take a
//! second.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{BoundedRetry, RetryPolicy};
use crate::request::Request;
use crate::store::error::StoreError;
use crate::store::queue::batch::Answer;

/// The most batches for one master that run at once: as many as wait side by side at the gate.
/// Later calls go with the next batch.
const MAX_CONCURRENT_BATCHES: usize = 4;
/// The most calls of one batch.
const MAX_CALLS_PER_BATCH: usize = 1024;
/// The most bytes of bodies in one batch, but for a single larger one.
const MAX_BATCH_BYTES: usize = 4 << 20;

type Answered = Result<Answer, StoreError>;

/// The calls that wait for their batch, by the master that has their jobs. A batch is answered when
/// its slowest part is, so a master that hangs must be in no batch of the others. `None`: there is
/// no cluster.
#[derive(Clone, Default)]
pub struct CallBatcher(Arc<Mutex<HashMap<Option<String>, Arc<Lane>>>>);

/// The calls for one master.
pub(super) struct Lane {
    waiting: Mutex<VecDeque<(Request, oneshot::Sender<Answered>)>>,
    permits: Arc<Semaphore>,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            waiting: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_BATCHES)),
        }
    }
}

impl CallBatcher {
    /// Adds a call to those for its master. The caller must call [`Lane::next_batch`] once for each
    /// call, and keep the lane until then.
    pub(super) fn add(
        &self,
        master: Option<String>,
        request: Request,
    ) -> (Arc<Lane>, oneshot::Receiver<Answered>) {
        let (sender, answer) = oneshot::channel();
        let lane = self.lane(master);
        lane.waiting.lock().push_back((request, sender));
        (lane, answer)
    }

    fn lane(&self, master: Option<String>) -> Arc<Lane> {
        let mut lanes = self.0.lock();
        if let Some(lane) = lanes.get(&master) {
            return lane.clone();
        }
        // A lane that no call keeps may be that of a master that is gone.
        lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        lanes.entry(master).or_default().clone()
    }
}

impl Lane {
    /// Waits for a free permit and takes the waiting calls; `None` where they went with another
    /// batch.
    pub(super) async fn next_batch(&self) -> Option<CallBatch> {
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        let mut waiting = self.waiting.lock();
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
        let (requests, callers) = waiting
            .drain(..count)
            .filter(|(_, caller)| !caller.is_closed())
            .map(|(request, caller)| (request, Some(caller)))
            .unzip();
        let callers = Callers { callers, retry: BoundedRetry::default(), permit: Some(permit) };
        Some(CallBatch { requests, callers }).filter(|group| !group.requests.is_empty())
    }
}

/// Calls of one batch.
pub(super) struct CallBatch {
    pub(super) requests: Vec<Request>,
    pub(super) callers: Callers,
}

/// The callers, one a request; they share a bounded retry.
pub(super) struct Callers {
    /// `None`: the caller has its answer.
    callers: Vec<Option<oneshot::Sender<Answered>>>,
    retry: BoundedRetry,
    /// The permit of the first try.
    permit: Option<OwnedSemaphorePermit>,
}

impl RetryPolicy for Callers {
    async fn wait(&mut self, error: &StoreError) -> bool {
        // Later calls do not wait for the repeats of these.
        drop(self.permit.take());
        self.retry.wait(error).await
    }

    fn is_wanted(&self, index: usize) -> bool {
        let caller = self.callers.get(index).and_then(Option::as_ref);
        caller.is_some_and(|caller| !caller.is_closed())
    }

    fn answered(&mut self, index: usize, answer: &Answered) {
        if let Some(caller) = self.callers.get_mut(index).and_then(Option::take) {
            // The caller may have gone away.
            let _ = caller.send(answer.clone());
        }
    }
}

impl Callers {
    /// Sends each caller that has none its answer.
    pub(super) fn answer(self, answers: Vec<Answered>) {
        for (caller, answer) in self.callers.into_iter().zip(answers) {
            if let Some(caller) = caller {
                // The caller may have gone away.
                let _ = caller.send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::job::{Action, JobId, Verdict};
    use crate::request::act_on;
    use crate::store::error::Class;

    fn cancel() -> Request {
        Request::Act(act_on(Action::Cancel, JobId::new("a").unwrap(), None))
    }

    #[tokio::test]
    async fn a_call_whose_caller_went_away_is_not_sent_and_not_sent_again() {
        let batcher = CallBatcher::default();
        let (lane, gone) = batcher.add(None, cancel());
        let ((_, stays), (_, goes)) = (batcher.add(None, cancel()), batcher.add(None, cancel()));
        drop(gone);
        let group = lane.next_batch().await.unwrap();
        assert_eq!(group.requests.len(), 2, "one caller went away before the batch was sent");
        drop(goes);
        assert_eq!([0, 1].map(|index| group.callers.is_wanted(index)), [true, false]);
        drop(stays);
        assert!(lane.next_batch().await.is_none());
    }

    #[tokio::test]
    async fn a_master_that_hangs_holds_up_no_call_for_another() {
        let batcher = CallBatcher::default();
        let add = |master: &str| batcher.add(Some(master.to_owned()), cancel());
        let mut hanging = Vec::new();
        for _ in 0..MAX_CONCURRENT_BATCHES {
            let (lane, answer) = add("hangs");
            hanging.push((lane.next_batch().await.unwrap(), answer));
        }
        let (lane, _waits) = add("hangs");
        assert!(lane.next_batch().now_or_never().is_none(), "every permit is taken");
        let (other, _answer) = add("answers");
        let group = other.next_batch().now_or_never().flatten().unwrap();
        assert_eq!(group.requests.len(), 1);
        drop(hanging);
        assert!(lane.next_batch().now_or_never().flatten().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_no_repeat_of_another() {
        let batcher = CallBatcher::default();
        let (lane, stored) = batcher.add(None, cancel());
        let (_, fails) = batcher.add(None, cancel());
        let mut group = lane.next_batch().await.unwrap();
        let answer: Answered = Ok(Answer { verdict: Verdict::Cancelled, due_ms: None });
        group.callers.answered(0, &answer);
        assert_eq!(stored.await.unwrap().unwrap().verdict, Verdict::Cancelled);
        assert_eq!([0, 1].map(|index| group.callers.is_wanted(index)), [false, true]);
        assert_eq!(lane.permits.available_permits(), MAX_CONCURRENT_BATCHES - 1);
        let error = StoreError::new(Class::Timeout, "redis: no answer");
        assert!(group.callers.wait(&error).now_or_never().is_none());
        let free = lane.permits.available_permits();
        assert_eq!(free, MAX_CONCURRENT_BATCHES, "it is tried again beside later batches");
        group.callers.answer(vec![answer, Err(error)]);
        assert_eq!(fails.await.unwrap().unwrap_err().class, Class::Timeout);
    }

    #[test]
    fn a_master_that_is_gone_leaves_nothing_behind() {
        let batcher = CallBatcher::default();
        for number in 0..10 {
            drop(batcher.add(Some(format!("host-{number}:6379")), cancel()));
        }
        assert_eq!(batcher.0.lock().len(), 1);
    }
}
