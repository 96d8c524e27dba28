//! The wait of a limited queue for its next turn.

use std::time::Duration;

use crate::clock::{self, Instant};
use crate::store::limits::Limit;

/// The bounds of the wait before Redis is asked for turns again: other programs may give some back.
const MIN_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A limited queue has no turn for another job now.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnWait {
    /// Nobody asks before.
    pub(super) until: Instant,
    /// The time of the next turn, if nobody gives one back.
    at: Instant,
    /// The time from one turn to the next.
    pub(super) step: Duration,
}

impl TurnWait {
    pub(super) fn new(limit: &Limit, wait: Duration) -> TurnWait {
        let (now, step) = (clock::now(), clock::micros(limit.rate().span_us(1)));
        TurnWait { until: now + wait.clamp(MIN_WAIT, MAX_WAIT), at: now + wait, step }
    }

    /// How many turns are expected to be there, at least one: more calls would find none.
    pub(super) fn turns(&self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.at).as_micros();
        let turns = passed / self.step.as_micros().max(1);
        usize::try_from(turns).unwrap_or(usize::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::limit::Rate;

    #[test]
    fn as_many_calls_as_turns_are_expected() {
        let limit = Limit::of_queue("q", "*", Rate::new(1000, 1_000_000, Some(1)));
        let (wait, ms) = (TurnWait::new(&limit, Duration::from_secs(5)), Duration::from_millis);
        assert_eq!((wait.turns(wait.until), wait.turns(wait.at)), (1, 1), "one asks in between");
        assert_eq!(wait.turns(wait.at + ms(4)), 5);
        assert_eq!(wait.until + ms(4_000), wait.at);
    }
}
