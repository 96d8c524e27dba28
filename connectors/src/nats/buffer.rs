//! The buffer between a source and its reader: delivered and unsettled messages, and the room left.

use async_nats::Subject;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delivery::Delivery;
use super::fetch_budget::{Delivered, FetchBudget, Request};
use crate::batches::Batches;
use crate::{Batch, BatchId, ConnectorError, SourceOptions};

/// The state shared by a source and its reader.
pub(super) struct DeliveryBuffer {
    state: Mutex<BufferState>,
    /// For `recv`: a delivery, or the end.
    arrived: Notify,
    /// For the reader: room, or close.
    pub(super) wake: Notify,
}

struct BufferState {
    batches: Batches<PendingAck>,
    budget: FetchBudget,
    paused: bool,
    closing: bool,
}

/// A delivered message: the reply subject of its acknowledgement, and its memory in bytes.
struct PendingAck {
    reply: Subject,
    bytes: usize,
}

impl DeliveryBuffer {
    /// `largest`: the most bytes of a message on the wire.
    pub(super) fn new(options: &SourceOptions, largest: usize) -> Self {
        let budget = FetchBudget::new(options.max_unsettled, options.max_unsettled_bytes, largest);
        let state =
            BufferState { batches: Batches::default(), budget, paused: false, closing: false };
        DeliveryBuffer { state: Mutex::new(state), arrived: Notify::new(), wake: Notify::new() }
    }

    /// A batch of the buffered messages, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        self.state.lock().batches.take(count, bytes)
    }

    /// The reply subjects of a batch that is settled now.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Subject> {
        let mut state = self.state.lock();
        let places = state.batches.settle(batch);
        state.budget.settled(places.len(), places.iter().map(|place| place.bytes).sum());
        places.into_iter().map(|place| place.reply).collect()
    }

    /// Waits for a delivery, or the end.
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

    /// The next fetch request, if any.
    pub(super) fn ask(&self) -> Option<Request> {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.budget.expire(now);
        if state.paused || state.closing { None } else { state.budget.ask(now) }
    }

    /// Limits requests to few messages, or lifts the limit.
    pub(super) fn set_cautious(&self, cautious: bool) {
        self.state.lock().budget.set_cautious(cautious);
    }

    /// Drops all open requests. Returns the number of messages that there is room for, and the
    /// number of messages that the dropped requests left open.
    pub(super) fn cancel_requests(&self) -> (usize, usize) {
        let mut state = self.state.lock();
        let asked = state.budget.asked();
        state.budget.cancel_requests();
        (state.budget.left(), asked)
    }

    /// Records that a request ended because the next message exceeded its remaining bytes.
    pub(super) fn too_large(&self, left: usize) {
        self.state.lock().budget.too_large(left);
    }

    /// Whether the source closes, the number of requested and undelivered messages, and when the
    /// oldest request expires (in `ask`, which then requests again).
    pub(super) fn status(&self) -> (bool, usize, Option<Instant>) {
        let state = self.state.lock();
        (state.closing, state.budget.asked(), state.budget.stale())
    }

    /// Adds deliveries to the buffer; `ended`: requested messages that will not come.
    pub(super) fn put(&self, deliveries: Vec<Delivery>, ended: usize) {
        let mut state = self.state.lock();
        let wire = deliveries.iter().map(|delivery| delivery.wire).sum();
        let places = deliveries
            .into_iter()
            .map(|Delivery { message, reply, bytes, .. }| (message, PendingAck { reply, bytes }));
        let places: Vec<_> = places.collect();
        let came = Delivered {
            count: places.len(),
            wire,
            bytes: places.iter().map(|(_, place)| place.bytes).sum(),
        };
        state.budget.came(came, ended);
        state.batches.put(places);
        drop(state);
        self.arrived.notify_one();
    }

    /// The reply subjects of all unsettled messages.
    pub(super) fn unsettled(&self) -> Vec<Subject> {
        self.state.lock().batches.unsettled().map(|place| place.reply.clone()).collect()
    }

    /// Ends the source: no more messages come, and none can be settled.
    pub(super) fn end(&self, error: &ConnectorError) {
        self.state.lock().batches.end(error);
        self.arrived.notify_one();
    }
}
