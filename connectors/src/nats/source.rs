//! The source: hands out the reader's messages in batches, and settles them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::ack::{ACK, NAK, reply_with};
use super::buffer::DeliveryBuffer;
use super::config::Config;
use super::connection::{BrokerConnection, permitted};
use super::reader::ReaderTask;
use super::{consumer, stream};
use crate::{
    Acks, Batch, BatchId, Caution, ConnectorError, ConsumerState, ErrorKind, Source, SourceOptions,
};

/// The most bytes of a message's subjects.
const MAX_SUBJECT_BYTES: usize = 8 << 10;

pub(crate) async fn open(
    config: &Config,
    options: SourceOptions,
) -> Result<NatsSource, ConnectorError> {
    let (connection, mut server_errors) = BrokerConnection::connect(config).await?;
    let consumer = permitted(&mut server_errors, async {
        let stream = stream_of(&connection, &options).await?;
        Box::pin(consumer::ensure(&connection, &stream, config, &options)).await
    });
    let consumer = consumer.await?;
    let connection = Arc::new(connection);
    let buffer = Arc::new(DeliveryBuffer::new(
        &options,
        connection.client.max_payload() + MAX_SUBJECT_BYTES,
    ));
    let reader = ReaderTask::start(
        config.clone(),
        Arc::clone(&connection),
        Arc::clone(&buffer),
        consumer,
        server_errors,
    )
    .await?;
    Ok(NatsSource { connection, buffer, options, closed: Some(reader) })
}

/// Returns the state that `open` would find.
pub(crate) async fn inspect(
    config: &Config,
    options: &SourceOptions,
) -> Result<ConsumerState, ConnectorError> {
    let (connection, mut server_errors) = BrokerConnection::connect(config).await?;
    permitted(&mut server_errors, async {
        let stream = stream_of(&connection, options).await?;
        Box::pin(consumer::inspect(&connection, &stream, config, options)).await
    })
    .await
}

/// The risks of the stream.
pub(crate) async fn cautions(
    config: &Config,
    options: &SourceOptions,
) -> Result<Vec<Caution>, ConnectorError> {
    let (connection, mut server_errors) = BrokerConnection::connect(config).await?;
    permitted(&mut server_errors, async {
        let stream = stream_of(&connection, options).await?;
        Box::pin(consumer::cautions(&connection, &stream, config, options)).await
    })
    .await
}

async fn stream_of(
    connection: &BrokerConnection,
    options: &SourceOptions,
) -> Result<String, ConnectorError> {
    stream::find(connection, &options.topic).await?.ok_or_else(|| {
        let failure = connection
            .fail(ErrorKind::Missing, &format!("no stream has the subject `{}`", options.topic));
        failure.hint(format!(
            "create a stream with the subject `{}`, or set `declare = true`",
            options.topic
        ))
    })
}

pub(crate) struct NatsSource {
    connection: Arc<BrokerConnection>,
    buffer: Arc<DeliveryBuffer>,
    options: SourceOptions,
    /// Answers when the reader has returned everything.
    closed: Option<oneshot::Receiver<Result<(), ConnectorError>>>,
}

impl NatsSource {
    async fn settle(&self, batch: BatchId, ack_text: &Bytes) -> Result<(), ConnectorError> {
        let replies = self.buffer.settle(batch);
        if self.options.acks == Acks::Explicit {
            self.connection
                .send_all(replies.into_iter().map(|reply| reply_with(reply, ack_text)))
                .await?;
        }
        self.buffer.wake_reader();
        Ok(())
    }
}

#[async_trait]
impl Source for NatsSource {
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
        self.settle(batch, &ACK).await
    }

    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.settle(batch, &NAK).await
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

impl Drop for NatsSource {
    /// The reader returns unsettled messages, as after `close`; nobody waits for it.
    fn drop(&mut self) {
        self.buffer.close();
    }
}
