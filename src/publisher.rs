//! The link of one broker for publishing: opened and reopened for ever, every publication answered exactly once, in time.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dwell_connectors::{BrokerConfig, ConnectorError, Destination, Message, Outcome, Outcomes, Publication, Sink, Token};
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::clock::{self, Instant};
use crate::telemetry::BrokerMetrics;

mod pending;
mod upkeep;

use pending::{Owner, Pending};

/// How long a sink has, after the time of a publication is over, to tell what it knows of it: what was never sent is refused, and not unknown.
pub(crate) const ANSWER: Duration = Duration::from_secs(2);
/// What comes so much later than a bound that this process keeps itself came so late because it did not run: what a sink said meanwhile has yet to come
/// through.
pub(crate) const OVERSLEPT: Duration = Duration::from_secs(1);

/// Outcomes of the publications that one owner handed over, in batches.
pub type Reports = mpsc::UnboundedReceiver<Vec<(Token, Outcome)>>;

/// A publication of the dispatcher, which draws its tokens from [`Publisher::token`].
#[derive(Debug)]
pub struct Attempt {
    /// Comes back with the outcome.
    pub token: Token,
    /// Where to.
    pub to: Destination,
    /// What.
    pub message: Message,
    /// For brokers that drop repeats.
    pub dedupe_id: String,
    /// Without an answer by then it is given up: refused where the sink says that it was not sent, and unknown otherwise.
    pub deadline: Instant,
}

/// The link of one broker for publishing. Clones share it.
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
    /// When the link was lost last; before its first life, when the publisher was made.
    lost: Mutex<Instant>,
    tokens: AtomicU64,
    pending: Mutex<Pending>,
    /// A deadline was set that comes before all others.
    sooner: Notify,
    reports: mpsc::UnboundedSender<Vec<(Token, Outcome)>>,
    metrics: Option<BrokerMetrics>,
}

impl Publisher {
    /// A publisher that is not open yet, and where the outcomes of [`Publisher::publish`] arrive.
    #[must_use]
    pub fn new(name: &str, config: BrokerConfig, publish_timeout: Duration, metrics: Option<BrokerMetrics>) -> (Self, Reports) {
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

    /// Opens the link: from then on it may be published to, and `run` goes on with the outcomes.
    pub async fn open(&self) -> Result<Outcomes, ConnectorError> {
        let (sink, outcomes) = self.connect().await?;
        self.use_sink(sink);
        Ok(outcomes)
    }

    /// Opens a link that nothing is published to yet, to look first whether what is needed is there.
    pub async fn connect(&self) -> Result<(Arc<dyn Sink>, Outcomes), ConnectorError> {
        let (sink, outcomes) = self.inner.config.sink(self.inner.publish_timeout).await?;
        Ok((sink.into(), outcomes))
    }

    /// From now on it is published here, and `run` goes on with the outcomes.
    pub fn use_sink(&self, sink: Arc<dyn Sink>) {
        *self.inner.sink.write() = Some(sink);
        self.set_connected(true);
    }

    /// True while the link is up.
    #[must_use]
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.inner.connected.subscribe()
    }

    /// Waits until the link is up, `publish_timeout` at most from when it was lost: who asks while a broker stays away does not wait each time.
    pub async fn until_connected(&self) {
        let until = *self.inner.lost.lock() + self.inner.publish_timeout;
        self.until_up(until.saturating_duration_since(clock::now())).await;
    }

    /// Waits until the broker is there, `publish_timeout` at most.
    pub async fn until_back(&self) {
        self.until_up(self.inner.publish_timeout).await;
    }

    async fn until_up(&self, patience: Duration) {
        let mut connected = self.connected();
        // The sender lives as long as this publisher.
        let _ = clock::timeout(patience, connected.wait_for(|up| *up)).await;
    }

    /// A token that no publication has.
    #[must_use]
    pub fn token(&self) -> Token {
        self.inner.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Publishes; each outcome arrives in the reports, by its deadline at the latest.
    pub async fn publish(&self, attempts: Vec<Attempt>) {
        let Some(sink) = self.enter(|pending| {
            let mut by_deadline: Vec<(Instant, Vec<Token>)> = Vec::new();
            for attempt in &attempts {
                pending.owners.insert(attempt.token, Owner::Dispatch);
                let answered_by = attempt.deadline + ANSWER;
                match by_deadline.last_mut() {
                    Some((deadline, tokens)) if *deadline == answered_by => tokens.push(attempt.token),
                    _ => by_deadline.push((answered_by, vec![attempt.token])),
                }
            }
            pending.deadlines.extend(by_deadline.into_iter().map(Reverse));
        }) else {
            let refused = attempts.iter().map(|attempt| (attempt.token, Outcome::Refused("the broker is away".to_owned()))).collect();
            // The receiver lives as long as its dispatcher; without one nobody waits.
            let _ = self.inner.reports.send(refused);
            return;
        };
        let publications = attempts
            .into_iter()
            .map(|Attempt { token, to, message, dedupe_id, deadline }| Publication {
                token,
                to,
                message,
                dedupe_id,
                deadline: Some(deadline),
            })
            .collect();
        sink.publish(publications).await;
    }

    /// Publishes messages, handed over together and in this order, and waits for their outcomes, `publish_timeout` at most: these, and how long each
    /// took.
    pub async fn publish_all(&self, messages: Vec<(Destination, Message)>) -> Vec<(Outcome, Duration)> {
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
            return tokens.iter().map(|_| (Outcome::Refused("the broker is away".to_owned()), Duration::ZERO)).collect();
        };
        let publication = |(token, (to, message))| Publication { token, to, message, dedupe_id: String::new(), deadline: None };
        sink.publish(tokens.into_iter().zip(messages).map(publication).collect()).await;
        let outcome = async |receiver: oneshot::Receiver<Outcome>| {
            let outcome = receiver.await.unwrap_or_else(|_| Outcome::Unknown("the publisher ended".to_owned()));
            (outcome, begun.elapsed())
        };
        join_all(receivers.into_iter().map(outcome)).await
    }

    /// Notes publications as pending and gives the sink that they go to; `None`, with nothing noted, where the broker is away. One step: what is
    /// noted here is answered by the link's end, if by nothing else.
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

    /// Something is wrong with the link: people see it.
    pub fn tell(&self, error: impl std::fmt::Display) {
        if let Some(metrics) = &self.inner.metrics {
            metrics.last_error().met(error);
        }
    }

    fn set_connected(&self, up: bool) {
        self.inner.connected.send_replace(up);
        if let Some(metrics) = &self.inner.metrics {
            metrics.connected(up);
        }
    }

    /// Hands outcomes to their owners. Those of tokens that are answered already (a confirm after its deadline) are dropped.
    fn report(&self, batch: Vec<(Token, Outcome)>) {
        let mut for_dispatch = Vec::with_capacity(batch.len());
        {
            let mut pending = self.inner.pending.lock();
            for (token, outcome) in batch {
                match pending.owners.remove(&token) {
                    Some(Owner::Dispatch) => for_dispatch.push((token, outcome)),
                    // Whoever waited has given up.
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

    /// Answers for what has no answer by its deadline.
    fn expire(&self) {
        let now = clock::now();
        let mut late = Vec::new();
        {
            let mut pending = self.inner.pending.lock();
            while pending.deadlines.peek().is_some_and(|Reverse((deadline, _))| *deadline <= now) {
                if let Some(Reverse((_, tokens))) = pending.deadlines.pop() {
                    late.extend(tokens.into_iter().filter(|token| pending.owners.contains_key(token)));
                }
            }
        }
        self.report(late.into_iter().map(|token| (token, Outcome::Unknown("no confirm in time".to_owned()))).collect());
    }

    /// Whether something takes messages at this destination.
    pub async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        let sink = self.inner.sink.read().clone();
        match sink {
            Some(sink) => sink.exists(to).await,
            None => Err(ConnectorError::new(dwell_connectors::ErrorKind::Disconnected, format!("broker `{}` is away", self.inner.name))),
        }
    }
}
