//! Calls that arrive together: they leave as one batch, because each pass of the durability gate may take a second.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::request::Request;
use crate::store::error::StoreError;
use crate::store::inbound::Answer;

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
        let (requests, callers) = waiting.drain(..count).unzip();
        Some(Group { requests, callers, _place: place }).filter(|group| !group.requests.is_empty())
    }
}

/// Calls that left together.
pub(super) struct Group<'a> {
    pub(super) requests: Vec<Request>,
    callers: Vec<oneshot::Sender<Answered>>,
    _place: SemaphorePermit<'a>,
}

impl Group<'_> {
    /// Answers each.
    pub(super) fn answer(self, answers: Vec<Answered>) {
        for (caller, answer) in self.callers.into_iter().zip(answers) {
            // It may have gone away.
            let _ = caller.send(answer);
        }
    }
}
