//! Places of a limit that are taken in advance, while the limit is far from full: a job gets one
//! without a call to Redis, and leaves it for the next job. As soon as few places are free, idle ones
//! go back, and the others after their attempts.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Instant;
use crate::store::places::LEASE_MARGIN;
use crate::store::places::place::Place;
use crate::store::record::Nonce;

/// The most spare places of one limit: a call renews all of them.
const MAX_SPARES: usize = 2048;
/// A limit with fewer free places has no spare ones: other instances need each of them.
const MIN_FREE: usize = 64;
/// Spare places are renewed so often. Those that no job needed meanwhile go back.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(500);
/// A spare place lasts for so much longer than the claim of a job: that long it can be used after a
/// renewal.
const USABLE_FOR: Duration = Duration::from_secs(2);

/// What a call changes so that spare places last.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// Those that no job needed since the last renewal, to be given back.
    pub(super) unused: Vec<Place>,
    /// The others, to be kept for this time.
    pub(super) kept: Vec<(Place, Duration)>,
}

/// The spare places of one limit.
#[derive(Debug)]
pub(super) struct Spares {
    /// Part of the names of these places.
    agent: Nonce,
    next: u32,
    /// The longest time that a claimed job may be out.
    lease: Duration,
    /// Half of the places of the limit were free, and not fewer than a quarter since.
    is_wide: bool,
    most: usize,
    /// All spare places, those of jobs among them.
    all: BTreeSet<u32>,
    /// Those without a job.
    idle: Vec<u32>,
    /// The fewest idle ones since the last renewal.
    fewest_idle: usize,
    /// All places last until then at least, by the clock of this process and by Redis's, epoch µs. The
    /// first one stands still while the machine is suspended.
    until: Instant,
    until_us: i64,
    /// When the last renewal began.
    renewed: Instant,
    /// How long the places of the running renewal last.
    renewing: Option<Instant>,
    /// When a job asked for a place last.
    asked: Option<Instant>,
}

impl Spares {
    /// `most`: the places of the limit. `lease`: how long a claimed job may be out.
    pub(super) fn new(most: u32, lease: Duration, now: Instant) -> Spares {
        Spares {
            agent: rand::random(),
            next: 0,
            lease,
            is_wide: false,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            all: BTreeSet::new(),
            idle: Vec::new(),
            fewest_idle: 0,
            until: now,
            until_us: 0,
            renewed: now,
            renewing: None,
            asked: None,
        }
    }

    fn place(&self, number: u32) -> Place {
        Place::of_spare(self.agent, number)
    }

    fn span(&self) -> Duration {
        self.lease + LEASE_MARGIN + USABLE_FOR
    }

    /// New spare places for a call that takes others for `asked` jobs, and how long they last. Jobs
    /// that seldom come need none.
    pub(super) fn more(
        &mut self,
        asked: usize,
        free: usize,
        now: Instant,
    ) -> Vec<(Place, Duration)> {
        if asked == 0 {
            return Vec::new();
        }
        let before = self.asked.replace(now);
        if !self.is_wide || before.is_none_or(|before| now > before + RENEWAL_INTERVAL) {
            return Vec::new();
        }
        let room = MAX_SPARES.saturating_sub(self.all.len());
        let left = free.saturating_sub(asked);
        let count = asked
            .saturating_sub(self.idle.len())
            .min(left / 4)
            .min(left.saturating_sub(self.most / 2))
            .min(room);
        let span = self.span();
        let first = self.next;
        self.next = self.next.wrapping_add(u32::try_from(count).unwrap_or(0));
        (0..count)
            .map(|at| {
                let number = first.wrapping_add(u32::try_from(at).unwrap_or(0));
                (self.place(number), span)
            })
            .collect()
    }

    /// The call that began then, and was made at this time of Redis, took this place.
    pub(super) fn took(&mut self, place: &Place, begun: Instant, made_us: i64) {
        let Some(number) = place.spare_number() else { return };
        let (until, until_us) = (begun + self.span(), self.until_us(made_us));
        if self.all.is_empty() {
            (self.until, self.until_us) = (until, until_us);
            (self.renewed, self.fewest_idle) = (begun, 0);
        }
        self.until = self.until.min(until);
        self.until_us = self.until_us.min(until_us);
        if self.all.insert(number) {
            self.idle.push(number);
        }
    }

    fn until_us(&self, made_us: i64) -> i64 {
        made_us.saturating_add(micros(self.span()))
    }

    /// A place for a job whose claim began at this time of Redis, and ends then.
    pub(super) fn give(&mut self, taken_us: i64, deadline: Instant) -> Option<u32> {
        let ends_us = taken_us.saturating_add(micros(self.lease + LEASE_MARGIN));
        if !self.is_wide || deadline + LEASE_MARGIN > self.until || ends_us > self.until_us {
            return None;
        }
        let number = self.idle.pop()?;
        self.fewest_idle = self.fewest_idle.min(self.idle.len());
        Some(number)
    }

    /// The job of this place is over. The place, if it is to be given back.
    #[must_use]
    pub(super) fn ended(&mut self, number: u32) -> Option<Place> {
        if self.is_wide {
            self.idle.push(number);
            return None;
        }
        self.all.remove(&number);
        Some(self.place(number))
    }

    /// So many places are free. The idle spare ones, if they are to be given back.
    #[must_use]
    pub(super) fn seen(&mut self, free: usize) -> Vec<Place> {
        let quarters = if self.is_wide { 1 } else { 2 };
        self.is_wide = free >= MIN_FREE && free.saturating_mul(4) >= self.most * quarters;
        if self.is_wide { Vec::new() } else { self.give_back(self.idle.len()) }
    }

    /// Ends the use of spare places. The idle ones, to be given back.
    #[must_use]
    pub(super) fn close(&mut self) -> Vec<Place> {
        self.renewing = None;
        self.seen(0)
    }

    fn give_back(&mut self, count: usize) -> Vec<Place> {
        // The ones that were used last stay.
        let back: Vec<u32> = self.idle.drain(..count.min(self.idle.len())).collect();
        for number in &back {
            self.all.remove(number);
        }
        self.fewest_idle = self.fewest_idle.min(self.idle.len());
        back.into_iter().map(|number| self.place(number)).collect()
    }

    /// When the places are to be renewed; `None`: there are none.
    pub(super) fn renew_at(&self) -> Option<Instant> {
        (!self.all.is_empty()).then(|| self.renewed + RENEWAL_INTERVAL)
    }

    /// What is to be changed if it is time for that.
    pub(super) fn renewal(&mut self, now: Instant) -> Renewal {
        if self.renew_at().is_none_or(|at| now < at) {
            return Renewal::default();
        }
        let unused = self.give_back(self.fewest_idle);
        self.fewest_idle = self.idle.len();
        let span = self.span();
        let kept = self.all.iter().map(|number| (self.place(*number), span)).collect();
        (self.renewed, self.renewing) = (now, Some(now + span));
        Renewal { unused, kept }
    }

    /// A call was made at this time of Redis, with the renewal if one was due.
    pub(super) fn call_made(&mut self, made_us: i64) {
        if let Some(until) = self.renewing.take() {
            (self.until, self.until_us) = (until, self.until_us(made_us));
        }
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const LEASE: Duration = Duration::from_secs(17);
    const NOW_US: i64 = 1_800_000_000_000_000;

    /// Spares of a limit of a thousand places that has seen a call for `count` jobs.
    fn with(count: usize, now: Instant) -> Spares {
        let mut spares = Spares::new(1000, LEASE, now);
        assert!(spares.more(count, 1000, now).is_empty(), "nothing is known yet");
        assert!(spares.seen(1000).is_empty());
        for (place, _) in spares.more(count, 1000, now) {
            spares.took(&place, now, NOW_US);
        }
        spares
    }

    #[test]
    fn a_place_serves_one_job_after_another() {
        let now = clock::now();
        let mut spares = with(2, now);
        let deadline = now + LEASE;
        let (first, second) =
            (spares.give(NOW_US, deadline).unwrap(), spares.give(NOW_US, deadline).unwrap());
        assert_ne!(first, second);
        assert_eq!(spares.give(NOW_US, deadline), None, "each has a job");
        assert_eq!(spares.ended(first), None, "it stays");
        assert_eq!(spares.give(NOW_US, deadline), Some(first));
    }

    #[test]
    fn a_place_that_ends_before_its_job_could_is_not_given() {
        let now = clock::now();
        let mut spares = with(2, now);
        let latest = now + LEASE + USABLE_FOR;
        assert_eq!(spares.give(NOW_US, latest + Duration::from_nanos(1)), None);
        // The machine was suspended: its clock stood still, and Redis's did not.
        let latest_us = NOW_US + micros(USABLE_FOR);
        assert_eq!(spares.give(latest_us + 1, latest), None);
        assert!(spares.give(latest_us, latest).is_some());
        // A renewal counts only once its call was made.
        let later = now + RENEWAL_INTERVAL;
        let Renewal { unused, kept } = spares.renewal(later);
        assert_eq!((unused.len(), kept.len()), (0, 2));
        assert_eq!(kept[0].1, LEASE + LEASE_MARGIN + USABLE_FOR);
        let latest_us = latest_us + micros(RENEWAL_INTERVAL);
        assert_eq!(spares.give(NOW_US, later + LEASE + USABLE_FOR), None);
        spares.call_made(NOW_US + micros(RENEWAL_INTERVAL));
        assert!(spares.give(latest_us, later + LEASE + USABLE_FOR).is_some());
        assert!(spares.renewal(later).kept.is_empty(), "not again at once");
    }

    #[test]
    fn places_that_no_job_needs_go_back() {
        let now = clock::now();
        let mut spares = with(10, now);
        let used: Vec<u32> = (0..3).map(|_| spares.give(NOW_US, now + LEASE).unwrap()).collect();
        for number in used {
            assert_eq!(spares.ended(number), None);
        }
        let mut at = now + RENEWAL_INTERVAL;
        let mut renew = |spares: &mut Spares| {
            let Renewal { unused, kept } = spares.renewal(at);
            at += RENEWAL_INTERVAL;
            (unused.len(), kept.len())
        };
        // A new place has not had its chance yet.
        assert_eq!(renew(&mut spares), (0, 10));
        spares.call_made(NOW_US);
        let number = spares.give(NOW_US, now + LEASE).unwrap();
        assert_eq!(spares.ended(number), None);
        assert_eq!(renew(&mut spares), (9, 1));
        assert_eq!(renew(&mut spares), (1, 0));
        assert_eq!(spares.renew_at(), None);
    }

    #[test]
    fn all_go_back_when_few_places_are_free() {
        let now = clock::now();
        let mut spares = with(10, now);
        let number = spares.give(NOW_US, now + LEASE).unwrap();
        assert!(spares.seen(250).is_empty(), "a quarter is free");
        assert_eq!(spares.seen(249).len(), 9);
        assert_eq!(spares.give(NOW_US, now), None);
        assert_eq!(spares.ended(number), Some(spares.place(number)));
        assert_eq!(spares.renew_at(), None);
        assert!(spares.seen(499).is_empty());
        assert!(spares.more(10, 1000, now).is_empty(), "half must have been free");
        assert!(spares.seen(500).is_empty());
        assert!(spares.more(10, 505, now).is_empty(), "half must stay free");
        assert_eq!(spares.more(10, 515, now).len(), 5);
        assert_eq!(spares.more(0, 1000, now).len(), 0, "nobody asks");
        assert_eq!(spares.more(400, 1000, now).len(), 100);
        assert_eq!(spares.more(200, 1000, now).len(), 200);
        let later = now + RENEWAL_INTERVAL;
        assert_eq!(spares.more(200, 1000, later).len(), 200);
        let later = later + RENEWAL_INTERVAL + Duration::from_nanos(1);
        assert_eq!(spares.more(200, 1000, later).len(), 0, "jobs seldom come");
    }

    #[test]
    fn a_small_limit_has_no_spare_places() {
        let mut spares = Spares::new(63, LEASE, clock::now());
        assert!(spares.seen(63).is_empty());
        let now = clock::now();
        assert!(spares.more(5, 63, now).is_empty());
        assert!(spares.more(5, 63, now).is_empty());
    }

    #[test]
    fn the_number_of_spare_places_is_bounded() {
        let now = clock::now();
        let mut spares = Spares::new(u32::MAX, LEASE, now);
        assert!(spares.seen(usize::MAX).is_empty());
        for _ in 0..4 {
            for (place, _) in spares.more(1000, usize::MAX, now) {
                spares.took(&place, now, NOW_US);
            }
            // Each has a job.
            spares.idle.clear();
        }
        assert_eq!(spares.all.len(), MAX_SPARES);
    }
}
