//! The wait of a limited queue for its next turn, or for a free place.

use std::time::Duration;

use crate::clock::{self, Instant};
use crate::store::limits::Limit;

/// The bounds of the wait before Redis is asked for turns again: other programs may give some back.
const MIN_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_secs(1);
/// The same before Redis is asked for a place again, which other programs gave back.
const PLACE_WAIT: Duration = Duration::from_millis(250);

/// A queue whose places are taken for so long has them judged, and again after the same time.
const FULL_TOO_LONG: Duration = Duration::from_secs(1);

/// How long a queue has had no free place.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// How many places this process gave back.
    pub(super) freed: u64,
    /// A call has asked for places: before, nobody knows how long the queue has been full.
    has_asked: bool,
    since: Option<Instant>,
    judged: Option<Instant>,
}

impl Fullness {
    /// A call found no free place. Returns whether it is time to judge what has the places. That is
    /// so at the first call: where pops that do not wait are rare, each of them is a first one.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        let is_first = !std::mem::replace(&mut self.has_asked, true);
        let since = *self.since.get_or_insert(now);
        let from = self.judged.map_or(since, |judged| judged.max(since));
        let is_time = is_first || now >= from + FULL_TOO_LONG;
        if is_time {
            self.judged = Some(now);
        }
        is_time
    }

    /// A call found a free place.
    pub(super) fn has_place(&mut self) {
        (self.has_asked, self.since) = (true, None);
    }
}

/// A limited queue has no turn or no place for another job now.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnWait {
    /// Nobody asks before.
    pub(super) until: Instant,
    /// The time of the next turn, if nobody gives one back.
    at: Instant,
    /// The time from one turn to the next.
    pub(super) step: Duration,
    /// How many there are at that time.
    count: usize,
    /// It is a place that the queue lacks.
    is_for_place: bool,
}

impl TurnWait {
    pub(super) fn new(limit: &Limit, wait: Duration) -> TurnWait {
        let (now, step) = (clock::now(), clock::micros(limit.rate().span_us(1)));
        let until = now + wait.clamp(MIN_WAIT, MAX_WAIT);
        TurnWait { until, at: now + wait, step, count: 1, is_for_place: false }
    }

    /// The wait for a place. `next_end`: the time until the next lease ends.
    pub(super) fn for_place(next_end: Option<Duration>) -> TurnWait {
        let wait = next_end.map_or(PLACE_WAIT, |end| end.clamp(MIN_WAIT, PLACE_WAIT));
        let until = clock::now() + wait;
        TurnWait { until, at: until, step: PLACE_WAIT, count: 1, is_for_place: true }
    }

    pub(super) fn is_for_place(&self) -> bool {
        self.is_for_place
    }

    /// So many places are free now.
    pub(super) fn freed(&mut self, count: usize) {
        let now = clock::now();
        if !self.is_for_place {
            return;
        }
        // Those that were free before may be asked for already.
        let before = if self.until <= now { self.count } else { 0 };
        (self.until, self.at, self.count) = (now, now, before.saturating_add(count));
    }

    /// How many turns are expected to be there, at least one: more calls would find none.
    pub(super) fn turns(&self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.at).as_micros();
        let turns = passed / self.step.as_micros().max(1);
        usize::try_from(turns).unwrap_or(usize::MAX).saturating_add(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::limit::Rate;

    #[test]
    fn as_many_calls_as_turns_are_expected() {
        let limit = Limit::of_queue("q", "*", Rate::new(1000, 1_000_000, Some(1)));
        let (mut wait, ms) = (TurnWait::new(&limit, Duration::from_secs(5)), Duration::from_millis);
        assert_eq!((wait.turns(wait.until), wait.turns(wait.at)), (1, 1), "one asks in between");
        assert_eq!(wait.turns(wait.at + ms(4)), 5);
        assert_eq!(wait.until + ms(4_000), wait.at);
        let until = wait.until;
        wait.freed(3);
        assert_eq!((wait.until, wait.is_for_place()), (until, false), "it has no turn");
    }

    #[test]
    fn a_queue_that_stays_full_is_judged_once_a_second() {
        let (mut fullness, begun) = (Fullness::default(), clock::now());
        let mut at = |ms| fullness.is_full(begun + Duration::from_millis(ms));
        let judged = [0, 900, 1000, 1100, 1999, 2000].map(&mut at);
        assert_eq!(judged, [true, false, true, false, false, true]);
        fullness.has_place();
        assert!(!fullness.is_full(begun + Duration::from_secs(9)));
        let mut fullness = Fullness::default();
        fullness.has_place();
        assert!(!fullness.is_full(begun), "it had a place before");
    }

    #[test]
    fn places_that_come_free_end_the_wait() {
        let mut wait = TurnWait::for_place(Some(Duration::from_secs(60)));
        assert!(wait.until > clock::now());
        wait.freed(2);
        assert!(wait.until <= clock::now());
        assert_eq!(wait.turns(wait.until), 2);
        wait.freed(1);
        assert_eq!(wait.turns(wait.until), 3);
    }
}
