//! The shelf between a source and its pump: what was delivered, and what is unsettled.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delivery::Delivery;
use crate::batches::Batches;
use crate::{Batch, BatchId, ConnectorError};

/// What the source and its pump share.
#[derive(Default)]
pub(super) struct Shelf {
    state: Mutex<State>,
    /// For `recv`: something arrived, or the end.
    arrived: Notify,
    /// For the pump: pause, go on, or close; or something was settled.
    pub(super) wake: Notify,
}

#[derive(Default)]
struct State {
    /// By their tags, which rise.
    batches: Batches<u64>,
    /// All tags that are not settled.
    unsettled: BTreeSet<u64>,
    paused: bool,
    closing: bool,
}

/// One word to the broker.
#[derive(Debug, PartialEq)]
pub(super) struct Settle {
    pub(super) tag: u64,
    /// It is for all before it as well.
    pub(super) multiple: bool,
}

impl Shelf {
    /// A batch of what is there, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        self.state.lock().batches.take(count, bytes)
    }

    /// What to say to the broker for a batch that is settled now: one word where nothing before it is unsettled.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Settle> {
        let mut state = self.state.lock();
        let tags = state.batches.settle(batch);
        for tag in &tags {
            state.unsettled.remove(tag);
        }
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
        let mut state = self.state.lock();
        state.unsettled.extend(deliveries.iter().map(|delivery| delivery.tag));
        state.batches.put(deliveries.into_iter().map(|Delivery { message, tag }| (message, tag)));
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
        let shelf = Shelf::default();
        shelf.put((1..=7).map(|tag| Delivery { tag, message: Message::new("x") }).collect());
        let ids: Vec<BatchId> = (0..3).map(|_| shelf.take(2, 100).unwrap().unwrap().id).collect();
        let single = |tag| Settle { tag, multiple: false };
        assert_eq!(shelf.settle(ids[1]), [single(3), single(4)]);
        assert_eq!(shelf.settle(ids[0]), [Settle { tag: 2, multiple: true }]);
        assert_eq!(shelf.settle(ids[2]), [Settle { tag: 6, multiple: true }]);
        assert_eq!(shelf.settle(ids[2]), []);
    }
}
