//! The connection that messages come on. It carries nothing else, because the client library ends it on a message that it cannot read.

use async_nats::{Subject, Subscriber};
use futures_util::StreamExt;
use futures_util::stream::ReadyChunks;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout_at};

use crate::ConnectorError;
use crate::nats::config::Config;
use crate::nats::connection::BrokerConnection;

/// The most messages that are taken over at once.
const CHUNK: usize = 512;
/// How long the client may take to let go of a connection that is lost. Until then the server sends messages into it.
const LINGER: Duration = Duration::from_secs(1);

pub(in crate::nats) struct DeliveryConnection {
    pub(in crate::nats) connection: BrokerConnection,
    /// What the server says beside.
    pub(in crate::nats) complaints: mpsc::UnboundedReceiver<String>,
    /// Where messages are sent to.
    pub(in crate::nats) inbox: Subject,
    pub(in crate::nats) messages: Messages,
}

/// What comes in on a line.
pub(in crate::nats) struct Messages {
    chunks: ReadyChunks<Subscriber>,
    /// When to wait no longer for the end, once the connection is lost.
    end: Option<Instant>,
}

impl DeliveryConnection {
    pub(in crate::nats) async fn open(config: &Config) -> Result<Self, ConnectorError> {
        let (connection, complaints) = BrokerConnection::connect(config).await?;
        let inbox = Subject::from(connection.client.new_inbox());
        let subscriber =
            connection.ask(connection.client.subscribe(inbox.clone())).await?.map_err(|error| connection.error().because(error))?;
        Ok(DeliveryConnection { connection, complaints, inbox, messages: Messages { chunks: subscriber.ready_chunks(CHUNK), end: None } })
    }
}

impl Messages {
    /// What arrived; `None` once the client has let go of the connection, and all that it read was given. Cancel-safe.
    pub(in crate::nats) async fn next(&mut self, connection: &BrokerConnection) -> Option<Vec<async_nats::Message>> {
        tokio::select! {
            biased;
            chunk = self.chunks.next() => return chunk,
            () = connection.lost() => {}
        }
        let end = *self.end.get_or_insert_with(|| Instant::now() + LINGER);
        timeout_at(end, self.chunks.next()).await.ok().flatten()
    }
}
