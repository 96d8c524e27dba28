//! The buffer between a source and its reader: what was delivered, what is unsettled, and how much room there is.

use async_nats::Subject;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delivery::Delivery;
use super::fetch_budget::{Delivered, FetchBudget, Request};
use crate::batches::Batches;
use crate::{Batch, BatchId, ConnectorError, SourceOptions};

/// What the source and its reader share.
pub(super) struct DeliveryBuffer {
    state: Mutex<State>,
    /// For `recv`: something arrived, or the end.
    arrived: Notify,
    /// For the reader: there is room, or it shall close.
    pub(super) wake: Notify,
}

struct State {
    batches: Batches<PendingAck>,
    budget: FetchBudget,
    paused: bool,
    closing: bool,
}

/// A delivered message: where the server waits for a word on it, and how much room it takes.
struct PendingAck {
    reply: Subject,
    bytes: usize,
}

impl DeliveryBuffer {
    /// A message takes at most `largest` bytes.
    pub(super) fn new(options: &SourceOptions, largest: usize) -> Self {
        let budget = FetchBudget::new(options.max_unsettled, options.max_unsettled_bytes, largest);
        let state = State { batches: Batches::default(), budget, paused: false, closing: false };
        DeliveryBuffer { state: Mutex::new(state), arrived: Notify::new(), wake: Notify::new() }
    }

    /// A batch of what is there, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        self.state.lock().batches.take(count, bytes)
    }

    /// Where to answer for the messages of a batch that is settled now.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Subject> {
        let mut state = self.state.lock();
        let places = state.batches.settle(batch);
        state.budget.settled(places.len(), places.iter().map(|place| place.bytes).sum());
        places.into_iter().map(|place| place.reply).collect()
    }

    /// Waits until something arrived, or the end.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Tells the reader that there may be room.
    pub(super) fn wake_reader(&self) {
        self.wake.notify_one();
    }

    pub(super) fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
        self.wake.notify_one();
    }

    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.wake.notify_one();
    }

    /// What to ask for now, if anything.
    pub(super) fn ask(&self) -> Option<Request> {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.budget.expire(now);
        if state.paused || state.closing { None } else { state.budget.ask(now) }
    }

    /// Whether to ask for little at once.
    pub(super) fn be_careful(&self, careful: bool) {
        self.state.lock().budget.be_careful(careful);
    }

    /// What was asked for and is not here will not come. Gives how many more messages there is room for.
    pub(super) fn nothing_comes(&self) -> usize {
        let mut state = self.state.lock();
        state.budget.nothing_comes();
        state.budget.left()
    }

    /// A request ended before a message that did not fit into the bytes that were left of it.
    pub(super) fn too_large(&self, left: usize) {
        self.state.lock().budget.too_large(left);
    }

    /// Whether the source closes, how many messages are asked for and not delivered, and when a request of them is given up (by `ask`, which then
    /// asks again).
    pub(super) fn outlook(&self) -> (bool, usize, Option<Instant>) {
        let state = self.state.lock();
        (state.closing, state.budget.asked(), state.budget.stale())
    }

    /// Takes in what was delivered; `ended` more will not come of what was asked for.
    pub(super) fn put(&self, deliveries: Vec<Delivery>, ended: usize) {
        let mut state = self.state.lock();
        let wire = deliveries.iter().map(|delivery| delivery.wire).sum();
        let places = deliveries.into_iter().map(|Delivery { message, reply, bytes, .. }| (message, PendingAck { reply, bytes }));
        let places: Vec<_> = places.collect();
        let came = Delivered { count: places.len(), wire, bytes: places.iter().map(|(_, place)| place.bytes).sum() };
        state.budget.came(came, ended);
        state.batches.put(places);
        drop(state);
        self.arrived.notify_one();
    }

    /// Where to answer for everything that is unsettled.
    pub(super) fn unsettled(&self) -> Vec<Subject> {
        self.state.lock().batches.unsettled().map(|place| place.reply.clone()).collect()
    }

    /// Nothing more will come, and nothing can be settled.
    pub(super) fn end(&self, error: &ConnectorError) {
        self.state.lock().batches.end(error);
        self.arrived.notify_one();
    }
}
