//! Messages that are handed over once more: each was refused together with its batch, or taken back from the client because another's time was over.
//!
//! A broker takes a batch whole or not at all, and does not always say which message of it was wrong. So what goes to such a topic goes out in small groups
//! for a while, one after the other; and what was refused with its group goes out alone, so that the answer is its own.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::Message as _;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::OwnedMessage;
use rdkafka::producer::BaseRecord;
use tokio::time::Instant;

use crate::Token;
use crate::kafka::outcome::not_taken;
use crate::kafka::window::PublishWindow;
use crate::kafka::writer::ReportingProducer;

/// The most bytes of a group.
pub(in crate::kafka) const GROUP: usize = 16_384;
/// What a message has on the wire besides what is in it, at most.
const FRAME: usize = 100;
/// How long a topic whose limit is small is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);

/// What shared a batch with the reported message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kafka) enum BatchPeers {
    /// In any batch.
    Any,
    /// In a group.
    Group,
    Alone,
}

/// What is handed over once more.
#[derive(Default)]
pub(in crate::kafka) struct ResendQueue {
    /// Whether there is anything: so that who has nothing pays nothing.
    some: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// Taken back.
    back: VecDeque<Item>,
    topics: HashMap<String, LimitedTopic>,
}

struct Item {
    token: Token,
    message: OwnedMessage,
    size: usize,
}

/// A topic that refused a batch.
#[derive(Default)]
struct LimitedTopic {
    groups: VecDeque<Item>,
    alone: VecDeque<Item>,
    /// One group, or one alone.
    out: HashMap<Token, BatchPeers>,
    /// What went out before the topic was known as narrow was refused meanwhile: perhaps in one batch with those that are out.
    mixed: bool,
    /// Remembered until then, even where nothing waits.
    until: Option<Instant>,
}

impl ResendQueue {
    /// Takes this one in where its topic takes no whole batches; gives it back where it does.
    pub(in crate::kafka) fn take_in(&self, token: Token, message: OwnedMessage, size: usize) -> Option<OwnedMessage> {
        let mut state = self.state.lock();
        if !state.closed
            && let Some(topic) = state.topics.get_mut(message.topic())
        {
            topic.groups.push_back(Item { token, message, size });
            return None;
        }
        Some(message)
    }

    /// Whether this topic takes no whole batches.
    pub(in crate::kafka) fn is_limited(&self, topic: &str) -> bool {
        self.some.load(Ordering::Acquire) && self.state.lock().topics.contains_key(topic)
    }

    /// This one has its report: how it went out.
    pub(in crate::kafka) fn reported(&self, topic: &str, token: Token) -> BatchPeers {
        if !self.some.load(Ordering::Acquire) {
            return BatchPeers::Any;
        }
        let mut state = self.state.lock();
        let Some(topic) = state.topics.get_mut(topic) else { return BatchPeers::Any };
        topic.out.remove(&token).filter(|_| !topic.mixed).unwrap_or(BatchPeers::Any)
    }

    /// This one was refused with its batch: whether it is the first of that. `None` where nothing more is handed over.
    pub(in crate::kafka) fn refused(
        &self,
        token: Token,
        message: OwnedMessage,
        size: usize,
        company: BatchPeers,
        code: Code,
    ) -> Option<bool> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        self.some.store(true, Ordering::Release);
        let topic = state.topics.entry(message.topic().to_owned()).or_default();
        if !matches!(code, Code::InvalidRecord | Code::InvalidDifferentRecord) {
            topic.until = Some(Instant::now() + REMEMBERED);
        }
        topic.mixed |= company == BatchPeers::Any;
        let queue = if company == BatchPeers::Any { &mut topic.groups } else { &mut topic.alone };
        queue.push_back(Item { token, message, size });
        Some(queue.len() == 1)
    }

    /// This one was taken back; false where nothing more is handed over.
    pub(in crate::kafka) fn taken_back(&self, token: Token, message: OwnedMessage, size: usize) -> bool {
        let mut state = self.state.lock();
        if !state.closed {
            self.some.store(true, Ordering::Release);
            let State { back, topics, .. } = &mut *state;
            topics.get_mut(message.topic()).map_or(back, |topic| &mut topic.groups).push_back(Item { token, message, size });
        }
        !state.closed
    }

    /// Hands over what may go now. Whether more waits for what is out.
    pub(in crate::kafka) fn send_ready(&self, producer: &ReportingProducer, window: &PublishWindow) -> bool {
        if !self.some.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        let State { back, topics, .. } = &mut *state;
        send(back, usize::MAX, producer, window, |_| {});
        let (now, mut more) = (Instant::now(), !back.is_empty());
        topics.retain(|_, topic| {
            let LimitedTopic { groups, alone, out, mixed, until } = topic;
            *mixed &= !out.is_empty();
            if out.is_empty() {
                send(alone, 0, producer, window, |token| {
                    out.insert(token, BatchPeers::Alone);
                });
            }
            if out.is_empty() {
                send(groups, GROUP, producer, window, |token| {
                    out.insert(token, BatchPeers::Group);
                });
            }
            let waits = !(out.is_empty() && alone.is_empty() && groups.is_empty());
            more |= waits;
            waits || until.is_some_and(|until| now < until)
        });
        if back.is_empty() && topics.is_empty() {
            self.some.store(false, Ordering::Release);
        }
        more
    }

    /// Nothing more is handed over.
    pub(in crate::kafka) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.back.clear();
        state.topics.clear();
    }
}

/// Hands over as many as are below this size together, one at least; what has its outcome by now is left out.
fn send(items: &mut VecDeque<Item>, most: usize, producer: &ReportingProducer, window: &PublishWindow, mut sent: impl FnMut(Token)) {
    let mut total = 0;
    while let Some(Item { token, message, size }) = items.front() {
        let (token, size) = (*token, size + FRAME);
        if total > 0 && total + size > most {
            return;
        }
        if window.hand_over(token).is_some() {
            let record = BaseRecord {
                topic: message.topic(),
                partition: None,
                payload: message.payload(),
                key: message.key(),
                timestamp: None,
                headers: message.headers().cloned(),
                delivery_opaque: Box::new(token),
            };
            match producer.send::<[u8], [u8]>(record).map_err(|(error, _)| not_taken(&error, message.topic())) {
                Ok(()) => {
                    sent(token);
                    total += size;
                }
                Err(Some(outcome)) => window.give(token, |_| outcome),
                Err(None) => {
                    // Its queue is full: the next time.
                    window.not_taken(token);
                    return;
                }
            }
        }
        items.pop_front();
        if most == 0 && total > 0 {
            return;
        }
    }
}
