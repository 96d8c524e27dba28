//! The publications that a publisher accepted and has not given to lapin.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::router::{Given, Item, give};
use super::window::PublisherContext;
use crate::Outcome;

pub(super) struct PublishQueue {
    place: PublisherContext,
    items: VecDeque<Item>,
}

impl PublishQueue {
    pub(super) fn new(place: PublisherContext) -> Self {
        PublishQueue { place, items: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn put(&mut self, items: Vec<Item>) {
        self.items.extend(items);
    }

    /// The next publication, to be given to lapin or answered.
    pub(super) fn next(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.place.router.left(1);
        Some(item)
    }

    /// Removes the publications to this address.
    pub(super) fn take_out(&mut self, address: &str) -> Vec<Item> {
        let (out, others): (Vec<Item>, Vec<Item>) =
            self.items.drain(..).partition(|item| item.to.address == address);
        self.items = others.into();
        out
    }

    /// Refuses publications past their deadline.
    pub(super) fn refuse_late(&mut self) {
        let now = Instant::now();
        if !self.items.iter().any(|item| item.deadline <= now) {
            return;
        }
        let why = |item: &Item| {
            Outcome::Refused(format!("not sent to `{}` in time: the broker is slow", item.to))
        };
        let (late, others): (Vec<Item>, Vec<Item>) =
            self.items.drain(..).partition(|item| item.deadline <= now);
        self.items = others.into();
        self.answered(late.into_iter().map(|item| (item.token, why(&item))).collect());
    }

    /// Gives this outcome to all.
    pub(super) fn answer(&mut self, outcome: &Outcome) {
        let outcomes = self.items.drain(..).map(|item| (item.token, outcome.clone())).collect();
        self.answered(outcomes);
    }

    fn answered(&self, outcomes: Given) {
        self.place.router.left(outcomes.len());
        give(&self.place.out, outcomes);
    }
}
