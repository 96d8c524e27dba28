//! The source: what the pump reads is handed out in batches and settled.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{try_join, try_join_all};
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::sync::{Mutex, oneshot};

use super::config::Config;
use super::expired::Both;
use super::fault::said;
use super::gate::Gate;
use super::limit;
use super::link::Link;
use super::pump::Pump;
use super::queue::readable;
use super::shelf::{Settle, Shelf};
use crate::{Batch, BatchId, Caution, ConnectorError, ErrorKind, Reader, Source, SourceOptions};

/// Of the bytes that a source may hold, what is for the expired queue: hardly anything comes from there.
const SHARE: usize = 8;

pub(crate) async fn open(config: &Config, mut options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError> {
    let link = Link::connect(config, "check").await?;
    let waiting = readable(&link, &options).await?;
    link.close().await;
    let Some(expired) = options.expired_queue.take() else { return Ok(Box::new(open_one(config, options).await?)) };
    let share = options.max_unsettled_bytes / SHARE;
    let beside = SourceOptions { topic: expired, max_unsettled_bytes: share, ..options.clone() };
    let own = SourceOptions { max_unsettled_bytes: options.max_unsettled_bytes - share, ..options.clone() };
    let (queue, expired) = try_join(open_one(config, own), open_one(config, beside)).await?;
    Ok(Box::new(Both::new(options.topic, queue, expired, waiting)))
}

async fn open_one(config: &Config, options: SourceOptions) -> Result<AmqpSource, ConnectorError> {
    let gate = Arc::new(Gate::new(options.max_unsettled_bytes));
    let link = Arc::new(Link::gated(config, "source", Some(Arc::clone(&gate))).await?);
    let channel = link.channel().await?;
    let shelf = Arc::new(Shelf::new(Arc::clone(&gate)));
    let pump = Pump::start(Arc::clone(&link), channel.clone(), Arc::clone(&shelf), gate, &options).await?;
    Ok(AmqpSource { link, channel, shelf, options, settling: Mutex::default(), closed: Some(pump) })
}

/// What `open` would find. Whether the user may read the queues shows only when they are read.
pub(crate) async fn look(config: &Config, options: &SourceOptions) -> Result<Reader, ConnectorError> {
    let link = Link::connect(config, "check").await?;
    readable(&link, options).await?;
    link.close().await;
    Ok(Reader::Exists)
}

/// What somebody should know of the queues.
pub(crate) async fn cautions(config: &Config, options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
    let link = Link::connect(config, "check").await?;
    readable(&link, options).await?;
    let cautions = limit::cautions(&link, options).await?;
    link.close().await;
    Ok(cautions)
}

pub(crate) struct AmqpSource {
    link: Arc<Link>,
    channel: Channel,
    shelf: Arc<Shelf>,
    options: SourceOptions,
    /// Held while words for a batch go out: one that is for all before it must not overtake those.
    settling: Mutex<()>,
    /// Answers when the pump has given everything back.
    closed: Option<oneshot::Receiver<Result<(), ConnectorError>>>,
}

impl AmqpSource {
    /// Says a word for each message of a batch, and waits until they are written. Who stops waiting must drop the source: a later word for all
    /// before it would be for those that were not said, too.
    async fn settle<F>(&self, batch: BatchId, word: impl Fn(Settle) -> F) -> Result<(), ConnectorError>
    where
        F: Future<Output = lapin::Result<()>> + Send,
    {
        let _alone = self.settling.lock().await;
        let words = try_join_all(self.shelf.settle(batch).into_iter().map(word));
        tokio::select! {
            biased;
            written = words => written.map(drop).map_err(|error| {
                self.link.fail(ErrorKind::Disconnected, &format!("cannot settle what was read: {}", said(&error))).because(error)
            }),
            () = self.link.lost() => Err(self.link.error()),
        }
    }
}

#[async_trait]
impl Source for AmqpSource {
    async fn recv(&self) -> Result<Batch, ConnectorError> {
        loop {
            if let Some(batch) = self.shelf.take(self.options.max_batch, self.options.max_batch_bytes)? {
                return Ok(batch);
            }
            self.shelf.arrived().await;
        }
    }

    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, |Settle { tag, multiple }| self.channel.basic_ack(tag, BasicAckOptions { multiple })).await
    }

    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, |Settle { tag, multiple }| self.channel.basic_nack(tag, BasicNackOptions { multiple, requeue: true })).await
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

impl Drop for AmqpSource {
    /// The pump gives back what is unsettled, as after `close`; nobody waits for it.
    fn drop(&mut self) {
        self.shelf.close();
    }
}
