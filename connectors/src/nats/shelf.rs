//! The shelf between a source and its pump: what was delivered, what is unsettled, and how much room there is.

use async_nats::Subject;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delivery::Delivery;
use crate::batches::Batches;
use crate::{Batch, BatchId, ConnectorError, SourceOptions};

/// The most messages of one request.
const REQUEST: usize = 4096;
/// The most messages that are asked for at once while more may come that end the line: what is on its way behind one waits for `ack_wait`.
const CAREFUL: usize = 64;

/// What the source and its pump share.
pub(super) struct Shelf {
    state: Mutex<State>,
    /// For `recv`: something arrived, or the end.
    arrived: Notify,
    /// For the pump: there is room, or it shall close.
    pub(super) wake: Notify,
    max_unsettled: usize,
}

#[derive(Default)]
struct State {
    /// By where the server waits for a word on them.
    batches: Batches<Subject>,
    /// Delivered and not settled.
    unsettled: usize,
    /// Asked for and not delivered.
    asked: usize,
    careful: bool,
    paused: bool,
    closing: bool,
}

impl Shelf {
    pub(super) fn new(options: &SourceOptions) -> Self {
        Shelf { state: Mutex::default(), arrived: Notify::new(), wake: Notify::new(), max_unsettled: options.max_unsettled }
    }

    /// A batch of what is there, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        self.state.lock().batches.take(count, bytes)
    }

    /// Where to answer for the messages of a batch that is settled now.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Subject> {
        let mut state = self.state.lock();
        let replies = state.batches.settle(batch);
        state.unsettled -= replies.len();
        replies
    }

    /// Waits until something arrived, or the end.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Tells the pump that there may be room.
    pub(super) fn wake_pump(&self) {
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

    /// How many messages to ask for now. Small requests are saved up, unless nothing is asked for.
    pub(super) fn ask(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.paused || state.closing {
            return None;
        }
        let most = if state.careful { CAREFUL.min(self.max_unsettled) } else { self.max_unsettled };
        let room = self.max_unsettled.saturating_sub(state.unsettled + state.asked).min(most.saturating_sub(state.asked)).min(REQUEST);
        let worth = state.asked == 0 || room >= REQUEST.min(most / 4);
        if room == 0 || !worth {
            return None;
        }
        state.asked += room;
        Some(room)
    }

    /// Whether to ask for little at once.
    pub(super) fn be_careful(&self, careful: bool) {
        self.state.lock().careful = careful;
    }

    /// What was asked for and is not here will not come. Gives how many more messages there is room for.
    pub(super) fn nothing_comes(&self) -> usize {
        let mut state = self.state.lock();
        state.asked = 0;
        self.max_unsettled.saturating_sub(state.unsettled)
    }

    /// Whether the source closes, and how many messages are asked for and not delivered.
    pub(super) fn outlook(&self) -> (bool, usize) {
        let state = self.state.lock();
        (state.closing, state.asked)
    }

    /// Takes in what was delivered; `ended` more will not come of what was asked for.
    pub(super) fn put(&self, deliveries: Vec<Delivery>, ended: usize) {
        let mut state = self.state.lock();
        state.asked = state.asked.saturating_sub(deliveries.len().saturating_add(ended));
        state.unsettled += deliveries.len();
        state.batches.put(deliveries.into_iter().map(|Delivery { message, reply }| (message, reply)));
        drop(state);
        self.arrived.notify_one();
    }

    /// Where to answer for everything that is unsettled.
    pub(super) fn unsettled(&self) -> Vec<Subject> {
        self.state.lock().batches.unsettled().cloned().collect()
    }

    /// Nothing more will come, and nothing can be settled.
    pub(super) fn end(&self, error: &ConnectorError) {
        self.state.lock().batches.end(error);
        self.arrived.notify_one();
    }
}
