//! What a sink and its lanes share: where publications go in, and outcomes out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use lapin::BasicProperties;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::{Destination, Outcome, Token};

/// Outcomes, by the caller's tokens.
pub(super) type Given = Vec<(Token, Outcome)>;

/// One publication on its way to its lane.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) token: Token,
    pub(super) to: Destination,
    pub(super) body: Bytes,
    pub(super) properties: BasicProperties,
    pub(super) since: Instant,
}

/// Where publications to one exchange go in.
pub(super) type Lane = mpsc::UnboundedSender<Vec<Item>>;

/// One sink's desk.
pub(super) struct Desk {
    /// `None` once the sink closed or its link was lost.
    open: Mutex<Option<Open>>,
    /// Handed over, and neither given to the client nor answered.
    unsent: AtomicUsize,
    sent: Notify,
    /// The most bytes of a body, once the broker has said so.
    most: AtomicU64,
}

struct Open {
    out: mpsc::UnboundedSender<Given>,
    lanes: HashMap<String, Lane>,
}

impl Desk {
    pub(super) fn new(out: mpsc::UnboundedSender<Given>) -> Self {
        let open = Mutex::new(Some(Open { out, lanes: HashMap::new() }));
        Desk { open, unsent: AtomicUsize::new(0), sent: Notify::new(), most: AtomicU64::new(u64::MAX) }
    }

    /// Takes in publications, each to the lane of its exchange; `start` makes a lane that is not there. Then gives these outcomes.
    pub(super) fn take_in(&self, items: Vec<Item>, outcomes: Given, start: impl Fn(&str, mpsc::UnboundedSender<Given>) -> Lane) {
        let mut open = self.open.lock();
        let Some(Open { out, lanes }) = &mut *open else { return };
        self.unsent.fetch_add(items.len(), Ordering::AcqRel);
        let mut by_exchange: HashMap<String, Vec<Item>> = HashMap::new();
        for item in items {
            match by_exchange.get_mut(&item.to.exchange) {
                Some(of_exchange) => of_exchange.push(item),
                None => drop(by_exchange.insert(item.to.exchange.clone(), vec![item])),
            }
        }
        for (exchange, items) in by_exchange {
            let lane = lanes.entry(exchange).or_insert_with_key(|exchange| start(exchange, out.clone()));
            // A lane ends only by `retire`, or with the link: then it answers for what is on its way, and the rest is answered here.
            if let Err(mpsc::error::SendError(items)) = lane.send(items) {
                self.left(items.len());
                let refused = items.into_iter().map(|item| (item.token, Outcome::Refused("the connection was lost".to_owned())));
                give(out, refused.collect());
            }
        }
        give(out, outcomes);
    }

    /// Ends the lane of this exchange if nothing is on its way to it; whether it does.
    pub(super) fn retire(&self, exchange: &str, items: &mpsc::UnboundedReceiver<Vec<Item>>) -> bool {
        let mut open = self.open.lock();
        let idle = items.is_empty();
        if let (true, Some(open)) = (idle, &mut *open) {
            open.lanes.remove(exchange);
        }
        idle
    }

    /// This many were given to the client, or answered.
    pub(super) fn left(&self, count: usize) {
        if self.unsent.fetch_sub(count, Ordering::AcqRel) == count {
            self.sent.notify_waiters();
        }
    }

    /// Waits until none is unsent.
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

    /// Nothing more is taken in; lanes end when they have answered.
    pub(super) fn close(&self) {
        *self.open.lock() = None;
    }

    /// The most bytes of a body, as far as it is known.
    pub(super) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// The broker said so.
    pub(super) fn learn_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }
}

/// Gives outcomes. A caller that dropped the receiver wants none.
pub(super) fn give(out: &mpsc::UnboundedSender<Given>, outcomes: Given) {
    if !outcomes.is_empty() {
        let _ = out.send(outcomes);
    }
}
