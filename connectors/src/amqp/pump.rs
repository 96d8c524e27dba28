//! The pump of a source: takes over what the broker delivers, stops its deliveries while paused, gives back what is unsettled at the end.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::ReadyChunks;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::sync::oneshot;

use super::fault::{code, reply_code, said};
use super::link::Link;
use super::queue::short;
use super::shelf::Shelf;
use crate::{ConnectorError, ErrorKind, SourceOptions};

/// The most messages that are taken over at once.
const CHUNK: usize = 512;

/// The task that reads.
pub(super) struct Pump {
    link: Arc<Link>,
    channel: Channel,
    shelf: Arc<Shelf>,
    queue: String,
    group: String,
    max_unsettled: u16,
    reading: Option<Reading>,
    count: u64,
}

/// The broker delivers.
struct Reading {
    messages: ReadyChunks<Consumer>,
    tag: ShortString,
    /// It was asked to stop; what is on its way still comes.
    stopping: bool,
}

impl Pump {
    /// Starts the pump; the receiver answers once it has ended and given everything back.
    pub(super) async fn start(
        link: Arc<Link>,
        channel: Channel,
        shelf: Arc<Shelf>,
        options: &SourceOptions,
    ) -> Result<oneshot::Receiver<Result<(), ConnectorError>>, ConnectorError> {
        let (queue, group) = (options.topic.clone(), options.group.clone());
        // 0 would be no bound.
        let max_unsettled = u16::try_from(options.max_unsettled.max(1)).unwrap_or(u16::MAX);
        let mut pump = Pump { link, channel, shelf, queue, group, max_unsettled, reading: None, count: 0 };
        pump.read(max_unsettled).await?;
        let (done, closed) = oneshot::channel();
        tokio::spawn(async move {
            let result = match pump.run().await {
                Ok(()) => pump.give_back().await,
                Err(error) => {
                    pump.shelf.end(&error);
                    Err(error)
                }
            };
            pump.link.close().await;
            // Nobody waits after a drop.
            let _ = done.send(result);
        });
        Ok(closed)
    }

    /// How many messages to ask for: the broker does not count those towards a reader's bound that it delivered to the one before. A reader keeps
    /// its bound for its life, so a small one is not worth it, and the pump waits until more is settled.
    fn room(&self) -> Option<u16> {
        let unsettled = u16::try_from(self.shelf.unsettled()).unwrap_or(u16::MAX);
        Some(self.max_unsettled.saturating_sub(unsettled)).filter(|room| *room >= self.max_unsettled.div_ceil(2))
    }

    /// Asks the broker to deliver so many. A name of ours, so that people see in the broker's own tools who reads.
    async fn read(&mut self, room: u16) -> Result<(), ConnectorError> {
        let bounded = self.link.ask(self.channel.basic_qos(room, BasicQosOptions::default())).await?;
        bounded.map_err(|error| self.broken(error))?;
        self.count += 1;
        let tag = ShortString::try_new(format!("{}-{}", self.group, self.count)).unwrap_or_default();
        let consuming = self.channel.basic_consume(short(&self.queue)?, tag, BasicConsumeOptions::default(), FieldTable::default());
        let consumer = self.link.ask(consuming).await?.map_err(|error| self.broken(error))?;
        let tag = consumer.tag();
        self.reading = Some(Reading { messages: consumer.ready_chunks(CHUNK), tag, stopping: false });
        Ok(())
    }

    /// Works until the source closes.
    async fn run(&mut self) -> Result<(), ConnectorError> {
        loop {
            let (paused, closing) = self.shelf.outlook();
            if closing {
                return Ok(());
            }
            match &mut self.reading {
                None if !paused => {
                    if let Some(room) = self.room() {
                        self.read(room).await?;
                        continue;
                    }
                }
                Some(reading) if paused && !reading.stopping => {
                    reading.stopping = true;
                    let stop = self.channel.basic_cancel(reading.tag.clone(), BasicCancelOptions::default());
                    self.link.ask(stop).await?.map_err(|error| self.broken(error))?;
                }
                _ => {}
            }
            tokio::select! {
                biased;
                () = self.link.lost() => return Err(self.link.error()),
                chunk = next(&mut self.reading) => self.take(chunk)?,
                () = self.shelf.wake.notified() => {}
            }
        }
    }

    /// Takes over what arrived, or the end of it.
    fn take(&mut self, chunk: Option<Vec<lapin::Result<lapin::message::Delivery>>>) -> Result<(), ConnectorError> {
        let Some(chunk) = chunk else {
            let stopped = self.reading.take().is_some_and(|reading| reading.stopping);
            if stopped {
                return Ok(());
            }
            let why = format!("the broker stopped delivering from the queue `{}`: it was deleted, or its leader moved", self.queue);
            return Err(self.link.fail(ErrorKind::Disconnected, &why));
        };
        let mut deliveries = Vec::with_capacity(chunk.len());
        let mut broken = None;
        for delivery in chunk {
            match delivery {
                Ok(delivery) => deliveries.push(delivery.into()),
                Err(error) => broken = Some(self.broken(error)),
            }
        }
        self.shelf.put(deliveries);
        broken.map_or(Ok(()), Err)
    }

    /// The error that ended the channel.
    fn broken(&self, error: lapin::Error) -> ConnectorError {
        let (kind, mend) = match reply_code(&error) {
            Some(code::ACCESS_REFUSED) => (ErrorKind::Denied, "grant the user the right to read the queue (rabbitmqctl set_permissions)"),
            Some(code::NOT_FOUND) => (ErrorKind::Missing, "create the queue, or set `declare = true`"),
            _ => (ErrorKind::Disconnected, ""),
        };
        let why = format!("cannot read the queue `{}`: {}", self.queue, said(&error));
        self.link.fail(kind, &why).mend(mend).because(error)
    }

    /// Closes the channel: the broker then delivers to others what is unsettled, after it has read every ack.
    async fn give_back(&self) -> Result<(), ConnectorError> {
        let closed = self.link.ask(self.channel.close(200, "".into())).await?;
        closed.map_err(|error| self.link.fail(ErrorKind::Disconnected, "the broker did not confirm the last acks").because(error))
    }
}

/// What arrives next; for ever nothing while the broker does not deliver.
async fn next(reading: &mut Option<Reading>) -> Option<Vec<lapin::Result<lapin::message::Delivery>>> {
    match reading {
        Some(reading) => reading.messages.next().await,
        None => std::future::pending().await,
    }
}
