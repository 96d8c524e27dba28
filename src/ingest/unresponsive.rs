//! Reply targets that do not confirm in time: no request waits for them until they respond.

use std::collections::HashMap;

use dwell_connectors::{Destination, Outcome};
use parking_lot::Mutex;

use crate::clock::{self, Instant};

/// The most targets to remember. Producers name them, so they may be many.
const MAX_TARGETS: usize = 1024;
/// The most verdicts in flight that no request waits for.
const MAX_IN_FLIGHT: usize = 4096;

/// The unresponsive targets of one ingest.
#[derive(Debug, Default)]
pub(super) struct UnresponsiveTargets(Mutex<TargetsState>);

#[derive(Debug, Default)]
struct TargetsState {
    /// Since when each is unresponsive.
    since: HashMap<Destination, Instant>,
    in_flight: usize,
}

impl UnresponsiveTargets {
    /// Whether a wait for this target timed out, and it has not responded since.
    pub(super) fn contains(&self, to: &Destination) -> bool {
        self.0.lock().since.contains_key(to)
    }

    /// Starts a verdict that no request waits for; false where too many are in flight.
    pub(super) fn start(&self) -> bool {
        let mut state = self.0.lock();
        let has_room = state.in_flight < MAX_IN_FLIGHT;
        state.in_flight += usize::from(has_room);
        has_room
    }

    /// Ends such a verdict.
    pub(super) fn finish(&self) {
        let mut state = self.0.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
    }

    /// Returns the number of verdicts in flight that no request waits for.
    pub(super) fn in_flight(&self) -> usize {
        self.0.lock().in_flight
    }

    /// Records an outcome, and whether the wait for it timed out. Returns whether the target just
    /// became unresponsive. A refusal does not count as a response: a connector refuses
    /// publications behind one without a confirm.
    pub(super) fn record(&self, to: &Destination, outcome: &Outcome, timed_out: bool) -> bool {
        let mut state = self.0.lock();
        if !matches!(outcome, Outcome::Unknown(_) | Outcome::Refused(_)) {
            state.since.remove(to);
            return false;
        }
        if !timed_out || state.since.contains_key(to) {
            return false;
        }
        if state.since.len() >= MAX_TARGETS {
            // Temporary reply queues never respond again.
            let oldest =
                state.since.iter().min_by_key(|(_, since)| **since).map(|(to, _)| to.clone());
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
            let (silent, to) = (UnresponsiveTargets::default(), Destination::new("replies"));
            assert!(
                !silent.record(&to, &first, false) && !silent.contains(&to),
                "the connection was lost, or the queue is full"
            );
            assert!(silent.record(&to, &first, true) && silent.contains(&to));
            for more in [unknown(), refused.clone()] {
                assert!(
                    !silent.record(&to, &more, true)
                        && !silent.record(&to, &more, false)
                        && silent.contains(&to)
                );
            }
            assert!(!silent.record(&to, &Outcome::Confirmed, true) && !silent.contains(&to));
        }
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let silent = UnresponsiveTargets::default();
        assert_eq!((0..=MAX_IN_FLIGHT).filter(|_| silent.start()).count(), MAX_IN_FLIGHT);
        silent.finish();
        assert_eq!(silent.in_flight(), MAX_IN_FLIGHT - 1);
        assert!(silent.start() && !silent.start());
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_are_too_many_the_oldest_is_forgotten() {
        let silent = UnresponsiveTargets::default();
        let to = |n: usize| Destination::new(format!("replies-{n}"));
        for n in 0..=MAX_TARGETS {
            assert!(silent.record(&to(n), &unknown(), true));
            tokio::time::advance(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!((0..=MAX_TARGETS).filter(|n| silent.contains(&to(*n))).count(), MAX_TARGETS);
        assert!(!silent.contains(&to(0)));
    }
}
