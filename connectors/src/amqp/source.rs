//! The source: hands out the reader's messages in batches, and settles them.

mod expired;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{try_join, try_join_all};
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::sync::{Mutex, oneshot};

use self::expired::SourceWithExpired;
use super::buffer::{DeliveryBuffer, Settle};
use super::config::Config;
use super::connection::BrokerConnection;
use super::fault::error_text;
use super::limit;
use super::queue::readable;
use super::read_limiter::ReadLimiter;
use super::reader::ReaderTask;
use crate::{
    Batch, BatchId, Caution, ConnectorError, ConsumerState, ErrorKind, Source, SourceOptions,
};

/// The divisor for the expired queue's share of the memory: few messages come from there.
const EXPIRED_SHARE_DIVISOR: usize = 8;

pub(crate) async fn open(
    config: &Config,
    mut options: SourceOptions,
) -> Result<Box<dyn Source>, ConnectorError> {
    let connection = BrokerConnection::connect(config, "check").await?;
    let waiting = readable(&connection, &options).await?;
    connection.close().await;
    let Some(expired) = options.expired_queue.take() else {
        return Ok(Box::new(open_one(config, options).await?));
    };
    let share = options.max_unsettled_bytes / EXPIRED_SHARE_DIVISOR;
    let beside = SourceOptions { topic: expired, max_unsettled_bytes: share, ..options.clone() };
    let own = SourceOptions {
        max_unsettled_bytes: options.max_unsettled_bytes - share,
        ..options.clone()
    };
    let (queue, expired) = try_join(open_one(config, own), open_one(config, beside)).await?;
    Ok(Box::new(SourceWithExpired::new(options.topic, queue, expired, waiting)))
}

async fn open_one(config: &Config, options: SourceOptions) -> Result<AmqpSource, ConnectorError> {
    let limiter = Arc::new(ReadLimiter::new(options.max_unsettled_bytes));
    let connection =
        Arc::new(BrokerConnection::limited(config, "source", Some(Arc::clone(&limiter))).await?);
    let channel = connection.channel().await?;
    let buffer = Arc::new(DeliveryBuffer::new(Arc::clone(&limiter)));
    let started = ReaderTask::start(
        Arc::clone(&connection),
        channel.clone(),
        Arc::clone(&buffer),
        limiter,
        &options,
    )
    .await;
    let reader = match started {
        Ok(reader) => reader,
        Err(error) => return Err(refused(config, &options.topic, error).await),
    };
    Ok(AmqpSource {
        connection,
        channel,
        buffer,
        options,
        settling: Mutex::default(),
        closed: Some(reader),
    })
}

/// Why the queue was not read: the error, or that it is a stream. RabbitMQ words that in many ways,
/// and may end the connection.
async fn refused(config: &Config, queue: &str, error: ConnectorError) -> ConnectorError {
    if error.kind != ErrorKind::Disconnected {
        return error;
    }
    let Ok(connection) = BrokerConnection::connect(config, "check").await else { return error };
    let is_stream = matches!(limit::is_stream(&connection, queue).await, Ok(true));
    connection.close().await;
    if is_stream { no_stream(&connection, queue) } else { error }
}

/// Returns the state that `open` would find. A missing read permission shows only when the queues
/// are read.
pub(crate) async fn inspect(
    config: &Config,
    options: &SourceOptions,
) -> Result<ConsumerState, ConnectorError> {
    let connection = BrokerConnection::connect(config, "check").await?;
    readable(&connection, options).await?;
    for queue in [Some(&options.topic), options.expired_queue.as_ref()].into_iter().flatten() {
        if limit::is_stream(&connection, queue).await? {
            return Err(no_stream(&connection, queue));
        }
    }
    connection.close().await;
    Ok(ConsumerState::Exists)
}

/// The error for a stream: it keeps no place for a reader, so what came while no Dwell ran would be
/// skipped, and two instances would read each request twice.
fn no_stream(connection: &BrokerConnection, queue: &str) -> ConnectorError {
    let failure = connection.fail(
        ErrorKind::Config,
        &format!("`{queue}` is a stream, which keeps no place for its readers: requests would be skipped or read twice"),
    );
    failure.hint("read a quorum queue: bind one to the exchange that the producers publish to")
}

/// The risks of the queues.
pub(crate) async fn cautions(
    config: &Config,
    options: &SourceOptions,
) -> Result<Vec<Caution>, ConnectorError> {
    let connection = BrokerConnection::connect(config, "check").await?;
    readable(&connection, options).await?;
    let cautions = limit::cautions(&connection, options).await?;
    connection.close().await;
    Ok(cautions)
}

pub(crate) struct AmqpSource {
    connection: Arc<BrokerConnection>,
    channel: Channel,
    buffer: Arc<DeliveryBuffer>,
    options: SourceOptions,
    /// Held while acks or nacks are written: one for all earlier deliveries must not overtake
    /// others.
    settling: Mutex<()>,
    /// Answers when the reader has returned everything.
    closed: Option<oneshot::Receiver<Result<(), ConnectorError>>>,
}

impl AmqpSource {
    /// Acks or nacks a batch, and waits until that is written. A caller that stops waiting must
    /// drop the source: a later ack for all earlier deliveries would include messages whose ack was
    /// not written.
    async fn settle<F>(
        &self,
        batch: BatchId,
        word: impl Fn(Settle) -> F,
    ) -> Result<(), ConnectorError>
    where
        F: Future<Output = lapin::Result<()>> + Send,
    {
        let _alone = self.settling.lock().await;
        let words = try_join_all(self.buffer.settle(batch).into_iter().map(word));
        tokio::select! {
            biased;
            written = words => written.map(drop).map_err(|error| {
                self.connection.fail(ErrorKind::Disconnected, &format!("cannot ack or nack messages: {}", error_text(&error))).because(error)
            }),
            () = self.connection.lost() => Err(self.connection.error()),
        }
    }
}

#[async_trait]
impl Source for AmqpSource {
    async fn recv(&self) -> Result<Batch, ConnectorError> {
        loop {
            if let Some(batch) =
                self.buffer.take(self.options.max_batch, self.options.max_batch_bytes)?
            {
                return Ok(batch);
            }
            self.buffer.arrived().await;
        }
    }

    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, |Settle { tag, multiple }| {
            self.channel.basic_ack(tag, BasicAckOptions { multiple })
        })
        .await
    }

    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, |Settle { tag, multiple }| {
            self.channel.basic_nack(tag, BasicNackOptions { multiple, requeue: true })
        })
        .await
    }

    async fn pause(&self, paused: bool) -> Result<(), ConnectorError> {
        self.buffer.pause(paused);
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<(), ConnectorError> {
        self.buffer.close();
        match self.closed.take() {
            Some(closed) => closed.await.unwrap_or_else(|_| Err(self.connection.error())),
            None => Ok(()),
        }
    }
}

impl Drop for AmqpSource {
    /// The reader returns unsettled messages, as after `close`; nobody waits for it.
    fn drop(&mut self) {
        self.buffer.close();
    }
}
