//! The share of the window that each destination may use, so that those that hold their places for long
//! leave room for others.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::Destination;

use crate::clock::Instant;

/// A job that exceeds its destination's share waits this long before it is given back: a new
/// destination may answer for the first time until then.
pub(super) const SHARE_WAIT: Duration = Duration::from_millis(500);
/// The status of a destination is remembered for this long after an answer.
const STATUS_TTL: Duration = Duration::from_secs(60);
/// A destination is quick if its last answer took no longer, and slow while no answer has come for this
/// long. An error that took longer counts as no answer. An unknown outcome that came sooner, because the
/// job's time to run was over, says nothing about the destination.
pub(super) const QUICK_RESPONSE_LIMIT: Duration = Duration::from_secs(2);
/// After this many destinations of one pattern in a row that did not confirm, the others of the
/// pattern get less.
const MAX_SILENT_DESTINATIONS: usize = 3;
/// The most destinations without publications that are remembered.
const MAX_IDLE_DESTINATIONS: usize = 4096;
/// The interval between removals of destinations whose answers are too old.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between looks at destinations that may have become slow.
const CLASSIFY_INTERVAL: Duration = Duration::from_millis(50);

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

    fn part(self, of: usize) -> Amount {
        Amount { jobs: self.jobs / of, bytes: self.bytes / of }
    }

    /// Whether at least a quarter of the bound is free.
    fn leaves_quarter(self, bound: Amount) -> bool {
        let most = bound.less(bound.part(4));
        self.jobs <= most.jobs && self.bytes <= most.bytes
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
    /// The same, but the destination may take long: few jobs may wait for it.
    Later,
    /// Not before others have their outcomes.
    Full,
}

/// The response of a destination, as far as its share is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response {
    /// Confirmed, after this time.
    Confirmed(Duration),
    /// Any other answer, after this time.
    Answered(Duration),
    /// No answer.
    Unknown,
    /// The outcome says nothing about the destination.
    Nothing,
}

/// The time for which a destination holds its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Nothing is known: it has not answered of late.
    New,
    Quick,
    Slow,
}

/// The shares of one broker's destinations.
#[derive(Debug)]
pub(super) struct Shares {
    /// Half of the window: the bound of a new destination while it is alone.
    half: Amount,
    /// The bound of a destination beside others before its first answer: a few places, because all of them
    /// may be lost for long, and the first quick answer ends the bound.
    first: Amount,
    /// Seven eighths of the window: the bound of a quick destination, of one that answers while it is alone,
    /// and of all new and slow ones together. A slow one beside others has half of the places that the other
    /// slow ones leave of it.
    max: Amount,
    /// New destinations find so many places beside slow ones that hold all of theirs.
    new_min: Amount,
    /// The bound of all destinations of one pattern that are not quick, once [`MAX_SILENT_DESTINATIONS`] of them did not
    /// confirm.
    silent_pattern_max: Amount,
    /// All but a 32nd of the window: the bound of all destinations together. The rest is for those that
    /// have nothing in flight and are not slow.
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

/// The destinations of one pattern of `allow`. Each may be of a single job (a subject for each
/// customer): then only all of them together show whether they confirm.
#[derive(Debug, Default)]
struct Pattern {
    /// In flight to destinations that are not quick.
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
    pace: Pace,
    /// The last answer.
    answered: Option<Instant>,
    /// The last outcome, or since when messages are in flight.
    since: Instant,
}

impl Shares {
    /// For a window of `jobs` and `bytes`, and destinations of this many patterns.
    #[must_use]
    pub(super) fn new(jobs: usize, bytes: u64, patterns: usize) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let eighth = Amount { jobs: if jobs > 1 { (jobs / 8).max(1) } else { 0 }, bytes: bytes / 8 };
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
    pub(super) fn enter(&mut self, to: &Destination, bytes: usize, now: Instant, pattern: impl FnOnce() -> usize) -> ShareState {
        self.classify(now);
        if !self.targets.contains_key(to) {
            let target = Target { in_flight: Amount::default(), pattern: pattern(), pace: Pace::New, answered: None, since: now };
            self.targets.insert(to.clone(), target);
        }
        let Some(target) = self.targets.get_mut(to) else { return ShareState::Full };
        if target.answered.is_some_and(|at| now >= at + STATUS_TTL) {
            target.answered = None;
            if target.pace != Pace::Slow || target.in_flight.jobs == 0 {
                set_pace(target, Pace::New, (&mut self.new, &mut self.slow), &mut self.patterns);
            }
        }
        let (pace, in_flight, answered) = (target.pace, target.in_flight, target.answered.is_some());
        let is_idle = in_flight.jobs == 0;
        let is_alone = self.is_alone(in_flight, now);
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
        let others = has_room && (!is_silent || pattern.in_flight.fits(bytes, self.silent_pattern_max));
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
        } else if pace == Pace::Quick || is_alone {
            ShareState::Soon
        } else {
            ShareState::Later
        }
    }

    /// Frees the place of a message of `bytes`. Returns whether to log that the destinations of the
    /// pattern do not confirm.
    pub(super) fn leave(&mut self, to: &Destination, bytes: usize, response: Response, now: Instant) -> bool {
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
                if took <= QUICK_RESPONSE_LIMIT { Pace::Quick } else { Pace::Slow }
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

    /// Whether a destination whose confirm took so long leaves room for others: the jobs that wait for its
    /// share may come back. For those of a slow one, a single place is not enough.
    #[must_use]
    pub(super) fn leaves_room(&self, to: &Destination, took: Duration, now: Instant) -> bool {
        let Some(target) = self.targets.get(to).filter(|_| took > QUICK_RESPONSE_LIMIT) else { return true };
        let is_alone = self.is_alone(target.in_flight, now);
        let bound = self.bound(target.pace, target.in_flight, target.answered.is_some(), is_alone);
        is_alone || target.in_flight.leaves_quarter(bound)
    }

    /// Whether no destination but one with this in flight has messages in flight, or waits.
    fn is_alone(&self, in_flight: Amount, now: Instant) -> bool {
        self.busy == usize::from(in_flight.jobs > 0) && self.waited.is_none_or(|at| now >= at + 2 * SHARE_WAIT)
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
        if self.busy == 0 || self.classified_at.is_some_and(|classified_at| now < classified_at + CLASSIFY_INTERVAL) {
            return;
        }
        self.classified_at = Some(now);
        let holds_long = |target: &&mut Target| target.in_flight.jobs > 0 && now >= target.since + QUICK_RESPONSE_LIMIT;
        for target in self.targets.values_mut().filter(holds_long) {
            set_pace(target, Pace::Slow, (&mut self.new, &mut self.slow), &mut self.patterns);
        }
    }

    /// Removes destinations whose answers are too old: producers name them, so they may be many.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.cleaned.is_none_or(|cleaned| now >= cleaned + CLEANUP_INTERVAL) {
            self.cleaned = Some(now);
            self.targets.retain(|_, target| target.in_flight.jobs > 0 || target.answered.is_some_and(|at| now < at + STATUS_TTL));
        }
    }
}

/// Counts what is in flight to a destination by its new pace.
fn set_pace(target: &mut Target, pace: Pace, (new, slow): (&mut Amount, &mut Amount), patterns: &mut [Pattern]) {
    if target.pace == pace {
        return;
    }
    match target.pace {
        Pace::Quick => {}
        Pace::New => new.sub(target.in_flight),
        Pace::Slow => slow.sub(target.in_flight),
    }
    match pace {
        Pace::Quick => {}
        Pace::New => new.add(target.in_flight),
        Pace::Slow => slow.add(target.in_flight),
    }
    if let Some(pattern) = patterns.get_mut(target.pattern) {
        match (target.pace, pace) {
            (Pace::Quick, _) => pattern.in_flight.add(target.in_flight),
            (_, Pace::Quick) => pattern.in_flight.sub(target.in_flight),
            _ => {}
        }
    }
    target.pace = pace;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);

    fn to(name: &str) -> Destination {
        Destination::new(name)
    }

    fn enter(shares: &mut Shares, name: &str, now: Instant) -> ShareState {
        shares.enter(&to(name), 10, now, || 0)
    }

    /// Returns the number of messages that find a place.
    fn out(shares: &mut Shares, name: &str, now: Instant) -> usize {
        (0..).take_while(|_| enter(shares, name, now) == ShareState::Taken).count()
    }

    fn leave(shares: &mut Shares, name: &str, times: usize, response: Response, now: Instant) {
        (0..times).for_each(|_| {
            shares.leave(&to(name), 10, response, now);
        });
    }

    const FAST_CONFIRM: Response = Response::Confirmed(MS);
    const LATE_CONFIRM: Response = Response::Confirmed(Duration::from_secs(10));

    #[test]
    fn a_new_destination_has_half_while_it_is_alone_and_few_places_beside_others() {
        let (mut shares, now) = (Shares::new(1024, 1 << 30, 2), clock::now());
        assert_eq!(out(&mut shares, "silent", now), 512);
        assert_eq!(enter(&mut shares, "silent", now + 9 * SHARE_WAIT), ShareState::Soon, "its own share is full, not the window");
        assert_eq!([out(&mut shares, "silent too", now), out(&mut shares, "quick", now)], [4, 4]);
        assert_eq!(enter(&mut shares, "quick", now), ShareState::Later);
        leave(&mut shares, "quick", 1, FAST_CONFIRM, now);
        assert_eq!(out(&mut shares, "quick", now) + 519, 992, "all but the places for those that have none");
        // Then it does not confirm either.
        leave(&mut shares, "quick", 1, Response::Unknown, now);
        assert_eq!([out(&mut shares, "quick", now), out(&mut shares, "other", now)], [0, 1]);
        // Any quick answer shows that places are not held.
        leave(&mut shares, "quick", 400, Response::Answered(MS), now);
        assert_eq!([out(&mut shares, "quick", now), out(&mut shares, "other", now)], [400, 0]);
    }

    #[test]
    fn a_slow_destination_has_the_window_only_while_it_is_alone() {
        let (mut shares, now) = (Shares::new(1024, 1 << 30, 2), clock::now());
        assert_eq!(out(&mut shares, "slow", now), 512);
        leave(&mut shares, "slow", 1, LATE_CONFIRM, now);
        let leaves_room = |shares: &Shares, took| shares.leaves_room(&to("slow"), took, now);
        assert!(leaves_room(&shares, QUICK_RESPONSE_LIMIT + MS), "nobody else needs the room");
        assert_eq!(out(&mut shares, "slow", now), 896 - 511);
        // Beside a new destination the slow one has half of the places for slow ones.
        assert_eq!(enter(&mut shares, "new", now), ShareState::Taken);
        assert!(!leaves_room(&shares, QUICK_RESPONSE_LIMIT + MS) && leaves_room(&shares, QUICK_RESPONSE_LIMIT));
        leave(&mut shares, "slow", 1, LATE_CONFIRM, now);
        assert_eq!(out(&mut shares, "slow", now), 0);
        // The jobs that wait for its share come back for a quarter of it, not for one place.
        leave(&mut shares, "slow", 895 - 337, LATE_CONFIRM, now);
        assert!(!leaves_room(&shares, QUICK_RESPONSE_LIMIT + MS));
        leave(&mut shares, "slow", 1, LATE_CONFIRM, now);
        assert!(leaves_room(&shares, QUICK_RESPONSE_LIMIT + MS));
        assert_eq!(out(&mut shares, "slow", now) + 336, 896 / 2);
        leave(&mut shares, "new", 1, Response::Nothing, now);
        assert_eq!(out(&mut shares, "slow", now) + 448, 896);
    }

    #[test]
    fn destinations_that_answer_within_two_seconds_share_the_whole_window() {
        let (mut shares, now) = (Shares::new(1024, 1 << 30, 1), clock::now());
        for name in ["a", "b"] {
            assert_eq!(enter(&mut shares, name, now), ShareState::Taken);
            leave(&mut shares, name, 1, Response::Confirmed(QUICK_RESPONSE_LIMIT), now);
        }
        assert_eq!([out(&mut shares, "a", now), out(&mut shares, "b", now)], [896, 96]);
        assert!(shares.leaves_room(&to("a"), QUICK_RESPONSE_LIMIT, now), "a confirm ends the pause of those that wait");
    }

    #[test]
    fn a_destination_that_stalls_leaves_room_for_new_ones_of_its_pattern_too() {
        let (mut shares, now) = (Shares::new(1024, 1 << 30, 2), clock::now());
        assert_eq!(enter(&mut shares, "stalls", now), ShareState::Taken);
        leave(&mut shares, "stalls", 1, FAST_CONFIRM, now);
        assert_eq!(out(&mut shares, "stalls", now), 896);
        let stalled = now + QUICK_RESPONSE_LIMIT;
        for n in 0..16 {
            assert_eq!(out(&mut shares, &format!("new-{n}"), stalled), 4);
        }
        assert_eq!(enter(&mut shares, "one more", stalled), ShareState::Later);
        leave(&mut shares, "new-0", 1, FAST_CONFIRM, stalled);
        assert_eq!(out(&mut shares, "new-0", stalled) + 896 + 63, 992);
    }

    #[test]
    fn quick_destinations_that_stall_together_leave_room_for_one_that_has_nothing_in_flight() {
        let (mut shares, now) = (Shares::new(1024, 1 << 30, 1), clock::now());
        let names: Vec<String> = (0..8).map(|n| format!("stalls-{n}")).collect();
        for name in names.iter().map(String::as_str).chain(["healthy"]) {
            assert_eq!(enter(&mut shares, name, now), ShareState::Taken);
            leave(&mut shares, name, 1, FAST_CONFIRM, now);
        }
        let taken = (0..200 * 8).filter(|n| enter(&mut shares, &names[n % 8], now) == ShareState::Taken).count();
        assert_eq!(taken, 992);
        for at in [now, now + QUICK_RESPONSE_LIMIT, now + 7 * QUICK_RESPONSE_LIMIT] {
            assert_eq!([0, 1].map(|_| enter(&mut shares, "healthy", at)), [ShareState::Taken, ShareState::Soon]);
            leave(&mut shares, "healthy", 1, FAST_CONFIRM, at);
            assert_eq!(enter(&mut shares, "new", at), ShareState::Taken);
            leave(&mut shares, "new", 1, Response::Unknown, at);
            assert_ne!(enter(&mut shares, &names[0], at), ShareState::Taken);
        }
    }

    #[test]
    fn slow_destinations_leave_room_for_quick_and_for_new_ones() {
        for (count, rate) in [(8, 20), (40, 20), (500, 1)] {
            let (mut shares, mut now) = (Shares::new(1024, 1 << 30, 1), clock::now());
            let slow: Vec<String> = (0..count).map(|n| format!("slow-{n}")).collect();
            // Each was quick before. Then they answer after 10 s.
            for name in slow.iter().map(String::as_str).chain(["healthy"]) {
                assert_eq!(enter(&mut shares, name, now), ShareState::Taken);
                leave(&mut shares, name, 1, FAST_CONFIRM, now);
            }
            let mut held = std::collections::VecDeque::new();
            for second in 0..60_u64 {
                for name in &slow {
                    for _ in 0..rate {
                        if enter(&mut shares, name, now) == ShareState::Taken {
                            held.push_back((second, name));
                        }
                    }
                    now += 1000 * MS / count;
                    assert_eq!(enter(&mut shares, "healthy", now), ShareState::Taken, "{second} s beside {count}");
                    leave(&mut shares, "healthy", 1, FAST_CONFIRM, now);
                }
                let new = format!("new-{second}");
                assert_eq!(enter(&mut shares, &new, now), ShareState::Taken, "{second} s beside {count}");
                leave(&mut shares, &new, 1, FAST_CONFIRM, now);
                while held.front().is_some_and(|(since, _)| since + 10 <= second) {
                    let (_, name) = held.pop_front().unwrap();
                    leave(&mut shares, name, 1, LATE_CONFIRM, now);
                }
            }
            assert!(held.len() > 500, "{count} slow ones use {} places", held.len());
        }
    }

    #[test]
    fn many_silent_destinations_leave_room_for_one_that_answers() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        assert_eq!(out(&mut shares, "healthy", now), 32);
        leave(&mut shares, "healthy", 32, FAST_CONFIRM, now);
        let silent = |n: usize| format!("silent-{n}");
        let taken = (0..1000).take_while(|n| enter(&mut shares, &silent(*n), now) == ShareState::Taken).count();
        assert_eq!(taken, 56);
        assert_eq!([now, now + SHARE_WAIT].map(|at| enter(&mut shares, "silent-99", at)), [ShareState::Later, ShareState::Full]);
        assert_eq!(enter(&mut shares, "healthy", now + SHARE_WAIT), ShareState::Taken);
        leave(&mut shares, "silent-0", 1, Response::Unknown, now);
        assert_eq!(enter(&mut shares, "silent-99", now + SHARE_WAIT), ShareState::Taken);
    }

    #[test]
    fn silent_destinations_of_one_pattern_have_an_eighth() {
        let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
        let silent = |n: usize| format!("legacy.{n}");
        let healthy = |n: usize| Destination::new(format!("orders.{n}"));
        let taken = |shares: &mut Shares, of: std::ops::Range<usize>| {
            of.take_while(|n| enter(shares, &silent(*n), now) == ShareState::Taken).count()
        };
        assert_eq!(taken(&mut shares, 0..100), 56);
        (0..56).for_each(|n| leave(&mut shares, &silent(n), 1, Response::Unknown, now));
        assert_eq!(taken(&mut shares, 100..200), 8);
        for n in 0..100 {
            assert_eq!(shares.enter(&healthy(n), 10, now, || 1), ShareState::Taken);
            if n >= 20 {
                shares.leave(&healthy(n), 10, FAST_CONFIRM, now);
            }
        }
        // One of them confirms: the bound of the pattern is lifted.
        leave(&mut shares, &silent(100), 1, FAST_CONFIRM, now);
        assert_eq!(taken(&mut shares, 200..300), 56 - 20 - 7);
    }

    #[test]
    fn a_share_is_one_of_bytes_too_and_counts_return_to_nothing() {
        let (mut shares, now) = (Shares::new(64, 1000, 2), clock::now());
        let large = to("large");
        assert_eq!([300, 300].map(|bytes| shares.enter(&large, bytes, now, || 0)), [ShareState::Taken, ShareState::Soon]);
        shares.leave(&large, 300, Response::Unknown, now);
        assert_eq!(
            [5000, 1].map(|bytes| shares.enter(&large, bytes, now, || 0)),
            [ShareState::Taken, ShareState::Soon],
            "a large one goes alone"
        );
        shares.leave(&large, 5000, FAST_CONFIRM, now);
        assert_eq!([300, 300].map(|bytes| shares.enter(&large, bytes, now, || 0)), [ShareState::Taken; 2]);
        shares.enter(&to("other"), 1, now + QUICK_RESPONSE_LIMIT, || 0);
        (0..2).for_each(|_| {
            shares.leave(&large, 300, Response::Nothing, now + QUICK_RESPONSE_LIMIT);
        });
        shares.leave(&to("other"), 1, Response::Nothing, now + QUICK_RESPONSE_LIMIT);
        shares.forget(now);
        assert_eq!(shares.targets.len(), 1);
        shares.forget(now + STATUS_TTL);
        assert_eq!((shares.targets.len(), shares.busy), (0, 0));
        assert_eq!([shares.total, shares.new, shares.slow], [Amount::default(); 3]);
        assert_eq!(shares.patterns[0].in_flight, Amount::default());
    }
}
