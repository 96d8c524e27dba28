//! What a publisher has no outcome of yet, and what its sink still owes an outcome.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use dwell_connectors::{Outcome, Token};
use tokio::sync::oneshot;

use crate::clock::{self, Instant};

/// What has no outcome yet. Bounded by the window of its owners.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) owners: HashMap<Token, Owner>,
    pub(super) deadlines: BinaryHeap<Reverse<(Instant, Vec<Token>)>>,
    /// How many outcomes the sink of now has yet to give, also of what was answered by its deadline.
    owed: usize,
    /// When the sink last gave one, or began to owe.
    heard: Option<Instant>,
}

/// Whom an outcome is for.
pub(super) enum Owner {
    Dispatch,
    Waiter(oneshot::Sender<Outcome>),
}

impl Pending {
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// The sink was handed so many more; true where it owed none.
    pub(super) fn owe(&mut self, count: usize) -> bool {
        let is_first = self.owed == 0 && count > 0;
        if is_first {
            self.heard = Some(clock::now());
        }
        self.owed += count;
        is_first
    }

    /// The sink gave so many.
    pub(super) fn given(&mut self, count: usize) {
        self.owed = self.owed.saturating_sub(count);
        self.heard = Some(clock::now());
    }

    /// Another sink owes nothing yet.
    pub(super) fn forgive(&mut self) {
        self.owed = 0;
    }

    /// When the sink will have been silent for so long with something owed.
    pub(super) fn silent_at(&self, patience: Duration) -> Option<Instant> {
        self.heard.filter(|_| self.owed > 0).map(|heard| heard + patience)
    }
}
