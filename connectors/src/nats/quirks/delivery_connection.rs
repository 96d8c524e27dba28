//! The connection that carries deliveries, and nothing else.
//!
//! - Behaviour: async-nats 0.51 ends a connection when it reads a message that it cannot parse
//!   (`Connection::try_read_op` in `src/connection.rs`; see `header_block` for the cases).
//! - Workaround: deliveries have a connection of their own. When it ends, the connection for acks
//!   and API requests lives on, and the source opens another. The missing message comes through
//!   [`super::unreadable_message`].
//! - May go when async-nats delivers such messages, or skips them without ending the connection.

use async_nats::{Subject, Subscriber};
use futures_util::StreamExt;
use futures_util::stream::ReadyChunks;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout_at};

use crate::ConnectorError;
use crate::nats::config::Config;
use crate::nats::connection::BrokerConnection;

/// The most messages taken over at once.
const MAX_CHUNK_MESSAGES: usize = 512;
/// The longest time that async-nats may take to drop a lost connection. Until then the server sends
/// messages to the connection.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

pub(in crate::nats) struct DeliveryConnection {
    pub(in crate::nats) connection: BrokerConnection,
    /// The errors of the server.
    pub(in crate::nats) server_errors: mpsc::UnboundedReceiver<String>,
    /// The subject for deliveries.
    pub(in crate::nats) inbox: Subject,
    pub(in crate::nats) messages: Messages,
}

/// The deliveries of a connection.
pub(in crate::nats) struct Messages {
    chunks: ReadyChunks<Subscriber>,
    /// When to stop waiting for the end of the stream, after the connection is lost.
    end: Option<Instant>,
}

impl DeliveryConnection {
    pub(in crate::nats) async fn open(config: &Config) -> Result<Self, ConnectorError> {
        let (connection, server_errors) = BrokerConnection::connect(config).await?;
        let inbox = Subject::from(connection.client.new_inbox());
        let subscriber = connection
            .ask(connection.client.subscribe(inbox.clone()))
            .await?
            .map_err(|error| connection.error().because(error))?;
        Ok(DeliveryConnection {
            connection,
            server_errors,
            inbox,
            messages: Messages { chunks: subscriber.ready_chunks(MAX_CHUNK_MESSAGES), end: None },
        })
    }
}

impl Messages {
    /// The next deliveries; `None` once async-nats has dropped the connection and everything read
    /// was returned. Cancel-safe.
    pub(in crate::nats) async fn next(
        &mut self,
        connection: &BrokerConnection,
    ) -> Option<Vec<async_nats::Message>> {
        tokio::select! {
            biased;
            chunk = self.chunks.next() => return chunk,
            () = connection.lost() => {}
        }
        let end = *self.end.get_or_insert_with(|| Instant::now() + LINGER_TIMEOUT);
        timeout_at(end, self.chunks.next()).await.ok().flatten()
    }
}
