//! Destinations that refuse: their jobs wait in due, burn no attempt, and starve nobody.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::Destination;

use crate::clock::Instant;
use crate::reconnect::jitter;

const LEAST: Duration = Duration::from_millis(200);
const MOST: Duration = Duration::from_secs(30);
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
    until: Instant,
    length: Duration,
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
                pause.length = (pause.length * 2).min(MOST);
                pause.until = now + jitter(pause.length);
            }
            return pause.until - now;
        }
        let pause = Pause { until: now + jitter(LEAST), length: LEAST };
        let wait = pause.until - now;
        self.paused.insert(to.clone(), pause);
        wait
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

    /// How long jobs for it have yet to wait; `None` where one may be tried. Spread, so that they do not come back at one instant.
    #[must_use]
    pub(super) fn left(&self, to: &Destination, now: Instant) -> Option<Duration> {
        if self.paused.is_empty() {
            return None;
        }
        let pause = self.paused.get(to).filter(|pause| pause.until > now)?;
        Some(pause.until - now + jitter(pause.length / 4))
    }
}

#[cfg(test)]
mod tests {
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
