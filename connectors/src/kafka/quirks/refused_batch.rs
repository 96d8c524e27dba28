//! Sends messages again that were refused only because of another message in their batch, or that a
//! purge returned.
//!
//! - Behaviour: a broker stores a batch as a whole or not at all, so one message that is too large
//!   or invalid fails the others (confluentinc/librdkafka#488). Only some brokers name the invalid
//!   messages of a batch; librdkafka 2.12 then reports the others as `_INVALID_DIFFERENT_RECORD`
//!   (`rd_kafka_msgbatch_handle_Produce_result_record_errors` in `rdkafka_request.c`). librdkafka
//!   splits no batch, unlike the Java client. A purge of librdkafka's queue, the only way to take
//!   back one late message, returns all unsent messages.
//! - Workaround: after a refusal, messages to that topic go in small groups for a while, one group
//!   at a time. A message that is refused with its group goes alone, so that the answer is its own.
//!   Messages that a purge returned are sent again.
//! - May go when librdkafka splits refused batches itself, and can purge a single message.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::Message as _;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::OwnedMessage;
use rdkafka::producer::{BaseProducer, BaseRecord, ProducerContext};
use tokio::time::Instant;

use crate::Token;
use crate::kafka::outcome::not_taken;
use crate::kafka::window::PublishWindow;

/// The most bytes of a group.
pub(in crate::kafka) const MAX_GROUP_BYTES: usize = 16_384;
/// The most bytes of a message on the wire besides its content.
const MESSAGE_OVERHEAD_BYTES: usize = 100;
/// The time that a topic with a small limit is remembered.
const SMALL_LIMIT_TTL: Duration = Duration::from_secs(600);

/// The messages that shared a batch with a reported one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kafka) enum BatchPeers {
    /// Any messages.
    Any,
    /// The messages of its group.
    Group,
    Alone,
}

/// The queue of messages to send again.
#[derive(Default)]
pub(in crate::kafka) struct ResendQueue {
    /// Whether the queue has anything, so that the usual path takes no lock.
    some: AtomicBool,
    state: Mutex<ResendState>,
}

#[derive(Default)]
struct ResendState {
    closed: bool,
    /// Returned by a purge.
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
    /// The messages in flight: one group, or one message.
    out: HashMap<Token, BatchPeers>,
    /// Messages sent before the topic was known as limited were refused meanwhile, perhaps in one
    /// batch with those in flight.
    mixed: bool,
    /// Remembered until this time, even without messages.
    until: Option<Instant>,
}

impl ResendQueue {
    /// Queues the message if its topic is limited; otherwise returns it.
    pub(in crate::kafka) fn take_in(
        &self,
        token: Token,
        message: OwnedMessage,
        size: usize,
    ) -> Option<OwnedMessage> {
        let mut state = self.state.lock();
        if !state.closed
            && let Some(topic) = state.topics.get_mut(message.topic())
        {
            topic.groups.push_back(Item { token, message, size });
            return None;
        }
        Some(message)
    }

    /// Whether this topic is limited.
    pub(in crate::kafka) fn is_limited(&self, topic: &str) -> bool {
        self.some.load(Ordering::Acquire) && self.state.lock().topics.contains_key(topic)
    }

    /// Records a report; returns the messages that shared the batch.
    pub(in crate::kafka) fn reported(&self, topic: &str, token: Token) -> BatchPeers {
        if !self.some.load(Ordering::Acquire) {
            return BatchPeers::Any;
        }
        let mut state = self.state.lock();
        let Some(topic) = state.topics.get_mut(topic) else { return BatchPeers::Any };
        topic.out.remove(&token).filter(|_| !topic.mixed).unwrap_or(BatchPeers::Any)
    }

    /// Queues a message that was refused with its batch; returns whether it is the first of its
    /// batch. `None` once the queue is closed.
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
            topic.until = Some(Instant::now() + SMALL_LIMIT_TTL);
        }
        topic.mixed |= company == BatchPeers::Any;
        let queue = if company == BatchPeers::Any { &mut topic.groups } else { &mut topic.alone };
        queue.push_back(Item { token, message, size });
        Some(queue.len() == 1)
    }

    /// Queues a message that a purge returned; false once the queue is closed.
    pub(in crate::kafka) fn taken_back(
        &self,
        token: Token,
        message: OwnedMessage,
        size: usize,
    ) -> bool {
        let mut state = self.state.lock();
        if !state.closed {
            self.some.store(true, Ordering::Release);
            let ResendState { back, topics, .. } = &mut *state;
            topics
                .get_mut(message.topic())
                .map_or(back, |topic| &mut topic.groups)
                .push_back(Item { token, message, size });
        }
        !state.closed
    }

    /// Hands over the messages that may go now; returns whether more wait.
    pub(in crate::kafka) fn send_ready<C: ProducerContext<DeliveryOpaque = Box<Token>>>(
        &self,
        producer: &BaseProducer<C>,
        window: &PublishWindow,
    ) -> bool {
        if !self.some.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        let ResendState { back, topics, .. } = &mut *state;
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
                send(groups, MAX_GROUP_BYTES, producer, window, |token| {
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

    /// Closes the queue.
    pub(in crate::kafka) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.back.clear();
        state.topics.clear();
    }
}

/// Hands over messages up to this size together, at least one; skips those that have their outcome.
fn send<C: ProducerContext<DeliveryOpaque = Box<Token>>>(
    items: &mut VecDeque<Item>,
    most: usize,
    producer: &BaseProducer<C>,
    window: &PublishWindow,
    mut sent: impl FnMut(Token),
) {
    let mut total = 0;
    while let Some(Item { token, message, size }) = items.front() {
        let (token, size) = (*token, size + MESSAGE_OVERHEAD_BYTES);
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
            match producer
                .send::<[u8], [u8]>(record)
                .map_err(|(error, _)| not_taken(&error, message.topic()))
            {
                Ok(()) => {
                    sent(token);
                    total += size;
                }
                Err(Some(outcome)) => window.give(token, |_| outcome),
                Err(None) => {
                    // The producer's queue is full: try again next time.
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
