//! The buffer between a source and its reader: delivered and unsettled messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delivery::Delivery;
use super::read_limiter::ReadLimiter;
use crate::batches::Batches;
use crate::{Batch, BatchId, ConnectorError};

/// The state shared by a source and its reader.
pub(super) struct DeliveryBuffer {
    state: Mutex<BufferState>,
    /// Counts the memory of the messages.
    limiter: Arc<ReadLimiter>,
    /// For `recv`: a delivery, or the end.
    arrived: Notify,
    /// For the reader: pause, resume or close; or a settled batch.
    pub(super) wake: Notify,
}

#[derive(Default)]
struct BufferState {
    batches: Batches<PendingAck>,
    /// The delivery tags that are not settled.
    unsettled: BTreeSet<u64>,
    paused: bool,
    closing: bool,
}

/// A delivered message: its delivery tag, which increases, and its memory in bytes.
struct PendingAck {
    tag: u64,
    bytes: usize,
}

/// One ack or nack.
#[derive(Debug, PartialEq)]
pub(super) struct Settle {
    pub(super) tag: u64,
    /// It settles all earlier deliveries too.
    pub(super) multiple: bool,
}

impl DeliveryBuffer {
    pub(super) fn new(limiter: Arc<ReadLimiter>) -> Self {
        DeliveryBuffer {
            state: Mutex::default(),
            limiter,
            arrived: Notify::new(),
            wake: Notify::new(),
        }
    }

    /// A batch of the buffered messages, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        self.state.lock().batches.take(count, bytes)
    }

    /// The acks or nacks of a batch that is settled now; one for the whole batch if no earlier
    /// delivery is unsettled.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Settle> {
        let mut state = self.state.lock();
        let places = state.batches.settle(batch);
        let tags: Vec<u64> = places.iter().map(|place| place.tag).collect();
        for tag in &tags {
            state.unsettled.remove(tag);
        }
        self.limiter.settled(places.iter().map(|place| place.bytes).sum());
        // There may be room for more deliveries.
        self.wake.notify_one();
        match tags.last() {
            Some(last) if state.unsettled.first().is_none_or(|first| first > last) => {
                vec![Settle { tag: *last, multiple: true }]
            }
            _ => tags.into_iter().map(|tag| Settle { tag, multiple: false }).collect(),
        }
    }

    /// The number of unsettled deliveries.
    pub(super) fn unsettled(&self) -> usize {
        self.state.lock().unsettled.len()
    }

    /// Waits for a delivery, or the end.
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
    pub(super) fn status(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.paused, state.closing)
    }

    /// Adds deliveries to the buffer.
    pub(super) fn put(&self, deliveries: Vec<Delivery>) {
        let places = deliveries
            .into_iter()
            .map(|Delivery { message, tag, bytes }| (message, PendingAck { tag, bytes }));
        let places: Vec<_> = places.collect();
        self.limiter.delivered(places.len(), places.iter().map(|(_, place)| place.bytes).sum());
        let mut state = self.state.lock();
        state.unsettled.extend(places.iter().map(|(_, place)| place.tag));
        state.batches.put(places);
        drop(state);
        self.arrived.notify_one();
    }

    /// Ends the source: no more messages come, and none can be settled.
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
        let buffer = DeliveryBuffer::new(Arc::new(ReadLimiter::new(100)));
        buffer.put(
            (1..=7).map(|tag| Delivery { tag, message: Message::new("x"), bytes: 1 }).collect(),
        );
        let ids: Vec<BatchId> =
            (0..3).map(|_| buffer.take(2, 10_000).unwrap().unwrap().id).collect();
        let single = |tag| Settle { tag, multiple: false };
        assert_eq!(buffer.settle(ids[1]), [single(3), single(4)]);
        assert_eq!(buffer.settle(ids[0]), [Settle { tag: 2, multiple: true }]);
        assert_eq!(buffer.settle(ids[2]), [Settle { tag: 6, multiple: true }]);
        assert_eq!(buffer.settle(ids[2]), []);
    }
}
