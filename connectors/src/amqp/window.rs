//! The window of a channel: its publications without a verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::connection::BrokerConnection;
use super::fault::{ChannelFailure, channel_failure, error_text, reply_code};
use super::in_flight::{InFlight, too_large};
use super::queue::short;
use super::quirks::ready::ready;
use super::quirks::return_matcher::{ConfirmKind, ReturnMatcher};
use super::router::{Given, Item, PublishRouter, give};
use crate::Outcome;

/// The confirm of a publication, by its number.
pub(super) type Confirmed = (u64, lapin::Result<Confirmation>);

/// The context that the windows of a sink share.
#[derive(Clone)]
pub(super) struct PublisherContext {
    pub(super) connection: Arc<BrokerConnection>,
    pub(super) router: Arc<PublishRouter>,
    pub(super) out: mpsc::UnboundedSender<Given>,
    /// After this time without a confirm a publication is unknown; unsent ones are refused.
    pub(super) publish_timeout: Duration,
}

impl PublisherContext {
    /// The interval of deadline checks.
    pub(super) fn ticks(&self) -> Interval {
        let mut ticks = interval(
            (self.publish_timeout / 20).clamp(Duration::from_millis(5), Duration::from_millis(250)),
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }
}

pub(super) struct ChannelWindow {
    place: PublisherContext,
    channel: Channel,
    in_flight: BTreeMap<u64, InFlight>,
    confirms: FuturesUnordered<BoxFuture<'static, Confirmed>>,
    matcher: ReturnMatcher,
    number: u64,
    /// A verdict came: the exchange exists, and the user may publish to it.
    proved: bool,
    /// A publication timed out.
    gave_up: bool,
    /// The time of the last confirm, or of the first publication into an empty window.
    heard: Instant,
}

/// Why a channel closed.
pub(super) struct FailedChannel {
    pub(super) channel_failure: ChannelFailure,
    pub(super) why: String,
    /// Only one publication was in flight, so the failure is its own.
    pub(super) alone: bool,
}

impl ChannelWindow {
    pub(super) fn new(place: PublisherContext, channel: Channel) -> Self {
        let (in_flight, confirms, matcher) =
            (BTreeMap::new(), FuturesUnordered::new(), ReturnMatcher::default());
        ChannelWindow {
            place,
            channel,
            in_flight,
            confirms,
            matcher,
            number: 0,
            proved: false,
            gave_up: false,
            heard: Instant::now(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn is_proved(&self) -> bool {
        self.proved
    }

    /// The last verdict is too old to rely on.
    pub(super) fn doubt(&mut self) {
        self.proved = false;
    }

    /// The address of the oldest publication, if nothing was confirmed for this long.
    pub(super) fn quiet(&self, long: Duration) -> Option<&str> {
        let oldest = self.in_flight.values().next().filter(|_| self.heard.elapsed() >= long)?;
        Some(&oldest.to.address)
    }

    /// The next confirm; pending forever if none is outstanding.
    pub(super) async fn next(&mut self) -> Confirmed {
        match self.confirms.next().await {
            Some(confirmed) => confirmed,
            None => std::future::pending().await,
        }
    }

    /// The first poll of the future hands the message to lapin, in order; then the future waits for
    /// the confirm.
    pub(super) fn publish(&mut self, item: Item) -> lapin::Result<()> {
        if self.in_flight.is_empty() {
            self.heard = Instant::now();
        }
        self.number += 1;
        let number = self.number;
        let Item { token, to, body, properties, deadline } = item;
        let headers = properties.headers().as_ref();
        let copies = headers
            .is_some_and(|headers| headers.contains_key("CC") || headers.contains_key("BCC"));
        let id = properties.message_id().clone();
        let properties = self.matcher.mark(number, properties);
        let (exchange, key) = (short_of(&to.exchange), short_of(&to.address));
        self.in_flight.insert(
            number,
            InFlight {
                token,
                to,
                id,
                size: body.len() as u64,
                copies,
                since: Instant::now(),
                deadline,
                told: false,
            },
        );
        let channel = self.channel.clone();
        let mut publishing = async move {
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let sent = channel.basic_publish(exchange, key, options, &body, properties).await;
            // lapin has its own copy, and the confirm may take long.
            drop(body);
            match sent {
                Ok(confirm) => (number, confirm.await),
                Err(error) => (number, Err(error)),
            }
        }
        .boxed();
        match (&mut publishing).now_or_never() {
            Some((_, Err(error))) => Err(error),
            Some(confirmed) => self.confirmed(confirmed),
            None => {
                self.confirms.push(publishing);
                Ok(())
            }
        }
    }

    /// Takes this confirm and all others that are ready, and only then judges. An error if the
    /// channel closed.
    pub(super) fn confirmed(&mut self, first: Confirmed) -> lapin::Result<()> {
        let mut next = Some(first);
        let mut fallen = None;
        while let Some((number, confirmed)) = next {
            match confirmed {
                Ok(confirmation) => {
                    let kind =
                        if confirmation.is_nack() { ConfirmKind::Nack } else { ConfirmKind::Ack };
                    let carried = confirmation.take_message();
                    self.matcher.confirmed(
                        number,
                        kind,
                        carried.as_ref().map(|message| &message.properties),
                    );
                }
                Err(error) => fallen = Some(error),
            }
            next = ready(&mut self.confirms);
        }
        self.heard = Instant::now();
        let judged = self.matcher.classify(fallen.is_none() && self.confirms.is_empty());
        self.proved |= !judged.is_empty();
        let mut outcomes = Vec::with_capacity(judged.len());
        for (number, verdict) in judged {
            let Some(flight) = self.in_flight.remove(&number) else { continue };
            self.matcher.forget(number, flight.id.as_ref());
            if !flight.told {
                outcomes.push((flight.token, flight.outcome(verdict)));
            }
        }
        give(&self.place.out, outcomes);
        fallen.map_or(Ok(()), Err)
    }

    /// Reports late publications as unknown. Their confirms may still come, and verdicts of others
    /// depend on them, so a window with a late publication accepts no more and is drained. Returns
    /// their addresses.
    pub(super) fn expire(&mut self) -> BTreeSet<String> {
        let publish_timeout = self.place.publish_timeout;
        let (mut outcomes, mut silent) = (Vec::new(), BTreeSet::new());
        let now = Instant::now();
        for flight in
            self.in_flight.values_mut().filter(|flight| flight.deadline <= now && !flight.told)
        {
            flight.told = true;
            outcomes.push((
                flight.token,
                Outcome::Unknown(format!("no confirm for `{}` in time", flight.to)),
            ));
        }
        while let Some(oldest) = self
            .in_flight
            .first_entry()
            .filter(|oldest| oldest.get().since.elapsed() >= publish_timeout)
        {
            let flight = oldest.remove();
            if !flight.told {
                outcomes.push((
                    flight.token,
                    Outcome::Unknown(format!(
                        "no confirm for `{}` within {publish_timeout:?}",
                        flight.to
                    )),
                ));
            }
            silent.insert(flight.to.address);
        }
        self.gave_up |= !silent.is_empty();
        give(&self.place.out, outcomes);
        silent
    }

    /// Waits for outstanding confirms, each up to its deadline; then the channel closes.
    pub(super) async fn drain(mut self) {
        let mut ticks = self.place.ticks();
        let connection = Arc::clone(&self.place.connection);
        while !self.in_flight.is_empty() {
            let going = tokio::select! {
                biased;
                () = connection.lost() => Err(lost()),
                confirmed = self.next() => self.confirmed(confirmed),
                _ = ticks.tick() => {
                    self.expire();
                    Ok(())
                }
            };
            if let Err(error) = going {
                self.failed(error);
                return;
            }
        }
    }

    /// Whether the channel is open. If not, each outstanding confirm gets the reason.
    pub(super) fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    /// The outcomes after the channel closed. Publications confirmed before are confirmed.
    pub(super) fn failed(mut self, mut error: lapin::Error) -> FailedChannel {
        while let Some(confirmed) = ready(&mut self.confirms) {
            match self.confirmed(confirmed) {
                Err(closer) if reply_code(&error).is_none() => error = closer,
                _ => {}
            }
        }
        let PublisherContext { connection, router, out, .. } = &self.place;
        let why =
            if connection.is_lost() { connection.error().message } else { error_text(&error) };
        let (channel_failure, alone) =
            (channel_failure(&error), self.in_flight.len() == 1 && !self.gave_up);
        if let ChannelFailure::TooLarge(most) = channel_failure {
            router.learn_most(most);
        }
        let mut outcomes = Vec::with_capacity(self.in_flight.len());
        for flight in self.in_flight.into_values().filter(|flight| !flight.told) {
            let outcome = match channel_failure {
                ChannelFailure::TooLarge(most) if flight.size > most => {
                    too_large(flight.size, most)
                }
                ChannelFailure::NoExchange | ChannelFailure::NoRight if alone => {
                    Outcome::Unroutable(format!("`{}`: {why}", flight.to))
                }
                ChannelFailure::BadMessage if alone => Outcome::Invalid(why.clone()),
                _ => Outcome::Unknown(why.clone()),
            };
            outcomes.push((flight.token, outcome));
        }
        give(out, outcomes);
        FailedChannel { channel_failure, why, alone }
    }
}

/// Callers have checked the length.
fn short_of(name: &str) -> ShortString {
    short(name).unwrap_or_default()
}

/// The error of a channel whose connection was lost first.
pub(super) fn lost() -> lapin::Error {
    lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into()
}
