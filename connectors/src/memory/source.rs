//! The source of the memory broker.

use std::collections::HashMap;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{Broker, BrokerState, Config};
use crate::{
    Batch, BatchId, ConnectorError, ConsumerState, ErrorKind, Message, Source, SourceOptions,
};

pub(crate) fn inspect(
    config: &Config,
    options: &SourceOptions,
) -> Result<ConsumerState, ConnectorError> {
    may_read(&config.broker.shared.state.lock(), options).map(|()| ConsumerState::Exists)
}

fn may_read(state: &BrokerState, options: &SourceOptions) -> Result<(), ConnectorError> {
    state.may_open()?;
    if !state.topics.contains_key(&options.topic) {
        let error =
            ConnectorError::new(ErrorKind::Missing, format!("no topic `{}`", options.topic));
        return Err(error.hint("create it, or set `declare = true`"));
    }
    Ok(())
}

pub(crate) fn open(
    config: &Config,
    options: SourceOptions,
) -> Result<impl Source + use<>, ConnectorError> {
    let broker = config.broker.clone();
    let mut state = broker.shared.state.lock();
    may_read(&state, &options)?;
    if let Some(topic) = state.topics.get_mut(&options.topic) {
        topic.begin(&options.group, options.start);
    }
    let cuts = state.cuts;
    drop(state);
    Ok(MemorySource { broker, options, cuts, held: Mutex::new(Held::default()) })
}

struct MemorySource {
    broker: Broker,
    options: SourceOptions,
    cuts: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    last: u64,
    paused: bool,
    batches: HashMap<BatchId, Vec<usize>>,
    /// The memory of each batch, in bytes.
    bytes: HashMap<BatchId, usize>,
}

impl MemorySource {
    /// A batch of the available messages, within the bounds.
    fn take(&self) -> Result<Option<Batch>, ConnectorError> {
        let mut state = self.broker.shared.state.lock();
        self.check(state.cuts)?;
        let mut held = self.held.lock();
        if held.paused {
            return Ok(None);
        }
        if state.unshared {
            return Ok(None);
        }
        let Some(topic) = state.topics.get_mut(&self.options.topic) else {
            return Err(ConnectorError::new(
                ErrorKind::Missing,
                format!("the topic `{}` was deleted", self.options.topic),
            ));
        };
        let unsettled: usize = held.batches.values().map(Vec::len).sum();
        let room = self.options.max_unsettled.saturating_sub(unsettled).min(self.options.max_batch);
        let unsettled: usize = held.bytes.values().sum();
        let bytes = self
            .options
            .max_unsettled_bytes
            .saturating_sub(unsettled)
            .min(self.options.max_batch_bytes);
        let (offsets, messages) =
            topic.take(&self.options.group, if bytes == 0 { 0 } else { room }, bytes);
        if messages.is_empty() {
            return Ok(None);
        }
        held.last += 1;
        let id = BatchId(held.last);
        held.batches.insert(id, offsets);
        held.bytes.insert(id, messages.iter().map(Message::footprint).sum());
        Ok(Some(Batch { id, messages }))
    }

    fn settle(&self, batch: BatchId, ack: bool) -> Result<(), ConnectorError> {
        let mut state = self.broker.shared.state.lock();
        self.check(state.cuts)?;
        let mut held = self.held.lock();
        held.bytes.remove(&batch);
        let offsets = held.batches.remove(&batch).unwrap_or_default();
        drop(held);
        if let Some(topic) = state.topics.get_mut(&self.options.topic) {
            if ack {
                topic.ack(&self.options.group, &offsets)
            } else {
                topic.give_back(&self.options.group, &offsets)
            }
        }
        drop(state);
        self.broker.touch();
        Ok(())
    }

    fn give_back(&self) {
        let mut state = self.broker.shared.state.lock();
        let batches = std::mem::take(&mut self.held.lock().batches);
        // After a cut the broker has already returned all messages, and may have delivered them to
        // others.
        if state.cuts == self.cuts
            && let Some(topic) = state.topics.get_mut(&self.options.topic)
        {
            batches.values().for_each(|offsets| topic.give_back(&self.options.group, offsets));
        }
        drop(state);
        self.broker.touch();
    }

    fn check(&self, cuts: u64) -> Result<(), ConnectorError> {
        if cuts == self.cuts {
            Ok(())
        } else {
            Err(ConnectorError::new(
                ErrorKind::Disconnected,
                "the connection to the memory broker was cut",
            ))
        }
    }
}

#[async_trait]
impl Source for MemorySource {
    async fn recv(&self) -> Result<Batch, ConnectorError> {
        let mut changed = self.broker.shared.changed.subscribe();
        loop {
            if let Some(batch) = self.take()? {
                return Ok(batch);
            }
            // The sender lives in the broker, which lives in `self`.
            let _ = changed.changed().await;
        }
    }

    async fn reads(&self) {
        let mut changed = self.broker.shared.changed.subscribe();
        while self.broker.shared.state.lock().unshared {
            // As in `recv`.
            let _ = changed.changed().await;
        }
    }

    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, true)
    }

    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, false)
    }

    async fn pause(&self, paused: bool) -> Result<(), ConnectorError> {
        self.held.lock().paused = paused;
        self.broker.touch();
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        self.give_back();
        Ok(())
    }
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.give_back();
    }
}
