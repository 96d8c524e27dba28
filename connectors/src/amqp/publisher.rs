//! A publisher of a sink: one channel for one exchange, so that a closed channel affects only one
//! exchange.
//!
//! A missing exchange or permission closes the channel, and leaves the outcome of everything sent
//! on it unknown. So the first message goes alone: it finds a problem without harm to others, and
//! the rest follow once it is confirmed. The same after a pause.
//!
//! RabbitMQ confirms nothing on a channel while it waits for a quorum queue without a majority. So
//! a channel without confirms for a moment gets no more messages: it is drained, and another
//! channel takes its place. Messages to the destination of the oldest unconfirmed publication get a
//! publisher of their own until that destination confirms.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::options::ConfirmSelectOptions;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval};

use super::connection::BrokerConnection;
use super::fault::{ChannelFailure, error_text};
use super::in_flight::too_large;
use super::publish_queue::PublishQueue;
use super::router::{Item, PublisherKey, PublisherSender, give};
use super::window::{ChannelWindow, FailedChannel, PublisherContext, lost};
use crate::{ConnectorError, Outcome};

/// The time that a channel counts as working after a confirm, and as not working after a failure.
const CHANNEL_TRUST_TTL: Duration = Duration::from_secs(5);
const CHANNEL_DISTRUST_TTL: Duration = Duration::from_secs(1);
/// The idle time after which a publisher ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A channel with publications in flight counts as silent after this time: a channel of an
/// exchange, and one of a single destination.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
const ISOLATED_SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// The task of one publisher.
struct PublisherTask {
    place: PublisherContext,
    key: PublisherKey,
    items: mpsc::UnboundedReceiver<Vec<Item>>,
    /// Accepted, and not yet given to lapin.
    queue: PublishQueue,
    /// The outcome of every publication until this time.
    verdict: Option<(Outcome, Instant)>,
    /// The time of the last publication.
    last: Instant,
    ticks: Interval,
}

/// Why an open channel is no longer used.
enum End {
    /// No messages.
    Idle,
    /// Publications to these addresses have no confirm.
    Silent(BTreeSet<String>),
    /// The sink closed.
    Closed,
}

/// Starts the publisher of this key.
pub(super) fn start(place: PublisherContext, key: PublisherKey) -> PublisherSender {
    let (publisher, items) = mpsc::unbounded_channel();
    let ticks = place.ticks();
    let queue = PublishQueue::new(place.clone());
    let run =
        PublisherTask { place, key, items, queue, verdict: None, last: Instant::now(), ticks };
    tokio::spawn(run.run());
    publisher
}

impl PublisherTask {
    /// Runs until the sink closes, the connection is lost, or no message comes for long.
    async fn run(mut self) {
        let connection = Arc::clone(&self.place.connection);
        loop {
            if self.queue.is_empty() {
                let idle = self.idle();
                tokio::select! {
                    biased;
                    () = connection.lost() => break,
                    more = self.items.recv() => match more {
                        Some(more) => self.queue.put(more),
                        None => break,
                    },
                    () = tokio::time::sleep(idle) => {
                        if self.place.router.retire(&self.key, &self.items) {
                            break;
                        }
                    }
                }
            }
            if let Some((outcome, _)) =
                self.verdict.as_ref().filter(|(_, until)| Instant::now() < *until)
            {
                self.queue.answer(&outcome.clone());
                continue;
            }
            if let Some(why) = connection.blocked() {
                self.queue.answer(&Outcome::Refused(why));
                continue;
            }
            match self.open().await {
                Ok(channel) => self.live(ChannelWindow::new(self.place.clone(), channel)).await,
                Err(error) => self.queue.answer(&Outcome::Refused(error.message)),
            }
            if connection.is_lost() {
                break;
            }
        }
        self.items.close();
        while let Ok(more) = self.items.try_recv() {
            self.queue.put(more);
        }
        self.queue.answer(&Outcome::Refused(connection.error().message));
    }

    /// Opens a channel. Refuses queued publications past their deadline meanwhile.
    async fn open(&mut self) -> Result<Channel, ConnectorError> {
        let connection = Arc::clone(&self.place.connection);
        let opening = open(&connection);
        tokio::pin!(opening);
        loop {
            tokio::select! {
                biased;
                opened = &mut opening => return opened,
                Some(more) = self.items.recv() => self.queue.put(more),
                _ = self.ticks.tick() => self.queue.refuse_late(),
            }
        }
    }

    /// Runs one channel of the publisher.
    async fn live(&mut self, mut window: ChannelWindow) {
        match self.serve(&mut window).await {
            Ok(End::Idle) => {}
            Ok(End::Closed) => window.drain().await,
            Ok(End::Silent(addresses)) => {
                tokio::spawn(window.drain());
                self.isolate(addresses);
            }
            Err(error) => {
                let proved = window.is_proved();
                self.failed(window.failed(error), proved);
            }
        }
    }

    /// Runs until the sink closes, the channel closes or is silent, or no message comes for long.
    async fn serve(&mut self, window: &mut ChannelWindow) -> lapin::Result<End> {
        let connection = Arc::clone(&self.place.connection);
        let mut more = true;
        loop {
            self.send(window)?;
            if self.queue.is_empty() && !more {
                return Ok(End::Closed);
            }
            if self.queue.is_empty() && window.is_empty() && self.last.elapsed() > self.idle() {
                return Ok(End::Idle);
            }
            tokio::select! {
                biased;
                () = connection.lost() => return Err(lost()),
                confirmed = window.next() => window.confirmed(confirmed)?,
                batch = self.items.recv(), if more => match batch {
                    Some(batch) => self.queue.put(batch),
                    None => more = false,
                },
                _ = self.ticks.tick() => if let Some(silent) = self.silent(window) {
                    return Ok(End::Silent(silent));
                },
            }
        }
    }

    /// Gives to lapin the publications that may be sent now.
    fn send(&mut self, window: &mut ChannelWindow) -> lapin::Result<()> {
        if window.is_empty()
            && self.last.elapsed() > CHANNEL_TRUST_TTL
            && !self.key.exchange.is_empty()
        {
            window.doubt();
        }
        // The caller may have timed it out by now, and given it to another sink.
        self.queue.refuse_late();
        loop {
            if let Some(why) = self.place.connection.blocked() {
                self.queue.answer(&Outcome::Refused(why));
            }
            let follows = window.is_proved() && window.is_open();
            if !follows && !window.is_empty() {
                return Ok(());
            }
            if !window.is_open() {
                return Err(lost());
            }
            let Some(item) = self.queue.next() else { return Ok(()) };
            self.last = Instant::now();
            let (size, most) = (item.body.len() as u64, self.place.router.most());
            if size > most {
                give(&self.place.out, vec![(item.token, too_large(size, most))]);
                continue;
            }
            window.publish(item)?;
        }
    }

    /// Refuses queued publications past their deadline, and reports late confirms as unknown.
    /// Returns the addresses that a silent channel waits for.
    fn silent(&mut self, window: &mut ChannelWindow) -> Option<BTreeSet<String>> {
        self.queue.refuse_late();
        let publish_timeout = self.place.publish_timeout;
        let mut silent = window.expire();
        let one_place = self.key.routing_key.is_some() || self.place.connection.blocked().is_some();
        if one_place {
            if let Some(address) = window.quiet(ISOLATED_SILENCE_TIMEOUT.min(publish_timeout)) {
                let why = format!("`{address}` has not confirmed earlier publications yet");
                self.queue.answer(&Outcome::Refused(why));
            }
            return (!silent.is_empty()).then(BTreeSet::new);
        }
        silent.extend(window.quiet(SILENCE_TIMEOUT.min(publish_timeout)).map(str::to_owned));
        (!silent.is_empty()).then_some(silent)
    }

    /// Moves the publications to these addresses to publishers of their own.
    fn isolate(&mut self, addresses: BTreeSet<String>) {
        for address in addresses {
            let items = self.queue.take_out(&address);
            let key =
                PublisherKey { exchange: self.key.exchange.clone(), routing_key: Some(address) };
            let kept =
                self.place.router.isolate(&key, items, || start(self.place.clone(), key.clone()));
            self.queue.put(kept);
        }
    }

    /// Handles a closed channel.
    fn failed(
        &mut self,
        FailedChannel { channel_failure, why, alone }: FailedChannel,
        proved: bool,
    ) {
        // Queued publications would fail the same way. But a permission may concern one routing key
        // only.
        if matches!(channel_failure, ChannelFailure::NoExchange | ChannelFailure::NoRight)
            && alone
            && !proved
        {
            let outcome = Outcome::Unroutable(format!("exchange `{}`: {why}", self.key.exchange));
            self.verdict = (channel_failure == ChannelFailure::NoExchange
                || !why.contains("topic"))
            .then(|| (outcome, Instant::now() + CHANNEL_DISTRUST_TTL));
        }
    }

    fn idle(&self) -> Duration {
        if self.key.routing_key.is_some() { CHANNEL_TRUST_TTL } else { IDLE_TIMEOUT }
    }
}

async fn open(connection: &BrokerConnection) -> Result<Channel, ConnectorError> {
    let channel = connection.channel().await?;
    let confirming =
        connection.ask(channel.confirm_select(ConfirmSelectOptions::default())).await?;
    confirming.map_err(|error| {
        connection.fail(crate::ErrorKind::Disconnected, &error_text(&error)).because(error)
    })?;
    Ok(channel)
}
