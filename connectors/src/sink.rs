//! The contract of a sink: where messages are published.

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::{ConnectorError, Destination, Message};

/// The caller's name for one publication; comes back with its outcome.
pub type Token = u64;

/// One message to publish.
#[derive(Debug)]
pub struct Publication {
    /// Comes back with the outcome. Unique among those whose outcome is still out.
    pub token: Token,
    /// Where to.
    pub to: Destination,
    /// What; `position`, `timestamp_ms`, `redelivered` and `destination` are ignored.
    pub message: Message,
    /// For brokers that drop repeats (`Nats-Msg-Id`) or name messages (AMQP `message_id`): at most 64 characters. Empty: none.
    pub dedupe_id: String,
    /// Where this is sooner than the `publish_timeout` of the sink: by then it is given up. What was not sent is refused, and is not sent any more; what
    /// was is unknown.
    pub deadline: Option<Instant>,
}

/// What became of one publication. Each is a decision of the broker, or the lack of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker took it, by its own publisher confirm.
    Confirmed,
    /// There is no such queue, topic or stream, for sure. Nothing was published.
    Unroutable(String),
    /// The broker did not take it now, for sure: full, not enough replicas, an election, or it was never sent. Later may work.
    Refused(String),
    /// It will never be taken: too large, a header that cannot pass.
    Invalid(String),
    /// No answer, or one that leaves open whether it landed.
    Unknown(String),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Confirmed => f.write_str("confirmed"),
            Outcome::Unroutable(why) | Outcome::Refused(why) | Outcome::Invalid(why) | Outcome::Unknown(why) => f.write_str(why),
        }
    }
}

/// Where the outcomes of one sink arrive, in batches: exactly one for each token that was handed over, also when the link dies.
/// `None` from `recv` means that the link is gone (or the sink closed) and every outcome was delivered: drop the sink, open another. A batch that
/// another task hands over after this end has no outcomes and was not sent: so what has none when they end was refused.
/// The channel is bounded by what is in flight, which the caller bounds.
pub type Outcomes = mpsc::UnboundedReceiver<Vec<(Token, Outcome)>>;

/// An open sink. An open value is a connection: [`crate::Connector::sink`] returns it ready, with its [`Outcomes`].
///
/// `publish` hands a batch to the client and returns when the client has taken it, not when it is confirmed; it may be called by several
/// tasks. The bound on what is in flight is the caller's, in front of the client's own queues. The sink sets no deadline of its own shorter than
/// the `publish_timeout` it was opened with; the caller counts a missing outcome as unknown.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Hands over a batch. Whatever goes wrong is an outcome of each token, never an error here.
    async fn publish(&self, batch: Vec<Publication>);

    /// Whether something takes messages at this destination: `Ok(true)`, `Ok(false)`, or the broker could not say.
    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError>;

    /// Waits until what was handed over has left the client, as far as the link allows, and closes. Outcomes still arrive on the receiver.
    async fn close(self: Box<Self>) -> Result<(), ConnectorError>;
}
