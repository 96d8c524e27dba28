//! The share of the window that each destination may use, so that those that hold their places for
//! long leave room for others.

mod amount;
mod response;
mod target;

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::Destination;

use self::amount::Amount;
pub(super) use self::response::{Response, SILENCE_LIMIT};
use self::target::{Pace, Pattern, Target, set_pace};
use crate::clock::Instant;

/// A job that exceeds its destination's share waits this long before it is given back: a new
/// destination may answer for the first time until then. A destination is quick if its last answer
/// took no longer: otherwise its places come free later than its jobs may wait.
pub(super) const SHARE_WAIT: Duration = Duration::from_millis(500);
/// The status of a destination is remembered for this long after an answer.
const STATUS_TTL: Duration = Duration::from_secs(60);
/// After this many destinations of one pattern in a row that did not confirm, the others of the
/// pattern get less.
const MAX_SILENT_DESTINATIONS: usize = 3;
/// The most destinations without publications that are remembered.
const MAX_IDLE_DESTINATIONS: usize = 4096;
/// The interval between removals of destinations whose answers are too old.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between looks at destinations that may have become slow.
const CLASSIFY_INTERVAL: Duration = Duration::from_millis(50);

/// Whether a destination's share has a place for another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShareState {
    /// Yes, and it is taken.
    Taken,
    /// Perhaps in a moment.
    Soon,
    /// The same, but the destination may take longer than [`SHARE_WAIT`]: few jobs may wait for it.
    Later,
    /// Not before others have their outcomes.
    Full,
}

/// The shares of one broker's destinations.
#[derive(Debug)]
pub(super) struct Shares {
    /// Half of the window: the bound of a new destination while it is alone.
    half: Amount,
    /// The bound of a destination beside others before its first answer: a few places, because all
    /// of them may be lost for long, and the first quick answer ends the bound.
    first: Amount,
    /// Seven eighths of the window: the bound of a quick destination, of one that answers while it
    /// is alone, and of all new and slow ones together. A slow one beside others has half of the
    /// places that the other slow ones leave of it.
    max: Amount,
    /// New destinations find so many places beside slow ones that hold all of theirs.
    new_min: Amount,
    /// The bound of all destinations of one pattern that are not quick, once
    /// [`MAX_SILENT_DESTINATIONS`] of them did not confirm.
    silent_pattern_max: Amount,
    /// All but a 32nd of the window: the bound of all destinations together. The rest is for those
    /// that have nothing in flight and are not slow.
    shared: Amount,
    targets: HashMap<Destination, Target>,
    /// Destinations with publications in flight.
    busy: usize,
    /// When a destination without publications in flight last found no place.
    waited: Option<Instant>,
    /// In flight to all destinations, to new ones, and to slow ones.
    total: Amount,
    new: Amount,
    slow: Amount,
    patterns: Vec<Pattern>,
    cleaned: Option<Instant>,
    classified_at: Option<Instant>,
}

impl Shares {
    /// For a window of `jobs` and `bytes`, and destinations of this many patterns.
    #[must_use]
    pub(super) fn new(jobs: usize, bytes: u64, patterns: usize) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let eighth =
            Amount { jobs: if jobs > 1 { (jobs / 8).max(1) } else { 0 }, bytes: bytes / 8 };
        let all = Amount { jobs, bytes };
        Shares {
            half: Amount { jobs: (jobs / 2).max(1), bytes: bytes / 2 },
            first: Amount { jobs: (jobs / 256).max(1), bytes: bytes / 64 },
            max: all.less(eighth),
            new_min: all.part(16),
            silent_pattern_max: eighth,
            shared: all.less(all.part(32)),
            targets: HashMap::new(),
            busy: 0,
            waited: None,
            total: Amount::default(),
            new: Amount::default(),
            slow: Amount::default(),
            patterns: (0..patterns).map(|_| Pattern::default()).collect(),
            cleaned: None,
            classified_at: None,
        }
    }

    /// Takes a place for a message of `bytes`, if the share has one. `pattern`: the index of the
    /// pattern of a destination that is not known yet.
    pub(super) fn enter(
        &mut self,
        to: &Destination,
        bytes: usize,
        now: Instant,
        pattern: impl FnOnce() -> usize,
    ) -> ShareState {
        self.classify(now);
        if !self.targets.contains_key(to) {
            let target = Target {
                in_flight: Amount::default(),
                pattern: pattern(),
                pace: Pace::New,
                answered: None,
                since: now,
            };
            self.targets.insert(to.clone(), target);
        }
        let Some(target) = self.targets.get_mut(to) else { return ShareState::Full };
        if target.answered.is_some_and(|at| now >= at + STATUS_TTL) {
            target.answered = None;
            if target.pace != Pace::Slow || target.in_flight.jobs == 0 {
                set_pace(target, Pace::New, (&mut self.new, &mut self.slow), &mut self.patterns);
            }
        }
        let (pace, in_flight, answered) =
            (target.pace, target.in_flight, target.answered.is_some());
        let is_idle = in_flight.jobs == 0;
        let (is_alone, is_only) = (self.is_alone(in_flight, now), self.targets.len() == 1);
        let bound = self.bound(pace, in_flight, answered, is_alone);
        let Some(target) = self.targets.get_mut(to) else { return ShareState::Full };
        let Some(pattern) = self.patterns.get_mut(target.pattern) else { return ShareState::Full };
        let mut unproven = self.new;
        unproven.add(self.slow);
        let has_room = match pace {
            Pace::Quick => true,
            Pace::New => unproven.fits(bytes, self.max) || self.new.fits(bytes, self.new_min),
            Pace::Slow => is_alone || unproven.fits(bytes, self.max),
        };
        let is_silent = pace != Pace::Quick && pattern.silent >= MAX_SILENT_DESTINATIONS;
        let others =
            has_room && (!is_silent || pattern.in_flight.fits(bytes, self.silent_pattern_max));
        let has_place = (is_idle && pace != Pace::Slow) || self.total.fits(bytes, self.shared);
        if others && has_place && in_flight.fits(bytes, bound) {
            let one = Amount { jobs: 1, bytes };
            target.in_flight.add(one);
            self.total.add(one);
            if is_idle {
                self.busy += 1;
                target.since = now;
            }
            match pace {
                Pace::Quick => {}
                Pace::New => self.new.add(one),
                Pace::Slow => self.slow.add(one),
            }
            if pace != Pace::Quick {
                pattern.in_flight.add(one);
                pattern.full = None;
            }
            return ShareState::Taken;
        }
        if is_idle {
            self.waited = Some(now);
            if !answered {
                self.targets.remove(to);
            }
        }
        if !others && now >= *pattern.full.get_or_insert(now) + SHARE_WAIT {
            ShareState::Full
        } else if pace == Pace::Quick || is_only || (is_alone && pace == Pace::New) {
            ShareState::Soon
        } else {
            ShareState::Later
        }
    }

    /// Frees the place of a message of `bytes`. Returns whether to log that the destinations of the
    /// pattern do not confirm.
    pub(super) fn leave(
        &mut self,
        to: &Destination,
        bytes: usize,
        response: Response,
        now: Instant,
    ) -> bool {
        let Some(target) = self.targets.get_mut(to) else { return false };
        let (one, before) = (Amount { jobs: 1, bytes }, target.pace);
        target.in_flight.sub(one);
        self.total.sub(one);
        let is_idle = target.in_flight.jobs == 0;
        self.busy -= usize::from(is_idle);
        match before {
            Pace::Quick => {}
            Pace::New => self.new.sub(one),
            Pace::Slow => self.slow.sub(one),
        }
        let pace = match response {
            Response::Confirmed(took) | Response::Answered(took) => {
                target.answered = Some(now);
                if took <= SHARE_WAIT { Pace::Quick } else { Pace::Slow }
            }
            Response::Unknown => {
                target.answered = None;
                if is_idle { Pace::New } else { Pace::Slow }
            }
            Response::Nothing => before,
        };
        if response != Response::Nothing {
            target.since = now;
        }
        let mut should_log = false;
        if let Some(pattern) = self.patterns.get_mut(target.pattern)
            && before != Pace::Quick
        {
            pattern.in_flight.sub(one);
            match response {
                Response::Confirmed(_) => pattern.silent = 0,
                // Once for each destination: it has a share and a pause of its own.
                Response::Unknown if is_idle => pattern.silent += 1,
                _ => {}
            }
            should_log = pattern.silent == MAX_SILENT_DESTINATIONS && !pattern.logged;
            pattern.logged |= should_log;
        }
        set_pace(target, pace, (&mut self.new, &mut self.slow), &mut self.patterns);
        if is_idle && (target.answered.is_none() || self.targets.len() > MAX_IDLE_DESTINATIONS) {
            self.targets.remove(to);
        }
        should_log
    }

    /// Whether a destination whose confirm took so long leaves room for others: the jobs that wait
    /// for its share may come back. For those of a slow one, a single place is not enough.
    #[must_use]
    pub(super) fn leaves_room(&self, to: &Destination, took: Duration, now: Instant) -> bool {
        let Some(target) = self.targets.get(to).filter(|_| took > SHARE_WAIT) else { return true };
        let is_alone = self.is_alone(target.in_flight, now);
        let bound = self.bound(target.pace, target.in_flight, target.answered.is_some(), is_alone);
        self.targets.len() == 1 || target.in_flight.leaves_quarter(bound)
    }

    /// Whether no destination but one with this in flight has messages in flight, or waits.
    fn is_alone(&self, in_flight: Amount, now: Instant) -> bool {
        self.busy == usize::from(in_flight.jobs > 0)
            && self.waited.is_none_or(|at| now >= at + 2 * SHARE_WAIT)
    }

    /// The most that a destination may have in flight.
    fn bound(&self, pace: Pace, in_flight: Amount, answered: bool, is_alone: bool) -> Amount {
        match (pace, answered) {
            (Pace::Quick, _) => self.max,
            (Pace::Slow, true) if is_alone => self.max,
            _ if is_alone => self.half,
            (Pace::Slow, _) => self.max.less(self.slow.less(in_flight)).part(2),
            (Pace::New, _) => self.first,
        }
    }

    /// Finds destinations that have become slow without an outcome.
    fn classify(&mut self, now: Instant) {
        if self.busy == 0
            || self
                .classified_at
                .is_some_and(|classified_at| now < classified_at + CLASSIFY_INTERVAL)
        {
            return;
        }
        self.classified_at = Some(now);
        let holds_long = |target: &&mut Target| {
            let limit = if target.pace == Pace::Quick { SHARE_WAIT } else { SILENCE_LIMIT };
            target.in_flight.jobs > 0 && now >= target.since + limit
        };
        for target in self.targets.values_mut().filter(holds_long) {
            set_pace(target, Pace::Slow, (&mut self.new, &mut self.slow), &mut self.patterns);
        }
    }

    /// Removes destinations whose answers are too old: producers name them, so they may be many.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.cleaned.is_none_or(|cleaned| now >= cleaned + CLEANUP_INTERVAL) {
            self.cleaned = Some(now);
            self.targets.retain(|_, target| {
                target.in_flight.jobs > 0 || target.answered.is_some_and(|at| now < at + STATUS_TTL)
            });
        }
    }
}

#[cfg(test)]
mod tests;
