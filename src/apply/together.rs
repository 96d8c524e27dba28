//! Calls that arrive together: they leave as one batch, because each pass of the durability gate may take a second.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::{Few, Patience};
use crate::request::Request;
use crate::store::error::StoreError;
use crate::store::schedule::Answer;

/// The most batches that are under way at a time: as many as wait side by side at the gate. Who comes meanwhile leaves with the next.
const UNDER_WAY: usize = 4;
/// The most calls of one batch.
const CALLS: usize = 1024;
/// The most bytes of bodies of one batch, but for a single larger one.
const BYTES: usize = 4 << 20;

type Answered = Result<Answer, StoreError>;

/// The calls that wait to leave.
#[derive(Clone)]
pub struct Together(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<(Request, oneshot::Sender<Answered>)>>,
    places: Semaphore,
}

impl Default for Together {
    fn default() -> Self {
        Together(Arc::new(Inner { waiting: Mutex::default(), places: Semaphore::new(UNDER_WAY) }))
    }
}

impl Together {
    /// Waits with the others; `leave` is to be called once for each.
    pub(super) fn join(&self, request: Request) -> oneshot::Receiver<Answered> {
        let (sender, answer) = oneshot::channel();
        self.0.waiting.lock().push_back((request, sender));
        answer
    }

    /// Those that wait by the time that there is a place; `None` where they have left with another.
    pub(super) async fn leave(&self) -> Option<Group<'_>> {
        // It is never closed.
        let place = self.0.places.acquire().await.ok()?;
        let mut waiting = self.0.waiting.lock();
        let mut bytes = 0;
        let mut fits = |(request, _): &(Request, _)| {
            bytes += request.bytes();
            bytes <= BYTES
        };
        let count = waiting.iter().take(CALLS).take_while(|call| fits(call)).count().max(1).min(waiting.len());
        let (requests, callers) = waiting.drain(..count).filter(|(_, caller)| !caller.is_closed()).unzip();
        let callers = Callers { callers, few: Few::default() };
        Some(Group { requests, callers, _place: place }).filter(|group| !group.requests.is_empty())
    }
}

/// Calls that left together.
pub(super) struct Group<'a> {
    pub(super) requests: Vec<Request>,
    pub(super) callers: Callers,
    _place: SemaphorePermit<'a>,
}

/// Who asked, one a request; they have the patience of a person.
pub(super) struct Callers {
    callers: Vec<oneshot::Sender<Answered>>,
    few: Few,
}

impl Patience for Callers {
    async fn again(&mut self, error: &StoreError) -> bool {
        self.few.again(error).await
    }

    fn is_wanted(&self, place: usize) -> bool {
        self.callers.get(place).is_some_and(|caller| !caller.is_closed())
    }
}

impl Callers {
    /// Answers each.
    pub(super) fn answer(self, answers: Vec<Answered>) {
        for (caller, answer) in self.callers.into_iter().zip(answers) {
            // It may have gone away.
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
        let together = Together::default();
        let (gone, stays, goes) = (together.join(cancel()), together.join(cancel()), together.join(cancel()));
        drop(gone);
        let group = together.leave().await.unwrap();
        assert_eq!(group.requests.len(), 2, "it went away before they left");
        drop(goes);
        assert_eq!([0, 1].map(|place| group.callers.is_wanted(place)), [true, false]);
        drop(stays);
        assert!(together.leave().await.is_none());
    }
}
