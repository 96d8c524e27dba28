//! The connection that messages come on. It carries nothing else, because the client library ends it on a message that it cannot read.

use async_nats::{Subject, Subscriber};
use futures_util::StreamExt;
use futures_util::stream::ReadyChunks;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout_at};

use super::config::Config;
use super::link::Link;
use crate::ConnectorError;

/// The most messages that are taken over at once.
const CHUNK: usize = 512;
/// How long the client may take to let go of a connection that is lost. Until then the server sends messages into it.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct Line {
    pub(super) link: Link,
    /// What the server says beside.
    pub(super) complaints: mpsc::UnboundedReceiver<String>,
    /// Where messages are sent to.
    pub(super) inbox: Subject,
    pub(super) messages: Messages,
}

/// What comes in on a line.
pub(super) struct Messages {
    chunks: ReadyChunks<Subscriber>,
    /// When to wait no longer for the end, once the link is lost.
    end: Option<Instant>,
}

impl Line {
    pub(super) async fn open(config: &Config) -> Result<Self, ConnectorError> {
        let (link, complaints) = Link::connect(config).await?;
        let inbox = Subject::from(link.client.new_inbox());
        let subscriber = link.ask(link.client.subscribe(inbox.clone())).await?.map_err(|error| link.error().because(error))?;
        Ok(Line { link, complaints, inbox, messages: Messages { chunks: subscriber.ready_chunks(CHUNK), end: None } })
    }
}

impl Messages {
    /// What arrived; `None` once the client has let go of the connection, and all that it read was given. Cancel-safe.
    pub(super) async fn next(&mut self, link: &Link) -> Option<Vec<async_nats::Message>> {
        tokio::select! {
            biased;
            chunk = self.chunks.next() => return chunk,
            () = link.lost() => {}
        }
        let end = *self.end.get_or_insert_with(|| Instant::now() + LINGER);
        timeout_at(end, self.chunks.next()).await.ok().flatten()
    }
}
