//! When each bucket is claimed from next: shortly before its earliest due time, not at a fixed
//! interval.

use std::time::Duration;

use crate::clock::Instant;

/// A bucket is claimed from this long before its next job is due: the time for the claim and its
/// answer. One claim takes the rest of
/// [`MAX_CLAIM_AHEAD`](crate::store::jobs::claim::MAX_CLAIM_AHEAD) along.
const CLAIM_LEAD_TIME: Duration = Duration::from_millis(3);
/// Other instances leave the preferred reader of a bucket this much time.
const DEFERENCE_DELAY: Duration = Duration::from_millis(20);

/// The next claim of each bucket.
#[derive(Debug)]
pub(super) struct BucketTimers {
    at: Vec<Instant>,
    /// The earliest known due time; the floor poll moves `at`, not this.
    known_due: Vec<Option<Instant>>,
    busy: Vec<bool>,
    /// No claim before this instant: the last one failed.
    backoff_until: Vec<Instant>,
    preferred: Vec<bool>,
    floor: Duration,
    /// The bucket that is looked at first: buckets take turns.
    turn: usize,
}

impl BucketTimers {
    /// All buckets at `now`: their due times are not known yet.
    #[must_use]
    pub(super) fn new(buckets: u16, now: Instant) -> Self {
        let buckets = usize::from(buckets);
        BucketTimers {
            at: vec![now; buckets],
            known_due: vec![None; buckets],
            busy: vec![false; buckets],
            backoff_until: vec![now; buckets],
            preferred: vec![true; buckets],
            floor: Duration::from_millis(250),
            turn: 0,
        }
    }

    /// The fleet changed: the buckets that this instance prefers, and its poll interval.
    pub(super) fn set_fleet(&mut self, preferred: Vec<bool>, floor: Duration, now: Instant) {
        self.preferred = preferred;
        self.floor = floor;
        for at in &mut self.at {
            *at = (*at).min(now + floor);
        }
    }

    /// Takes a bucket whose time has come, if `may_claim` allows it; buckets take turns. The bucket
    /// is busy until [`BucketTimers::claimed`] or [`BucketTimers::failed`].
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        may_claim: impl Fn(usize) -> bool,
    ) -> Option<u16> {
        let buckets = self.at.len();
        let is_due =
            |bucket: &usize| !self.busy[*bucket] && self.at(*bucket) <= now && may_claim(*bucket);
        let found = (0..buckets).map(|step| (self.turn + step) % buckets).find(is_due)?;
        self.turn = found + 1;
        self.busy[found] = true;
        self.known_due[found] = None;
        u16::try_from(found).ok()
    }

    /// When to claim next from a bucket that is not busy and that `may_claim` allows.
    #[must_use]
    pub(super) fn next(&self, may_claim: impl Fn(usize) -> bool) -> Option<Instant> {
        (0..self.at.len())
            .filter(|bucket| !self.busy[*bucket] && may_claim(*bucket))
            .map(|bucket| self.at(bucket))
            .min()
    }

    fn at(&self, bucket: usize) -> Instant {
        self.at[bucket].max(self.backoff_until[bucket])
    }

    /// The claim from this bucket failed: none before `until`.
    pub(super) fn failed(&mut self, bucket: u16, until: Instant) {
        let bucket = usize::from(bucket);
        self.busy[bucket] = false;
        (self.at[bucket], self.backoff_until[bucket]) = (until, until);
    }

    /// The claim from this bucket was answered with its next due time. Due times that were
    /// announced meanwhile count too.
    pub(super) fn claimed(&mut self, bucket: u16, next: Option<Instant>, now: Instant) {
        let bucket = usize::from(bucket);
        self.busy[bucket] = false;
        self.at[bucket] = now + self.floor;
        let announced = self.known_due[bucket].take();
        for instant in [next, announced].into_iter().flatten() {
            self.sooner(bucket, instant);
        }
    }

    /// A job of this bucket is due at `due`.
    pub(super) fn job_due(&mut self, bucket: u16, due: Instant) {
        if usize::from(bucket) < self.at.len() {
            self.sooner(usize::from(bucket), due);
        }
    }

    /// Makes every bucket due: the broker is back.
    pub(super) fn all(&mut self, now: Instant) {
        self.at.fill(now);
    }

    fn sooner(&mut self, bucket: usize, due: Instant) {
        let at = if self.preferred[bucket] {
            due.checked_sub(CLAIM_LEAD_TIME).unwrap_or(due)
        } else {
            due + DEFERENCE_DELAY
        };
        self.at[bucket] = self.at[bucket].min(at);
        self.known_due[bucket] = Some(self.known_due[bucket].map_or(due, |known| known.min(due)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);
    const ANY_BUCKET: fn(usize) -> bool = |_| true;

    #[test]
    fn a_bucket_is_claimed_from_shortly_before_its_earliest_due_time() {
        let now = clock::now();
        let mut timers = BucketTimers::new(2, now);
        assert_eq!(
            [
                timers.take_due(now, ANY_BUCKET),
                timers.take_due(now, ANY_BUCKET),
                timers.take_due(now, ANY_BUCKET)
            ],
            [Some(0), Some(1), None]
        );
        timers.claimed(0, Some(now + 30 * MS), now);
        timers.claimed(1, None, now);
        assert_eq!(timers.next(ANY_BUCKET), Some(now + 30 * MS - CLAIM_LEAD_TIME));
        timers.job_due(1, now + 10 * MS);
        assert_eq!(timers.take_due(now + 9 * MS - CLAIM_LEAD_TIME, ANY_BUCKET), None);
        assert_eq!(timers.take_due(now + 10 * MS - CLAIM_LEAD_TIME, ANY_BUCKET), Some(1));
        assert_eq!(timers.next(ANY_BUCKET), Some(now + 30 * MS - CLAIM_LEAD_TIME));
    }

    #[test]
    fn a_bucket_that_may_not_be_claimed_from_delays_no_other() {
        let now = clock::now();
        let mut timers = BucketTimers::new(2, now);
        assert_eq!(
            [
                timers.take_due(now, |bucket| bucket != 0),
                timers.take_due(now, |bucket| bucket != 0)
            ],
            [Some(1), None]
        );
        assert_eq!((timers.next(|bucket| bucket != 0), timers.next(ANY_BUCKET)), (None, Some(now)));
        assert_eq!(timers.take_due(now, ANY_BUCKET), Some(0));
    }

    #[test]
    fn a_due_time_that_is_announced_during_a_claim_is_kept() {
        let now = clock::now();
        let mut timers = BucketTimers::new(1, now);
        timers.take_due(now, ANY_BUCKET);
        timers.job_due(0, now + 5 * MS);
        timers.claimed(0, None, now);
        assert_eq!(timers.next(ANY_BUCKET), Some(now + 5 * MS - CLAIM_LEAD_TIME));
    }

    #[test]
    fn an_empty_bucket_is_polled_at_the_floor_and_another_reader_has_precedence() {
        let now = clock::now();
        let mut timers = BucketTimers::new(1, now);
        timers.set_fleet(vec![false], 500 * MS, now);
        timers.take_due(now, ANY_BUCKET);
        timers.claimed(0, None, now);
        assert_eq!(timers.next(ANY_BUCKET), Some(now + 500 * MS));
        timers.job_due(0, now + 5 * MS);
        assert_eq!(timers.next(ANY_BUCKET), Some(now + 25 * MS));
    }

    #[test]
    fn a_bucket_whose_claim_failed_backs_off_alone() {
        let now = clock::now();
        let mut timers = BucketTimers::new(2, now);
        assert_eq!(
            [timers.take_due(now, ANY_BUCKET), timers.take_due(now, ANY_BUCKET)],
            [Some(0), Some(1)]
        );
        timers.failed(0, now + 50 * MS);
        timers.claimed(1, Some(now + 5 * MS), now);
        timers.job_due(0, now);
        timers.all(now);
        assert_eq!(
            [timers.take_due(now + 5 * MS, ANY_BUCKET), timers.take_due(now + 5 * MS, ANY_BUCKET)],
            [Some(1), None]
        );
        assert_eq!(
            (timers.next(ANY_BUCKET), timers.take_due(now + 50 * MS, ANY_BUCKET)),
            (Some(now + 50 * MS), Some(0))
        );
    }

    #[test]
    fn a_bucket_with_more_does_not_starve_the_others() {
        let now = clock::now();
        let mut timers = BucketTimers::new(3, now);
        let order: Vec<_> = (0..6)
            .filter_map(|_| {
                let bucket = timers.take_due(now, ANY_BUCKET)?;
                timers.claimed(bucket, Some(now), now);
                Some(bucket)
            })
            .collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }
}
