//! The sink: passes publications to the publisher of their exchange.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::config::Config;
use super::connection::BrokerConnection;
use super::names::too_long;
use super::properties::outgoing;
use super::publisher;
use super::queue;
use super::router::{Item, PublishRouter};
use super::window::PublisherContext;
use crate::{ConnectorError, Destination, ErrorKind, Outcome, Outcomes, Publication, Sink};

pub(crate) async fn open(
    config: &Config,
    publish_timeout: Duration,
) -> Result<(AmqpSink, Outcomes), ConnectorError> {
    let connection = Arc::new(BrokerConnection::connect(config, "sink").await?);
    // A limit of channels ends the connection with the first publication. Here it is an error.
    connection.release(connection.channel().await?).await?;
    let (out, outcomes) = mpsc::unbounded_channel();
    let (router, closed) = (Arc::new(PublishRouter::new(out)), Arc::new(Notify::new()));
    tokio::spawn({
        let (connection, router, closed) =
            (Arc::clone(&connection), Arc::clone(&router), Arc::clone(&closed));
        async move {
            tokio::select! {
                () = connection.lost() => router.close(),
                () = closed.notified() => {}
            }
        }
    });
    Ok((AmqpSink { connection, router, closed, publish_timeout }, outcomes))
}

pub(crate) struct AmqpSink {
    connection: Arc<BrokerConnection>,
    router: Arc<PublishRouter>,
    /// Ends the task that waits for the loss of the connection.
    closed: Arc<Notify>,
    publish_timeout: Duration,
}

impl AmqpSink {
    /// The publication for a publisher, or why it can never be published.
    fn item(&self, publication: Publication, latest: Instant) -> Result<Item, String> {
        let Publication { token, to, message, dedupe_id, deadline } = publication;
        if let Some(why) = too_long(&to) {
            return Err(why);
        }
        let properties = message.properties.map(|properties| *properties);
        let properties = outgoing(
            message.headers,
            properties,
            &dedupe_id,
            self.connection.user(),
            self.connection.frame_max(),
        )?;
        Ok(Item {
            token,
            to,
            body: message.body,
            properties,
            deadline: deadline.map_or(latest, |deadline| deadline.min(latest)),
        })
    }
}

#[async_trait]
impl Sink for AmqpSink {
    async fn publish(&self, batch: Vec<Publication>) {
        let (latest, mut items, mut invalid) =
            (Instant::now() + self.publish_timeout, Vec::with_capacity(batch.len()), Vec::new());
        for publication in batch {
            let token = publication.token;
            match self.item(publication, latest) {
                Ok(item) => items.push(item),
                Err(why) => invalid.push((token, Outcome::Invalid(why))),
            }
        }
        self.router.take_in(items, invalid, |key, out| {
            let (connection, router) = (Arc::clone(&self.connection), Arc::clone(&self.router));
            publisher::start(
                PublisherContext { connection, router, out, publish_timeout: self.publish_timeout },
                key.clone(),
            )
        });
    }

    /// Checks the queue for the default exchange, otherwise the exchange. AMQP has no request for
    /// bindings, so whether a queue is bound for the routing key is unknown.
    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        match self.connection.blocked() {
            // The question would not even be sent.
            Some(why) => Err(ConnectorError::new(ErrorKind::Disconnected, why)),
            None => queue::exists(&self.connection, to).await,
        }
    }

    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        self.router.close();
        tokio::select! {
            biased;
            () = self.router.all_sent() => Ok(()),
            () = self.connection.lost() => Err(self.connection.error()),
        }
    }
}

impl Drop for AmqpSink {
    /// Outstanding confirms still arrive; then the outcomes and the connection end.
    fn drop(&mut self) {
        self.router.close();
        self.closed.notify_one();
    }
}
