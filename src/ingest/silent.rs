//! Destinations that take no verdict in time: nobody waits for them until one is taken there, or surely never will be.

use std::collections::HashMap;

use dwell_connectors::{Destination, Outcome};
use parking_lot::Mutex;

use crate::clock::{self, Instant};

/// The most of them. Producers name them, so there may be any number.
const DESTINATIONS: usize = 1024;
/// The most verdicts that are on their way to all of them.
const UNDER_WAY: usize = 4096;

/// Those that are silent.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Since when.
    since: HashMap<Destination, Instant>,
    under_way: usize,
}

impl Silent {
    /// Whether one was waited for in vain, and none came through since.
    pub(super) fn is(&self, to: &Destination) -> bool {
        self.0.lock().since.contains_key(to)
    }

    /// A verdict sets out that nobody waits for; false where too many are on their way.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.0.lock();
        let has_room = state.under_way < UNDER_WAY;
        state.under_way += usize::from(has_room);
        has_room
    }

    /// One of those has its outcome.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        state.under_way = state.under_way.saturating_sub(1);
    }

    /// How many set out and have no outcome yet.
    pub(super) fn under_way(&self) -> usize {
        self.0.lock().under_way
    }

    /// What became of a verdict, and whether that took as long as may be waited for. True where the silence begins. A refusal is no word of the
    /// destination: a connector refuses by itself what waits behind a publication without a confirm.
    pub(super) fn heard(&self, to: &Destination, outcome: &Outcome, in_vain: bool) -> bool {
        let mut state = self.0.lock();
        if !matches!(outcome, Outcome::Unknown(_) | Outcome::Refused(_)) {
            state.since.remove(to);
            return false;
        }
        if !in_vain || state.since.contains_key(to) {
            return false;
        }
        if state.since.len() >= DESTINATIONS {
            // Queues that were made for one answer are silent for ever.
            let oldest = state.since.iter().min_by_key(|(_, since)| **since).map(|(to, _)| to.clone());
            oldest.and_then(|oldest| state.since.remove(&oldest));
        }
        state.since.insert(to.clone(), clock::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown() -> Outcome {
        Outcome::Unknown("no confirm in time".to_owned())
    }

    #[test]
    fn silence_begins_with_a_wait_in_vain_and_ends_with_a_word() {
        let refused = Outcome::Refused("the one before has no confirm yet".to_owned());
        for first in [unknown(), refused.clone()] {
            let (silent, to) = (Silent::default(), Destination::new("replies"));
            assert!(!silent.heard(&to, &first, false) && !silent.is(&to), "the link broke, or it is full");
            assert!(silent.heard(&to, &first, true) && silent.is(&to));
            for more in [unknown(), refused.clone()] {
                assert!(!silent.heard(&to, &more, true) && !silent.heard(&to, &more, false) && silent.is(&to));
            }
            assert!(!silent.heard(&to, &Outcome::Confirmed, true) && !silent.is(&to));
        }
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let silent = Silent::default();
        assert_eq!((0..=UNDER_WAY).filter(|_| silent.begin()).count(), UNDER_WAY);
        silent.end();
        assert_eq!(silent.under_way(), UNDER_WAY - 1);
        assert!(silent.begin() && !silent.begin());
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_are_too_many_the_oldest_is_forgotten() {
        let silent = Silent::default();
        let to = |n: usize| Destination::new(format!("replies-{n}"));
        for n in 0..=DESTINATIONS {
            assert!(silent.heard(&to(n), &unknown(), true));
            tokio::time::advance(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!((0..=DESTINATIONS).filter(|n| silent.is(&to(*n))).count(), DESTINATIONS);
        assert!(!silent.is(&to(0)));
    }
}
