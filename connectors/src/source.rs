//! The contract of a source: where messages are read.

use async_trait::async_trait;

use crate::{ConnectorError, Destination, Message};

/// Names one batch of a source; unique within the value that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// Messages that were read together and are settled together.
#[derive(Debug)]
pub struct Batch {
    /// What `ack` and `nack` name.
    pub id: BatchId,
    /// The messages in the broker's order; never empty.
    pub messages: Vec<Message>,
}

/// Whether the broker waits for a word on each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// A message is delivered again until it is acked: at least once.
    Explicit,
    /// What was sent is forgotten, so that it may be lost: for consumers that measure, never for an ingest. `ack` and `nack` only make room, and other words on a message are not heard. A broker whose acks
    /// are of many messages at once reads as with `Explicit`: only NATS has one to each.
    None,
}

/// Where a group or durable consumer begins that is new. One that the broker knows goes on where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// With all that is there.
    #[default]
    Earliest,
    /// With what comes from now on.
    Latest,
    /// With what came at this time or later, epoch ms.
    At(i64),
}

/// What a source reads and how much of it at once.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// Topic, queue or subject.
    pub topic: String,
    /// Consumer group or durable consumer.
    pub group: String,
    /// The most messages in one batch.
    pub max_batch: usize,
    /// The most bytes in one batch, as messages lie in memory ([`Message::footprint`]), but for a single larger message.
    pub max_batch_bytes: usize,
    /// The most messages delivered and not yet settled. At the bound the source stops reading: this is the back-pressure.
    pub max_unsettled: usize,
    /// About the most bytes delivered and not yet settled, as messages lie in memory, with what the client library holds of them. At the bound the
    /// source stops reading; what was on its way by then still comes, and a message that is larger by itself.
    pub max_unsettled_bytes: usize,
    /// Whether what is read is acknowledged.
    pub acks: Acks,
    /// Where a group begins that is new. A queue has no log: there all that waits is read.
    pub start: Start,
    /// What the reader itself publishes to and must never read: where the broker shows that it would, the source is not opened.
    pub apart: Vec<Destination>,
    /// AMQP: the queue to which the dead-letter exchange of the topic's queue leads what expired there. It is read too, and each of its messages comes
    /// as it was published.
    pub expired_queue: Option<String>,
}

/// An open source. An open value is a connection: there is no `connect`, [`crate::Connector::source`] returns it ready.
///
/// One task calls `recv`; `ack` and `nack` may be called by any, also while `recv` waits. Whatever is neither acked nor nacked is delivered
/// again by the broker, to this or another reader, once the value is dropped or the broker's own patience ends. While the value lives the
/// source itself keeps its hold on unsettled messages (in-progress acks, polling while paused), for as long as it takes.
///
/// After an error of any method the value is spent: drop it, open another.
#[async_trait]
pub trait Source: Send + Sync {
    /// Waits for messages; returns what is there, at least one, at most the options' bounds. Never waits to fill a batch. Cancel-safe.
    async fn recv(&self) -> Result<Batch, ConnectorError>;

    /// Waits until messages come to this source as soon as they are there. That is at once, but where the broker shares a log out among its readers:
    /// there it is once this one has been told its share, which may be nothing. Cancel-safe.
    async fn reads(&self) {}

    /// The batch is stored: the broker may forget it. Batches may be settled in any order; a log's committed offset never passes an unsettled one.
    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError>;

    /// The batch was not taken: the broker shall deliver it again. Not for waiting out an outage: hold the batch instead.
    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError>;

    /// Stops or resumes reading from the broker; what was read already still comes from `recv`. The hold on unsettled messages goes on.
    async fn pause(&self, paused: bool) -> Result<(), ConnectorError>;

    /// Gives back what was read and not settled, so that others get it at once, and closes.
    async fn close(self: Box<Self>) -> Result<(), ConnectorError>;
}
