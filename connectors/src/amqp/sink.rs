//! The sink: publications go to the lane of their exchange, outcomes come from there.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::config::Config;
use super::desk::{Desk, Item};
use super::lane;
use super::link::Link;
use super::names::too_long;
use super::properties::outgoing;
use super::queue;
use super::window::Place;
use crate::{ConnectorError, Destination, ErrorKind, Outcome, Outcomes, Publication, Sink};

pub(crate) async fn open(config: &Config, publish_timeout: Duration) -> Result<(AmqpSink, Outcomes), ConnectorError> {
    let link = Arc::new(Link::connect(config, "sink").await?);
    let (out, outcomes) = mpsc::unbounded_channel();
    let (desk, closed) = (Arc::new(Desk::new(out)), Arc::new(Notify::new()));
    tokio::spawn({
        let (link, desk, closed) = (Arc::clone(&link), Arc::clone(&desk), Arc::clone(&closed));
        async move {
            tokio::select! {
                () = link.lost() => desk.close(),
                () = closed.notified() => {}
            }
        }
    });
    Ok((AmqpSink { link, desk, closed, patience: publish_timeout }, outcomes))
}

pub(crate) struct AmqpSink {
    link: Arc<Link>,
    desk: Arc<Desk>,
    /// For the task that waits for the link's loss.
    closed: Arc<Notify>,
    patience: Duration,
}

impl AmqpSink {
    /// The publication as it goes out, or why it never can.
    fn item(&self, publication: Publication, latest: Instant) -> Result<Item, String> {
        let Publication { token, to, message, dedupe_id, deadline } = publication;
        if let Some(why) = too_long(&to) {
            return Err(why);
        }
        let properties = message.properties.map(|properties| *properties);
        let properties = outgoing(message.headers, properties, &dedupe_id, self.link.user(), self.link.frame_max())?;
        Ok(Item { token, to, body: message.body, properties, deadline: deadline.map_or(latest, |deadline| deadline.min(latest)) })
    }
}

#[async_trait]
impl Sink for AmqpSink {
    async fn publish(&self, batch: Vec<Publication>) {
        let (latest, mut items, mut invalid) = (Instant::now() + self.patience, Vec::with_capacity(batch.len()), Vec::new());
        for publication in batch {
            let token = publication.token;
            match self.item(publication, latest) {
                Ok(item) => items.push(item),
                Err(why) => invalid.push((token, Outcome::Invalid(why))),
            }
        }
        self.desk.take_in(items, invalid, |key, out| {
            let (link, desk) = (Arc::clone(&self.link), Arc::clone(&self.desk));
            lane::start(Place { link, desk, out, patience: self.patience }, key.clone())
        });
    }

    /// The queue, by way of the default exchange, or the exchange: whether a queue is bound to it for this key, AMQP cannot be asked.
    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        match self.link.blocked() {
            // The question would not even be sent.
            Some(why) => Err(ConnectorError::new(ErrorKind::Disconnected, why)),
            None => queue::exists(&self.link, to).await,
        }
    }

    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        self.desk.close();
        tokio::select! {
            biased;
            () = self.desk.all_sent() => Ok(()),
            () = self.link.lost() => Err(self.link.error()),
        }
    }
}

impl Drop for AmqpSink {
    /// The confirms that are out still arrive; then outcomes end, and the connection.
    fn drop(&mut self) {
        self.desk.close();
        self.closed.notify_one();
    }
}
