//! Publications without an outcome, and how many outcomes the sink still owes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use dwell_connectors::{Outcome, Token};
use tokio::sync::oneshot;

use crate::clock::{self, Instant};

/// Publications without an outcome. The window of their owners bounds them.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) owners: HashMap<Token, Owner>,
    pub(super) deadlines: BinaryHeap<Reverse<(Instant, Vec<Token>)>>,
    /// Outcomes that the current sink has yet to report, also of publications that were answered by
    /// their deadline.
    owed: usize,
    /// When the sink last reported, or first owed an outcome.
    heard: Option<Instant>,
}

/// The receiver of the outcome.
pub(super) enum Owner {
    Dispatch,
    Waiter(oneshot::Sender<Outcome>),
}

impl Pending {
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// The sink got `count` more publications. Returns whether it owed none before.
    pub(super) fn owe(&mut self, count: usize) -> bool {
        let is_first = self.owed == 0 && count > 0;
        if is_first {
            self.heard = Some(clock::now());
        }
        self.owed += count;
        is_first
    }

    /// The sink reported `count` outcomes.
    pub(super) fn given(&mut self, count: usize) {
        self.owed = self.owed.saturating_sub(count);
        self.heard = Some(clock::now());
    }

    /// A new sink owes nothing.
    pub(super) fn forgive(&mut self) {
        self.owed = 0;
    }

    /// When the sink will have owed outcomes in silence for this long.
    pub(super) fn silent_at(&self, timeout: Duration) -> Option<Instant> {
        self.heard.filter(|_| self.owed > 0).map(|heard| heard + timeout)
    }
}
