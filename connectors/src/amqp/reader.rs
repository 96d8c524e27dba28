//! The reader of a source: takes over deliveries, stops them while paused, and returns unsettled
//! messages at the end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{ReadyChunks, StreamExt};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::sync::oneshot;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::buffer::DeliveryBuffer;
use super::connection::BrokerConnection;
use super::delivery::Delivery;
use super::fault::{code, error_text, reply_code};
use super::queue::short;
use super::read_limiter::ReadLimiter;
use crate::{ConnectorError, ErrorKind, SourceOptions};

/// An argument with its default value, which every queue takes and a stream refuses.
pub(super) const PRIORITY_ARGUMENT: &str = "x-priority";
/// The most messages taken over at once.
const MAX_CHUNK_MESSAGES: usize = 512;
/// The assumed memory of a message before any was delivered, in bytes.
const INITIAL_MESSAGE_BYTES: usize = 1 << 20;
/// The number of messages after which their size is a good estimate.
const MIN_SAMPLE_MESSAGES: usize = 16;
/// A prefetch that is too large or too small by this factor is replaced.
const PREFETCH_TOLERANCE_FACTOR: u16 = 4;
/// The heartbeat interval while the socket is not read: shorter than the shortest heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// The task that reads.
pub(super) struct ReaderTask {
    connection: Arc<BrokerConnection>,
    channel: Channel,
    buffer: Arc<DeliveryBuffer>,
    limiter: Arc<ReadLimiter>,
    queue: String,
    group: String,
    max_unsettled: u16,
    max_bytes: usize,
    reading: Option<Reading>,
    /// The number of consumers so far.
    count: u64,
    /// The estimated memory of a message, in bytes, and the number of messages so far.
    each: usize,
    came: usize,
    heartbeat: Interval,
}

/// An active consumer.
struct Reading {
    messages: ReadyChunks<Consumer>,
    tag: ShortString,
    prefetch: u16,
    /// Cancellation was requested or confirmed; messages on their way still come. The confirmation
    /// comes after those, so it may have to wait for room.
    stopping: Option<Stopping>,
}

enum Stopping {
    Asked(BoxFuture<'static, lapin::Result<()>>),
    Answered,
}

impl ReaderTask {
    /// Starts the reader. The receiver answers once the reader has ended and returned everything.
    pub(super) async fn start(
        connection: Arc<BrokerConnection>,
        channel: Channel,
        buffer: Arc<DeliveryBuffer>,
        limiter: Arc<ReadLimiter>,
        options: &SourceOptions,
    ) -> Result<oneshot::Receiver<Result<(), ConnectorError>>, ConnectorError> {
        let (queue, group) = (options.topic.clone(), options.group.clone());
        // 0 would mean unlimited.
        let max_unsettled = u16::try_from(options.max_unsettled.max(1)).unwrap_or(u16::MAX);
        let mut heartbeat = interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let max_bytes = options.max_unsettled_bytes;
        let (reading, count, each, came) = (None, 0, INITIAL_MESSAGE_BYTES, 0);
        let mut reader = ReaderTask {
            connection,
            channel,
            buffer,
            limiter,
            queue,
            group,
            max_unsettled,
            max_bytes,
            reading,
            count,
            each,
            came,
            heartbeat,
        };
        reader.read(reader.wanted()).await?;
        let (done, closed) = oneshot::channel();
        tokio::spawn(async move {
            let result = match reader.run().await {
                Ok(()) => reader.give_back().await,
                Err(error) => {
                    reader.buffer.end(&error);
                    Err(error)
                }
            };
            reader.connection.close().await;
            // After a drop nobody waits.
            let _ = done.send(result);
        });
        Ok(closed)
    }

    /// The number of unsettled messages wanted: as many as fit, by the recent sizes.
    fn wanted(&self) -> u16 {
        u16::try_from(self.max_bytes / self.each).unwrap_or(u16::MAX).clamp(1, self.max_unsettled)
    }

    /// The prefetch for a new consumer. The broker does not count the previous consumer's unsettled
    /// messages towards it. A consumer keeps its prefetch for life, so the reader waits rather than
    /// take a small one. While the socket is not read, no answer would come.
    fn room(&self) -> Option<u16> {
        let unsettled = u16::try_from(self.buffer.unsettled()).unwrap_or(u16::MAX);
        let wanted = self.wanted();
        Some(wanted.saturating_sub(unsettled))
            .filter(|room| *room >= wanted.div_ceil(2) && !self.limiter.is_full())
    }

    /// Whether the prefetch is far too large or far too small.
    fn is_off(&self, prefetch: u16) -> bool {
        let wanted = self.wanted();
        self.came >= MIN_SAMPLE_MESSAGES
            && (wanted / PREFETCH_TOLERANCE_FACTOR >= prefetch
                || prefetch / PREFETCH_TOLERANCE_FACTOR >= wanted)
    }

    /// Starts a consumer with this prefetch. Its tag is chosen here, so that the broker's tools
    /// show who reads.
    async fn read(&mut self, room: u16) -> Result<(), ConnectorError> {
        let bounded =
            self.connection.ask(self.channel.basic_qos(room, BasicQosOptions::default())).await?;
        bounded.map_err(|error| self.broken(error))?;
        self.count += 1;
        let tag =
            ShortString::try_new(format!("{}-{}", self.group, self.count)).unwrap_or_default();
        let mut arguments = FieldTable::default();
        arguments.insert(PRIORITY_ARGUMENT.into(), AMQPValue::LongInt(0));
        let consuming = self.channel.basic_consume(
            short(&self.queue)?,
            tag,
            BasicConsumeOptions::default(),
            arguments,
        );
        let consumer = self.connection.ask(consuming).await?.map_err(|error| self.broken(error))?;
        let tag = consumer.tag();
        self.reading = Some(Reading {
            messages: consumer.ready_chunks(MAX_CHUNK_MESSAGES),
            tag,
            prefetch: room,
            stopping: None,
        });
        Ok(())
    }

    /// Works until the source closes.
    async fn run(&mut self) -> Result<(), ConnectorError> {
        loop {
            let (paused, closing) = self.buffer.status();
            if closing {
                return Ok(());
            }
            match &self.reading {
                None if !paused => {
                    if let Some(room) = self.room() {
                        self.read(room).await?;
                        continue;
                    }
                }
                Some(Reading { stopping: None, prefetch, .. })
                    if paused || self.is_off(*prefetch) =>
                {
                    self.stop()
                }
                _ => {}
            }
            tokio::select! {
                biased;
                () = self.connection.lost() => return Err(self.connection.error()),
                event = next(&mut self.reading) => match event {
                    Event::Came(chunk) => self.take(chunk)?,
                    Event::Stopped(answer) => answer.map_err(|error| self.broken(error))?,
                },
                () = self.buffer.wake.notified() => {}
                _ = self.heartbeat.tick() => self.limiter.send_heartbeat(),
            }
        }
    }

    /// Cancels the consumer.
    fn stop(&mut self) {
        if let Some(reading) = &mut self.reading {
            let (channel, tag) = (self.channel.clone(), reading.tag.clone());
            let asked =
                async move { channel.basic_cancel(tag, BasicCancelOptions::default()).await };
            reading.stopping = Some(Stopping::Asked(asked.boxed()));
        }
    }

    /// Takes over deliveries, or the end of the consumer.
    fn take(
        &mut self,
        chunk: Option<Vec<lapin::Result<lapin::message::Delivery>>>,
    ) -> Result<(), ConnectorError> {
        let Some(chunk) = chunk else {
            let stopped = self.reading.take().is_some_and(|reading| reading.stopping.is_some());
            self.limiter.clear_pending();
            if stopped {
                return Ok(());
            }
            let why = format!(
                "the broker stopped delivering from the queue `{}`: it was deleted, or its leader moved",
                self.queue
            );
            return Err(self.connection.fail(ErrorKind::Disconnected, &why));
        };
        let mut deliveries = Vec::with_capacity(chunk.len());
        let mut broken = None;
        for delivery in chunk {
            match delivery {
                Ok(delivery) => deliveries.push(delivery.into()),
                Err(error) => broken = Some(self.broken(error)),
            }
        }
        self.learn(&deliveries);
        self.buffer.put(deliveries);
        broken.map_or(Ok(()), Err)
    }

    /// Updates the size estimate: a higher size counts at once, a lower one gradually.
    fn learn(&mut self, deliveries: &[Delivery]) {
        if !deliveries.is_empty() {
            let mean =
                deliveries.iter().map(|delivery| delivery.bytes).sum::<usize>() / deliveries.len();
            self.came = self.came.saturating_add(deliveries.len());
            let forgets = self.each.saturating_sub(mean) * deliveries.len()
                / (deliveries.len() + MIN_SAMPLE_MESSAGES);
            self.each = mean.max(self.each - forgets).max(1);
        }
    }

    /// The error that ended the channel.
    fn broken(&self, error: lapin::Error) -> ConnectorError {
        let (kind, hint) = match reply_code(&error) {
            Some(code::ACCESS_REFUSED) => (
                ErrorKind::Denied,
                "grant the user the right to read the queue (rabbitmqctl set_permissions)",
            ),
            Some(code::NOT_FOUND) => {
                (ErrorKind::Missing, "create the queue, or set `declare = true`")
            }
            _ => (ErrorKind::Disconnected, ""),
        };
        let why = format!("cannot read the queue `{}`: {}", self.queue, error_text(&error));
        self.connection.fail(kind, &why).hint(hint).because(error)
    }

    /// Closes the channel: the broker reads every ack and then redelivers the unsettled messages to
    /// others. Its answer comes after messages on their way, which are read and discarded.
    async fn give_back(&mut self) -> Result<(), ConnectorError> {
        self.limiter.disable();
        let (connection, channel) = (Arc::clone(&self.connection), self.channel.clone());
        let closing = connection.ask(channel.close(200, "".into()));
        tokio::pin!(closing);
        let closed = loop {
            tokio::select! {
                biased;
                closed = &mut closing => break closed?,
                Event::Came(Some(_)) = next(&mut self.reading) => {}
            }
        };
        closed.map_err(|error| {
            self.connection
                .fail(ErrorKind::Disconnected, "the broker did not confirm the last acks")
                .because(error)
        })
    }
}

/// An event of the consumer.
enum Event {
    Came(Option<Vec<lapin::Result<lapin::message::Delivery>>>),
    /// The broker confirmed the cancellation.
    Stopped(lapin::Result<()>),
}

/// The next event; pending forever without a consumer.
async fn next(reading: &mut Option<Reading>) -> Event {
    let Some(Reading { messages, stopping, .. }) = reading else {
        return std::future::pending().await;
    };
    let Some(Stopping::Asked(asked)) = stopping else { return Event::Came(messages.next().await) };
    tokio::select! {
        biased;
        chunk = messages.next() => Event::Came(chunk),
        answer = asked => {
            *stopping = Some(Stopping::Answered);
            Event::Stopped(answer)
        }
    }
}
