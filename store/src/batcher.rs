//! Batches calls that arrive at the same time. A call goes at once if a turn of its lane is free;
//! the calls that come while every turn is taken share the next batch.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The bounds of each lane.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most batches that are out at once.
    pub batches: usize,
    /// The most requests of one batch, but for a single call with more.
    pub requests: usize,
    /// The most bytes of one batch, but for a single larger call.
    pub bytes: usize,
    /// A call whose caller goes away before its batch is sent is not sent: the caller may have made
    /// another one since, which replaces it.
    pub is_withdrawn: bool,
}

/// The size of a call.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The number of its requests.
    pub requests: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The calls that wait for their batch, in a lane for each key. A batch is answered when its slowest
/// part is, so what may hang by itself has a key of its own.
pub struct Batcher<K, C, A> {
    bounds: Bounds,
    lanes: Mutex<HashMap<K, Arc<Lane<C, A>>>>,
}

struct Lane<C, A> {
    bounds: Bounds,
    state: Mutex<LaneState<C, A>>,
}

struct LaneState<C, A> {
    /// The number of turns that are taken. While calls wait, one is.
    turns: usize,
    waiting: VecDeque<Waiting<C, A>>,
}

struct Waiting<C, A> {
    call: C,
    size: Size,
    caller: oneshot::Sender<A>,
}

impl<K: Eq + Hash, C, A> Batcher<K, C, A> {
    /// A batcher without lanes; each will have these bounds.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Batcher { bounds, lanes: Mutex::default() }
    }

    /// Adds a call to those of its lane. Returns the way of its answer, and the turn if one is
    /// free: a task of its own then sends the batches of that turn, so that a caller may go away and
    /// the others do not.
    pub fn add(&self, key: K, call: C, size: Size) -> (oneshot::Receiver<A>, Option<Turn<C, A>>) {
        let (caller, answer) = oneshot::channel();
        let lane = self.lane(key);
        let is_free = {
            let mut state = lane.state.lock();
            state.waiting.push_back(Waiting { call, size, caller });
            let is_free = state.turns < lane.bounds.batches;
            state.turns += usize::from(is_free);
            is_free
        };
        (answer, is_free.then(|| Turn { lane, is_over: false }))
    }

    fn lane(&self, key: K) -> Arc<Lane<C, A>> {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get(&key) {
            return lane.clone();
        }
        // A lane without a turn may be that of a server that is gone.
        lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        let state = Mutex::new(LaneState { turns: 0, waiting: VecDeque::new() });
        let lane = Arc::new(Lane { bounds: self.bounds, state });
        lanes.insert(key, lane.clone());
        lane
    }
}

/// The right to send the batches of a lane, one after the other, until no call waits. Dropped
/// before, as when a runtime ends or its task panics, it fails the calls that nobody else sends.
#[must_use]
pub struct Turn<C, A> {
    lane: Arc<Lane<C, A>>,
    is_over: bool,
}

impl<C, A> Turn<C, A> {
    /// Takes the waiting calls, but for those that are withdrawn. `None`: no call waits, and the
    /// turn is over.
    pub fn next_batch(&mut self) -> Option<Batch<C, A>> {
        if self.is_over {
            return None;
        }
        let Bounds { requests, bytes, is_withdrawn, .. } = self.lane.bounds;
        let mut state = self.lane.state.lock();
        if is_withdrawn {
            state.waiting.retain(|waiting| !waiting.caller.is_closed());
        }
        if state.waiting.is_empty() {
            state.turns -= 1;
            self.is_over = true;
            return None;
        }
        let (mut all_requests, mut all_bytes) = (0, 0);
        let fits = |Waiting { size, .. }: &&Waiting<C, A>| {
            all_requests += size.requests;
            all_bytes += size.bytes;
            all_requests <= requests && all_bytes <= bytes
        };
        let count = state.waiting.iter().take_while(fits).count().max(1);
        let (calls, callers) =
            state.waiting.drain(..count).map(|taken| (taken.call, Some(taken.caller))).unzip();
        Some(Batch { calls, callers: Callers(callers) })
    }

    /// Ends this turn beside a batch that takes long. Returns another one, for the calls that wait;
    /// `None` if none does.
    pub fn pass_on(&mut self) -> Option<Turn<C, A>> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        let mut state = self.lane.state.lock();
        if state.waiting.is_empty() {
            state.turns -= 1;
            return None;
        }
        Some(Turn { lane: self.lane.clone(), is_over: false })
    }
}

impl<C, A> Drop for Turn<C, A> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.lane.state.lock();
            state.turns -= 1;
            if state.turns == 0 {
                state.waiting.clear();
            }
        }
    }
}

/// Waits for the answers of a batch. `None`: the batch panicked. Whoever sends it still has its
/// turn, and with it the calls that wait.
pub fn caught<T>(answers: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(answers).catch_unwind().map(Result::ok)
}

/// Calls that go together.
pub struct Batch<C, A> {
    /// The calls, in the order in which they came.
    pub calls: Vec<C>,
    /// Their callers.
    pub callers: Callers<A>,
}

/// The callers of a batch, one a call; `None`: the caller has its answer.
pub struct Callers<A>(Vec<Option<oneshot::Sender<A>>>);

impl<A> Callers<A> {
    /// Whether the caller at this index still waits for its answer.
    #[must_use]
    pub fn is_waiting(&self, at: usize) -> bool {
        let caller = self.0.get(at).and_then(Option::as_ref);
        caller.is_some_and(|caller| !caller.is_closed())
    }

    /// Takes the caller at this index out of the batch; `None`: the caller has its answer.
    pub fn take(&mut self, at: usize) -> Option<oneshot::Sender<A>> {
        self.0.get_mut(at).and_then(Option::take)
    }

    /// Sends the caller at this index its answer.
    pub fn answer(&mut self, at: usize, answer: A) {
        if let Some(caller) = self.take(at) {
            // The caller may have gone away.
            let _ = caller.send(answer);
        }
    }

    /// Sends each caller that has none its answer.
    pub fn answer_all(self, answers: impl IntoIterator<Item = A>) {
        for (caller, answer) in self.0.into_iter().zip(answers) {
            if let Some(caller) = caller {
                // The caller may have gone away.
                let _ = caller.send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests;
