//! A publisher of a sink: a channel for one exchange, so that what closes a channel hits the window of one exchange alone.
//!
//! A missing exchange and a missing right close the channel, and leave open what became of all that was sent. So the first message goes ahead
//! alone: it finds that out at no one's cost, and when it is confirmed the others follow. After a while without messages again.
//!
//! RabbitMQ confirms nothing on a channel while it waits for a quorum queue without a majority. So a channel that is silent for a moment takes no
//! more: it is seen out, and its place taken by another. What goes where the oldest of its publications went has a publisher apart, until that speaks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::options::ConfirmSelectOptions;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval};

use super::connection::BrokerConnection;
use super::fault::{ChannelFailure, said};
use super::in_flight::too_large;
use super::publish_queue::PublishQueue;
use super::router::{Item, PublisherKey, PublisherSender, give};
use super::window::{ChannelWindow, FailedChannel, PublisherContext, lost};
use crate::{ConnectorError, Outcome};

/// How long a channel that took messages is trusted to take more, and one that cannot to take none.
const TRUST: Duration = Duration::from_secs(5);
const DISTRUST: Duration = Duration::from_secs(1);
/// A publisher without messages ends after this.
const IDLE: Duration = Duration::from_secs(60);
/// A channel on which something is out is silent after this: on an exchange, and apart, where it keeps only those that go to the same place.
const SILENT: Duration = Duration::from_secs(1);
const SILENT_APART: Duration = Duration::from_secs(5);

/// The task of one publisher.
struct PublisherTask {
    place: PublisherContext,
    key: PublisherKey,
    items: mpsc::UnboundedReceiver<Vec<Item>>,
    /// Taken in, and not given to the client.
    queue: PublishQueue,
    /// What everything is answered with, for a while.
    verdict: Option<(Outcome, Instant)>,
    /// When something was published last.
    last: Instant,
    ticks: Interval,
}

/// Why a channel that lives is used no longer.
enum End {
    /// Nothing goes there.
    Idle,
    /// What went to these addresses has no confirm.
    Silent(BTreeSet<String>),
    /// The sink closed.
    Closed,
}

/// Starts the publisher for this.
pub(super) fn start(place: PublisherContext, key: PublisherKey) -> PublisherSender {
    let (publisher, items) = mpsc::unbounded_channel();
    let ticks = place.ticks();
    let queue = PublishQueue::new(place.clone());
    let run = PublisherTask { place, key, items, queue, verdict: None, last: Instant::now(), ticks };
    tokio::spawn(run.run());
    publisher
}

impl PublisherTask {
    /// Until the sink closes, the connection is lost, or nothing comes for long.
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
            if let Some((outcome, _)) = self.verdict.as_ref().filter(|(_, until)| Instant::now() < *until) {
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

    /// Opens a channel. What waits for it waits no longer than it may.
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

    /// One life of the publisher's channel.
    async fn live(&mut self, mut window: ChannelWindow) {
        match self.serve(&mut window).await {
            Ok(End::Idle) => {}
            Ok(End::Closed) => window.drain().await,
            Ok(End::Silent(addresses)) => {
                tokio::spawn(window.drain());
                self.set_apart(addresses);
            }
            Err(error) => {
                let proved = window.is_proved();
                self.failed(window.failed(error), proved);
            }
        }
    }

    /// Until the sink closes, or the channel falls or is silent, or nothing comes for long.
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

    /// Gives to the client what may go now.
    fn send(&mut self, window: &mut ChannelWindow) -> lapin::Result<()> {
        if window.is_empty() && self.last.elapsed() > TRUST && !self.key.exchange.is_empty() {
            window.doubt();
        }
        // By now whoever handed it over may have given it up, and to another.
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

    /// Refuses what waited too long to be sent, and gives up what waited too long for its confirm. Where the channel is silent: for whom it waits.
    fn silent(&mut self, window: &mut ChannelWindow) -> Option<BTreeSet<String>> {
        self.queue.refuse_late();
        let patience = self.place.patience;
        let mut silent = window.expire();
        let one_place = self.key.apart.is_some() || self.place.connection.blocked().is_some();
        if one_place {
            if let Some(address) = window.quiet(SILENT_APART.min(patience)) {
                let why = format!("`{address}` has not confirmed yet what was published before");
                self.queue.answer(&Outcome::Refused(why));
            }
            return (!silent.is_empty()).then(BTreeSet::new);
        }
        silent.extend(window.quiet(SILENT.min(patience)).map(str::to_owned));
        (!silent.is_empty()).then_some(silent)
    }

    /// Gives what waits for these addresses to publishers of their own.
    fn set_apart(&mut self, addresses: BTreeSet<String>) {
        for address in addresses {
            let apart = self.queue.take_out(&address);
            let key = PublisherKey { exchange: self.key.exchange.clone(), apart: Some(address) };
            let kept = self.place.router.set_apart(&key, apart, || start(self.place.clone(), key.clone()));
            self.queue.put(kept);
        }
    }

    /// The channel is no more.
    fn failed(&mut self, FailedChannel { channel_failure, why, alone }: FailedChannel, proved: bool) {
        // What waits behind would meet the same; a right may be for a routing key alone.
        if matches!(channel_failure, ChannelFailure::NoExchange | ChannelFailure::NoRight) && alone && !proved {
            let outcome = Outcome::Unroutable(format!("exchange `{}`: {why}", self.key.exchange));
            self.verdict =
                (channel_failure == ChannelFailure::NoExchange || !why.contains("topic")).then(|| (outcome, Instant::now() + DISTRUST));
        }
    }

    fn idle(&self) -> Duration {
        if self.key.apart.is_some() { TRUST } else { IDLE }
    }
}

async fn open(connection: &BrokerConnection) -> Result<Channel, ConnectorError> {
    let channel = connection.channel().await?;
    let confirming = connection.ask(channel.confirm_select(ConfirmSelectOptions::default())).await?;
    confirming.map_err(|error| connection.fail(crate::ErrorKind::Disconnected, &said(&error)).because(error))?;
    Ok(channel)
}
