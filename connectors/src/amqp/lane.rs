//! A lane of a sink: a channel for one exchange, so that what closes a channel hits the window of one exchange alone.
//!
//! A missing exchange and a missing right close the channel, and leave open what became of all that was sent. So the first message goes ahead
//! alone: it finds that out at no one's cost, and when it is confirmed the others follow. After a while without messages again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{Channel, Confirmation};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::desk::{Desk, Given, Item, Lane, give};
use super::fault::{Fall, fall, said};
use super::link::Link;
use super::queue::short;
use super::tally::{Said, Tally, Verdict};
use crate::{ConnectorError, Destination, Outcome, Token};

/// How long a channel that took messages is trusted to take more, and one that cannot to take none.
const TRUST: Duration = Duration::from_secs(5);
const DISTRUST: Duration = Duration::from_secs(1);
/// A lane without messages ends after this.
const IDLE: Duration = Duration::from_secs(60);

/// A publication that was given to the client, until its confirm is judged.
struct Flight {
    token: Token,
    to: Destination,
    id: Option<ShortString>,
    size: u64,
    /// It has more routing keys than its own.
    copies: bool,
    since: Instant,
    /// It waited too long, and has its outcome.
    answered: bool,
}

type Confirmed = (u64, lapin::Result<Confirmation>);

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
                Ok(channel) => Channeled::new(&mut self, channel).serve(&mut items).await,
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
struct Channeled<'a> {
    run: &'a mut Run,
    channel: Channel,
    flights: BTreeMap<u64, Flight>,
    confirms: FuturesUnordered<BoxFuture<'static, Confirmed>>,
    tally: Tally,
    number: u64,
    /// The exchange is there, and ours to publish to.
    proved: bool,
    tick: Interval,
}

impl<'a> Channeled<'a> {
    fn new(run: &'a mut Run, channel: Channel) -> Self {
        let mut tick = interval((run.patience / 20).clamp(Duration::from_millis(5), Duration::from_millis(250)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (flights, confirms, tally) = (BTreeMap::new(), FuturesUnordered::new(), Tally::default());
        Channeled { run, channel, flights, confirms, tally, number: 0, proved: false, tick }
    }

    /// Until the channel falls, the sink closes, or the lane is idle.
    async fn serve(mut self, items: &mut mpsc::UnboundedReceiver<Vec<Item>>) {
        let mut more = true;
        loop {
            if let Err(error) = self.send().await {
                return self.fell(&error);
            }
            let idle = self.flights.is_empty() && self.run.last.elapsed() > IDLE;
            // A confirm that may never come holds up no sink that closes: its publication has its outcome.
            if self.run.queue.is_empty() && (idle || !more && self.flights.values().all(|flight| flight.answered)) {
                return;
            }
            let link = Arc::clone(&self.run.link);
            tokio::select! {
                biased;
                () = link.lost() => return self.fell(&lost()),
                Some(first) = self.confirms.next(), if !self.confirms.is_empty() => {
                    if let Err(error) = self.confirmed(first) {
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
    async fn send(&mut self) -> lapin::Result<()> {
        if self.flights.is_empty() && self.run.last.elapsed() > TRUST && !self.run.exchange.is_empty() {
            self.proved = false;
        }
        while self.proved || self.flights.is_empty() {
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
            self.publish(item, size)?;
        }
        Ok(())
    }

    /// The future's first look hands the message to the client, in our order; then it waits for the confirm.
    fn publish(&mut self, item: Item, size: u64) -> lapin::Result<()> {
        self.number += 1;
        let number = self.number;
        let Item { token, to, body, properties, since } = item;
        let headers = properties.headers().as_ref();
        let copies = headers.is_some_and(|headers| headers.contains_key("CC") || headers.contains_key("BCC"));
        let id = properties.message_id().clone();
        let properties = self.tally.mark(number, properties);
        let (exchange, key) = (short_of(&to.exchange), short_of(&to.address));
        self.flights.insert(number, Flight { token, to, id, size, copies, since, answered: false });
        let channel = self.channel.clone();
        let mut publishing = async move {
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let sent = channel.basic_publish(exchange, key, options, &body, properties).await;
            // The client has its copy, and the confirm may be long in coming.
            drop(body);
            match sent {
                Ok(confirm) => (number, confirm.await),
                Err(error) => (number, Err(error)),
            }
        }
        .boxed();
        match (&mut publishing).now_or_never() {
            Some((_, Err(error))) => Err(error),
            Some((_, Ok(confirmation))) => self.confirmed((number, Ok(confirmation))),
            None => {
                self.confirms.push(publishing);
                Ok(())
            }
        }
    }

    /// Takes this confirm and every other that is ready; only then judges.
    fn confirmed(&mut self, first: Confirmed) -> lapin::Result<()> {
        let mut next = Some(first);
        let mut fallen = None;
        while let Some((number, confirmed)) = next {
            match confirmed {
                Ok(confirmation) => {
                    let said = if confirmation.is_nack() { Said::Nack } else { Said::Ack };
                    let carried = confirmation.take_message();
                    self.tally.confirmed(number, said, carried.as_ref().map(|message| &message.properties));
                }
                Err(error) => fallen = Some(error),
            }
            next = self.confirms.next().now_or_never().flatten();
        }
        let judged = self.tally.judge(fallen.is_none() && self.confirms.is_empty());
        self.proved |= !judged.is_empty();
        let mut outcomes = Vec::with_capacity(judged.len());
        for (number, verdict) in judged {
            let Some(flight) = self.flights.remove(&number) else { continue };
            self.tally.forget(number, flight.id.as_ref());
            if !flight.answered {
                outcomes.push((flight.token, flight.outcome(verdict)));
            }
        }
        give(&self.run.out, outcomes);
        fallen.map_or(Ok(()), Err)
    }

    /// What waited too long is unknown, or refused where it was never sent. Its confirm still counts when it comes: others' verdicts hang on it.
    fn expire(&mut self) {
        let patience = self.run.patience;
        let mut outcomes = Vec::new();
        for flight in self.flights.values_mut().take_while(|flight| flight.since.elapsed() >= patience) {
            if !std::mem::replace(&mut flight.answered, true) {
                outcomes.push((flight.token, Outcome::Unknown(format!("no confirm for `{}` within {patience:?}", flight.to))));
            }
        }
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

    /// The channel is no more: what that means for each publication that is out.
    fn fell(mut self, error: &lapin::Error) {
        let alone = self.flights.len() == 1;
        let why = if self.run.link.is_lost() { self.run.link.error().message } else { said(error) };
        let fall = fall(error);
        if let Fall::TooLarge(most) = fall {
            self.run.desk.learn_most(most);
        }
        let mut outcomes = Vec::with_capacity(self.flights.len());
        for flight in std::mem::take(&mut self.flights).into_values().filter(|flight| !flight.answered) {
            let outcome = match fall {
                Fall::TooLarge(most) if flight.size > most => too_large(flight.size, most),
                Fall::NoExchange | Fall::NoRight if alone => Outcome::Unroutable(format!("`{}`: {why}", flight.to)),
                Fall::BadMessage if alone => Outcome::Invalid(why.clone()),
                _ => Outcome::Unknown(why.clone()),
            };
            outcomes.push((flight.token, outcome));
        }
        give(&self.run.out, outcomes);
        // What waits behind would meet the same; a right may be for a routing key alone.
        if matches!(fall, Fall::NoExchange | Fall::NoRight) && alone && !self.proved {
            let outcome = Outcome::Unroutable(format!("exchange `{}`: {why}", self.run.exchange));
            self.run.verdict = (fall == Fall::NoExchange || !why.contains("topic")).then(|| (outcome, Instant::now() + DISTRUST));
        }
    }
}

impl Flight {
    fn outcome(&self, verdict: Verdict) -> Outcome {
        match verdict {
            Verdict::Taken => Outcome::Confirmed,
            Verdict::Returned => Outcome::Unroutable(format!("no queue takes messages for `{}`", self.to)),
            Verdict::Nacked if self.to.exchange.is_empty() && !self.copies => {
                Outcome::Refused(format!("the queue `{}` does not take messages now", self.to))
            }
            Verdict::Nacked => Outcome::Unknown(format!("a queue behind `{}` refused: others may have taken it", self.to)),
            Verdict::Unclear => Outcome::Unknown("the broker returned a message that cannot be told from others".to_owned()),
        }
    }
}

fn too_large(size: u64, most: u64) -> Outcome {
    Outcome::Invalid(format!("the body has {size} bytes, the broker takes {most}"))
}

/// Names were measured before they came here.
fn short_of(name: &str) -> ShortString {
    short(name).unwrap_or_default()
}

/// What the channel's end is called where the link went first.
fn lost() -> lapin::Error {
    lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into()
}
