//! The reader of a source: takes over what the broker delivers, stops its deliveries while paused, gives back what is unsettled at the end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{ReadyChunks, StreamExt};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::sync::oneshot;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::buffer::DeliveryBuffer;
use super::connection::BrokerConnection;
use super::delivery::Delivery;
use super::fault::{code, reply_code, said};
use super::gate::Gate;
use super::queue::short;
use crate::{ConnectorError, ErrorKind, SourceOptions};

/// The most messages that are taken over at once.
const CHUNK: usize = 512;
/// What a message is taken to need before any has come, bytes.
const FIRST: usize = 1 << 20;
/// So many messages tell how large the next ones may be.
const TOLD: usize = 16;
/// A prefetch that is so many times too large or too small is given up for another.
const OFF: u16 = 4;
/// How often a sign of life is shown while the socket is not read: more often than the shortest heartbeat.
const BEAT: Duration = Duration::from_millis(500);

/// The task that reads.
pub(super) struct ReaderTask {
    connection: Arc<BrokerConnection>,
    channel: Channel,
    buffer: Arc<DeliveryBuffer>,
    gate: Arc<Gate>,
    queue: String,
    group: String,
    max_unsettled: u16,
    max_bytes: usize,
    reading: Option<Reading>,
    /// Consumers so far.
    count: u64,
    /// About what a message needs by those that came last, bytes, and how many have come.
    each: usize,
    came: usize,
    beat: Interval,
}

/// The broker delivers.
struct Reading {
    messages: ReadyChunks<Consumer>,
    tag: ShortString,
    prefetch: u16,
    /// It is asked to stop, or was; what is on its way still comes. The answer comes behind that, and so perhaps not before there is room.
    stopping: Option<Stopping>,
}

enum Stopping {
    Asked(BoxFuture<'static, lapin::Result<()>>),
    Answered,
}

impl ReaderTask {
    /// Starts the reader; the receiver answers once it has ended and given everything back.
    pub(super) async fn start(
        connection: Arc<BrokerConnection>,
        channel: Channel,
        buffer: Arc<DeliveryBuffer>,
        gate: Arc<Gate>,
        options: &SourceOptions,
    ) -> Result<oneshot::Receiver<Result<(), ConnectorError>>, ConnectorError> {
        let (queue, group) = (options.topic.clone(), options.group.clone());
        // 0 would be no bound.
        let max_unsettled = u16::try_from(options.max_unsettled.max(1)).unwrap_or(u16::MAX);
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let max_bytes = options.max_unsettled_bytes;
        let (reading, count, each, came) = (None, 0, FIRST, 0);
        let mut reader =
            ReaderTask { connection, channel, buffer, gate, queue, group, max_unsettled, max_bytes, reading, count, each, came, beat };
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
            // Nobody waits after a drop.
            let _ = done.send(result);
        });
        Ok(closed)
    }

    /// How many messages there may be: as many as fit, by those that came last.
    fn wanted(&self) -> u16 {
        u16::try_from(self.max_bytes / self.each).unwrap_or(u16::MAX).clamp(1, self.max_unsettled)
    }

    /// How many messages to ask for: the broker does not count those towards a reader's bound that it delivered to the one before. A reader keeps
    /// its bound for its life, so a small one is not worth it, and the reader waits until more is settled. While the socket is not read no answer comes.
    fn room(&self) -> Option<u16> {
        let unsettled = u16::try_from(self.buffer.unsettled()).unwrap_or(u16::MAX);
        let wanted = self.wanted();
        Some(wanted.saturating_sub(unsettled)).filter(|room| *room >= wanted.div_ceil(2) && !self.gate.is_closed())
    }

    /// Whether the reader has far too many messages on their way, or far too few.
    fn is_off(&self, prefetch: u16) -> bool {
        let wanted = self.wanted();
        self.came >= TOLD && (wanted / OFF >= prefetch || prefetch / OFF >= wanted)
    }

    /// Asks the broker to deliver so many. A name of ours, so that people see in the broker's own tools who reads.
    async fn read(&mut self, room: u16) -> Result<(), ConnectorError> {
        let bounded = self.connection.ask(self.channel.basic_qos(room, BasicQosOptions::default())).await?;
        bounded.map_err(|error| self.broken(error))?;
        self.count += 1;
        let tag = ShortString::try_new(format!("{}-{}", self.group, self.count)).unwrap_or_default();
        let consuming = self.channel.basic_consume(short(&self.queue)?, tag, BasicConsumeOptions::default(), FieldTable::default());
        let consumer = self.connection.ask(consuming).await?.map_err(|error| self.broken(error))?;
        let tag = consumer.tag();
        self.reading = Some(Reading { messages: consumer.ready_chunks(CHUNK), tag, prefetch: room, stopping: None });
        Ok(())
    }

    /// Works until the source closes.
    async fn run(&mut self) -> Result<(), ConnectorError> {
        loop {
            let (paused, closing) = self.buffer.outlook();
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
                Some(Reading { stopping: None, prefetch, .. }) if paused || self.is_off(*prefetch) => self.stop(),
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
                _ = self.beat.tick() => self.gate.beat(),
            }
        }
    }

    /// Asks the broker to deliver no more to this reader.
    fn stop(&mut self) {
        if let Some(reading) = &mut self.reading {
            let (channel, tag) = (self.channel.clone(), reading.tag.clone());
            let asked = async move { channel.basic_cancel(tag, BasicCancelOptions::default()).await };
            reading.stopping = Some(Stopping::Asked(asked.boxed()));
        }
    }

    /// Takes over what arrived, or the end of it.
    fn take(&mut self, chunk: Option<Vec<lapin::Result<lapin::message::Delivery>>>) -> Result<(), ConnectorError> {
        let Some(chunk) = chunk else {
            let stopped = self.reading.take().is_some_and(|reading| reading.stopping.is_some());
            self.gate.nothing_comes();
            if stopped {
                return Ok(());
            }
            let why = format!("the broker stopped delivering from the queue `{}`: it was deleted, or its leader moved", self.queue);
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

    /// How large messages are: more is believed at once, less bit by bit.
    fn learn(&mut self, deliveries: &[Delivery]) {
        if !deliveries.is_empty() {
            let mean = deliveries.iter().map(|delivery| delivery.bytes).sum::<usize>() / deliveries.len();
            self.came = self.came.saturating_add(deliveries.len());
            let forgets = self.each.saturating_sub(mean) * deliveries.len() / (deliveries.len() + TOLD);
            self.each = mean.max(self.each - forgets).max(1);
        }
    }

    /// The error that ended the channel.
    fn broken(&self, error: lapin::Error) -> ConnectorError {
        let (kind, hint) = match reply_code(&error) {
            Some(code::ACCESS_REFUSED) => (ErrorKind::Denied, "grant the user the right to read the queue (rabbitmqctl set_permissions)"),
            Some(code::NOT_FOUND) => (ErrorKind::Missing, "create the queue, or set `declare = true`"),
            _ => (ErrorKind::Disconnected, ""),
        };
        let why = format!("cannot read the queue `{}`: {}", self.queue, said(&error));
        self.connection.fail(kind, &why).hint(hint).because(error)
    }

    /// Closes the channel: the broker then delivers to others what is unsettled, after it has read every ack. Its answer comes behind what is on its
    /// way, which is let through and not kept.
    async fn give_back(&mut self) -> Result<(), ConnectorError> {
        self.gate.open();
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
        closed.map_err(|error| self.connection.fail(ErrorKind::Disconnected, "the broker did not confirm the last acks").because(error))
    }
}

/// What happens to a reader.
enum Event {
    Came(Option<Vec<lapin::Result<lapin::message::Delivery>>>),
    /// The broker answered that it delivers no more.
    Stopped(lapin::Result<()>),
}

/// What happens next; for ever nothing while the broker does not deliver.
async fn next(reading: &mut Option<Reading>) -> Event {
    let Some(Reading { messages, stopping, .. }) = reading else { return std::future::pending().await };
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
