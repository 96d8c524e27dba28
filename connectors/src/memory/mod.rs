//! A broker in this process: for tests of logic, and for faults that a real server cannot be made
//! to show.
//!
//! Sources and sinks open with `Config::from(&broker)`. Tests use [`Broker`] itself to create
//! topics, publish, read publications, inject a [`Fault`] and cut connections. All waiting uses
//! tokio's clock, so a paused clock works.

mod connector;
mod fault;
mod sink;
mod source;
mod topic;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::fault::Fault;
use self::fault::Faults;
use self::topic::Topic;
use crate::{ConnectorError, Declared, ErrorKind, Message, Position};

/// The settings of a memory broker: a handle to it.
#[derive(Debug, Clone)]
pub struct Config {
    broker: Broker,
}

impl From<&Broker> for Config {
    fn from(broker: &Broker) -> Self {
        Config { broker: broker.clone() }
    }
}

/// A broker with named topics. A topic is a log that each group reads from its beginning.
/// Publishing to a missing topic is unroutable.
#[derive(Clone)]
pub struct Broker {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<BrokerState>,
    /// Increases whenever a source may have something to do.
    changed: watch::Sender<u64>,
    started: Instant,
    started_us: i64,
}

struct BrokerState {
    topics: BTreeMap<String, Topic>,
    faults: Faults,
    /// Increases with each `cut`: sources and sinks opened before are disconnected.
    cuts: u64,
    refuse_open: Option<ErrorKind>,
    /// Sinks accept nothing.
    stalled: bool,
    /// The number of batches that waited for that.
    waited: usize,
    /// Sources wait for their assignment.
    unshared: bool,
    sinks: Vec<Weak<sink::PublishWindow>>,
}

impl Default for Broker {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("topics", &self.shared.state.lock().topics.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Broker {
    /// A broker without topics.
    #[must_use]
    pub fn new() -> Self {
        let (topics, faults, sinks) = (BTreeMap::new(), Faults::default(), Vec::new());
        let state = BrokerState {
            topics,
            faults,
            cuts: 0,
            refuse_open: None,
            stalled: false,
            waited: 0,
            unshared: false,
            sinks,
        };
        // Taken first: a clock that is behind would make messages look early.
        let started = Instant::now();
        let started_us = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        let shared = Shared {
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            started,
            started_us,
        };
        Broker { shared: Arc::new(shared) }
    }

    /// A broker with these topics.
    pub fn with_topics<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let broker = Self::new();
        for name in names {
            broker.create(name);
        }
        broker
    }

    /// Creates a topic; an existing one is unchanged.
    pub fn create(&self, topic: &str) {
        self.shared.state.lock().topics.entry(topic.to_owned()).or_default();
    }

    /// Deletes a topic with its messages. Its sources report an error.
    pub fn delete(&self, topic: &str) {
        self.shared.state.lock().topics.remove(topic);
        self.touch();
    }

    /// Publishes as a producer without faults. Creates a missing topic.
    pub fn publish(&self, topic: &str, message: Message) {
        let timestamp_ms = self.now_ms();
        self.shared.state.lock().topics.entry(topic.to_owned()).or_default().push(
            topic,
            message,
            "",
            timestamp_ms,
        );
        self.touch();
    }

    /// Everything ever published to this topic, in order, whether read or not.
    #[must_use]
    pub fn published(&self, topic: &str) -> Vec<Message> {
        self.shared
            .state
            .lock()
            .topics
            .get(topic)
            .map(|topic| topic.log.iter().map(|stored| stored.message.clone()).collect())
            .unwrap_or_default()
    }

    /// The dedupe ids of everything published to this topic, in order.
    #[must_use]
    pub fn dedupe_ids(&self, topic: &str) -> Vec<String> {
        self.shared
            .state
            .lock()
            .topics
            .get(topic)
            .map(|topic| topic.log.iter().map(|stored| stored.dedupe_id.clone()).collect())
            .unwrap_or_default()
    }

    /// The number of deliveries to this group, redeliveries included.
    #[must_use]
    pub fn delivered(&self, topic: &str, group: &str) -> usize {
        self.shared.state.lock().topics.get(topic).map_or(0, |topic| topic.delivered(group))
    }

    /// The number of messages that this group has not acked, delivered or not. All, if the group
    /// never read.
    #[must_use]
    pub fn unacked(&self, topic: &str, group: &str) -> usize {
        self.shared.state.lock().topics.get(topic).map_or(0, |topic| topic.unacked(group))
    }

    /// Waits until at least `count` messages are published to this topic, and returns all. Panics
    /// after `timeout`: for tests.
    pub async fn wait_published(
        &self,
        topic: &str,
        count: usize,
        timeout: Duration,
    ) -> Vec<Message> {
        let mut changed = self.shared.changed.subscribe();
        let enough = async {
            loop {
                let messages = self.published(topic);
                if messages.len() >= count {
                    return messages;
                }
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(timeout, enough).await {
            Ok(messages) => messages,
            Err(_) => panic!(
                "{} of {count} messages were published to `{topic}` within {timeout:?}",
                self.published(topic).len()
            ),
        }
    }

    /// Each publication to this topic has this fault, until [`Broker::heal`]. Takes precedence over
    /// a fault of all topics.
    pub fn fail(&self, topic: &str, fault: Fault) {
        self.shared.state.lock().faults.add(Some(topic), fault, None);
    }

    /// The next `times` publications to this topic have this fault. Further faults follow after it.
    pub fn fail_times(&self, topic: &str, times: usize, fault: Fault) {
        self.shared.state.lock().faults.add(Some(topic), fault, Some(times));
    }

    /// Each publication has this fault, until [`Broker::heal`].
    pub fn fail_all(&self, fault: Fault) {
        self.shared.state.lock().faults.add(None, fault, None);
    }

    /// Loses the first ack of each message of this topic, as a broken connection does: each message
    /// is delivered twice.
    pub fn lose_first_acks(&self, topic: &str) {
        self.shared.state.lock().topics.entry(topic.to_owned()).or_default().lose_first_acks();
    }

    /// Removes every fault, and lets sources and sinks open again. Held answers stay held: see
    /// [`Broker::release`].
    pub fn heal(&self) {
        let mut state = self.shared.state.lock();
        state.faults = Faults::default();
        state.refuse_open = None;
        state.stalled = false;
        state.unshared = false;
        drop(state);
        self.touch();
    }

    /// Makes sinks accept nothing, as a client whose queue is full: `publish` waits until
    /// [`Broker::heal`] or the end of the connection.
    pub fn stall(&self) {
        self.shared.state.lock().stalled = true;
    }

    /// The number of batches that waited at stalled sinks.
    #[must_use]
    pub fn waited(&self) -> usize {
        self.shared.state.lock().waited
    }

    /// Waits while sinks are stalled and `or` is false.
    async fn until_taken(&self, or: impl Fn() -> bool) {
        let mut changed = self.shared.changed.subscribe();
        {
            let mut state = self.shared.state.lock();
            state.waited += usize::from(state.stalled);
        }
        while self.shared.state.lock().stalled && !or() {
            // The sender lives as long as the broker.
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sends the answers that [`Fault::Hold`] holds back, and returns their number.
    pub fn release(&self) -> usize {
        let sinks = self.windows();
        sinks.iter().map(|window| window.release()).sum()
    }

    /// The number of publications without an answer, on all open sinks.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.windows().iter().map(|window| window.unanswered()).sum()
    }

    /// Cuts every connection: sources report [`ErrorKind::Disconnected`], sinks report unanswered
    /// publications as unknown and end. Opening works at once, unless [`Broker::refuse_open`] was
    /// called.
    pub fn cut(&self) {
        let mut state = self.shared.state.lock();
        state.cuts += 1;
        for topic in state.topics.values_mut() {
            topic.give_back_all();
        }
        let sinks = std::mem::take(&mut state.sinks);
        drop(state);
        for window in sinks.iter().filter_map(Weak::upgrade) {
            window.end("the connection was cut");
        }
        self.touch();
    }

    /// Fails opening a source or a sink, and every query on an open sink, with this kind, until
    /// [`Broker::heal`].
    pub fn refuse_open(&self, kind: ErrorKind) {
        self.shared.state.lock().refuse_open = Some(kind);
    }

    /// Opens sources without an assignment, as in a group that waits for a lost member, until
    /// [`Broker::heal`].
    pub fn share_nothing_out(&self) {
        self.shared.state.lock().unshared = true;
    }

    fn declare(&self, topic: &str) -> Result<Declared, ConnectorError> {
        let mut state = self.shared.state.lock();
        state.may_open()?;
        let existed = state.topics.contains_key(topic);
        state.topics.entry(topic.to_owned()).or_default();
        Ok(if existed { Declared::Existed } else { Declared::Created })
    }

    fn windows(&self) -> Vec<Arc<sink::PublishWindow>> {
        self.shared.state.lock().sinks.iter().filter_map(Weak::upgrade).collect()
    }

    fn touch(&self) {
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// The broker's time, epoch ms; follows tokio's clock.
    fn now_ms(&self) -> i64 {
        // Rounded down only once: a message must not look older than it is.
        (self.shared.started_us
            + i64::try_from(self.shared.started.elapsed().as_micros()).unwrap_or(0))
            / 1000
    }
}

impl BrokerState {
    fn may_open(&self) -> Result<(), ConnectorError> {
        match self.refuse_open {
            Some(kind) => Err(ConnectorError::new(kind, "the memory broker was told to refuse")),
            None => Ok(()),
        }
    }
}

fn position(topic: &str, offset: u64) -> Position {
    Position { log: topic.to_owned(), partition: 0, offset }
}
