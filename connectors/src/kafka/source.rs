//! The source: hands out the reader's messages in batches, and settles them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::consumer::Consumer;
use tracing::debug;

use super::buffer::DeliveryBuffer;
use super::config::{ClientRole, Config};
use super::connection::{Context, blocking, failed};
use super::reader::{Closed, GroupConsumer, ReaderTask, missing};
use super::{group_start, topic};
use crate::{
    Batch, BatchId, ConnectorError, ConsumerState, ErrorKind, Source, SourceOptions, Start,
};

/// The longest time to open a source or to inspect it: more than its own timeouts together. With a
/// time as the start of a new group these are 5 s to connect, twice 8 s for the committed offsets,
/// 16 s for the offsets of the partitions, and 12 s for the messages without a time. The commit of
/// the start has none.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait for the end of a source.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);
/// The time of one poll for the client's events.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);

pub(crate) async fn open(
    config: &Config,
    options: SourceOptions,
) -> Result<KafkaSource, ConnectorError> {
    blocking(config, OPEN_TIMEOUT, move |config| {
        let buffer = Arc::new(DeliveryBuffer::new(&options));
        let Connected { consumer, known, count } = connect(&config, &options, Arc::clone(&buffer))?;
        let topic = options.topic.clone();
        if !known
            && options.start != Start::Earliest
            && !group_start::commit(&config, &consumer, &options, count)?
        {
            debug!(
                topic,
                group = options.group,
                "another member of the group has committed its start"
            );
        }
        consumer
            .subscribe(&[&topic])
            .map_err(|error| failed(&config, &format!("cannot read `{topic}`"), error))?;
        let closed = ReaderTask::start(config.clone(), consumer, Arc::clone(&buffer), topic)?;
        Ok(KafkaSource { config, buffer, options, closed: Some(closed) })
    })
    .await
}

/// Returns the state that `open` would find.
pub(crate) async fn inspect(
    config: &Config,
    options: &SourceOptions,
) -> Result<ConsumerState, ConnectorError> {
    let options = options.clone();
    blocking(config, OPEN_TIMEOUT, move |config| {
        let Connected { consumer, known, count } =
            connect(&config, &options, Arc::new(DeliveryBuffer::new(&options)))?;
        if known {
            return Ok(ConsumerState::Exists);
        }
        group_start::inspect(&config, &consumer, &options, count)
            .map(|read| ConsumerState::Made(Some(read)))
    })
    .await
}

/// A consumer that has not joined its group.
struct Connected {
    consumer: GroupConsumer,
    /// Whether the group has read the topic before.
    known: bool,
    /// The number of partitions of the topic.
    count: i32,
}

/// Connects, and checks that the topic can be read.
fn connect(
    config: &Config,
    options: &SourceOptions,
    buffer: Arc<DeliveryBuffer>,
) -> Result<Connected, ConnectorError> {
    if let Some(why) = topic::malformed(&options.topic) {
        return Err(config.fail(ErrorKind::Config, &why));
    }
    if options.group.is_empty() {
        return Err(config.fail(ErrorKind::Config, "the group is empty"));
    }
    let role = ClientRole::Reader { group: &options.group, bytes: options.max_unsettled_bytes };
    let consumer: GroupConsumer = config
        .client(role)?
        .create_with_context(Context::new(config, role, buffer))
        .map_err(|error| failed(config, "cannot create a client", error))?;
    let poll = || drop(consumer.poll(POLL_TIMEOUT));
    let Some(count) = topic::partitions(config, consumer.client(), &options.topic, poll)? else {
        return Err(missing(config, &options.topic));
    };
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    let known = group_start::is_known(config, &consumer, &options.topic, &options.group, count)?;
    Ok(Connected { consumer, known, count })
}

pub(crate) struct KafkaSource {
    config: Config,
    buffer: Arc<DeliveryBuffer>,
    options: SourceOptions,
    closed: Option<Closed>,
}

#[async_trait]
impl Source for KafkaSource {
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

    async fn reads(&self) {
        self.buffer.shared_out().await;
    }

    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.buffer.settle(batch, true)
    }

    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        self.buffer.settle(batch, false)
    }

    async fn pause(&self, paused: bool) -> Result<(), ConnectorError> {
        self.buffer.pause(paused);
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<(), ConnectorError> {
        self.buffer.close();
        let Some(closed) = self.closed.take() else { return Ok(()) };
        match tokio::time::timeout(CLOSE_TIMEOUT, closed).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(self.config.fail(
                ErrorKind::Disconnected,
                "the reader did not confirm that it left the group",
            )),
        }
    }
}

impl Drop for KafkaSource {
    /// The reader commits settled offsets and leaves the group, as after `close`; nobody waits for
    /// it.
    fn drop(&mut self) {
        self.buffer.close();
    }
}
