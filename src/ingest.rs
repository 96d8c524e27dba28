//! Reads one ingest: parses each message, stores the request, and only then acknowledges the
//! message.
//!
//! Batches are applied one after the other, so that requests for one id keep their order. While
//! Redis or the `rejected` destination is away, the batch is held and tried again. If Redis stays
//! away for longer than `hold`, all messages are given back, and reading stops until Redis answers:
//! another instance may reach it.

use std::time::Duration;

use dwell_connectors::{
    Acks, Batch, BrokerConfig, Caution, CautionKind, ConnectorError, Declared, Destination,
    ErrorKind, Source, SourceOptions,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::apply::Apply;
use crate::clock;
use crate::config;
use crate::publisher::Publisher;
use crate::readiness::{Outage, Readiness, Waiting};
use crate::reconnect::Backoff;
use crate::request::RequestRules;
use crate::telemetry::{IngestMetrics, PauseReason, Paused};

mod batch;
mod reject;
mod replies;
mod returned;
mod store_backoff;
mod store_probe;
mod unresponsive;

use replies::Replier;
use returned::ReturnedRejections;

/// The most messages of one batch, and so of one pass through the durability gate, which takes a
/// second if Redis syncs its log once a second.
const MAX_BATCH_MESSAGES: usize = 1536;
/// The most bytes of memory of one batch, but for a single larger message.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// The most messages that are read and not stored: the batch that is being stored and those behind
/// it.
const MAX_UNSETTLED_MESSAGES: usize = 4096;
/// A connection that lasted this long resets the backoff.
const MIN_STEADY_DURATION: Duration = Duration::from_secs(2);

/// The agent that reads one ingest.
pub struct Ingest {
    name: String,
    source: BrokerConfig,
    options: SourceOptions,
    rules: RequestRules,
    rejected: Destination,
    publisher: Publisher,
    replier: Replier,
    apply: Apply,
    of_ingest: Option<IngestMetrics>,
    readiness: Readiness,
    returned: ReturnedRejections,
    /// The store did not take a request.
    store_failed: Notify,
}

/// The way the reading of a source ended.
enum End {
    /// Told to stop.
    Stopped,
    /// The store did not answer for too long: the messages are given back, and the ingest is
    /// paused.
    StoreLost(Paused),
}

/// The parts that [`Ingest::new`] needs.
pub struct Parts {
    /// The rules for its requests.
    pub rules: RequestRules,
    /// The broker to read from.
    pub source: BrokerConfig,
    /// Where bad requests go.
    pub rejected: Destination,
    /// The publisher of that broker, for bad requests and verdicts.
    pub publisher: Publisher,
    /// Applies its requests to the store.
    pub apply: Apply,
    /// Is told once the ingest reads.
    pub readiness: Readiness,
}

/// The source of an ingest, and how much it reads at once.
#[must_use]
pub fn source_options(ingest: &config::Ingest, limits: &config::Limits) -> SourceOptions {
    SourceOptions {
        topic: ingest.topic.clone(),
        group: ingest.group.clone(),
        max_batch: MAX_BATCH_MESSAGES,
        max_batch_bytes: MAX_BATCH_BYTES,
        max_unsettled: MAX_UNSETTLED_MESSAGES,
        max_unsettled_bytes: usize::try_from(limits.max_inbound_bytes()).unwrap_or(usize::MAX),
        acks: Acks::Explicit,
        start: ingest.start,
        publishes_to: vec![Destination::new(&ingest.rejected)],
        expired_queue: (*ingest.expired_queue).clone(),
    }
}

impl Ingest {
    /// Makes an agent; [`Ingest::run`] starts it.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let options = source_options(&parts.rules.ingest, &parts.rules.limits);
        let events = parts.apply.events.clone();
        Ingest {
            of_ingest: events.metrics().ingest(&parts.rules.name),
            replier: Replier::new(&parts.rules.name, parts.publisher.clone(), events),
            name: parts.rules.name.clone(),
            source: parts.source,
            options,
            rejected: parts.rejected,
            publisher: parts.publisher,
            apply: parts.apply,
            readiness: parts.readiness,
            returned: ReturnedRejections::default(),
            rules: parts.rules,
            store_failed: Notify::new(),
        }
    }

    /// Opens the source once, so that errors show at start. Pass it to [`Ingest::run`].
    pub async fn open(&self) -> Result<Box<dyn Source>, ConnectorError> {
        self.source.source(self.options.clone()).await
    }

    /// Looks whether the source could be opened, and changes nothing.
    pub async fn inspect(&self) -> Result<(), ConnectorError> {
        self.source.inspect(&self.options).await.map(drop)
    }

    /// Declares the source where it is missing.
    pub async fn declare(&self) -> Result<Declared, ConnectorError> {
        self.source.declare_source(&self.options).await
    }

    /// Logs once what may lose requests before they are read, or keeps them from being read.
    pub fn cautions(&self) -> impl Future<Output = ()> + Send + use<> {
        let (name, source, options) =
            (self.name.clone(), self.source.clone(), self.options.clone());
        async move {
            let cautions = match source.cautions(&options).await {
                Ok(cautions) => cautions,
                // Deleted meanwhile: its reader says so.
                Err(error) if error.kind == ErrorKind::Missing => return,
                Err(error) => {
                    let again = "run `dwell check` later: it looks again";
                    let hint = match error.hint.as_str() {
                        "" => again.to_owned(),
                        hint => format!("{hint}; {again}"),
                    };
                    tracing::warn!(ingest = name, topic = options.topic, %error, hint, "nobody knows whether requests may be lost before they are read");
                    return;
                }
            };
            for Caution { kind, message, hint } in cautions {
                match kind {
                    CautionKind::Drops | CautionKind::Expires | CautionKind::Loses => {
                        tracing::warn!(
                            ingest = name,
                            topic = options.topic,
                            what = message,
                            hint,
                            "requests may be lost before they are read"
                        );
                    }
                    // Kafka's default, and no loss where the clocks are right.
                    CautionKind::ProducerTime { deletes: true } => {
                        tracing::info!(
                            ingest = name,
                            topic = options.topic,
                            what = message,
                            hint,
                            "requests of wrong clocks may be lost before they are read"
                        );
                    }
                    CautionKind::Paused => {
                        tracing::warn!(
                            ingest = name,
                            topic = options.topic,
                            what = message,
                            hint,
                            "the broker delivers no requests"
                        );
                    }
                    CautionKind::ProducerTime { deletes: false } | CautionKind::HoldsBack => {}
                }
            }
        }
    }

    /// Reads until told to stop, starting with `opened` if there is one. At `stop` the current
    /// batch is stored and acknowledged, unless the store stays away until `give_up`.
    pub async fn run(
        self,
        opened: Option<Box<dyn Source>>,
        stop: CancellationToken,
        give_up: CancellationToken,
    ) {
        self.read_until(opened, &stop, &give_up).await;
        self.replier.end(&give_up).await;
    }

    async fn read_until(
        &self,
        mut opened: Option<Box<dyn Source>>,
        stop: &CancellationToken,
        give_up: &CancellationToken,
    ) {
        let mut backoff = Backoff::link();
        let mut outage = Outage::new(&self.readiness, Waiting::Ingest(self.name.clone()));
        let mut paused = None;
        while !stop.is_cancelled() {
            if opened.is_none() && !self.until_answered(stop, paused.take()).await {
                return;
            }
            let opening = async {
                match opened.take() {
                    Some(source) => Ok(source),
                    None => self.open().await,
                }
            };
            let source = tokio::select! {
                () = stop.cancelled() => return,
                source = opening => source,
            };
            match source {
                Ok(source) => {
                    let begun = clock::now();
                    let ended = self.read(source, stop, give_up).await;
                    // A connection that opens and is lost at once, again and again, keeps its
                    // backoff. Whether it ever read is said where it reads.
                    if begun.elapsed() >= MIN_STEADY_DURATION {
                        outage.log_anew();
                        backoff.reset();
                    }
                    self.with_metrics(|metrics| metrics.reading().reads(false));
                    match ended {
                        Ok(End::Stopped) => return,
                        Ok(End::StoreLost(until_answered)) => {
                            paused = Some(until_answered);
                            continue;
                        }
                        Err(error) => {
                            outage.tell(error.kind, &error, &error.hint);
                            self.with_metrics(|metrics| metrics.last_error().record(&error));
                        }
                    }
                }
                Err(error) => {
                    outage.tell(error.kind, &error, &error.hint);
                    self.with_metrics(|metrics| metrics.last_error().record(&error));
                    // The source was deleted while it was read.
                    if error.kind == ErrorKind::Missing && self.rules.ingest.declare {
                        tokio::select! {
                            () = stop.cancelled() => return,
                            made = self.declare() => made.map_or_else(
                                |error| tracing::warn!(ingest = self.name, %error, hint = error.hint, "cannot declare the missing source, trying again"),
                                |made| {
                                    if made == Declared::Created {
                                        let hint = "restore the bindings that led to it; requests in it are lost";
                                        tracing::warn!(ingest = self.name, topic = self.options.topic, hint, "the source was deleted, declared it again");
                                    }
                                },
                            ),
                        }
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    }

    /// Reads a source until it ends.
    async fn read(
        &self,
        source: Box<dyn Source>,
        stop: &CancellationToken,
        give_up: &CancellationToken,
    ) -> Result<End, ConnectorError> {
        let telling = async {
            source.reads().await;
            tracing::info!(ingest = self.name, topic = self.options.topic, "reading");
            self.readiness.ingest_reads(&self.name);
            self.with_metrics(|metrics| metrics.reading().reads(true));
            std::future::pending().await
        };
        // One batch is read while the one before is stored.
        let (sender, mut batches) = mpsc::channel::<Result<Batch, ConnectorError>>(1);
        let give_back = give_up.child_token();
        let reading = async {
            // Ends, and closes the channel, when told to stop, when all is given back, or when the
            // source has failed.
            let sender = sender;
            loop {
                let batch = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = give_back.cancelled() => return,
                    batch = source.recv() => batch,
                };
                let failed = batch.is_err();
                let batch = match sender.try_send(batch) {
                    Ok(()) => None,
                    Err(
                        mpsc::error::TrySendError::Full(batch)
                        | mpsc::error::TrySendError::Closed(batch),
                    ) => Some(batch),
                };
                if let Some(batch) = batch {
                    // The batch before is not stored yet: reading pauses.
                    let _paused =
                        self.apply.events.metrics().ingest_paused(PauseReason::Backpressure, None);
                    if sender.send(batch).await.is_err() {
                        return;
                    }
                }
                if failed {
                    return;
                }
            }
        };
        let applying = async {
            while let Some(batch) = batches.recv().await {
                let batch = batch?;
                // Closing the source gives back a batch that was not begun.
                if stop.is_cancelled()
                    || give_back.is_cancelled()
                    || !self.apply_batch(batch.messages, &give_back).await
                {
                    break;
                }
                source.ack(batch.id).await?;
            }
            Ok(())
        };
        let working = async {
            tokio::pin!(applying);
            tokio::select! {
                biased;
                result = &mut applying => result,
                () = reading => applying.await,
                () = telling => Ok(()),
            }
        };
        let mut ended = End::Stopped;
        let result = {
            tokio::pin!(working);
            tokio::select! {
                biased;
                result = &mut working => result,
                () = self.store_lost() => {
                    tracing::warn!(
                        ingest = self.name,
                        hold_ms = self.rules.ingest.hold.ms(),
                        "redis did not answer for longer than hold; unstored messages are given back for another instance, and reading stops until redis answers"
                    );
                    ended = End::StoreLost(self.paused(PauseReason::Redis));
                    give_back.cancel();
                    working.await
                }
            }
        };
        match (result, source.close().await) {
            (Ok(()), Err(error)) => {
                tracing::debug!(ingest = self.name, %error, "closing the source failed, the broker redelivers unacknowledged messages");
                Ok(ended)
            }
            (result, _) => result.map(|()| ended),
        }
    }

    /// Updates the metrics of this ingest.
    fn with_metrics(&self, what: impl FnOnce(&IngestMetrics)) {
        if let Some(metrics) = &self.of_ingest {
            what(metrics);
        }
    }

    /// Counts the ingest as paused until the guard is dropped.
    fn paused(&self, reason: PauseReason) -> Paused {
        let reading = self.of_ingest.as_ref().map(|metrics| metrics.reading().clone());
        self.apply.events.metrics().ingest_paused(reason, reading)
    }
}
