//! When each bucket is to be read next: shortly before its earliest due time, never on a metronome.

use std::time::Duration;

use super::LEAD;
use crate::clock::Instant;

/// Others wait so long for the preferred reader of a bucket.
const DEFERENCE: Duration = Duration::from_millis(20);

/// The next look at each bucket.
#[derive(Debug)]
pub(super) struct Wakes {
    at: Vec<Instant>,
    /// What is certain to be due then; the floor poll moves `at`, not this.
    known: Vec<Option<Instant>>,
    busy: Vec<bool>,
    /// Before that, no look, whatever is heard: reading it failed.
    rest: Vec<Instant>,
    preferred: Vec<bool>,
    floor: Duration,
    turn: usize,
}

impl Wakes {
    /// All buckets at once, at `now`: what is there is not known.
    #[must_use]
    pub(super) fn new(buckets: u16, now: Instant) -> Self {
        let buckets = usize::from(buckets);
        Wakes {
            at: vec![now; buckets],
            known: vec![None; buckets],
            busy: vec![false; buckets],
            rest: vec![now; buckets],
            preferred: vec![true; buckets],
            floor: Duration::from_millis(250),
            turn: 0,
        }
    }

    /// The fleet changed: which buckets this instance reads first, and how rarely it polls.
    pub(super) fn fleet(&mut self, preferred: Vec<bool>, floor: Duration, now: Instant) {
        self.preferred = preferred;
        self.floor = floor;
        for at in &mut self.at {
            *at = (*at).min(now + floor);
        }
    }

    /// A bucket that is to be read now and may be, if any: each gets its turn. It is busy until `read`.
    pub(super) fn due(&mut self, now: Instant, may: impl Fn(usize) -> bool) -> Option<u16> {
        let buckets = self.at.len();
        let is_due = |bucket: &usize| !self.busy[*bucket] && self.at(*bucket) <= now && may(*bucket);
        let found = (0..buckets).map(|step| (self.turn + step) % buckets).find(is_due)?;
        self.turn = found + 1;
        self.busy[found] = true;
        self.known[found] = None;
        u16::try_from(found).ok()
    }

    /// The earliest look at a bucket that is not being read, and may be.
    #[must_use]
    pub(super) fn next(&self, may: impl Fn(usize) -> bool) -> Option<Instant> {
        (0..self.at.len()).filter(|bucket| !self.busy[*bucket] && may(*bucket)).map(|bucket| self.at(bucket)).min()
    }

    fn at(&self, bucket: usize) -> Instant {
        self.at[bucket].max(self.rest[bucket])
    }

    /// Reading this bucket failed: it is read again then, and not before.
    pub(super) fn failed(&mut self, bucket: u16, until: Instant) {
        let bucket = usize::from(bucket);
        self.busy[bucket] = false;
        (self.at[bucket], self.rest[bucket]) = (until, until);
    }

    /// A bucket was read: what is known of its next due time. What was heard of it meanwhile counts too.
    pub(super) fn read(&mut self, bucket: u16, next: Option<Instant>, now: Instant) {
        let bucket = usize::from(bucket);
        self.busy[bucket] = false;
        self.at[bucket] = now + self.floor;
        let heard = self.known[bucket].take();
        for instant in [next, heard].into_iter().flatten() {
            self.sooner(bucket, instant);
        }
    }

    /// A job of this bucket falls due then.
    pub(super) fn head(&mut self, bucket: u16, due: Instant) {
        if usize::from(bucket) < self.at.len() {
            self.sooner(usize::from(bucket), due);
        }
    }

    /// Every bucket at once: the broker is back.
    pub(super) fn all(&mut self, now: Instant) {
        self.at.fill(now);
    }

    fn sooner(&mut self, bucket: usize, due: Instant) {
        let at = if self.preferred[bucket] { due.checked_sub(LEAD).unwrap_or(due) } else { due + DEFERENCE };
        self.at[bucket] = self.at[bucket].min(at);
        self.known[bucket] = Some(self.known[bucket].map_or(due, |known| known.min(due)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);
    const ANY: fn(usize) -> bool = |_| true;

    #[test]
    fn a_bucket_is_read_shortly_before_its_earliest_due_time() {
        let now = clock::now();
        let mut wakes = Wakes::new(2, now);
        assert_eq!([wakes.due(now, ANY), wakes.due(now, ANY), wakes.due(now, ANY)], [Some(0), Some(1), None]);
        wakes.read(0, Some(now + 30 * MS), now);
        wakes.read(1, None, now);
        assert_eq!(wakes.next(ANY), Some(now + 30 * MS - LEAD));
        wakes.head(1, now + 10 * MS);
        assert_eq!(wakes.due(now + 9 * MS - LEAD, ANY), None);
        assert_eq!(wakes.due(now + 10 * MS - LEAD, ANY), Some(1));
        assert_eq!(wakes.next(ANY), Some(now + 30 * MS - LEAD));
    }

    #[test]
    fn a_bucket_that_may_not_be_read_wakes_nobody_and_keeps_no_other_waiting() {
        let now = clock::now();
        let mut wakes = Wakes::new(2, now);
        assert_eq!([wakes.due(now, |bucket| bucket != 0), wakes.due(now, |bucket| bucket != 0)], [Some(1), None]);
        assert_eq!((wakes.next(|bucket| bucket != 0), wakes.next(ANY)), (None, Some(now)));
        assert_eq!(wakes.due(now, ANY), Some(0));
    }

    #[test]
    fn a_head_that_is_heard_while_the_bucket_is_read_is_not_forgotten() {
        let now = clock::now();
        let mut wakes = Wakes::new(1, now);
        wakes.due(now, ANY);
        wakes.head(0, now + 5 * MS);
        wakes.read(0, None, now);
        assert_eq!(wakes.next(ANY), Some(now + 5 * MS - LEAD));
    }

    #[test]
    fn a_silent_bucket_is_polled_at_the_floor_and_a_foreign_one_is_left_to_its_reader_first() {
        let now = clock::now();
        let mut wakes = Wakes::new(1, now);
        wakes.fleet(vec![false], 500 * MS, now);
        wakes.due(now, ANY);
        wakes.read(0, None, now);
        assert_eq!(wakes.next(ANY), Some(now + 500 * MS));
        wakes.head(0, now + 5 * MS);
        assert_eq!(wakes.next(ANY), Some(now + 25 * MS));
    }

    #[test]
    fn a_bucket_that_cannot_be_read_is_left_alone_for_a_while_and_the_others_are_not() {
        let now = clock::now();
        let mut wakes = Wakes::new(2, now);
        assert_eq!([wakes.due(now, ANY), wakes.due(now, ANY)], [Some(0), Some(1)]);
        wakes.failed(0, now + 50 * MS);
        wakes.read(1, Some(now + 5 * MS), now);
        wakes.head(0, now);
        wakes.all(now);
        assert_eq!([wakes.due(now + 5 * MS, ANY), wakes.due(now + 5 * MS, ANY)], [Some(1), None]);
        assert_eq!((wakes.next(ANY), wakes.due(now + 50 * MS, ANY)), (Some(now + 50 * MS), Some(0)));
    }

    #[test]
    fn a_bucket_with_more_does_not_starve_the_others() {
        let now = clock::now();
        let mut wakes = Wakes::new(3, now);
        let order: Vec<_> = (0..6)
            .filter_map(|_| {
                let bucket = wakes.due(now, ANY)?;
                wakes.read(bucket, Some(now), now);
                Some(bucket)
            })
            .collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }
}
