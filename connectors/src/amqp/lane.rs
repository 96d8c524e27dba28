//! A lane of a sink: a channel for one exchange, so that what closes a channel hits the window of one exchange alone.
//!
//! A missing exchange and a missing right close the channel, and leave open what became of all that was sent. So the first message goes ahead
//! alone: it finds that out at no one's cost, and when it is confirmed the others follow. After a while without messages again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::options::ConfirmSelectOptions;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::desk::{Desk, Given, Item, Lane, give};
use super::fault::{Fall, fall, said};
use super::flight::too_large;
use super::link::Link;
use super::window::Window;
use crate::{ConnectorError, Outcome};

/// How long a channel that took messages is trusted to take more, and one that cannot to take none.
const TRUST: Duration = Duration::from_secs(5);
const DISTRUST: Duration = Duration::from_secs(1);
/// A lane without messages ends after this.
const IDLE: Duration = Duration::from_secs(60);

/// The task of one exchange.
struct Run {
    link: Arc<Link>,
    desk: Arc<Desk>,
    exchange: String,
    out: mpsc::UnboundedSender<Given>,
    patience: Duration,
    /// Taken in, and not given to the client.
    queue: VecDeque<Item>,
    /// What everything is answered with, for a while.
    verdict: Option<(Outcome, Instant)>,
    last: Instant,
}

/// Starts the lane of this exchange.
pub(super) fn start(link: &Arc<Link>, desk: &Arc<Desk>, exchange: &str, out: mpsc::UnboundedSender<Given>, patience: Duration) -> Lane {
    let (lane, items) = mpsc::unbounded_channel();
    let (link, desk, exchange) = (Arc::clone(link), Arc::clone(desk), exchange.to_owned());
    let run = Run { link, desk, exchange, out, patience, queue: VecDeque::new(), verdict: None, last: Instant::now() };
    tokio::spawn(run.run(items));
    lane
}

impl Run {
    /// Until the sink closes, the link is lost, or nothing comes for long.
    async fn run(mut self, mut items: mpsc::UnboundedReceiver<Vec<Item>>) {
        loop {
            if self.queue.is_empty() {
                tokio::select! {
                    biased;
                    () = self.link.lost() => break,
                    more = items.recv() => match more {
                        Some(more) => self.queue.extend(more),
                        None => break,
                    },
                    () = tokio::time::sleep(IDLE) => if self.desk.retire(&self.exchange, &items) {
                        break;
                    },
                }
            }
            if let Some((outcome, until)) = self.verdict.clone().filter(|(_, until)| Instant::now() < *until) {
                self.verdict = Some((outcome.clone(), until));
                self.answer_queue(&outcome);
                continue;
            }
            if let Some(why) = self.link.blocked() {
                self.answer_queue(&Outcome::Refused(why));
                continue;
            }
            match self.open().await {
                Ok(channel) => Life::new(&mut self, channel).serve(&mut items).await,
                Err(error) => self.answer_queue(&Outcome::Refused(error.message)),
            }
            if self.link.is_lost() {
                break;
            }
        }
        items.close();
        while let Ok(more) = items.try_recv() {
            self.queue.extend(more);
        }
        self.answer_queue(&Outcome::Refused(self.link.error().message));
    }

    async fn open(&self) -> Result<Channel, ConnectorError> {
        let channel = self.link.channel().await?;
        let confirming = self.link.ask(channel.confirm_select(ConfirmSelectOptions::default())).await?;
        confirming.map_err(|error| self.link.fail(crate::ErrorKind::Disconnected, &said(&error)).because(error))?;
        Ok(channel)
    }

    /// What was never sent has this outcome.
    fn answer_queue(&mut self, outcome: &Outcome) {
        let outcomes: Given = self.queue.drain(..).map(|item| (item.token, outcome.clone())).collect();
        self.desk.left(outcomes.len());
        give(&self.out, outcomes);
    }
}

/// One life of the lane's channel.
struct Life<'a> {
    run: &'a mut Run,
    window: Window,
    /// The exchange is there, and ours to publish to.
    proved: bool,
    tick: Interval,
}

impl<'a> Life<'a> {
    fn new(run: &'a mut Run, channel: Channel) -> Self {
        let mut tick = interval((run.patience / 20).clamp(Duration::from_millis(5), Duration::from_millis(250)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Life { run, window: Window::new(channel), proved: false, tick }
    }

    /// Until the channel falls, the sink closes, or the lane is idle.
    async fn serve(mut self, items: &mut mpsc::UnboundedReceiver<Vec<Item>>) {
        let mut more = true;
        loop {
            if let Err(error) = self.send() {
                return self.fell(&error);
            }
            let idle = self.window.is_empty() && self.run.last.elapsed() > IDLE;
            // A confirm that may never come holds up no sink that closes: its publication has its outcome.
            if self.run.queue.is_empty() && (idle || !more && self.window.is_answered()) {
                return;
            }
            let link = Arc::clone(&self.run.link);
            tokio::select! {
                biased;
                () = link.lost() => return self.fell(&lost()),
                confirmed = self.window.next() => {
                    let (outcomes, fallen) = self.window.confirmed(confirmed);
                    self.judged(outcomes);
                    if let Some(error) = fallen {
                        return self.fell(&error);
                    }
                }
                batch = items.recv(), if more => match batch {
                    Some(batch) => self.run.queue.extend(batch),
                    None => more = false,
                },
                _ = self.tick.tick() => self.expire(),
            }
        }
    }

    /// Gives to the client what may go now.
    fn send(&mut self) -> lapin::Result<()> {
        if self.window.is_empty() && self.run.last.elapsed() > TRUST && !self.run.exchange.is_empty() {
            self.proved = false;
        }
        while self.proved || self.window.is_empty() {
            let Some(item) = self.run.queue.pop_front() else { return Ok(()) };
            if let Some(why) = self.run.link.blocked() {
                self.run.queue.push_front(item);
                self.run.answer_queue(&Outcome::Refused(why));
                return Ok(());
            }
            self.run.desk.left(1);
            self.run.last = Instant::now();
            let size = item.body.len() as u64;
            if size > self.run.desk.most() {
                let outcome = too_large(size, self.run.desk.most());
                give(&self.run.out, vec![(item.token, outcome)]);
                continue;
            }
            let outcomes = self.window.publish(item, size)?;
            self.judged(outcomes);
        }
        Ok(())
    }

    /// The broker's verdicts: the exchange is there.
    fn judged(&mut self, outcomes: Given) {
        self.proved |= !outcomes.is_empty();
        give(&self.run.out, outcomes);
    }

    /// What waited too long is unknown, or refused where it was never sent.
    fn expire(&mut self) {
        let patience = self.run.patience;
        let mut outcomes = self.window.expire(patience);
        // A missing exchange or right would have closed the channel long ago: who waits for one silent queue holds up no other.
        self.proved |= !outcomes.is_empty();
        let mut unsent = 0;
        while self.run.queue.front().is_some_and(|item| item.since.elapsed() >= patience) {
            let Some(item) = self.run.queue.pop_front() else { break };
            unsent += 1;
            outcomes.push((item.token, Outcome::Refused(format!("not sent to `{}` within {patience:?}: the broker is slow", item.to))));
        }
        self.run.desk.left(unsent);
        give(&self.run.out, outcomes);
    }

    /// The channel is no more.
    fn fell(self, error: &lapin::Error) {
        let why = if self.run.link.is_lost() { self.run.link.error().message } else { said(error) };
        let fall = fall(error);
        if let Fall::TooLarge(most) = fall {
            self.run.desk.learn_most(most);
        }
        let alone = self.window.len() == 1;
        give(&self.run.out, self.window.fell(fall, &why));
        // What waits behind would meet the same; a right may be for a routing key alone.
        if matches!(fall, Fall::NoExchange | Fall::NoRight) && alone && !self.proved {
            let outcome = Outcome::Unroutable(format!("exchange `{}`: {why}", self.run.exchange));
            self.run.verdict = (fall == Fall::NoExchange || !why.contains("topic")).then(|| (outcome, Instant::now() + DISTRUST));
        }
    }
}

/// What the channel's end is called where the link went first.
fn lost() -> lapin::Error {
    lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into()
}
