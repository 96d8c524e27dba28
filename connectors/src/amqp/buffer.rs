//! The buffer between a source and its reader: what was delivered, and what is unsettled.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delivery::Delivery;
use super::gate::Gate;
use crate::batches::Batches;
use crate::{Batch, BatchId, ConnectorError};

/// What the source and its reader share.
pub(super) struct DeliveryBuffer {
    state: Mutex<State>,
    /// Told what takes how much.
    gate: Arc<Gate>,
    /// For `recv`: something arrived, or the end.
    arrived: Notify,
    /// For the reader: pause, go on, or close; or something was settled.
    pub(super) wake: Notify,
}

#[derive(Default)]
struct State {
    batches: Batches<PendingAck>,
    /// All tags that are not settled.
    unsettled: BTreeSet<u64>,
    paused: bool,
    closing: bool,
}

/// A delivered message: its tag, which rise, and how much it takes.
struct PendingAck {
    tag: u64,
    bytes: usize,
}

/// One word to the broker.
#[derive(Debug, PartialEq)]
pub(super) struct Settle {
    pub(super) tag: u64,
    /// It is for all before it as well.
    pub(super) multiple: bool,
}

impl DeliveryBuffer {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        DeliveryBuffer { state: Mutex::default(), gate, arrived: Notify::new(), wake: Notify::new() }
    }

    /// A batch of what is there, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        self.state.lock().batches.take(count, bytes)
    }

    /// What to say to the broker for a batch that is settled now: one word where nothing before it is unsettled.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Settle> {
        let mut state = self.state.lock();
        let places = state.batches.settle(batch);
        let tags: Vec<u64> = places.iter().map(|place| place.tag).collect();
        for tag in &tags {
            state.unsettled.remove(tag);
        }
        self.gate.settled(places.iter().map(|place| place.bytes).sum());
        // There may be room to read again.
        self.wake.notify_one();
        match tags.last() {
            Some(last) if state.unsettled.first().is_none_or(|first| first > last) => vec![Settle { tag: *last, multiple: true }],
            _ => tags.into_iter().map(|tag| Settle { tag, multiple: false }).collect(),
        }
    }

    /// How many are delivered and not settled.
    pub(super) fn unsettled(&self) -> usize {
        self.state.lock().unsettled.len()
    }

    /// Waits until something arrived, or the end.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(super) fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
        self.wake.notify_one();
    }

    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.wake.notify_one();
    }

    /// Whether the source is paused, and whether it closes.
    pub(super) fn outlook(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.paused, state.closing)
    }

    /// Takes in what was delivered.
    pub(super) fn put(&self, deliveries: Vec<Delivery>) {
        let places = deliveries.into_iter().map(|Delivery { message, tag, bytes }| (message, PendingAck { tag, bytes }));
        let places: Vec<_> = places.collect();
        self.gate.came(places.len(), places.iter().map(|(_, place)| place.bytes).sum());
        let mut state = self.state.lock();
        state.unsettled.extend(places.iter().map(|(_, place)| place.tag));
        state.batches.put(places);
        drop(state);
        self.arrived.notify_one();
    }

    /// Nothing more will come, and nothing can be settled.
    pub(super) fn end(&self, error: &ConnectorError) {
        self.state.lock().batches.end(error);
        self.arrived.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn one_word_settles_a_batch_only_where_nothing_before_it_is_open() {
        let buffer = DeliveryBuffer::new(Arc::new(Gate::new(100)));
        buffer.put((1..=7).map(|tag| Delivery { tag, message: Message::new("x"), bytes: 1 }).collect());
        let ids: Vec<BatchId> = (0..3).map(|_| buffer.take(2, 10_000).unwrap().unwrap().id).collect();
        let single = |tag| Settle { tag, multiple: false };
        assert_eq!(buffer.settle(ids[1]), [single(3), single(4)]);
        assert_eq!(buffer.settle(ids[0]), [Settle { tag: 2, multiple: true }]);
        assert_eq!(buffer.settle(ids[2]), [Settle { tag: 6, multiple: true }]);
        assert_eq!(buffer.settle(ids[2]), []);
    }
}
