//! Publishes to one broker. Keeps the connection open, and reports one outcome for each
//! publication, by its deadline.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dwell_connectors::{
    BrokerConfig, ConnectorError, Destination, Message, Outcome, Outcomes, Publication, Sink, Token,
};
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::clock::{self, Instant};
use crate::telemetry::BrokerMetrics;

mod connection;
mod pending;

use pending::{Owner, Pending};

/// The time after the deadline of a publication in which the sink may still report it: a message
/// that was never sent is refused, not unknown.
pub(crate) const OUTCOME_MARGIN: Duration = Duration::from_secs(2);
/// A timer that fires this much too late shows that this process was suspended: outcomes of the
/// sink may still be on their way.
pub(crate) const SUSPENSION_THRESHOLD: Duration = Duration::from_secs(1);

/// Batches of outcomes for one owner.
pub type Reports = mpsc::UnboundedReceiver<Vec<(Token, Outcome)>>;

/// A publication of the dispatcher, which draws its tokens from [`Publisher::token`].
#[derive(Debug)]
pub struct PublicationRequest {
    /// Identifies the outcome.
    pub token: Token,
    /// The destination.
    pub to: Destination,
    /// The message.
    pub message: Message,
    /// The id by which brokers drop duplicates.
    pub dedupe_id: String,
    /// Without an answer by then the outcome is refused, if the sink knows that the message was not
    /// sent, or unknown.
    pub deadline: Instant,
}

/// Publishes to one broker. Clones share the connection.
#[derive(Clone)]
pub struct Publisher {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    config: BrokerConfig,
    publish_timeout: Duration,
    sink: RwLock<Option<Arc<dyn Sink>>>,
    connected: watch::Sender<bool>,
    /// When the connection was last lost; before the first one, when the publisher was made.
    lost: Mutex<Instant>,
    tokens: AtomicU64,
    pending: Mutex<Pending>,
    /// A new deadline is earlier than all others.
    sooner: Notify,
    reports: mpsc::UnboundedSender<Vec<(Token, Outcome)>>,
    metrics: Option<BrokerMetrics>,
}

impl Publisher {
    /// Makes a publisher that is not open yet, and the receiver of the outcomes of
    /// [`Publisher::publish`].
    #[must_use]
    pub fn new(
        name: &str,
        config: BrokerConfig,
        publish_timeout: Duration,
        metrics: Option<BrokerMetrics>,
    ) -> (Self, Reports) {
        let (reports, receiver) = mpsc::unbounded_channel();
        let inner = Inner {
            name: name.to_owned(),
            config,
            publish_timeout,
            sink: RwLock::new(None),
            connected: watch::Sender::new(false),
            lost: Mutex::new(clock::now()),
            tokens: AtomicU64::new(1),
            pending: Mutex::default(),
            sooner: Notify::new(),
            reports,
            metrics,
        };
        (Publisher { inner: Arc::new(inner) }, receiver)
    }

    /// The broker.
    #[must_use]
    pub fn connector(&self) -> &BrokerConfig {
        &self.inner.config
    }

    /// The longest wait for an outcome.
    #[must_use]
    pub fn publish_timeout(&self) -> Duration {
        self.inner.publish_timeout
    }

    /// Opens the connection for publications. Pass the outcomes to [`Publisher::run`].
    pub async fn open(&self) -> Result<Outcomes, ConnectorError> {
        let (sink, outcomes) = self.connect().await?;
        self.use_sink(sink);
        Ok(outcomes)
    }

    /// Opens a connection without using it for publications, to check first whether destinations
    /// exist.
    pub async fn connect(&self) -> Result<(Arc<dyn Sink>, Outcomes), ConnectorError> {
        let (sink, outcomes) = self.inner.config.sink(self.inner.publish_timeout).await?;
        Ok((sink.into(), outcomes))
    }

    /// Uses this connection for publications. Pass its outcomes to [`Publisher::run`].
    pub fn use_sink(&self, sink: Arc<dyn Sink>) {
        *self.inner.sink.write() = Some(sink);
        self.set_connected(true);
    }

    /// True while the connection is up.
    #[must_use]
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.inner.connected.subscribe()
    }

    /// Waits until the connection is up, at most `publish_timeout` from its loss: during an outage
    /// not every caller waits.
    pub async fn until_connected(&self) {
        let until = *self.inner.lost.lock() + self.inner.publish_timeout;
        self.until_up(until.saturating_duration_since(clock::now())).await;
    }

    /// Waits until the connection is up, at most `publish_timeout`.
    pub async fn until_back(&self) {
        self.until_up(self.inner.publish_timeout).await;
    }

    async fn until_up(&self, timeout: Duration) {
        let mut connected = self.connected();
        // The sender lives as long as this publisher.
        let _ = clock::timeout(timeout, connected.wait_for(|up| *up)).await;
    }

    /// A new token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.inner.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Publishes. Each outcome arrives in the reports, by its deadline at the latest.
    pub async fn publish(&self, attempts: Vec<PublicationRequest>) {
        let Some(sink) = self.enter(|pending| {
            let mut by_deadline: Vec<(Instant, Vec<Token>)> = Vec::new();
            for attempt in &attempts {
                pending.owners.insert(attempt.token, Owner::Dispatch);
                let answered_by = attempt.deadline + OUTCOME_MARGIN;
                match by_deadline.last_mut() {
                    Some((deadline, tokens)) if *deadline == answered_by => {
                        tokens.push(attempt.token)
                    }
                    _ => by_deadline.push((answered_by, vec![attempt.token])),
                }
            }
            pending.deadlines.extend(by_deadline.into_iter().map(Reverse));
        }) else {
            let refused = attempts
                .iter()
                .map(|attempt| (attempt.token, Outcome::Refused("the broker is away".to_owned())))
                .collect();
            // The receiver lives as long as its dispatcher; without one nobody waits.
            let _ = self.inner.reports.send(refused);
            return;
        };
        let publications = attempts
            .into_iter()
            .map(|PublicationRequest { token, to, message, dedupe_id, deadline }| Publication {
                token,
                to,
                message,
                dedupe_id,
                deadline: Some(deadline),
            })
            .collect();
        sink.publish(publications).await;
    }

    /// Publishes messages together and in this order, and waits for their outcomes, at most
    /// `publish_timeout`. Returns each outcome and how long it took.
    pub async fn publish_all(
        &self,
        messages: Vec<(Destination, Message)>,
    ) -> Vec<(Outcome, Duration)> {
        let begun = clock::now();
        let deadline = begun + self.inner.publish_timeout;
        let tokens: Vec<Token> = messages.iter().map(|_| self.token()).collect();
        let mut receivers = Vec::with_capacity(tokens.len());
        let Some(sink) = self.enter(|pending| {
            for token in &tokens {
                let (sender, receiver) = oneshot::channel();
                pending.owners.insert(*token, Owner::Waiter(sender));
                receivers.push(receiver);
            }
            pending.deadlines.push(Reverse((deadline, tokens.clone())));
        }) else {
            return tokens
                .iter()
                .map(|_| (Outcome::Refused("the broker is away".to_owned()), Duration::ZERO))
                .collect();
        };
        let publication = |(token, (to, message))| Publication {
            token,
            to,
            message,
            dedupe_id: String::new(),
            deadline: None,
        };
        sink.publish(tokens.into_iter().zip(messages).map(publication).collect()).await;
        let outcome = async |receiver: oneshot::Receiver<Outcome>| {
            let outcome = receiver
                .await
                .unwrap_or_else(|_| Outcome::Unknown("the publisher ended".to_owned()));
            (outcome, begun.elapsed())
        };
        join_all(receivers.into_iter().map(outcome)).await
    }

    /// Notes publications as pending and returns the sink to use; `None`, with nothing noted, where
    /// the connection is down. This is one step, so that the end of the connection answers whatever
    /// is noted here.
    fn enter(&self, note: impl FnOnce(&mut Pending)) -> Option<Arc<dyn Sink>> {
        let mut pending = self.inner.pending.lock();
        let sink = self.inner.sink.read().clone()?;
        let (earliest, before) = (pending.earliest(), pending.owners.len());
        note(&mut pending);
        let handed = pending.owners.len() - before;
        if pending.owe(handed) || pending.earliest() != earliest {
            self.inner.sooner.notify_one();
        }
        Some(sink)
    }

    /// Records an error of the connection for the dashboard and the API.
    pub fn record_error(&self, error: impl std::fmt::Display) {
        if let Some(metrics) = &self.inner.metrics {
            metrics.last_error().record(error);
        }
    }

    fn set_connected(&self, up: bool) {
        self.inner.connected.send_replace(up);
        if let Some(metrics) = &self.inner.metrics {
            metrics.connected(up);
        }
    }

    /// Passes outcomes to their owners. Drops those of tokens that are answered already (a confirm
    /// after its deadline).
    fn report(&self, batch: Vec<(Token, Outcome)>) {
        let mut for_dispatch = Vec::with_capacity(batch.len());
        {
            let mut pending = self.inner.pending.lock();
            for (token, outcome) in batch {
                match pending.owners.remove(&token) {
                    Some(Owner::Dispatch) => for_dispatch.push((token, outcome)),
                    // The waiting task may have given up.
                    Some(Owner::Waiter(waiter)) => drop(waiter.send(outcome)),
                    None => {}
                }
            }
        }
        if !for_dispatch.is_empty() {
            // As in `publish`.
            let _ = self.inner.reports.send(for_dispatch);
        }
    }

    /// Answers publications whose deadline has passed.
    fn expire(&self) {
        let now = clock::now();
        let mut late = Vec::new();
        {
            let mut pending = self.inner.pending.lock();
            while pending.deadlines.peek().is_some_and(|Reverse((deadline, _))| *deadline <= now) {
                if let Some(Reverse((_, tokens))) = pending.deadlines.pop() {
                    late.extend(
                        tokens.into_iter().filter(|token| pending.owners.contains_key(token)),
                    );
                }
            }
        }
        self.report(
            late.into_iter()
                .map(|token| (token, Outcome::Unknown("no confirm in time".to_owned())))
                .collect(),
        );
    }

    /// Whether the destination exists and takes messages.
    pub async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        let sink = self.inner.sink.read().clone();
        match sink {
            Some(sink) => sink.exists(to).await,
            None => Err(ConnectorError::new(
                dwell_connectors::ErrorKind::Disconnected,
                format!("broker `{}` is away", self.inner.name),
            )),
        }
    }
}
