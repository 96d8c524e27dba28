//! The connection that messages come on. It carries nothing else, because the client library ends it on a message that it cannot read.

use async_nats::{Subject, Subscriber};
use futures_util::stream::ReadyChunks;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;

use super::config::Config;
use super::link::Link;
use crate::ConnectorError;

/// The most messages that are taken over at once.
const CHUNK: usize = 512;

pub(super) struct Line {
    pub(super) link: Link,
    /// What the server says beside.
    pub(super) complaints: mpsc::UnboundedReceiver<String>,
    /// Where messages are sent to.
    pub(super) inbox: Subject,
    pub(super) messages: Messages,
}

/// What comes in on a line.
pub(super) struct Messages(ReadyChunks<Subscriber>);

impl Line {
    pub(super) async fn open(config: &Config) -> Result<Self, ConnectorError> {
        let (link, complaints) = Link::connect(config).await?;
        let inbox = Subject::from(link.client.new_inbox());
        let subscriber = link.ask(link.client.subscribe(inbox.clone())).await?.map_err(|error| link.error().because(error))?;
        Ok(Line { link, complaints, inbox, messages: Messages(subscriber.ready_chunks(CHUNK)) })
    }
}

impl Messages {
    /// What arrived; `None` once the link is gone and all that it read was given.
    pub(super) async fn next(&mut self, link: &Link) -> Option<Vec<async_nats::Message>> {
        tokio::select! {
            biased;
            chunk = self.0.next() => chunk,
            // The client has handed over what it read before it says that the link is gone.
            () = link.lost() => self.0.next().now_or_never().flatten(),
        }
    }
}
