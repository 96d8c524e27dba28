//! The source: what the pump reads is handed out in batches and settled.

use std::sync::Arc;

use async_nats::Subject;
use async_nats::message::OutboundMessage;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::config::Config;
use super::link::{Link, permitted};
use super::pump::Pump;
use super::shelf::Shelf;
use super::{consumer, stream};
use crate::{Acks, Batch, BatchId, ConnectorError, ErrorKind, Reader, Source, SourceOptions};

/// The server forgets the message.
pub(super) const ACK: Bytes = Bytes::from_static(b"+ACK");
/// The server delivers the message again, at once.
pub(super) const NAK: Bytes = Bytes::from_static(b"-NAK");
/// The server's patience with the message begins anew.
pub(super) const IN_PROGRESS: Bytes = Bytes::from_static(b"+WPI");

/// What the subjects of a message take at most besides it, bytes.
const SUBJECTS: usize = 8 << 10;

pub(crate) async fn open(config: &Config, options: SourceOptions) -> Result<NatsSource, ConnectorError> {
    let (link, mut complaints) = Link::connect(config).await?;
    let consumer = permitted(&mut complaints, async {
        let stream = stream_of(&link, &options).await?;
        Box::pin(consumer::ensure(&link, &stream, config, &options)).await
    });
    let consumer = consumer.await?;
    let link = Arc::new(link);
    let shelf = Arc::new(Shelf::new(&options, link.client.max_payload() + SUBJECTS));
    let pump = Pump::start(config.clone(), Arc::clone(&link), Arc::clone(&shelf), consumer, complaints).await?;
    Ok(NatsSource { link, shelf, options, closed: Some(pump) })
}

/// What `open` would find.
pub(crate) async fn look(config: &Config, options: &SourceOptions) -> Result<Reader, ConnectorError> {
    let (link, mut complaints) = Link::connect(config).await?;
    permitted(&mut complaints, async {
        let stream = stream_of(&link, options).await?;
        Box::pin(consumer::look(&link, &stream, config, options)).await
    })
    .await
}

async fn stream_of(link: &Link, options: &SourceOptions) -> Result<String, ConnectorError> {
    stream::find(link, &options.topic).await?.ok_or_else(|| {
        let failure = link.fail(ErrorKind::Missing, &format!("no stream has the subject `{}`", options.topic));
        failure.hint(format!("create a stream with the subject `{}`, or set `declare = true`", options.topic))
    })
}

pub(crate) struct NatsSource {
    link: Arc<Link>,
    shelf: Arc<Shelf>,
    options: SourceOptions,
    /// Answers when the pump has given everything back.
    closed: Option<oneshot::Receiver<Result<(), ConnectorError>>>,
}

impl NatsSource {
    async fn settle(&self, batch: BatchId, word: &Bytes) -> Result<(), ConnectorError> {
        let replies = self.shelf.settle(batch);
        if self.options.acks == Acks::Explicit {
            for reply in replies {
                self.link.send(answer(reply, word)).await?;
            }
        }
        self.shelf.wake_pump();
        Ok(())
    }
}

/// A word on a delivered message.
pub(super) fn answer(reply: Subject, word: &Bytes) -> OutboundMessage {
    OutboundMessage { subject: reply, reply: None, payload: word.clone(), headers: None }
}

#[async_trait]
impl Source for NatsSource {
    async fn recv(&self) -> Result<Batch, ConnectorError> {
        loop {
            if let Some(batch) = self.shelf.take(self.options.max_batch, self.options.max_batch_bytes)? {
                return Ok(batch);
            }
            self.shelf.arrived().await;
        }
    }

    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, &ACK).await
    }

    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, &NAK).await
    }

    async fn pause(&self, paused: bool) -> Result<(), ConnectorError> {
        self.shelf.pause(paused);
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<(), ConnectorError> {
        self.shelf.close();
        match self.closed.take() {
            Some(closed) => closed.await.unwrap_or_else(|_| Err(self.link.error())),
            None => Ok(()),
        }
    }
}

impl Drop for NatsSource {
    /// The pump gives back what is unsettled, as after `close`; nobody waits for it.
    fn drop(&mut self) {
        self.shelf.close();
    }
}
