//! The window of a channel: what was published on it and has no verdict yet.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation};

use super::desk::{Given, Item};
use super::fault::Fall;
use super::flight::{Flight, too_large};
use super::queue::short;
use super::tally::{Said, Tally};
use crate::Outcome;

/// What became of one publication, by its number.
pub(super) type Confirmed = (u64, lapin::Result<Confirmation>);

pub(super) struct Window {
    channel: Channel,
    flights: BTreeMap<u64, Flight>,
    confirms: FuturesUnordered<BoxFuture<'static, Confirmed>>,
    tally: Tally,
    number: u64,
}

impl Window {
    pub(super) fn new(channel: Channel) -> Self {
        Window { channel, flights: BTreeMap::new(), confirms: FuturesUnordered::new(), tally: Tally::default(), number: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// How many have no verdict yet.
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether each has its outcome, if not its verdict.
    pub(super) fn is_answered(&self) -> bool {
        self.flights.values().all(|flight| flight.answered)
    }

    /// The next confirm; for ever nothing where none is out.
    pub(super) async fn next(&mut self) -> Confirmed {
        match self.confirms.next().await {
            Some(confirmed) => confirmed,
            None => std::future::pending().await,
        }
    }

    /// The future's first look hands the message to the client, in our order; then it waits for the confirm. Gives the outcomes that came with it.
    pub(super) fn publish(&mut self, item: Item, size: u64) -> lapin::Result<Given> {
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
            Some((_, Ok(confirmation))) => {
                let (outcomes, fallen) = self.confirmed((number, Ok(confirmation)));
                fallen.map_or(Ok(outcomes), Err)
            }
            None => {
                self.confirms.push(publishing);
                Ok(Given::new())
            }
        }
    }

    /// Takes this confirm and every other that is ready; only then judges. Gives the outcomes, and the error where the channel fell.
    pub(super) fn confirmed(&mut self, first: Confirmed) -> (Given, Option<lapin::Error>) {
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
        let mut outcomes = Vec::with_capacity(judged.len());
        for (number, verdict) in judged {
            let Some(flight) = self.flights.remove(&number) else { continue };
            self.tally.forget(number, flight.id.as_ref());
            if !flight.answered {
                outcomes.push((flight.token, flight.outcome(verdict)));
            }
        }
        (outcomes, fallen)
    }

    /// What waited too long is unknown. Its confirm still counts when it comes: others' verdicts hang on it.
    pub(super) fn expire(&mut self, patience: Duration) -> Given {
        let mut outcomes = Vec::new();
        for flight in self.flights.values_mut().take_while(|flight| flight.since.elapsed() >= patience) {
            if !std::mem::replace(&mut flight.answered, true) {
                outcomes.push((flight.token, Outcome::Unknown(format!("no confirm for `{}` within {patience:?}", flight.to))));
            }
        }
        outcomes
    }

    /// The channel is no more: what that means for each publication that is out.
    pub(super) fn fell(self, fall: Fall, why: &str) -> Given {
        let alone = self.flights.len() == 1;
        let mut outcomes = Vec::with_capacity(self.flights.len());
        for flight in self.flights.into_values().filter(|flight| !flight.answered) {
            let outcome = match fall {
                Fall::TooLarge(most) if flight.size > most => too_large(flight.size, most),
                Fall::NoExchange | Fall::NoRight if alone => Outcome::Unroutable(format!("`{}`: {why}", flight.to)),
                Fall::BadMessage if alone => Outcome::Invalid(why.to_owned()),
                _ => Outcome::Unknown(why.to_owned()),
            };
            outcomes.push((flight.token, outcome));
        }
        outcomes
    }
}

/// Names were measured before they came here.
fn short_of(name: &str) -> ShortString {
    short(name).unwrap_or_default()
}
