//! The contract of a sink, which publishes messages.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::{ConnectorError, Destination, Message};

/// The caller's number for one publication; returned with its outcome.
pub type Token = u64;

/// One message to publish.
#[derive(Debug)]
pub struct Publication {
    /// Returned with the outcome. Unique among publications without an outcome.
    pub token: Token,
    /// The destination.
    pub to: Destination,
    /// The message; `position`, `timestamp_ms`, `redelivered` and `destination` are ignored.
    pub message: Message,
    /// For brokers that drop duplicates (`Nats-Msg-Id`) or name messages (AMQP `message_id`): at
    /// most 64 characters. Empty: none.
    pub dedupe_id: String,
    /// Overrides the sink's `publish_timeout` if earlier. At this time the publication ends:
    /// refused and never sent if it was not sent yet, otherwise unknown.
    pub deadline: Option<Instant>,
}

/// The result of one publication: a decision of the broker, or the lack of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker's publisher confirm: the message is stored.
    Confirmed,
    /// Confirmed, and the consumer has finished its work: an HTTP target answered 2xx, and not 202.
    Finished,
    /// The queue, topic or stream certainly does not exist. Nothing was published.
    Unroutable(String),
    /// The message was certainly not stored: full, too few replicas, an election, or never sent. A
    /// later attempt may succeed.
    Refused(String),
    /// The message was certainly not taken, and the destination says for how long it takes no
    /// other.
    Throttled {
        /// The answer.
        why: String,
        /// From now until the destination takes messages again.
        wait: Duration,
    },
    /// The attempt has failed: the destination answered with an error, or cannot be reached.
    Failed(String),
    /// The broker will never accept the message: too large, or a header that cannot be sent.
    Invalid(String),
    /// No answer, or an answer that leaves open whether the message was stored.
    Unknown(String),
}

impl Outcome {
    /// Whether the message was delivered.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.error().is_none()
    }

    /// Why the message was not delivered, or may not have been; `None` if it was.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Outcome::Confirmed | Outcome::Finished => None,
            Outcome::Throttled { why, .. }
            | Outcome::Unroutable(why)
            | Outcome::Refused(why)
            | Outcome::Failed(why)
            | Outcome::Invalid(why)
            | Outcome::Unknown(why) => Some(why),
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.error().unwrap_or("confirmed"))
    }
}

/// The receiver of a sink's outcomes, in batches: exactly one for each token handed over, even if
/// the connection is lost. `None` from `recv` means that the connection is lost (or the sink
/// closed) and every outcome was delivered: drop the sink and open another. A batch that another
/// task hands over after this end gets no outcomes and is not sent, so tokens without an outcome at
/// the end were refused. The number of publications in flight bounds the channel; the caller bounds
/// that.
pub type Outcomes = mpsc::UnboundedReceiver<Vec<(Token, Outcome)>>;

/// An open sink, already connected: [`crate::Connector::sink`] returns it with its [`Outcomes`].
///
/// `publish` returns when the client has accepted a batch, not when the batch is confirmed. Several
/// tasks may call `publish`. The caller bounds what is in flight, ahead of the client's own queues.
/// The sink sets no deadline shorter than its `publish_timeout`; the caller counts a missing
/// outcome as unknown.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Hands over a batch. Failures are outcomes of each token, never an error here.
    async fn publish(&self, batch: Vec<Publication>);

    /// Whether the destination exists; an error if the broker could not tell.
    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError>;

    /// Waits until the client has sent everything that was handed over, as far as the connection
    /// allows, and closes. Outcomes still arrive on the receiver.
    async fn close(self: Box<Self>) -> Result<(), ConnectorError>;
}
