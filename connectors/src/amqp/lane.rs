//! A lane of a sink: a channel for one exchange, so that what closes a channel hits the window of one exchange alone.
//!
//! A missing exchange and a missing right close the channel, and leave open what became of all that was sent. So the first message goes ahead
//! alone: it finds that out at no one's cost, and when it is confirmed the others follow. After a while without messages again.
//!
//! RabbitMQ confirms nothing on a channel while it waits for a quorum queue without a majority. So a channel that is silent for a moment takes no
//! more: it is seen out, and its place taken by another. What goes where the oldest of its publications went has a lane apart, until that speaks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::options::ConfirmSelectOptions;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval};

use super::desk::{Item, Key, Lane, give};
use super::fault::{Fall, said};
use super::flight::too_large;
use super::link::Link;
use super::waiting::Waiting;
use super::window::{Fallen, Place, Window, lost};
use crate::{ConnectorError, Outcome};

/// How long a channel that took messages is trusted to take more, and one that cannot to take none.
const TRUST: Duration = Duration::from_secs(5);
const DISTRUST: Duration = Duration::from_secs(1);
/// A lane without messages ends after this.
const IDLE: Duration = Duration::from_secs(60);
/// A channel on which something is out is silent after this: on an exchange, and apart, where it keeps only those that go to the same place.
const SILENT: Duration = Duration::from_secs(1);
const SILENT_APART: Duration = Duration::from_secs(5);

/// The task of one lane.
struct Run {
    place: Place,
    key: Key,
    items: mpsc::UnboundedReceiver<Vec<Item>>,
    /// Taken in, and not given to the client.
    queue: Waiting,
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

/// Starts the lane for this.
pub(super) fn start(place: Place, key: Key) -> Lane {
    let (lane, items) = mpsc::unbounded_channel();
    let ticks = place.ticks();
    let queue = Waiting::new(place.clone());
    let run = Run { place, key, items, queue, verdict: None, last: Instant::now(), ticks };
    tokio::spawn(run.run());
    lane
}

impl Run {
    /// Until the sink closes, the link is lost, or nothing comes for long.
    async fn run(mut self) {
        let link = Arc::clone(&self.place.link);
        loop {
            if self.queue.is_empty() {
                let idle = self.idle();
                tokio::select! {
                    biased;
                    () = link.lost() => break,
                    more = self.items.recv() => match more {
                        Some(more) => self.queue.put(more),
                        None => break,
                    },
                    () = tokio::time::sleep(idle) => {
                        if self.place.desk.retire(&self.key, &self.items) {
                            break;
                        }
                    }
                }
            }
            if let Some((outcome, _)) = self.verdict.as_ref().filter(|(_, until)| Instant::now() < *until) {
                self.queue.answer(&outcome.clone());
                continue;
            }
            if let Some(why) = link.blocked() {
                self.queue.answer(&Outcome::Refused(why));
                continue;
            }
            match self.open().await {
                Ok(channel) => self.live(Window::new(self.place.clone(), channel)).await,
                Err(error) => self.queue.answer(&Outcome::Refused(error.message)),
            }
            if link.is_lost() {
                break;
            }
        }
        self.items.close();
        while let Ok(more) = self.items.try_recv() {
            self.queue.put(more);
        }
        self.queue.answer(&Outcome::Refused(link.error().message));
    }

    /// Opens a channel. What waits for it waits no longer than it may.
    async fn open(&mut self) -> Result<Channel, ConnectorError> {
        let link = Arc::clone(&self.place.link);
        let opening = open(&link);
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

    /// One life of the lane's channel.
    async fn live(&mut self, mut window: Window) {
        match self.serve(&mut window).await {
            Ok(End::Idle) => {}
            Ok(End::Closed) => window.see_out().await,
            Ok(End::Silent(addresses)) => {
                tokio::spawn(window.see_out());
                self.set_apart(addresses);
            }
            Err(error) => {
                let proved = window.is_proved();
                self.fell(window.fell(error), proved);
            }
        }
    }

    /// Until the sink closes, or the channel falls or is silent, or nothing comes for long.
    async fn serve(&mut self, window: &mut Window) -> lapin::Result<End> {
        let link = Arc::clone(&self.place.link);
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
                () = link.lost() => return Err(lost()),
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
    fn send(&mut self, window: &mut Window) -> lapin::Result<()> {
        if window.is_empty() && self.last.elapsed() > TRUST && !self.key.exchange.is_empty() {
            window.doubt();
        }
        // By now whoever handed it over may have given it up, and to another.
        self.queue.refuse_late();
        loop {
            if let Some(why) = self.place.link.blocked() {
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
            let (size, most) = (item.body.len() as u64, self.place.desk.most());
            if size > most {
                give(&self.place.out, vec![(item.token, too_large(size, most))]);
                continue;
            }
            window.publish(item)?;
        }
    }

    /// Refuses what waited too long to be sent, and gives up what waited too long for its confirm. Where the channel is silent: for whom it waits.
    fn silent(&mut self, window: &mut Window) -> Option<BTreeSet<String>> {
        self.queue.refuse_late();
        let patience = self.place.patience;
        let mut silent = window.expire();
        let one_place = self.key.apart.is_some() || self.place.link.blocked().is_some();
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

    /// Gives what waits for these addresses to lanes of their own.
    fn set_apart(&mut self, addresses: BTreeSet<String>) {
        for address in addresses {
            let apart = self.queue.take_out(&address);
            let key = Key { exchange: self.key.exchange.clone(), apart: Some(address) };
            let kept = self.place.desk.set_apart(&key, apart, || start(self.place.clone(), key.clone()));
            self.queue.put(kept);
        }
    }

    /// The channel is no more.
    fn fell(&mut self, Fallen { fall, why, alone }: Fallen, proved: bool) {
        // What waits behind would meet the same; a right may be for a routing key alone.
        if matches!(fall, Fall::NoExchange | Fall::NoRight) && alone && !proved {
            let outcome = Outcome::Unroutable(format!("exchange `{}`: {why}", self.key.exchange));
            self.verdict = (fall == Fall::NoExchange || !why.contains("topic")).then(|| (outcome, Instant::now() + DISTRUST));
        }
    }

    fn idle(&self) -> Duration {
        if self.key.apart.is_some() { TRUST } else { IDLE }
    }
}

async fn open(link: &Link) -> Result<Channel, ConnectorError> {
    let channel = link.channel().await?;
    let confirming = link.ask(channel.confirm_select(ConfirmSelectOptions::default())).await?;
    confirming.map_err(|error| link.fail(crate::ErrorKind::Disconnected, &said(&error)).because(error))?;
    Ok(channel)
}
