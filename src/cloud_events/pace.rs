//! How fast events are published. Deliveries come first: while a burst of jobs is stored or
//! delivered, its events wait, and follow after the burst.

use std::time::Duration;

use crate::clock::Instant;
use crate::telemetry::feed::MAX_WAITING;

/// The most batches without an outcome, beside the window of the dispatcher.
const MAX_BATCHES: usize = 4;
/// How often is judged whether there is a burst. In a burst one batch is published in this time.
const INTERVAL: Duration = Duration::from_millis(10);
/// So many new events in one interval are a burst.
const BURST_EVENTS: usize = 64;
/// So many events that wait are published as fast as the broker takes them, before one is dropped.
const MANY_WAITING: usize = MAX_WAITING / 2;

/// The pace of the events of one instance.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the interval began, and how many events waited then.
    since: Instant,
    waiting: usize,
    /// The events that were taken for batches since.
    taken: usize,
    is_burst: bool,
    /// No batch before, in a burst.
    next_at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { since: now, waiting: 0, taken: 0, is_burst: false, next_at: now }
    }

    /// When the next batch may be published. `waiting`: events that wait. `batches`: those without
    /// an outcome. `None`: after the next outcome.
    pub(super) fn next_at(
        &mut self,
        waiting: usize,
        batches: usize,
        now: Instant,
    ) -> Option<Instant> {
        self.judge(waiting, now);
        let is_slow = self.is_burst && waiting < MANY_WAITING;
        let (batches_max, at) = if is_slow { (1, self.next_at) } else { (MAX_BATCHES, now) };
        (batches < batches_max).then_some(at)
    }

    /// A batch has taken so many events.
    pub(super) fn took(&mut self, count: usize, now: Instant) {
        self.taken += count;
        self.next_at = now + INTERVAL;
    }

    fn judge(&mut self, waiting: usize, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < INTERVAL {
            return;
        }
        let new = (waiting + self.taken).saturating_sub(self.waiting);
        self.is_burst =
            new as u128 * INTERVAL.as_micros() >= BURST_EVENTS as u128 * elapsed.as_micros();
        (self.since, self.waiting, self.taken) = (now, waiting, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_events_of_a_burst_follow_it() {
        let begun = clock::now();
        let mut pace = Pace::new(begun);
        assert_eq!(pace.next_at(1, MAX_BATCHES - 1, begun), Some(begun), "few events");
        pace.took(1, begun);
        let burst = begun + INTERVAL;
        assert_eq!(pace.next_at(500, 1, burst), None, "one batch at a time");
        assert_eq!(pace.next_at(500, 0, burst), Some(burst));
        pace.took(100, burst);
        assert_eq!(pace.next_at(800, 0, burst), Some(burst + INTERVAL));
        let after = burst + INTERVAL;
        assert_eq!(pace.next_at(400 + BURST_EVENTS, 1, after), None, "it goes on");
        let after = after + INTERVAL;
        let waiting = 400 + 2 * BURST_EVENTS - 1;
        assert_eq!(pace.next_at(waiting, 3, after), Some(after), "it is over");
        assert_eq!(pace.next_at(waiting, MAX_BATCHES, after), None);
    }

    #[test]
    fn events_that_would_be_dropped_soon_do_not_wait() {
        let begun = clock::now();
        let mut pace = Pace::new(begun);
        let burst = begun + INTERVAL;
        assert_eq!(pace.next_at(MANY_WAITING - 1, 1, burst), None);
        assert_eq!(pace.next_at(MANY_WAITING, 1, burst), Some(burst));
        assert_eq!(pace.next_at(MANY_WAITING, MAX_BATCHES, burst), None);
    }
}
