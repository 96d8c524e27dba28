//! Publishes the events of jobs, each at most once. No delivery waits for an event: what the broker
//! does not take is dropped, and counted.

use std::time::Duration;

use dwell_connectors::{Destination, Outcome};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::clock::{self, Instant};
use crate::outgoing::EventSource;
use crate::publisher::Publisher;
use crate::telemetry::Metrics;
use crate::telemetry::feed::Fact;

/// The most events that are published together.
const MAX_BATCH_EVENTS: usize = 64;
/// The most batches without an outcome, beside the window of the dispatcher.
const MAX_BATCHES: usize = 4;
/// Events that are dropped are logged again after this time.
const LOG_REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// The agent that publishes the events of jobs.
pub(crate) struct CloudEvents {
    facts: mpsc::Receiver<Fact>,
    source: EventSource,
    publisher: Publisher,
    to: Destination,
    metrics: Metrics,
    /// When it was last logged that events are dropped.
    told: Option<Instant>,
}

impl CloudEvents {
    /// Publishes these facts there; [`CloudEvents::run`] starts it.
    pub(crate) fn new(
        facts: mpsc::Receiver<Fact>,
        source: EventSource,
        publisher: Publisher,
        to: Destination,
        metrics: Metrics,
    ) -> Self {
        CloudEvents { facts, source, publisher, to, metrics, told: None }
    }

    /// Publishes until told to stop; then what waits, and ends with the last outcome.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut facts = Vec::with_capacity(MAX_BATCH_EVENTS);
        let mut batches: FuturesUnordered<BoxFuture<'static, Vec<(Outcome, Duration)>>> =
            FuturesUnordered::new();
        loop {
            let has_place = batches.len() < MAX_BATCHES;
            tokio::select! {
                Some(outcomes) = batches.next(), if !batches.is_empty() => self.ended(&outcomes),
                count = self.facts.recv_many(&mut facts, MAX_BATCH_EVENTS), if has_place => {
                    // Closed, and nothing waits.
                    if count == 0 {
                        break;
                    }
                    batches.push(self.publish(&mut facts).boxed());
                }
                () = stop.cancelled(), if !self.facts.is_closed() => self.facts.close(),
            }
        }
        while let Some(outcomes) = batches.next().await {
            self.ended(&outcomes);
        }
    }

    /// Publishes these events together. The publisher answers by its timeout.
    fn publish(
        &mut self,
        facts: &mut Vec<Fact>,
    ) -> impl Future<Output = Vec<(Outcome, Duration)>> + use<> {
        let publisher = self.publisher.clone();
        let broker = publisher.connector().capabilities();
        let mut messages = Vec::with_capacity(facts.len());
        for fact in facts.drain(..) {
            messages.push((self.to.clone(), self.source.message(&fact, broker)));
        }
        async move { publisher.publish_all(messages).await }
    }

    /// Counts the events of a batch that were not published, or may not have been.
    fn ended(&mut self, outcomes: &[(Outcome, Duration)]) {
        let mut errors = outcomes.iter().filter_map(|(outcome, _)| outcome.error());
        let Some(why) = errors.next() else { return };
        let dropped = 1 + errors.count() as u64;
        self.metrics.events_dropped(dropped);
        if self.told.is_none_or(|told| told.elapsed() >= LOG_REPEAT_INTERVAL) {
            self.told = Some(clock::now());
            let to = self.publisher.connector().shown(&self.to);
            tracing::warn!(
                to,
                why,
                dropped,
                hint = "dwell_events_dropped_total counts them; jobs are delivered all the same",
                "events of jobs are dropped"
            );
        }
    }
}
