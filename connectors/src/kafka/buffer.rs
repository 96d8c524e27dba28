//! The buffer between a source and its reader: messages read, unsettled messages, and the room
//! left.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, watch};

use super::config::queue_bytes;
use super::delivery::Delivery;
use super::offsets::PartitionOffsets;
use super::quirks::stalled_partitions::StalledPartitions;
use crate::{Batch, BatchId, ConnectorError, ErrorKind, SourceOptions};

/// The state shared by a source and its reader.
pub(super) struct DeliveryBuffer {
    state: Mutex<BufferState>,
    /// For `recv`: a message, or the end.
    arrived: Notify,
    /// For the reader: room, or another task.
    changed: Condvar,
    /// Whether the first rebalance is over; the assignment may be empty.
    shared_out: watch::Sender<bool>,
    max_unsettled: usize,
    /// The bound on the memory of unsettled messages. librdkafka's queue has a bound of its own.
    max_bytes: usize,
}

#[derive(Default)]
struct BufferState {
    buffer: VecDeque<(Delivery, u64)>,
    /// The memory of the messages in `buffer` and `batches`.
    bytes: usize,
    batches: HashMap<BatchId, Vec<DeliveryHandle>>,
    last: u64,
    /// The assigned partitions.
    partitions: HashMap<i32, PartitionOffsets>,
    stalled: StalledPartitions,
    generations: u64,
    paused: bool,
    /// The reader has paused the partitions.
    partitions_paused: bool,
    closing: bool,
    ended: Option<(ErrorKind, String, String)>,
}

/// The partition and offset of a message in a batch, and the assignment that it belongs to.
struct DeliveryHandle {
    partition: i32,
    generation: u64,
    offset: i64,
    /// The memory of the message, in bytes.
    bytes: usize,
}

/// The state of the buffer that the reader acts on.
pub(super) struct BufferStatus {
    pub(super) closing: bool,
    pub(super) paused: bool,
    /// The room in messages and in bytes of memory; both zero or both positive.
    pub(super) room: usize,
    pub(super) room_bytes: usize,
}

impl BufferState {
    fn going(&self) -> Result<(), ConnectorError> {
        match &self.ended {
            Some((kind, why, hint)) => {
                Err(ConnectorError::new(*kind, why.clone()).hint(hint.clone()))
            }
            None => Ok(()),
        }
    }

    fn offsets(&mut self, place: &DeliveryHandle) -> Option<&mut PartitionOffsets> {
        self.partitions
            .get_mut(&place.partition)
            .filter(|offsets| offsets.generation == place.generation)
    }
}

impl DeliveryBuffer {
    pub(super) fn new(options: &SourceOptions) -> Self {
        let max_bytes = options.max_unsettled_bytes - queue_bytes(options.max_unsettled_bytes);
        let (arrived, changed) = (Notify::new(), Condvar::new());
        let shared_out = watch::Sender::new(false);
        DeliveryBuffer {
            state: Mutex::default(),
            arrived,
            changed,
            shared_out,
            max_unsettled: options.max_unsettled,
            max_bytes,
        }
    }

    /// A batch of the buffered messages, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        let mut state = self.state.lock();
        state.going()?;
        let (mut messages, mut places, mut size) = (Vec::new(), Vec::new(), 0);
        while messages.len() < count.max(1) {
            let Some((next, _)) = state.buffer.front() else { break };
            size += next.bytes;
            if size > bytes && !messages.is_empty() {
                break;
            }
            let Some((Delivery { message, partition, offset, bytes }, generation)) =
                state.buffer.pop_front()
            else {
                break;
            };
            messages.push(message);
            places.push(DeliveryHandle { partition, generation, offset, bytes });
        }
        if messages.is_empty() {
            return Ok(None);
        }
        state.last += 1;
        let id = BatchId(state.last);
        state.batches.insert(id, places);
        drop(state);
        self.changed.notify_one();
        Ok(Some(Batch { id, messages }))
    }

    /// Settles a batch. An error once the connection is lost, because nothing is committed any
    /// more. Ignores messages of revoked partitions: they belong to another reader now.
    pub(super) fn settle(&self, batch: BatchId, done: bool) -> Result<(), ConnectorError> {
        let mut state = self.state.lock();
        state.going()?;
        for place in state.batches.remove(&batch).unwrap_or_default() {
            state.bytes -= place.bytes;
            if let Some(offsets) = state.offsets(&place) {
                let _ = if done { offsets.ack(place.offset) } else { offsets.nack(place.offset) };
            }
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a message, or the end.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(super) fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
        self.changed.notify_one();
    }

    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.changed.notify_one();
    }

    pub(super) fn status(&self) -> BufferStatus {
        let state = self.state.lock();
        let held: usize = state.partitions.values().map(PartitionOffsets::held).sum();
        let room_bytes = self.max_bytes.saturating_sub(state.bytes);
        let room = if room_bytes > 0 { self.max_unsettled.saturating_sub(held) } else { 0 };
        BufferStatus { closing: state.closing, paused: state.paused, room, room_bytes }
    }

    /// Waits for a change, at most this long.
    pub(super) fn wait(&self, moment: Duration) {
        self.changed.wait_for(&mut self.state.lock(), moment);
    }

    /// Adds messages to the buffer.
    pub(super) fn put(&self, deliveries: Vec<Delivery>) {
        if deliveries.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for delivery in deliveries {
            state.stalled.came(delivery.partition);
            if let Some(offsets) = state.partitions.get_mut(&delivery.partition) {
                let generation = offsets.generation;
                if offsets.read(delivery.offset) {
                    state.bytes += delivery.bytes;
                    state.buffer.push_back((delivery, generation));
                }
            }
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Adds newly assigned partitions, with no message read.
    pub(super) fn assign(&self, partitions: impl Iterator<Item = i32>) {
        let mut state = self.state.lock();
        for partition in partitions {
            state.generations += 1;
            let generation = state.generations;
            state.partitions.insert(partition, PartitionOffsets::new(generation));
            state.stalled.assigned(partition);
        }
        drop(state);
        self.shared_out.send_replace(true);
    }

    /// Waits for the first assignment.
    pub(super) async fn shared_out(&self) {
        // The sender lives in `self`.
        let _ = self.shared_out.subscribe().wait_for(|said| *said).await;
    }

    /// Removes revoked partitions: drops their buffered messages, and forgets the unsettled ones.
    pub(super) fn revoke(&self, partitions: &[i32]) {
        let mut state = self.state.lock();
        state.partitions.retain(|partition, _| !partitions.contains(partition));
        state.stalled.gone(partitions);
        state.buffer.retain(|(delivery, _)| !partitions.contains(&delivery.partition));
        let handed_out = state.batches.values().flatten().map(|place| place.bytes).sum::<usize>();
        state.bytes =
            handed_out + state.buffer.iter().map(|(delivery, _)| delivery.bytes).sum::<usize>();
        drop(state);
        self.changed.notify_one();
    }

    /// The positions to commit, of these partitions or of all. `sure`: the reader waits for the
    /// answer. They count as committed until `not_committed`.
    pub(super) fn to_commit(&self, partitions: Option<&[i32]>, sure: bool) -> Vec<(i32, i64)> {
        let mut positions = Vec::new();
        for (partition, offsets) in &mut self.state.lock().partitions {
            if partitions.is_none_or(|these| these.contains(partition))
                && let Some(position) = offsets.to_commit(sure)
            {
                offsets.committed(position, sure);
                positions.push((*partition, position));
            }
        }
        positions
    }

    /// The commit for these partitions failed.
    pub(super) fn not_committed(&self, partitions: impl Iterator<Item = i32>) {
        let mut state = self.state.lock();
        for partition in partitions {
            if let Some(offsets) = state.partitions.get_mut(&partition) {
                offsets.not_committed();
            }
        }
    }

    /// The reader paused or resumed the partitions.
    pub(super) fn set_partitions_paused(&self, paused: bool) {
        let mut state = self.state.lock();
        state.partitions_paused = paused;
        state.stalled.set_paused(paused);
    }

    /// Whether newly assigned partitions must be paused too.
    pub(super) fn partitions_paused(&self) -> bool {
        self.state.lock().partitions_paused
    }

    /// The positions that the reader must seek back to.
    pub(super) fn turns(&self) -> Vec<(i32, i64)> {
        self.state
            .lock()
            .partitions
            .iter()
            .filter_map(|(partition, offsets)| Some((*partition, offsets.back_to()?)))
            .collect()
    }

    /// The reader sought back in this partition; `sure`: the seek was confirmed.
    pub(super) fn went_back(&self, partition: i32, to: i64, sure: bool) {
        if let Some(offsets) = self.state.lock().partitions.get_mut(&partition) {
            offsets.went_back(to, sure);
        }
    }

    /// The partition is at its end; true if a nacked message is no longer in the log.
    pub(super) fn at_end(&self, partition: i32) -> bool {
        let mut state = self.state.lock();
        state.stalled.came(partition);
        state.partitions.get_mut(&partition).is_some_and(PartitionOffsets::at_end)
    }

    /// Records a consumer error, which may concern the start of a partition.
    pub(super) fn disturbed(&self) {
        self.state.lock().stalled.disturbed();
    }

    /// Assigned partitions that delivered nothing for too long. `is_dry`: librdkafka's queue is
    /// empty.
    pub(super) fn late_partitions(&self, is_dry: bool) -> Vec<i32> {
        self.state.lock().stalled.late(is_dry)
    }

    /// A partition that will deliver nothing.
    pub(super) fn stuck_partition(&self) -> Option<i32> {
        self.state.lock().stalled.stuck()
    }

    /// Ends the source: no more messages come, and none can be settled.
    pub(super) fn end(&self, error: &ConnectorError) {
        self.state.lock().ended = Some((error.kind, error.message.clone(), error.hint.clone()));
        self.arrived.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{Acks, Message, Start};

    fn delivery(partition: i32, offset: i64, bytes: usize) -> Delivery {
        Delivery { message: Message::new("x"), partition, offset, bytes }
    }

    fn buffer() -> DeliveryBuffer {
        let (topic, group) = ("a".to_owned(), "g".to_owned());
        let (max_batch, max_batch_bytes, max_unsettled, max_unsettled_bytes) =
            (10, 1000, 100, 5334);
        let acks = Acks::Explicit;
        let (start, publishes_to, expired_queue) = (Start::Earliest, Vec::new(), None);
        let buffer = DeliveryBuffer::new(&SourceOptions {
            topic,
            group,
            max_batch,
            max_batch_bytes,
            max_unsettled,
            max_unsettled_bytes,
            acks,
            start,
            publishes_to,
            expired_queue,
        });
        buffer.assign(0..2);
        buffer
    }

    #[test]
    fn what_is_unsettled_is_bounded_in_bytes_too() {
        let buffer = buffer();
        let room = || (buffer.status().room, buffer.status().room_bytes);
        buffer.put((0..4).map(|offset| delivery(0, offset, 900)).collect());
        assert_eq!(room(), (96, 401));
        buffer.put(vec![delivery(1, 0, 900)]);
        assert_eq!(room(), (0, 0));
        // Settling makes room, and so does a revoked partition; handing out does not.
        let batch = buffer.take(10, 1000).unwrap().unwrap();
        assert_eq!((batch.messages.len(), room()), (1, (0, 0)));
        buffer.settle(batch.id, true).unwrap();
        assert_eq!(room(), (96, 401));
        buffer.put(vec![delivery(0, 4, 900)]);
        assert_eq!(room(), (0, 0));
        buffer.revoke(&[1]);
        assert_eq!(room(), (96, 401));
    }
}
