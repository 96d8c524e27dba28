//! The shelf between a source and its pump: what was delivered, and what is unsettled.

use std::collections::{BTreeSet, HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delivery::Delivery;
use crate::{Batch, BatchId, ConnectorError, ErrorKind};

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
    buffer: VecDeque<Delivery>,
    /// The tags of each batch, rising.
    batches: HashMap<BatchId, Vec<u64>>,
    /// All tags that are not settled.
    unsettled: BTreeSet<u64>,
    last: u64,
    paused: bool,
    closing: bool,
    ended: Option<(ErrorKind, String)>,
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
        let mut state = self.state.lock();
        if let Some((kind, why)) = &state.ended {
            return Err(ConnectorError::new(*kind, why.clone()));
        }
        let (mut messages, mut tags, mut size) = (Vec::new(), Vec::new(), 0);
        while messages.len() < count.max(1) {
            let Some(next) = state.buffer.front() else { break };
            size += next.message.body.len();
            if size > bytes && !messages.is_empty() {
                break;
            }
            let Some(Delivery { message, tag }) = state.buffer.pop_front() else { break };
            messages.push(message);
            tags.push(tag);
        }
        if messages.is_empty() {
            return Ok(None);
        }
        state.last += 1;
        let id = BatchId(state.last);
        state.batches.insert(id, tags);
        Ok(Some(Batch { id, messages }))
    }

    /// What to say to the broker for a batch that is settled now: one word where nothing before it is unsettled.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Settle> {
        let mut state = self.state.lock();
        let tags = state.batches.remove(&batch).unwrap_or_default();
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
        state.buffer.extend(deliveries);
        drop(state);
        self.arrived.notify_one();
    }

    /// Nothing more will come, and nothing can be settled.
    pub(super) fn end(&self, error: &ConnectorError) {
        self.state.lock().ended = Some((error.kind, error.message.clone()));
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
