//! The share of the window that each destination may use, so that one that does not answer leaves
//! room for others.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::Destination;

use crate::clock::Instant;

/// A job that exceeds its destination's share waits this long before it is given back: a new
/// destination may answer for the first time until then.
pub(super) const SHARE_WAIT: Duration = Duration::from_millis(500);
/// A destination is trusted for this long after a confirm.
const TRUST: Duration = Duration::from_secs(60);
/// A confirm that took longer earns no trust: the destination holds its places in the window for
/// too long. An unknown outcome that came sooner, because the job's time to run was over, says
/// nothing about the destination.
pub(super) const PROMPT: Duration = Duration::from_secs(2);
/// After this many destinations of one pattern in a row that did not confirm, the others of the
/// pattern get less.
const SILENT_MAX: usize = 3;
/// How many trusted destinations without publications are remembered.
const REMEMBERED: usize = 4096;
/// How often destinations are removed whose trust has expired.
const CLEANUP: Duration = Duration::from_secs(1);

/// An amount of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amount {
    jobs: usize,
    bytes: usize,
}

impl Amount {
    /// Whether another job of this size fits below the bound. A job larger than the bound goes
    /// alone.
    fn fits(self, bytes: usize, bound: Amount) -> bool {
        self.jobs == 0 || (self.jobs < bound.jobs && self.bytes.saturating_add(bytes) <= bound.bytes)
    }

    fn less(self, less: Amount) -> Amount {
        Amount { jobs: self.jobs.saturating_sub(less.jobs), bytes: self.bytes.saturating_sub(less.bytes) }
    }

    fn half(self) -> Amount {
        Amount { jobs: self.jobs / 2, bytes: self.bytes / 2 }
    }

    fn add(&mut self, more: Amount) {
        self.jobs += more.jobs;
        self.bytes += more.bytes;
    }

    fn sub(&mut self, less: Amount) {
        self.jobs -= less.jobs;
        self.bytes -= less.bytes;
    }
}

/// Whether a destination's share has a place for another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShareState {
    /// Yes, and it is taken.
    Taken,
    /// Perhaps in a moment.
    Soon,
    /// Not before others have their outcomes.
    Full,
}

/// How a destination responded, as far as trust is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response {
    /// Confirmed, after this time.
    Confirmed(Duration),
    /// No answer.
    Unknown,
    /// Any other answer, or an outcome that says nothing about the destination.
    Other,
}

/// The shares of one broker's destinations.
#[derive(Debug)]
pub(super) struct Shares {
    /// Half of the window: the bound of an untrusted destination. If other untrusted destinations
    /// have messages in flight, the bound is half of what these leave of `max`, so that a new
    /// destination finds a place. A destination that confirms slowly is untrusted, but has `max`
    /// while it is alone.
    half: Amount,
    /// Seven eighths of the window: the bound of one trusted destination, and of all untrusted ones
    /// together.
    max: Amount,
    /// The bound of all untrusted destinations of one pattern, once [`SILENT_MAX`] of them did not
    /// confirm.
    silent_pattern_max: Amount,
    targets: HashMap<Destination, Target>,
    /// Destinations with publications in flight.
    busy: usize,
    /// When a destination without publications in flight last found no place.
    waited: Option<Instant>,
    /// In flight to untrusted destinations.
    untrusted: Amount,
    patterns: Vec<Pattern>,
    cleaned: Option<Instant>,
}

/// The destinations of one pattern of `allow`. Each may be of a single job (a subject for each
/// customer): then only all of them together show whether they confirm.
#[derive(Debug, Default)]
struct Pattern {
    /// In flight to untrusted destinations.
    in_flight: Amount,
    /// Destinations in a row that did not confirm.
    silent: usize,
    /// Since when no other message fits.
    full: Option<Instant>,
    /// The log says that the destinations of this pattern do not confirm.
    logged: bool,
}

#[derive(Debug)]
struct Target {
    in_flight: Amount,
    pattern: usize,
    /// The last confirm, and whether it was slow.
    confirmed: Option<(Instant, bool)>,
}

impl Target {
    fn is_trusted(&self) -> bool {
        self.confirmed.is_some_and(|(_, slow)| !slow)
    }
}

impl Shares {
    /// For a window of `jobs` and `bytes`, and destinations of this many patterns.
    #[must_use]
    pub(super) fn new(jobs: usize, bytes: u64, patterns: usize) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let silent_pattern_max = Amount { jobs: if jobs > 1 { (jobs / 8).max(1) } else { 0 }, bytes: bytes / 8 };
        Shares {
            half: Amount { jobs: (jobs / 2).max(1), bytes: bytes / 2 },
            max: Amount { jobs, bytes }.less(silent_pattern_max),
            silent_pattern_max,
            targets: HashMap::new(),
            busy: 0,
            waited: None,
            untrusted: Amount::default(),
            patterns: (0..patterns).map(|_| Pattern::default()).collect(),
            cleaned: None,
        }
    }

    /// Takes a place for a message of `bytes`, if the share has one. `pattern`: the index of the
    /// pattern of a destination that is not known yet.
    pub(super) fn enter(&mut self, to: &Destination, bytes: usize, now: Instant, pattern: impl FnOnce() -> usize) -> ShareState {
        if !self.targets.contains_key(to) {
            self.targets.insert(to.clone(), Target { in_flight: Amount::default(), pattern: pattern(), confirmed: None });
        }
        let Some(target) = self.targets.get_mut(to) else { return ShareState::Full };
        let Some(pattern) = self.patterns.get_mut(target.pattern) else { return ShareState::Full };
        if target.confirmed.is_some_and(|(at, _)| now >= at + TRUST) {
            if target.is_trusted() {
                self.untrusted.add(target.in_flight);
                pattern.in_flight.add(target.in_flight);
            }
            target.confirmed = None;
        }
        let (is_trusted, is_new) = (target.is_trusted(), target.in_flight.jobs == 0);
        let is_alone = self.busy == usize::from(!is_new) && self.waited.is_none_or(|at| now >= at + 2 * SHARE_WAIT);
        let bound = match self.untrusted.less(target.in_flight) {
            _ if is_trusted || (is_alone && target.confirmed.is_some()) => self.max,
            others if others.jobs == 0 => self.half,
            others => self.max.less(others).half(),
        };
        let own = target.in_flight.fits(bytes, bound);
        let of_pattern = if pattern.silent >= SILENT_MAX { self.silent_pattern_max } else { self.max };
        let others = is_trusted || (self.untrusted.fits(bytes, self.max) && pattern.in_flight.fits(bytes, of_pattern));
        if own && others {
            let one = Amount { jobs: 1, bytes };
            target.in_flight.add(one);
            self.busy += usize::from(is_new);
            if !is_trusted {
                self.untrusted.add(one);
                pattern.in_flight.add(one);
                pattern.full = None;
            }
            return ShareState::Taken;
        }
        if is_new {
            self.waited = Some(now);
            if !is_trusted {
                self.targets.remove(to);
            }
        }
        if others || now < *pattern.full.get_or_insert(now) + SHARE_WAIT { ShareState::Soon } else { ShareState::Full }
    }

    /// Frees the place of a message of `bytes`. Returns whether to log that the destinations of the
    /// pattern do not confirm.
    pub(super) fn leave(&mut self, to: &Destination, bytes: usize, response: Response, now: Instant) -> bool {
        let Some(target) = self.targets.get_mut(to) else { return false };
        let Some(pattern) = self.patterns.get_mut(target.pattern) else { return false };
        let (one, was_trusted) = (Amount { jobs: 1, bytes }, target.is_trusted());
        target.in_flight.sub(one);
        self.busy -= usize::from(target.in_flight.jobs == 0);
        if !was_trusted {
            self.untrusted.sub(one);
            pattern.in_flight.sub(one);
        }
        match response {
            Response::Confirmed(took) => {
                target.confirmed = Some((now, took > PROMPT));
                if !was_trusted {
                    pattern.silent = 0;
                }
            }
            Response::Unknown => {
                target.confirmed = None;
                // Once for each destination: it has a share and a pause of its own.
                if !was_trusted && target.in_flight.jobs == 0 {
                    pattern.silent += 1;
                }
            }
            Response::Other => {}
        }
        match (was_trusted, target.is_trusted()) {
            (false, true) => {
                self.untrusted.sub(target.in_flight);
                pattern.in_flight.sub(target.in_flight);
            }
            (true, false) => {
                self.untrusted.add(target.in_flight);
                pattern.in_flight.add(target.in_flight);
            }
            _ => {}
        }
        if target.in_flight.jobs == 0 && (!target.is_trusted() || self.targets.len() > REMEMBERED) {
            self.targets.remove(to);
        }
        let should_log = pattern.silent == SILENT_MAX && !pattern.logged;
        pattern.logged |= should_log;
        should_log
    }

    /// Removes destinations whose trust has expired: producers name them, so they may be many.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.cleaned.is_none_or(|cleaned| now >= cleaned + CLEANUP) {
            self.cleaned = Some(now);
            self.targets.retain(|_, target| target.in_flight.jobs > 0 || target.confirmed.is_some_and(|(at, _)| now < at + TRUST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);

    fn out(shares: &mut Shares, name: &str, now: Instant) -> usize {
        (0..).take_while(|_| shares.enter(&Destination::new(name), 10, now, || 0) == ShareState::Taken).count()
    }

    #[test]
    fn an_untrusted_destination_has_half_and_a_trusted_one_leaves_an_eighth() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        assert_eq!(out(&mut shares, "silent", now), 32);
        assert_eq!(
            shares.enter(&Destination::new("silent"), 10, now + 9 * SHARE_WAIT, || 0),
            ShareState::Soon,
            "its own share is full, not the window"
        );
        assert_eq!([out(&mut shares, "silent too", now), out(&mut shares, "quick", now)], [12, 6], "each leaves half of what is left");
        shares.leave(&Destination::new("quick"), 10, Response::Confirmed(MS), now);
        assert_eq!(out(&mut shares, "quick", now), 56 - 5);
        // Then it does not confirm either.
        shares.leave(&Destination::new("quick"), 10, Response::Unknown, now);
        assert_eq!(out(&mut shares, "quick", now), 0);
        assert_eq!(out(&mut shares, "other", now), 0);
    }

    #[test]
    fn a_slow_destination_has_half_only_beside_others() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        let slow = Destination::new("slow");
        assert_eq!(out(&mut shares, "slow", now), 32);
        shares.leave(&slow, 10, Response::Confirmed(PROMPT + MS), now);
        assert_eq!(out(&mut shares, "slow", now), 56 - 31);
        // A new destination waits for a place: from then on the slow one has half.
        assert_eq!(shares.enter(&Destination::new("new"), 10, now, || 0), ShareState::Soon);
        shares.leave(&slow, 10, Response::Confirmed(PROMPT + MS), now);
        assert_eq!([out(&mut shares, "slow", now), out(&mut shares, "new", now)], [0, 1]);
        (0..40).for_each(|_| {
            shares.leave(&slow, 10, Response::Confirmed(PROMPT + MS), now);
        });
        let later = now + 9 * SHARE_WAIT;
        assert_eq!(out(&mut shares, "slow", later) + 15, (56 - 1) / 2);
        shares.leave(&Destination::new("new"), 10, Response::Other, later);
        assert_eq!(out(&mut shares, "slow", later) + 27, 56);
    }

    #[test]
    fn many_silent_destinations_leave_room_for_one_that_confirms() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        assert_eq!(out(&mut shares, "healthy", now), 32);
        (0..32).for_each(|_| {
            shares.leave(&Destination::new("healthy"), 10, Response::Confirmed(MS), now);
        });
        let silent = |n: usize| Destination::new(format!("silent-{n}"));
        let taken = (0..1000).take_while(|n| shares.enter(&silent(*n), 10, now, || 0) == ShareState::Taken).count();
        assert_eq!(taken, 56);
        assert_eq!([now, now + SHARE_WAIT].map(|at| shares.enter(&silent(99), 10, at, || 0)), [ShareState::Soon, ShareState::Full]);
        assert_eq!(shares.enter(&Destination::new("healthy"), 10, now + SHARE_WAIT, || 0), ShareState::Taken);
        shares.leave(&silent(0), 10, Response::Unknown, now);
        assert_eq!(shares.enter(&silent(99), 10, now + SHARE_WAIT, || 0), ShareState::Taken);
    }

    #[test]
    fn silent_destinations_of_one_pattern_have_an_eighth() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        let silent = |n: usize| Destination::new(format!("legacy.{n}"));
        let healthy = |n: usize| Destination::new(format!("orders.{n}"));
        let taken = |shares: &mut Shares, of: std::ops::Range<usize>| {
            of.take_while(|n| shares.enter(&silent(*n), 10, now, || 0) == ShareState::Taken).count()
        };
        assert_eq!(taken(&mut shares, 0..100), 56);
        (0..56).for_each(|n| {
            shares.leave(&silent(n), 10, Response::Unknown, now);
        });
        assert_eq!(taken(&mut shares, 100..200), 8);
        for n in 0..100 {
            assert_eq!(shares.enter(&healthy(n), 10, now, || 1), ShareState::Taken);
            if n >= 20 {
                shares.leave(&healthy(n), 10, Response::Confirmed(MS), now);
            }
        }
        // One of them confirms: the bound of the pattern is lifted.
        shares.leave(&silent(100), 10, Response::Confirmed(MS), now);
        assert_eq!(taken(&mut shares, 200..300), 56 - 20 - 7);
    }

    #[test]
    fn a_share_is_one_of_bytes_too_and_a_slow_confirm_earns_no_trust() {
        let (mut shares, now) = (Shares::new(64, 1000, 2), clock::now());
        let to = Destination::new("large");
        assert_eq!([300, 300].map(|bytes| shares.enter(&to, bytes, now, || 0)), [ShareState::Taken, ShareState::Soon]);
        shares.leave(&to, 300, Response::Confirmed(PROMPT + MS), now);
        assert_eq!(
            [5000, 1].map(|bytes| shares.enter(&to, bytes, now, || 0)),
            [ShareState::Taken, ShareState::Soon],
            "a large one goes alone"
        );
        shares.leave(&to, 5000, Response::Confirmed(MS), now);
        assert_eq!([300, 300].map(|bytes| shares.enter(&to, bytes, now, || 0)), [ShareState::Taken; 2]);
        (0..2).for_each(|_| {
            shares.leave(&to, 300, Response::Other, now);
        });
        shares.forget(now);
        assert_eq!(shares.targets.len(), 1);
        shares.forget(now + TRUST);
        assert_eq!((shares.targets.len(), shares.untrusted), (0, Amount::default()));
    }
}
