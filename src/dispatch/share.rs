//! What each destination has out, and how much of the window it may take: one that answers nothing leaves room for the others.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::Destination;

use crate::clock::Instant;

/// What is over a share waits so long for its turn before it is given back: until then a destination may have answered for the first time.
pub(super) const TURN: Duration = Duration::from_millis(500);
/// For so long after a confirm a destination is trusted to give more.
const TRUST: Duration = Duration::from_secs(60);
/// A confirm that took longer earns no trust: the destination holds its places for too long. An unknown outcome that came sooner, because the job's time to
/// run was over, says nothing of the destination.
pub(super) const PROMPT: Duration = Duration::from_secs(2);
/// So many destinations of one pattern in a row that confirmed nothing, and the rest of those is in doubt.
const IN_A_ROW: usize = 3;
/// Trusted destinations that are remembered while nothing is out for them.
const REMEMBERED: usize = 4096;
/// How often is looked for those whose trust is over.
const LOOK: Duration = Duration::from_secs(1);

/// A part of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Part {
    jobs: usize,
    bytes: usize,
}

impl Part {
    /// Whether so much more fits below this bound. A job larger than the bound goes alone.
    fn takes(self, bytes: usize, bound: Part) -> bool {
        self.jobs == 0 || (self.jobs < bound.jobs && self.bytes.saturating_add(bytes) <= bound.bytes)
    }

    fn less(self, less: Part) -> Part {
        Part { jobs: self.jobs.saturating_sub(less.jobs), bytes: self.bytes.saturating_sub(less.bytes) }
    }

    fn half(self) -> Part {
        Part { jobs: self.jobs / 2, bytes: self.bytes / 2 }
    }

    fn add(&mut self, more: Part) {
        self.jobs += more.jobs;
        self.bytes += more.bytes;
    }

    fn sub(&mut self, less: Part) {
        self.jobs -= less.jobs;
        self.bytes -= less.bytes;
    }
}

/// Whether a destination may have one more out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// It has it.
    Taken,
    /// Perhaps in a moment.
    Soon,
    /// Not before others are answered.
    None,
}

/// What became of one that was out, as far as trust is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Confirmed, after so long.
    Confirmed(Duration),
    /// Nothing, or nothing that tells.
    Unknown,
    /// Anything else that the broker said.
    Other,
}

/// The shares of one broker's destinations.
#[derive(Debug)]
pub(super) struct Shares {
    /// What a destination may take that confirmed nothing of late: half of the window; beside others of that kind half of what `most` leaves, so that
    /// no few of them leave nothing for one that was never tried. One that confirms slowly has no more while others wait.
    half: Part,
    /// What a trusted one may take, and all others together: the rest of the window is left for whoever is trusted.
    most: Part,
    /// What those together may take that are not trusted, of one pattern, once [`IN_A_ROW`] of them confirmed nothing.
    few: Part,
    targets: HashMap<Destination, Target>,
    /// Destinations that have something out.
    busy: usize,
    /// When one that has nothing out found no place last.
    waited: Option<Instant>,
    /// Out for destinations that are not trusted.
    doubtful: Part,
    /// The same by pattern.
    patterns: Vec<Pattern>,
    looked: Option<Instant>,
}

/// The destinations of one pattern of `allow`. Each may be of one job alone, as a subject for each customer is: then only they together tell anything.
#[derive(Debug, Default)]
struct Pattern {
    /// Out for those that are not trusted.
    out: Part,
    /// Destinations in a row that confirmed nothing.
    unknown: usize,
    /// Since when no more fits.
    full: Option<Instant>,
    told: bool,
}

#[derive(Debug)]
struct Target {
    out: Part,
    pattern: usize,
    /// Its last confirm, and whether that was slow.
    confirmed: Option<(Instant, bool)>,
}

impl Target {
    fn is_trusted(&self) -> bool {
        self.confirmed.is_some_and(|(_, slow)| !slow)
    }
}

impl Shares {
    /// Of a window of so many jobs and bytes, for destinations of so many patterns.
    #[must_use]
    pub(super) fn new(jobs: usize, bytes: u64, patterns: usize) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let few = Part { jobs: if jobs > 1 { (jobs / 8).max(1) } else { 0 }, bytes: bytes / 8 };
        Shares {
            half: Part { jobs: (jobs / 2).max(1), bytes: bytes / 2 },
            most: Part { jobs, bytes }.less(few),
            few,
            targets: HashMap::new(),
            busy: 0,
            waited: None,
            doubtful: Part::default(),
            patterns: (0..patterns).map(|_| Pattern::default()).collect(),
            looked: None,
        }
    }

    /// One more of so many bytes is to go out, where there is room. `pattern`: the place of the pattern, where the destination is not known.
    pub(super) fn enter(&mut self, to: &Destination, bytes: usize, now: Instant, pattern: impl FnOnce() -> usize) -> Room {
        if !self.targets.contains_key(to) {
            self.targets.insert(to.clone(), Target { out: Part::default(), pattern: pattern(), confirmed: None });
        }
        let Some(target) = self.targets.get_mut(to) else { return Room::None };
        let Some(pattern) = self.patterns.get_mut(target.pattern) else { return Room::None };
        if target.confirmed.is_some_and(|(at, _)| now >= at + TRUST) {
            if target.is_trusted() {
                self.doubtful.add(target.out);
                pattern.out.add(target.out);
            }
            target.confirmed = None;
        }
        let (is_trusted, is_new) = (target.is_trusted(), target.out.jobs == 0);
        let is_alone = self.busy == usize::from(!is_new) && self.waited.is_none_or(|at| now >= at + 2 * TURN);
        let bound = match self.doubtful.less(target.out) {
            _ if is_trusted || (is_alone && target.confirmed.is_some()) => self.most,
            others if others.jobs == 0 => self.half,
            others => self.most.less(others).half(),
        };
        let own = target.out.takes(bytes, bound);
        let of_pattern = if pattern.unknown >= IN_A_ROW { self.few } else { self.most };
        let others = is_trusted || (self.doubtful.takes(bytes, self.most) && pattern.out.takes(bytes, of_pattern));
        if own && others {
            let one = Part { jobs: 1, bytes };
            target.out.add(one);
            self.busy += usize::from(is_new);
            if !is_trusted {
                self.doubtful.add(one);
                pattern.out.add(one);
                pattern.full = None;
            }
            return Room::Taken;
        }
        if is_new {
            self.waited = Some(now);
            if !is_trusted {
                self.targets.remove(to);
            }
        }
        if others || now < *pattern.full.get_or_insert(now) + TURN { Room::Soon } else { Room::None }
    }

    /// One of so many bytes is out no more. True where it is to be told that the destinations of its pattern confirm nothing.
    pub(super) fn left(&mut self, to: &Destination, bytes: usize, answer: Answer, now: Instant) -> bool {
        let Some(target) = self.targets.get_mut(to) else { return false };
        let Some(pattern) = self.patterns.get_mut(target.pattern) else { return false };
        let (one, was_trusted) = (Part { jobs: 1, bytes }, target.is_trusted());
        target.out.sub(one);
        self.busy -= usize::from(target.out.jobs == 0);
        if !was_trusted {
            self.doubtful.sub(one);
            pattern.out.sub(one);
        }
        match answer {
            Answer::Confirmed(took) => {
                target.confirmed = Some((now, took > PROMPT));
                if !was_trusted {
                    pattern.unknown = 0;
                }
            }
            Answer::Unknown => {
                target.confirmed = None;
                // Once for each destination, which has shares and pauses of its own.
                if !was_trusted && target.out.jobs == 0 {
                    pattern.unknown += 1;
                }
            }
            Answer::Other => {}
        }
        match (was_trusted, target.is_trusted()) {
            (false, true) => {
                self.doubtful.sub(target.out);
                pattern.out.sub(target.out);
            }
            (true, false) => {
                self.doubtful.add(target.out);
                pattern.out.add(target.out);
            }
            _ => {}
        }
        if target.out.jobs == 0 && (!target.is_trusted() || self.targets.len() > REMEMBERED) {
            self.targets.remove(to);
        }
        let tell = pattern.unknown == IN_A_ROW && !pattern.told;
        pattern.told |= tell;
        tell
    }

    /// Forgets destinations that were trusted long ago: producers name them, so there may be many.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.looked.is_none_or(|looked| now >= looked + LOOK) {
            self.looked = Some(now);
            self.targets.retain(|_, target| target.out.jobs > 0 || target.confirmed.is_some_and(|(at, _)| now < at + TRUST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);

    fn out(shares: &mut Shares, name: &str, now: Instant) -> usize {
        (0..).take_while(|_| shares.enter(&Destination::new(name), 10, now, || 0) == Room::Taken).count()
    }

    #[test]
    fn who_confirms_nothing_has_half_and_who_confirms_leaves_an_eighth() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        assert_eq!(out(&mut shares, "silent", now), 32);
        assert_eq!(
            shares.enter(&Destination::new("silent"), 10, now + 9 * TURN, || 0),
            Room::Soon,
            "its own share is full, not the window"
        );
        assert_eq!([out(&mut shares, "silent too", now), out(&mut shares, "quick", now)], [12, 6], "each leaves half of what is left");
        shares.left(&Destination::new("quick"), 10, Answer::Confirmed(MS), now);
        assert_eq!(out(&mut shares, "quick", now), 56 - 5);
        // Then it says nothing either.
        shares.left(&Destination::new("quick"), 10, Answer::Unknown, now);
        assert_eq!(out(&mut shares, "quick", now), 0);
        assert_eq!(out(&mut shares, "other", now), 0);
    }

    #[test]
    fn who_confirms_slowly_has_half_only_beside_others() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        let slow = Destination::new("slow");
        assert_eq!(out(&mut shares, "slow", now), 32);
        shares.left(&slow, 10, Answer::Confirmed(PROMPT + MS), now);
        assert_eq!(out(&mut shares, "slow", now), 56 - 31);
        // One that finds no place waits: from then on the slow one has half.
        assert_eq!(shares.enter(&Destination::new("new"), 10, now, || 0), Room::Soon);
        shares.left(&slow, 10, Answer::Confirmed(PROMPT + MS), now);
        assert_eq!([out(&mut shares, "slow", now), out(&mut shares, "new", now)], [0, 1]);
        (0..40).for_each(|_| {
            shares.left(&slow, 10, Answer::Confirmed(PROMPT + MS), now);
        });
        let later = now + 9 * TURN;
        assert_eq!(out(&mut shares, "slow", later) + 15, (56 - 1) / 2);
        shares.left(&Destination::new("new"), 10, Answer::Other, later);
        assert_eq!(out(&mut shares, "slow", later) + 27, 56);
    }

    #[test]
    fn many_that_confirm_nothing_leave_room_for_one_that_does() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        assert_eq!(out(&mut shares, "healthy", now), 32);
        (0..32).for_each(|_| {
            shares.left(&Destination::new("healthy"), 10, Answer::Confirmed(MS), now);
        });
        let silent = |n: usize| Destination::new(format!("silent-{n}"));
        let taken = (0..1000).take_while(|n| shares.enter(&silent(*n), 10, now, || 0) == Room::Taken).count();
        assert_eq!(taken, 56);
        assert_eq!([now, now + TURN].map(|at| shares.enter(&silent(99), 10, at, || 0)), [Room::Soon, Room::None]);
        assert_eq!(shares.enter(&Destination::new("healthy"), 10, now + TURN, || 0), Room::Taken);
        shares.left(&silent(0), 10, Answer::Unknown, now);
        assert_eq!(shares.enter(&silent(99), 10, now + TURN, || 0), Room::Taken);
    }

    #[test]
    fn silent_ones_of_one_pattern_that_each_differ_have_an_eighth() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        let silent = |n: usize| Destination::new(format!("legacy.{n}"));
        let healthy = |n: usize| Destination::new(format!("orders.{n}"));
        let taken = |shares: &mut Shares, of: std::ops::Range<usize>| {
            of.take_while(|n| shares.enter(&silent(*n), 10, now, || 0) == Room::Taken).count()
        };
        assert_eq!(taken(&mut shares, 0..100), 56);
        (0..56).for_each(|n| {
            shares.left(&silent(n), 10, Answer::Unknown, now);
        });
        assert_eq!(taken(&mut shares, 100..200), 8);
        for n in 0..100 {
            assert_eq!(shares.enter(&healthy(n), 10, now, || 1), Room::Taken);
            if n >= 20 {
                shares.left(&healthy(n), 10, Answer::Confirmed(MS), now);
            }
        }
        // One of them confirms: then they have as much as others.
        shares.left(&silent(100), 10, Answer::Confirmed(MS), now);
        assert_eq!(taken(&mut shares, 200..300), 56 - 20 - 7);
    }

    #[test]
    fn a_share_is_one_of_bytes_too_and_a_slow_confirm_earns_no_trust() {
        let (mut shares, now) = (Shares::new(64, 1000, 2), clock::now());
        let to = Destination::new("large");
        assert_eq!([300, 300].map(|bytes| shares.enter(&to, bytes, now, || 0)), [Room::Taken, Room::Soon]);
        shares.left(&to, 300, Answer::Confirmed(PROMPT + MS), now);
        assert_eq!([5000, 1].map(|bytes| shares.enter(&to, bytes, now, || 0)), [Room::Taken, Room::Soon], "a large one goes alone");
        shares.left(&to, 5000, Answer::Confirmed(MS), now);
        assert_eq!([300, 300].map(|bytes| shares.enter(&to, bytes, now, || 0)), [Room::Taken; 2]);
        (0..2).for_each(|_| {
            shares.left(&to, 300, Answer::Other, now);
        });
        shares.forget(now);
        assert_eq!(shares.targets.len(), 1);
        shares.forget(now + TRUST);
        assert_eq!((shares.targets.len(), shares.doubtful), (0, Part::default()));
    }
}
