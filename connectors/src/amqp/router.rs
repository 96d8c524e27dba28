//! The router between a sink and its publishers: publications go in, outcomes come out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use lapin::BasicProperties;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::{Destination, Outcome, Token};

/// Outcomes by the caller's tokens.
pub(super) type Given = Vec<(Token, Outcome)>;

/// A publication on its way to its publisher.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) token: Token,
    pub(super) to: Destination,
    pub(super) body: Bytes,
    pub(super) properties: BasicProperties,
    /// Sent by this time, or never.
    pub(super) deadline: Instant,
}

/// The input of a publisher.
pub(super) type PublisherSender = mpsc::UnboundedSender<Vec<Item>>;

/// The key of a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PublisherKey {
    pub(super) exchange: String,
    /// A single routing key that would delay the others.
    pub(super) routing_key: Option<String>,
}

/// The most publishers for single routing keys.
const MAX_ISOLATED: usize = 64;

/// The router of a sink.
pub(super) struct PublishRouter {
    /// `None` once the sink is closed or its connection is lost.
    open: Mutex<Option<Open>>,
    /// The channel of outcomes while a publisher lives.
    out: mpsc::WeakUnboundedSender<Given>,
    /// Handed over, and neither given to lapin nor answered.
    unsent: AtomicUsize,
    sent: Notify,
    /// The most bytes of a body, once known.
    most: AtomicU64,
}

struct Open {
    out: mpsc::UnboundedSender<Given>,
    publishers: HashMap<PublisherKey, PublisherSender>,
    /// The number of publishers for single routing keys.
    isolated: usize,
}

impl Open {
    fn key(&self, to: &Destination) -> PublisherKey {
        let mut key = PublisherKey { exchange: to.exchange.clone(), routing_key: None };
        if self.isolated > 0 {
            key.routing_key = Some(to.address.clone());
            if !self.publishers.contains_key(&key) {
                key.routing_key = None;
            }
        }
        key
    }
}

impl PublishRouter {
    pub(super) fn new(out: mpsc::UnboundedSender<Given>) -> Self {
        let (weak, open) = (
            out.downgrade(),
            Mutex::new(Some(Open { out, publishers: HashMap::new(), isolated: 0 })),
        );
        PublishRouter {
            open,
            out: weak,
            unsent: AtomicUsize::new(0),
            sent: Notify::new(),
            most: AtomicU64::new(u64::MAX),
        }
    }

    /// Routes publications to their publishers, then sends these outcomes. `start` creates a
    /// missing publisher.
    pub(super) fn take_in(
        &self,
        items: Vec<Item>,
        outcomes: Given,
        start: impl Fn(&PublisherKey, mpsc::UnboundedSender<Given>) -> PublisherSender,
    ) {
        let mut open = self.open.lock();
        let Some(open) = &mut *open else {
            // After the end of the outcomes nobody reads these.
            if let Some(out) = self.out.upgrade() {
                give(&out, refused(items).chain(outcomes).collect());
            }
            return;
        };
        self.unsent.fetch_add(items.len(), Ordering::AcqRel);
        let mut by_publisher: HashMap<PublisherKey, Vec<Item>> = HashMap::new();
        for item in items {
            by_publisher.entry(open.key(&item.to)).or_default().push(item);
        }
        for (key, items) in by_publisher {
            let publisher =
                open.publishers.entry(key).or_insert_with_key(|key| start(key, open.out.clone()));
            // A publisher ends only by `retire` or with the connection. Then it answers for
            // everything in its input, and the rest is answered here.
            if let Err(mpsc::error::SendError(items)) = publisher.send(items) {
                self.left(items.len());
                give(&open.out, refused(items).collect());
            }
        }
        give(&open.out, outcomes);
    }

    /// Moves these publications, and later ones to the same key, to a publisher for a single
    /// routing key, which `start` creates. Returns the publications that it does not accept.
    pub(super) fn isolate(
        &self,
        key: &PublisherKey,
        items: Vec<Item>,
        start: impl FnOnce() -> PublisherSender,
    ) -> Vec<Item> {
        let mut open = self.open.lock();
        let Some(open) = &mut *open else { return items };
        if !open.publishers.contains_key(key) {
            if open.isolated == MAX_ISOLATED {
                return items;
            }
            open.isolated += 1;
            open.publishers.insert(key.clone(), start());
        }
        let Some(publisher) = open.publishers.get(key) else { return items };
        if items.is_empty() {
            return items;
        }
        publisher.send(items).map_or_else(|mpsc::error::SendError(items)| items, |()| Vec::new())
    }

    /// Ends this publisher if its input is empty; returns whether it ends.
    pub(super) fn retire(
        &self,
        key: &PublisherKey,
        items: &mpsc::UnboundedReceiver<Vec<Item>>,
    ) -> bool {
        let mut open = self.open.lock();
        let idle = items.is_empty();
        if let (true, Some(open)) = (idle, &mut *open)
            && open.publishers.remove(key).is_some()
            && key.routing_key.is_some()
        {
            open.isolated -= 1;
        }
        idle
    }

    /// Records that this many were given to lapin or answered.
    pub(super) fn left(&self, count: usize) {
        if self.unsent.fetch_sub(count, Ordering::AcqRel) == count {
            self.sent.notify_waiters();
        }
    }

    /// Waits until no publication is unsent.
    pub(super) async fn all_sent(&self) {
        loop {
            let sent = self.sent.notified();
            tokio::pin!(sent);
            sent.as_mut().enable();
            if self.unsent.load(Ordering::Acquire) == 0 {
                return;
            }
            sent.await;
        }
    }

    /// Accepts no more publications; publishers end when they have answered all.
    pub(super) fn close(&self) {
        *self.open.lock() = None;
    }

    /// The most bytes of a body, if known.
    pub(super) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Records the broker's limit.
    pub(super) fn learn_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }
}

/// The outcomes of publications that came too late.
fn refused(items: Vec<Item>) -> impl Iterator<Item = (Token, Outcome)> {
    items
        .into_iter()
        .map(|item| (item.token, Outcome::Refused("the connection was lost or closed".to_owned())))
}

/// Sends outcomes. A caller that dropped the receiver needs none.
pub(super) fn give(out: &mpsc::UnboundedSender<Given>, outcomes: Given) {
    if !outcomes.is_empty() {
        let _ = out.send(outcomes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_comes_between_the_end_of_the_link_and_that_of_the_outcomes_has_an_outcome() {
        let item = |token| Item {
            token,
            to: Destination::new("q"),
            body: Bytes::new(),
            properties: BasicProperties::default(),
            deadline: Instant::now(),
        };
        let never =
            |_: &PublisherKey, _| -> PublisherSender { panic!("no publisher is started any more") };
        let (out, mut outcomes) = mpsc::unbounded_channel();
        let of_a_publisher = out.clone();
        let router = PublishRouter::new(out);
        router.close();
        router.take_in(vec![item(1)], vec![(2, Outcome::Invalid(String::new()))], never);
        let given = outcomes.try_recv().unwrap();
        assert!(
            matches!(&given[..], [(1, Outcome::Refused(_)), (2, Outcome::Invalid(_))]),
            "{given:?}"
        );
        drop(of_a_publisher);
        assert_eq!(outcomes.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
        router.take_in(vec![item(3)], vec![], never);
    }
}
