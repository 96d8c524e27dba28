//! The contract of a source, which reads messages.

use async_trait::async_trait;

use crate::{ConnectorError, Destination, Message};

/// The number of a batch; unique within one source value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// Messages that are read together and settled together.
#[derive(Debug)]
pub struct Batch {
    /// The argument of `ack` and `nack`.
    pub id: BatchId,
    /// The messages in the broker's order; never empty.
    pub messages: Vec<Message>,
}

/// Whether the broker expects an acknowledgement of each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// The broker redelivers a message until it is acked: at least once.
    Explicit,
    /// The broker forgets a message once it is sent, so messages may be lost: for measuring
    /// consumers, never for an ingest. `ack` and `nack` only free buffer space; other
    /// acknowledgements are ignored. Only NATS supports this, because its acks are per message;
    /// other brokers behave as with `Explicit`.
    None,
}

/// The start of a new group or durable consumer. An existing one continues at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the oldest message.
    #[default]
    Earliest,
    /// At the next new message.
    Latest,
    /// At the first message from this time, epoch ms.
    At(i64),
}

/// The options of a source: its topic, and its bounds.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// Topic, queue or subject.
    pub topic: String,
    /// Consumer group or durable consumer.
    pub group: String,
    /// The most messages in one batch.
    pub max_batch: usize,
    /// The most bytes of memory in one batch ([`Message::footprint`]). A single message may exceed
    /// this.
    pub max_batch_bytes: usize,
    /// The most messages delivered and not yet settled. At this bound the source stops reading
    /// (back-pressure).
    pub max_unsettled: usize,
    /// The approximate bound on the memory of messages delivered and not yet settled, the client
    /// library's buffers included, in bytes. At this bound the source stops reading. Messages
    /// already on their way still arrive, and a single message may exceed the bound.
    pub max_unsettled_bytes: usize,
    /// Whether messages are acknowledged.
    pub acks: Acks,
    /// The start of a new group. A queue has no log: a source reads everything in it.
    pub start: Start,
    /// Destinations that the reader publishes to and must never read. If the broker shows that the
    /// source would read one of them, the source does not open.
    pub publishes_to: Vec<Destination>,
    /// AMQP: the queue that receives expired messages through the dead-letter exchange of the
    /// topic's queue. The source reads it too, and restores each message as it was published.
    pub expired_queue: Option<String>,
}

/// An open source, already connected: [`crate::Connector::source`] returns it.
///
/// One task calls `recv`; any task may call `ack` and `nack`, also while `recv` waits. The broker
/// redelivers messages that are neither acked nor nacked, to this or another reader, once the value
/// is dropped or the broker's ack timeout ends. While the value lives, the source itself extends
/// that timeout (in-progress acks, polling while paused), however long it takes.
///
/// After an error of any method the value is unusable: drop it and open another.
#[async_trait]
pub trait Source: Send + Sync {
    /// Waits for messages, and returns those available: at least one, at most the bounds of the
    /// options. Never waits to fill a batch. Cancel-safe.
    async fn recv(&self) -> Result<Batch, ConnectorError>;

    /// Waits until the source receives new messages as they arrive. Returns at once, unless the
    /// broker divides a log among its readers: then returns once this reader has its share, which
    /// may be empty. Cancel-safe.
    async fn reads(&self) {}

    /// The batch is stored: the broker may forget it. Batches may be settled in any order; the
    /// committed offset of a log never passes an unsettled batch.
    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError>;

    /// The batch was not stored: the broker redelivers it. Not for waiting out an outage: keep the
    /// batch unsettled instead.
    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError>;

    /// Stops or resumes reading from the broker. `recv` still returns messages that were already
    /// read. The ack timeouts of unsettled messages are still extended.
    async fn pause(&self, paused: bool) -> Result<(), ConnectorError>;

    /// Returns all unsettled messages to the broker, so that other readers get them at once, and
    /// closes.
    async fn close(self: Box<Self>) -> Result<(), ConnectorError>;
}
