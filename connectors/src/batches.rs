//! The messages that a source has read: messages that wait for `recv`, and batches that wait to be
//! settled. `T` holds the data to settle a message.

use std::collections::{HashMap, VecDeque};

use crate::{Batch, BatchId, ConnectorError, ErrorKind, Message};

pub(crate) struct Batches<T> {
    buffer: VecDeque<(Message, T)>,
    taken: HashMap<BatchId, Vec<T>>,
    last: u64,
    ended: Option<End>,
}

/// The error that ended the source, stored so that it can be returned more than once.
struct End {
    kind: ErrorKind,
    message: String,
    hint: String,
}

impl<T> Default for Batches<T> {
    fn default() -> Self {
        Batches { buffer: VecDeque::new(), taken: HashMap::new(), last: 0, ended: None }
    }
}

impl<T> Batches<T> {
    /// A batch of the buffered messages: at most `count` messages and `bytes` of memory. A single
    /// message may exceed `bytes`.
    pub(crate) fn take(
        &mut self,
        count: usize,
        bytes: usize,
    ) -> Result<Option<Batch>, ConnectorError> {
        if let Some(End { kind, message, hint }) = &self.ended {
            return Err(ConnectorError::new(*kind, message.clone()).hint(hint.clone()));
        }
        let (mut messages, mut settling, mut size) = (Vec::new(), Vec::new(), 0);
        while messages.len() < count.max(1) {
            let Some((next, _)) = self.buffer.front() else { break };
            size += next.footprint();
            if size > bytes && !messages.is_empty() {
                break;
            }
            let Some((message, settle)) = self.buffer.pop_front() else { break };
            messages.push(message);
            settling.push(settle);
        }
        if messages.is_empty() {
            return Ok(None);
        }
        self.last += 1;
        let id = BatchId(self.last);
        self.taken.insert(id, settling);
        Ok(Some(Batch { id, messages }))
    }

    /// Returns the `T` of each message of this batch, in order; nothing if the batch is already
    /// settled.
    pub(crate) fn settle(&mut self, batch: BatchId) -> Vec<T> {
        self.taken.remove(&batch).unwrap_or_default()
    }

    /// Adds deliveries to the buffer.
    pub(crate) fn put(&mut self, deliveries: impl IntoIterator<Item = (Message, T)>) {
        self.buffer.extend(deliveries);
    }

    /// Returns the `T` of each unsettled message, taken or buffered.
    #[cfg(feature = "nats")]
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &T> {
        self.taken.values().flatten().chain(self.buffer.iter().map(|(_, settle)| settle))
    }

    /// Ends the source: no more messages come, and none can be settled.
    pub(crate) fn end(&mut self, error: &ConnectorError) {
        self.ended = Some(End {
            kind: error.kind,
            message: error.message.clone(),
            hint: error.hint.clone(),
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_their_bounds_and_are_settled_once() {
        let mut batches = Batches::default();
        batches.put((1..=5).map(|number| (Message::new("x".repeat(1000 * number)), number)));
        let bodies = |batch: &Batch| {
            batch.messages.iter().map(|message| message.body.len()).collect::<Vec<_>>()
        };
        let first = batches.take(2, 10_000).unwrap().unwrap();
        let second = batches.take(2, 3000).unwrap().unwrap();
        let larger = batches.take(2, 3).unwrap().unwrap();
        assert_eq!(
            (bodies(&first), bodies(&second), bodies(&larger)),
            (vec![1000, 2000], vec![3000], vec![4000])
        );
        assert_eq!((batches.settle(first.id), batches.settle(first.id)), (vec![1, 2], vec![]));
    }

    #[test]
    fn the_end_is_said_again_with_its_hint() {
        let mut batches: Batches<()> = Batches::default();
        assert!(batches.take(1, 1).unwrap().is_none());
        batches.end(&ConnectorError::new(ErrorKind::Denied, "no").hint("ask"));
        for _ in 0..2 {
            let error = batches.take(1, 1).unwrap_err();
            assert_eq!(
                (error.kind, error.message.as_str(), error.hint.as_str()),
                (ErrorKind::Denied, "no", "ask")
            );
        }
    }
}
