//! What each destination has out, and how much of the window it may take: one that answers nothing leaves room for the others.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::Destination;

use crate::clock::Instant;

/// What is over a share waits so long for its turn before it is given back: until then a destination may have answered for the first time.
pub(super) const TURN: Duration = Duration::from_millis(500);
/// For so long after a confirm a destination is trusted to give more.
const TRUST: Duration = Duration::from_secs(60);
/// A confirm that took longer earns no trust: the destination holds its places for too long.
const PROMPT: Duration = Duration::from_secs(2);
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
    /// What a destination may take that confirmed nothing of late: half of the window.
    half: Part,
    /// What a trusted one may take, and all others together: the rest of the window is left for whoever is trusted.
    most: Part,
    targets: HashMap<Destination, Target>,
    /// Out for destinations that are not trusted.
    doubtful: Part,
    /// Since when no more of that fits, and none of them was confirmed.
    full: Option<Instant>,
    looked: Option<Instant>,
}

#[derive(Debug, Default)]
struct Target {
    out: Part,
    /// The last confirm of a trusted one.
    trusted: Option<Instant>,
}

impl Shares {
    /// Of a window of so many jobs and bytes.
    #[must_use]
    pub(super) fn new(jobs: usize, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let rest = if jobs > 1 { (jobs / 8).max(1) } else { 0 };
        Shares {
            half: Part { jobs: (jobs / 2).max(1), bytes: bytes / 2 },
            most: Part { jobs: jobs - rest, bytes: bytes - bytes / 8 },
            targets: HashMap::new(),
            doubtful: Part::default(),
            full: None,
            looked: None,
        }
    }

    /// One more of so many bytes is to go out, where there is room.
    pub(super) fn enter(&mut self, to: &Destination, bytes: usize, now: Instant) -> Room {
        if !self.targets.contains_key(to) {
            self.targets.insert(to.clone(), Target::default());
        }
        let Some(target) = self.targets.get_mut(to) else { return Room::None };
        if target.trusted.is_some_and(|at| now >= at + TRUST) {
            target.trusted = None;
            self.doubtful.add(target.out);
        }
        let (is_trusted, is_new) = (target.trusted.is_some(), target.out.jobs == 0);
        let own = target.out.takes(bytes, if is_trusted { self.most } else { self.half });
        let others = is_trusted || self.doubtful.takes(bytes, self.most);
        if own && others {
            let one = Part { jobs: 1, bytes };
            target.out.add(one);
            if !is_trusted {
                self.doubtful.add(one);
            }
            return Room::Taken;
        }
        if is_new && !is_trusted {
            self.targets.remove(to);
        }
        if others {
            return Room::Soon;
        }
        if now < *self.full.get_or_insert(now) + TURN { Room::Soon } else { Room::None }
    }

    /// One of so many bytes is out no more.
    pub(super) fn left(&mut self, to: &Destination, bytes: usize, answer: Answer, now: Instant) {
        let Some(target) = self.targets.get_mut(to) else { return };
        let one = Part { jobs: 1, bytes };
        target.out.sub(one);
        if target.trusted.is_none() {
            self.doubtful.sub(one);
            if self.doubtful.jobs < self.most.jobs && self.doubtful.bytes < self.most.bytes {
                self.full = None;
            }
        }
        match answer {
            Answer::Confirmed(took) if took <= PROMPT => {
                if target.trusted.replace(now).is_none() {
                    self.doubtful.sub(target.out);
                    self.full = None;
                }
            }
            Answer::Confirmed(_) | Answer::Unknown => {
                if target.trusted.take().is_some() {
                    self.doubtful.add(target.out);
                }
            }
            Answer::Other => {}
        }
        if target.out.jobs == 0 && (target.trusted.is_none() || self.targets.len() > REMEMBERED) {
            self.targets.remove(to);
        }
    }

    /// Forgets destinations that were trusted long ago: producers name them, so there may be many.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.looked.is_none_or(|looked| now >= looked + LOOK) {
            self.looked = Some(now);
            self.targets.retain(|_, target| target.out.jobs > 0 || target.trusted.is_some_and(|at| now < at + TRUST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);

    fn out(shares: &mut Shares, name: &str, now: Instant) -> usize {
        (0..).take_while(|_| shares.enter(&Destination::new(name), 10, now) == Room::Taken).count()
    }

    #[test]
    fn who_confirms_nothing_has_half_and_who_confirms_leaves_an_eighth() {
        let (mut shares, now) = (Shares::new(64, 1 << 20), clock::now());
        assert_eq!(out(&mut shares, "silent", now), 32);
        assert_eq!(shares.enter(&Destination::new("silent"), 10, now + 9 * TURN), Room::Soon, "its own share is full, not the window");
        assert_eq!(out(&mut shares, "quick", now), 24, "those that are not trusted leave an eighth as well");
        shares.left(&Destination::new("quick"), 10, Answer::Confirmed(MS), now);
        assert_eq!(out(&mut shares, "quick", now), 56 - 23);
        // Then it says nothing either.
        shares.left(&Destination::new("quick"), 10, Answer::Unknown, now);
        assert_eq!(out(&mut shares, "quick", now), 0);
        assert_eq!(out(&mut shares, "other", now), 0);
    }

    #[test]
    fn many_that_confirm_nothing_leave_room_for_one_that_does() {
        let (mut shares, now) = (Shares::new(64, 1 << 20), clock::now());
        assert_eq!(out(&mut shares, "healthy", now), 32);
        (0..32).for_each(|_| shares.left(&Destination::new("healthy"), 10, Answer::Confirmed(MS), now));
        let silent = |n: usize| Destination::new(format!("silent-{n}"));
        let taken = (0..1000).take_while(|n| shares.enter(&silent(*n), 10, now) == Room::Taken).count();
        assert_eq!(taken, 56);
        assert_eq!([now, now + TURN].map(|at| shares.enter(&silent(99), 10, at)), [Room::Soon, Room::None]);
        assert_eq!(shares.enter(&Destination::new("healthy"), 10, now + TURN), Room::Taken);
        shares.left(&silent(0), 10, Answer::Unknown, now);
        assert_eq!(shares.enter(&silent(99), 10, now + TURN), Room::Taken);
    }

    #[test]
    fn a_share_is_one_of_bytes_too_and_a_slow_confirm_earns_no_trust() {
        let (mut shares, now) = (Shares::new(64, 1000), clock::now());
        let to = Destination::new("large");
        assert_eq!([300, 300].map(|bytes| shares.enter(&to, bytes, now)), [Room::Taken, Room::Soon]);
        shares.left(&to, 300, Answer::Confirmed(PROMPT + MS), now);
        assert_eq!([5000, 1].map(|bytes| shares.enter(&to, bytes, now)), [Room::Taken, Room::Soon], "a large one goes alone");
        shares.left(&to, 5000, Answer::Confirmed(MS), now);
        assert_eq!([300, 300].map(|bytes| shares.enter(&to, bytes, now)), [Room::Taken; 2]);
        (0..2).for_each(|_| shares.left(&to, 300, Answer::Other, now));
        shares.forget(now);
        assert_eq!(shares.targets.len(), 1);
        shares.forget(now + TRUST);
        assert_eq!((shares.targets.len(), shares.doubtful), (0, Part::default()));
    }
}
