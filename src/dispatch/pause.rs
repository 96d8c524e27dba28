//! Destinations that refuse: their jobs wait in due, burn no attempt, and starve nobody.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::Destination;

use crate::clock::Instant;
use crate::reconnect::jitter;

const LEAST: Duration = Duration::from_millis(200);
/// For no longer is a destination left untried: so soon is seen that it takes messages again.
const MOST: Duration = Duration::from_secs(4);
/// How many jobs of a paused destination are claimed and given back per second, about: what an outage of it may cost.
const RATE: f64 = 1000.0;
/// Over no more than this are they spread, whatever it costs then.
const SPREAD: Duration = Duration::from_secs(30);
/// A pause that has been over for so long is forgotten: no job waits for it, or one would have been tried.
const FORGET: Duration = Duration::from_secs(30);
/// How often is looked for those.
const LOOK: Duration = Duration::from_secs(1);

/// The pauses of one broker's destinations.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    paused: HashMap<Destination, Pause>,
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Pause {
    began: Instant,
    until: Instant,
    length: Duration,
    /// Over how long its jobs are spread behind its end.
    spread: Duration,
    /// Jobs that were given back since it began.
    seen: u32,
}

impl Pause {
    fn new(now: Instant) -> Self {
        Pause { began: now, until: now + jitter(LEAST), length: LEAST, spread: LEAST / 4, seen: 0 }
    }

    /// It refused once more after its time: twice as long, and as many jobs a second as may be by what came back this time.
    fn again(&mut self, now: Instant) {
        let rate = f64::from(self.seen) / (now - self.began).as_secs_f64().max(f64::EPSILON);
        self.length = (self.length * 2).min(MOST);
        self.spread = self.spread.mul_f64((rate / RATE).min(SPREAD.as_secs_f64())).clamp(self.length / 4, SPREAD);
        (self.began, self.until, self.seen) = (now, now + jitter(self.length), 0);
    }

    /// How long one more job waits.
    fn wait(&mut self, now: Instant) -> Duration {
        self.seen = self.seen.saturating_add(1);
        let spread = self.spread.max(Duration::from_secs_f64(f64::from(self.seen) / RATE)).min(SPREAD);
        self.until - now + spread.mul_f64(rand::random_range(0.0..=1.0))
    }
}

impl Pauses {
    /// How many destinations are paused.
    #[must_use]
    pub(super) fn count(&self) -> usize {
        self.paused.len()
    }

    /// It refused: how long the job waits. Refusals within one pause count as one: a window full of them came from one state of the queue.
    pub(super) fn refused(&mut self, to: &Destination, now: Instant) -> Duration {
        if let Some(pause) = self.paused.get_mut(to) {
            if pause.until <= now {
                pause.again(now);
            }
            return pause.until - now;
        }
        let pause = self.paused.entry(to.clone()).insert_entry(Pause::new(now));
        pause.get().until - now
    }

    /// It took a message: the pause is over. True where there was one.
    pub(super) fn confirmed(&mut self, to: &Destination) -> bool {
        !self.paused.is_empty() && self.paused.remove(to).is_some()
    }

    /// Forgets destinations that nobody publishes to any more: producers name them, so there may be many. True where there was one.
    pub(super) fn forget(&mut self, now: Instant) -> bool {
        if self.paused.is_empty() || self.looked.is_some_and(|looked| now < looked + LOOK) {
            return false;
        }
        self.looked = Some(now);
        let before = self.paused.len();
        self.paused.retain(|_, pause| now < pause.until + FORGET);
        self.paused.len() < before
    }

    /// How long a job for it has yet to wait; `None` where one may be tried. Spread, so that they do not come back at one instant.
    #[must_use]
    pub(super) fn left(&mut self, to: &Destination, now: Instant) -> Option<Duration> {
        if self.paused.is_empty() {
            return None;
        }
        Some(self.paused.get_mut(to).filter(|pause| pause.until > now)?.wait(now))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::clock;

    #[test]
    fn a_destination_that_goes_on_refusing_is_paused_for_longer_up_to_the_bound() {
        let (mut pauses, to, mut now) = (Pauses::default(), Destination::new("full"), clock::now());
        let mut last = Duration::ZERO;
        for _ in 0..12 {
            last = pauses.refused(&to, now);
            assert_eq!(pauses.refused(&to, now), last, "the rest of the window makes it no longer");
            assert!(pauses.left(&to, now).is_some());
            now += last;
        }
        assert!(last >= MOST / 2 && last <= MOST);
        assert!(pauses.left(&to, now).is_none(), "its time is over: one may try");
        assert!(pauses.left(&Destination::new("healthy"), now).is_none());
        assert!(pauses.confirmed(&to));
        assert_eq!(pauses.count(), 0);
    }

    #[test]
    fn however_many_wait_they_cost_as_much_and_a_few_wait_for_no_longer_than_the_pause() {
        for (waiting, per_second) in [(10, 0..=50), (20_000, 500..=2000)] {
            let (mut pauses, to, began) = (Pauses::default(), Destination::new("full"), clock::now());
            // When each is claimed next; the one that is tried is refused.
            let mut next: BinaryHeap<_> = (0..waiting).map(|_| Reverse(began)).collect();
            let (mut given_back, mut longest) = (0, Duration::ZERO);
            for second in 0..60 {
                let end = began + Duration::from_secs(second + 1);
                while next.peek().is_some_and(|Reverse(at)| *at < end) {
                    let Some(Reverse(now)) = next.pop() else { break };
                    let wait = pauses.left(&to, now).unwrap_or_else(|| pauses.refused(&to, now));
                    next.push(Reverse(now + wait));
                    if second >= 40 {
                        (given_back, longest) = (given_back + 1, longest.max(wait));
                    }
                }
            }
            assert!(per_second.contains(&(given_back / 20)), "{waiting} waiting: {given_back} given back in 20 s");
            assert!(waiting > 100 || longest <= MOST + MOST / 4, "{longest:?}");
        }
    }

    #[test]
    fn a_destination_that_nobody_publishes_to_any_more_is_forgotten() {
        let (mut pauses, now) = (Pauses::default(), clock::now());
        let (left, tried) = (Destination::new("left"), Destination::new("tried"));
        pauses.refused(&left, now);
        pauses.refused(&tried, now);
        assert!(!pauses.forget(now + LEAST));
        pauses.refused(&tried, now + FORGET);
        assert!(pauses.forget(now + LEAST + FORGET));
        assert_eq!(pauses.count(), 1);
        assert!(pauses.left(&tried, now + FORGET).is_some());
    }
}
