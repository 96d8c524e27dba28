//! Reads one ingest: a message becomes a request, the request is stored, only then the message is acknowledged.
//!
//! Batches are applied one after the other, so that requests for one id keep the order of one reader. While Redis or the `rejected` destination is away
//! the batch is held and tried again. Where Redis stays away for longer than `hold`, all that was read is given back, and nothing is read until it answers:
//! another instance may reach it.

use std::time::Duration;

use dwell_connectors::{Acks, Batch, BrokerConfig, Caution, ConnectorError, Declared, Destination, ErrorKind, Source, SourceOptions};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::apply::Apply;
use crate::clock;
use crate::config;
use crate::http::Readiness;
use crate::publisher::Publisher;
use crate::reconnect::Backoff;
use crate::request::Rules;
use crate::telemetry::{IngestMetrics, IngestResult, PauseReason, Paused};

mod batch;
mod cut_off;
mod held;
mod reject;
mod replies;
mod returned;
mod silent;

use replies::Replier;
use returned::Returned;

/// The most messages of one batch, and so of one pass through the durability gate, which takes a second where Redis syncs its log once a second.
const BATCH: usize = 1536;
/// The most bytes of memory of one batch, but for a single larger message.
const BATCH_BYTES: usize = 4 << 20;
/// The most messages that are read and not stored yet: the batch that is being stored and those behind it.
const UNSETTLED: usize = 4096;
/// A link that was there for so long had been opened in earnest.
const STEADY: Duration = Duration::from_secs(2);

/// The agent that reads one ingest.
pub struct Ingest {
    name: String,
    source: BrokerConfig,
    options: SourceOptions,
    rules: Rules,
    rejected: Destination,
    publisher: Publisher,
    replier: Replier,
    apply: Apply,
    of_ingest: Option<IngestMetrics>,
    readiness: Readiness,
    returned: Returned,
    /// The store did not take a request.
    trouble: Notify,
}

/// How one life of a source ended.
enum Ended {
    /// Told to stop.
    Told,
    /// The store did not answer for too long: what was read is given back, and the ingest is paused.
    CutOff(Paused),
}

/// What an [`Ingest`] is made of.
pub struct Parts {
    /// What its requests are judged by.
    pub rules: Rules,
    /// The broker that is read.
    pub source: BrokerConfig,
    /// Where bad requests go.
    pub rejected: Destination,
    /// The link of that broker, for bad requests and verdicts.
    pub publisher: Publisher,
    /// What its requests are applied with.
    pub apply: Apply,
    /// Told once it reads.
    pub readiness: Readiness,
}

/// What an ingest of these settings reads, and how much of it at once.
#[must_use]
pub fn source_options(ingest: &config::Ingest, limits: &config::Limits) -> SourceOptions {
    SourceOptions {
        topic: ingest.topic.clone(),
        group: ingest.group.clone(),
        max_batch: BATCH,
        max_batch_bytes: BATCH_BYTES,
        max_unsettled: UNSETTLED,
        max_unsettled_bytes: usize::try_from(limits.max_inbound_bytes).unwrap_or(usize::MAX),
        acks: Acks::Explicit,
        start: ingest.start,
        apart: vec![Destination::new(&ingest.rejected)],
        expired_queue: ingest.expired_queue.clone(),
    }
}

impl Ingest {
    /// An agent that is not running yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let options = source_options(&parts.rules.ingest, &parts.rules.limits);
        let of_ingest = parts.apply.metrics.ingest(&parts.rules.name);
        Ingest {
            replier: Replier::new(&parts.rules.name, parts.publisher.clone(), of_ingest.clone()),
            name: parts.rules.name.clone(),
            source: parts.source,
            options,
            rejected: parts.rejected,
            publisher: parts.publisher,
            of_ingest,
            apply: parts.apply,
            readiness: parts.readiness,
            returned: Returned::default(),
            rules: parts.rules,
            trouble: Notify::new(),
        }
    }

    /// Opens the source once, to find out at start whether it can be: `run` goes on with it.
    pub async fn open(&self) -> Result<Box<dyn Source>, ConnectorError> {
        self.source.source(self.options.clone()).await
    }

    /// Makes what it reads, where that is missing.
    pub async fn declare(&self) -> Result<Declared, ConnectorError> {
        self.source.declare_source(&self.options).await
    }

    /// Logs once what somebody should know of the queue that it reads.
    pub fn cautions(&self) -> impl Future<Output = ()> + Send + use<> {
        let (name, source, options) = (self.name.clone(), self.source.clone(), self.options.clone());
        async move {
            // Only queues drop messages.
            let cautions = if source.capabilities().log { Vec::new() } else { source.cautions(&options).await.unwrap_or_default() };
            for Caution { message, hint, .. } in cautions {
                tracing::warn!(ingest = name, queue = options.topic, what = message, hint, "requests may be lost where they are read");
            }
        }
    }

    /// Reads until told to stop, beginning with `opened` where that is open already. A batch that is being stored at `stop` is stored and
    /// acknowledged, unless the store stays away until `give_up`.
    pub async fn run(self, opened: Option<Box<dyn Source>>, stop: CancellationToken, give_up: CancellationToken) {
        self.read_until(opened, &stop, &give_up).await;
        self.replier.end(&give_up).await;
    }

    async fn read_until(&self, mut opened: Option<Box<dyn Source>>, stop: &CancellationToken, give_up: &CancellationToken) {
        let mut backoff = Backoff::link();
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
                    // A link that opens and is lost at once, time and again, is no reason to hurry.
                    if begun.elapsed() >= STEADY {
                        backoff.reset();
                    }
                    self.tell(|metrics| metrics.reading().reads(false));
                    match ended {
                        Ok(Ended::Told) => return,
                        Ok(Ended::CutOff(until_answered)) => {
                            paused = Some(until_answered);
                            continue;
                        }
                        Err(error) => {
                            tracing::warn!(ingest = self.name, %error, hint = error.hint, "link for reading lost, reopening");
                            self.tell(|metrics| metrics.last_error().met(&error));
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(ingest = self.name, %error, hint = error.hint, "cannot read, trying again");
                    self.tell(|metrics| metrics.last_error().met(&error));
                    // Deleted meanwhile.
                    if error.kind == ErrorKind::Missing && self.rules.ingest.declare {
                        tokio::select! {
                            () = stop.cancelled() => return,
                            made = self.declare() => made.map_or_else(
                                |error| tracing::warn!(ingest = self.name, %error, hint = error.hint, "cannot make what is missing, trying again"),
                                |made| {
                                    if made == Declared::Created {
                                        let hint = "make the bindings anew that led to it, and look for requests that were lost with it";
                                        tracing::warn!(ingest = self.name, topic = self.options.topic, hint, "what is read was deleted, made it anew");
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

    /// One life of a source.
    async fn read(&self, source: Box<dyn Source>, stop: &CancellationToken, give_up: &CancellationToken) -> Result<Ended, ConnectorError> {
        let telling = async {
            source.reads().await;
            tracing::info!(ingest = self.name, topic = self.options.topic, "reading");
            self.readiness.ingest_reads(&self.name);
            self.tell(|metrics| metrics.reading().reads(true));
            std::future::pending().await
        };
        // One batch is read while the one before is stored.
        let (sender, mut batches) = mpsc::channel::<Result<Batch, ConnectorError>>(1);
        let let_go = give_up.child_token();
        let reading = async {
            // Ends, and with it the channel, when told to stop, when all is given back, or when the source is spent.
            let sender = sender;
            loop {
                let batch = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = let_go.cancelled() => return,
                    batch = source.recv() => batch,
                };
                let failed = batch.is_err();
                let batch = match sender.try_send(batch) {
                    Ok(()) => None,
                    Err(mpsc::error::TrySendError::Full(batch) | mpsc::error::TrySendError::Closed(batch)) => Some(batch),
                };
                if let Some(batch) = batch {
                    // What was read before is not stored yet: nothing more is read meanwhile.
                    let _paused = self.apply.metrics.ingest_paused(PauseReason::Backpressure, None);
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
                // A batch that was not begun is given back by closing.
                if stop.is_cancelled() || let_go.is_cancelled() || !self.apply(batch.messages, &let_go).await {
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
        let mut ended = Ended::Told;
        let result = {
            tokio::pin!(working);
            tokio::select! {
                biased;
                result = &mut working => result,
                () = self.cut_off() => {
                    tracing::warn!(
                        ingest = self.name,
                        hold_ms = self.rules.ingest.hold_ms,
                        "redis did not answer for so long, what was read is given back for another instance, and nothing is read until it answers"
                    );
                    ended = Ended::CutOff(self.paused(PauseReason::Redis));
                    let_go.cancel();
                    working.await
                }
            }
        };
        match (result, source.close().await) {
            (Ok(()), Err(error)) => {
                tracing::debug!(ingest = self.name, %error, "closing the source failed, the broker delivers again what was open");
                Ok(ended)
            }
            (result, _) => result.map(|()| ended),
        }
    }

    /// Tells what people see of it.
    fn tell(&self, what: impl FnOnce(&IngestMetrics)) {
        if let Some(metrics) = &self.of_ingest {
            what(metrics);
        }
    }

    /// Notes that it goes no further for this reason, until what is answered is dropped.
    fn paused(&self, reason: PauseReason) -> Paused {
        let reading = self.of_ingest.as_ref().map(|metrics| metrics.reading().clone());
        self.apply.metrics.ingest_paused(reason, reading)
    }

    fn count(&self, result: IngestResult, count: u64) {
        if let (Some(metrics), true) = (&self.of_ingest, count > 0) {
            metrics.result(result, count);
        }
    }
}
