//! Pauses destinations that refuse messages or do not confirm: their jobs wait in due and use up no
//! attempt.

mod pause;

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::{Destination, Token};

use self::pause::{MIN_PAUSE, PAUSED_JOBS_PER_SECOND, Pause};
use crate::clock::Instant;

/// The longest pause: after this time a destination is tried again.
const MAX_PAUSE: Duration = Duration::from_secs(4);
/// The longest pause of a destination whose share of the window is full: it may confirm any moment.
const MAX_CROWDED_PAUSE: Duration = Duration::from_secs(1);
/// A destination is paused after this many unknown outcomes in a row.
const MAX_UNKNOWN_OUTCOMES: u32 = 3;
/// A refusal that took this long counts as no answer: each try holds a place in the window for as
/// long.
const SLOW_REFUSAL_TIME: Duration = Duration::from_secs(2);
/// The same for all destinations together whose share of the window is full: these are claimed
/// beside the jobs that find a place.
const CROWDED_JOBS_PER_SECOND: f64 = 1000.0;
/// A destination whose share is full counts until so long after it last gave a job back.
const CROWDED_TTL: Duration = Duration::from_secs(2);
/// The interval between counts of these destinations.
const COUNT_INTERVAL: Duration = Duration::from_millis(250);
/// A pause that ended this long ago is removed: a job that waits would have tried the destination.
const PAUSE_TTL: Duration = Duration::from_secs(30);
/// The same for a destination that did not confirm: its jobs come up again by their retry arrays
/// only.
const SILENT_PAUSE_TTL: Duration = Duration::from_secs(15 * 60);
/// The interval between removals of old pauses.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

/// The pauses of one broker's destinations.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    paused: HashMap<Destination, Pause>,
    /// Pauses of full shares that ended because there was room. The next pause of the destination
    /// goes on from there: otherwise each would give back a burst of jobs, which come back at once.
    ended: HashMap<Destination, Pause>,
    /// Destinations whose last outcomes are unknown.
    unknown: HashMap<Destination, UnknownStreak>,
    cleaned: Option<Instant>,
    /// The number of destinations that give jobs back because their share of the window is full,
    /// and the time of that count.
    crowds: u32,
    counted: Option<Instant>,
}

/// Unknown outcomes in a row.
#[derive(Debug)]
struct UnknownStreak {
    count: u32,
    last: Instant,
    /// All came before their deadlines: the connection may have been lost.
    early: bool,
}

impl Pauses {
    /// Returns the number of paused destinations.
    #[must_use]
    pub(super) fn count(&self) -> usize {
        self.paused.len()
    }

    /// Returns the rate at which jobs come back to a destination whose share of the window is full,
    /// jobs a second.
    fn crowded_rate(&mut self, now: Instant) -> f64 {
        if self.counted.is_none_or(|counted| now >= counted + COUNT_INTERVAL) {
            let crowds = self
                .paused
                .values()
                .filter(|pause| pause.crowded && now < pause.gave_back + CROWDED_TTL)
                .count();
            (self.crowds, self.counted) = (u32::try_from(crowds).unwrap_or(u32::MAX), Some(now));
        }
        PAUSED_JOBS_PER_SECOND.min(CROWDED_JOBS_PER_SECOND / f64::from(self.crowds.max(1)))
    }

    /// Whether this destination is paused, or its pause ended and it has not been tried yet.
    #[must_use]
    pub(super) fn has(&self, to: &Destination) -> bool {
        !self.paused.is_empty() && self.paused.contains_key(to)
    }

    /// The destination refused a message after `took`. Returns how long the job waits. Refusals
    /// during one pause count once: a window full of them comes from one state of the queue.
    pub(super) fn refused(
        &mut self,
        to: &Destination,
        token: Token,
        took: Duration,
        now: Instant,
    ) -> Duration {
        self.unknown.remove(to);
        if !self.paused.contains_key(to) {
            self.paused.insert(to.clone(), Pause::new(now, MAX_PAUSE));
        } else if let Some(pause) = self.paused.get_mut(to) {
            let probed = pause.probe.take_if(|probe| *probe == token).is_some();
            (pause.max, pause.early, pause.crowded) = (MAX_PAUSE, pause.early && !probed, false);
            // Only the probe shows that the destination answers again: messages that were never
            // sent are refused too.
            pause.one_at_a_time &= !probed;
            if pause.until <= now {
                pause.extend(now, PAUSED_JOBS_PER_SECOND);
            }
        }
        let Some(pause) = self.paused.get_mut(to) else { return MIN_PAUSE };
        pause.one_at_a_time |= took >= SLOW_REFUSAL_TIME;
        pause.until.saturating_duration_since(now)
    }

    /// The destination said that it takes no message for `wait`. Returns how long the job waits.
    pub(super) fn throttled(&mut self, to: &Destination, wait: Duration, now: Instant) -> Duration {
        self.unknown.remove(to);
        let pause = self.paused.entry(to.clone()).or_insert_with(|| Pause::new(now, MAX_PAUSE));
        // A probe that is out decides nothing any more.
        (pause.throttled, pause.one_at_a_time, pause.probe) = (true, false, None);
        pause.until = pause.until.max(now + wait);
        pause.crowded = false;
        pause.wait(now, PAUSED_JOBS_PER_SECOND)
    }

    /// The destination's share of the window is full. Returns how long the job waits in due.
    pub(super) fn crowded(&mut self, to: &Destination, now: Instant) -> Duration {
        if !self.paused.contains_key(to) {
            let pause = self
                .ended
                .remove(to)
                .unwrap_or_else(|| Pause { crowded: true, ..Pause::new(now, MAX_CROWDED_PAUSE) });
            self.paused.insert(to.clone(), pause);
        }
        if let Some(pause) = self.paused.get_mut(to).filter(|pause| pause.until <= now) {
            pause.measure(now);
        }
        let crowded_rate = self.crowded_rate(now);
        let Some(pause) = self.paused.get_mut(to) else { return MIN_PAUSE };
        let rate = pause.rate(crowded_rate);
        if pause.until <= now {
            pause.extend(now, rate);
        }
        pause.wait(now, rate)
    }

    /// An outcome is unknown; `early`: its deadline has not passed. Returns whether to log that the
    /// destination does not confirm.
    pub(super) fn unknown(
        &mut self,
        to: &Destination,
        token: Token,
        early: bool,
        now: Instant,
    ) -> bool {
        if !self.unknown.contains_key(to) {
            self.unknown.insert(to.clone(), UnknownStreak { count: 0, last: now, early: true });
        }
        let Some(streak) = self.unknown.get_mut(to) else { return false };
        (streak.count, streak.last, streak.early) =
            (streak.count.saturating_add(1), now, streak.early && early);
        let (count, early) = (streak.count, streak.early);
        if count < MAX_UNKNOWN_OUTCOMES
            && !self.paused.get(to).is_some_and(|pause| pause.one_at_a_time)
        {
            self.inconclusive(to, token);
            return false;
        }
        if !self.paused.contains_key(to) {
            self.paused.insert(to.clone(), Pause::new(now, MAX_PAUSE));
        }
        let Some(pause) = self.paused.get_mut(to) else { return false };
        let probed = pause.probe.take_if(|probe| *probe == token).is_some();
        (pause.one_at_a_time, pause.max, pause.early, pause.crowded) =
            (true, MAX_PAUSE, early && !probed, false);
        if (probed || (pause.probe.is_none() && pause.until <= now)) && !pause.is_asked_for(now) {
            pause.extend(now, PAUSED_JOBS_PER_SECOND);
        }
        let should_log = !pause.early && !pause.logged;
        pause.logged |= should_log;
        should_log
    }

    /// The outcome says nothing about the destination.
    pub(super) fn inconclusive(&mut self, to: &Destination, token: Token) {
        if !self.paused.is_empty()
            && let Some(pause) = self.paused.get_mut(to)
        {
            pause.probe.take_if(|probe| *probe == token);
        }
    }

    /// The broker answered for the destination, so it is not silent. Returns whether that ended a
    /// pause.
    pub(super) fn answered(&mut self, to: &Destination, token: Token, now: Instant) -> bool {
        self.unknown.remove(to);
        self.inconclusive(to, token);
        self.paused.get(to).is_some_and(|pause| pause.one_at_a_time && !pause.is_asked_for(now))
            && self.paused.remove(to).is_some()
    }

    /// The destination confirmed a message: ends its pause, unless the destination said how long it
    /// takes, or the confirm took long, and its share is full. Returns, if a pause ended, whether
    /// that was logged.
    pub(super) fn confirmed(
        &mut self,
        to: &Destination,
        leaves_room: bool,
        now: Instant,
    ) -> Option<bool> {
        if !self.unknown.is_empty() {
            self.unknown.remove(to);
        }
        let pause = self.paused.get_mut(to).or_else(|| self.ended.get_mut(to));
        if let Some(pause) = pause {
            pause.confirms = pause.confirms.saturating_add(1);
        }
        let stays = |pause: &Pause| pause.is_asked_for(now) || (pause.crowded && !leaves_room);
        if self.paused.is_empty() || self.paused.get(to).is_some_and(stays) {
            return None;
        }
        let mut pause = self.paused.remove(to)?;
        let logged = pause.logged;
        if pause.crowded {
            pause.until = now;
            self.ended.insert(to.clone(), pause);
        }
        Some(logged)
    }

    /// The connection is a new one. Removes the pauses that the loss of the last one may have
    /// caused: early outcomes, and refusals, because messages that a lost connection never sent
    /// count as refused. Outcomes of probes stay. Returns whether a pause ended.
    pub(super) fn reconnected(&mut self) -> bool {
        let before = self.paused.len();
        self.paused.retain(|_, pause| !pause.early || pause.throttled);
        self.unknown.retain(|_, streak| !streak.early);
        self.paused.len() < before
    }

    /// A message was published. If its destination is probed by one job at a time, this is the
    /// probe: no other message is published before its outcome.
    pub(super) fn sent(&mut self, to: &Destination, token: Token) {
        if !self.paused.is_empty()
            && let Some(pause) = self.paused.get_mut(to).filter(|pause| pause.one_at_a_time)
        {
            pause.probe = Some(token);
        }
    }

    /// Removes destinations that nobody publishes to any more: producers name them, so they may be
    /// many. Returns whether one was paused.
    pub(super) fn forget(&mut self, now: Instant) -> bool {
        if (self.paused.is_empty() && self.ended.is_empty() && self.unknown.is_empty())
            || self.cleaned.is_some_and(|cleaned| now < cleaned + CLEANUP_INTERVAL)
        {
            return false;
        }
        self.cleaned = Some(now);
        let before = self.paused.len();
        self.paused.retain(|_, pause| {
            pause.probe.is_some()
                || now
                    < pause.until + if pause.one_at_a_time { SILENT_PAUSE_TTL } else { PAUSE_TTL }
        });
        self.ended.retain(|_, pause| now < pause.until + PAUSE_TTL);
        self.unknown.retain(|_, streak| now < streak.last + SILENT_PAUSE_TTL);
        self.paused.len() < before
    }

    /// Returns the wait of a job for this destination; `None` where it may be published. Waits are
    /// spread, so that jobs do not come back all at once.
    #[must_use]
    pub(super) fn remaining(&mut self, to: &Destination, now: Instant) -> Option<Duration> {
        if self.paused.is_empty() {
            return None;
        }
        let crowded_rate = self.crowded_rate(now);
        let pause =
            self.paused.get_mut(to).filter(|pause| pause.until > now || pause.probe.is_some())?;
        let rate = pause.rate(crowded_rate);
        Some(pause.wait(now, rate))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::pause::MAX_SPREAD;
    use super::*;
    use crate::clock;

    const QUICK_REFUSAL_TIME: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_ends_a_pause_early_that_the_destination_asked_for() {
        let (mut pauses, to, now) =
            (Pauses::default(), Destination::new("throttled"), clock::now());
        let (wait, soon) = (Duration::from_secs(60), now + Duration::from_secs(30));
        let about = wait..wait + MAX_SPREAD;
        assert!(about.contains(&pauses.throttled(&to, wait, now)));
        assert!(
            about.contains(&pauses.throttled(&to, Duration::from_secs(5), now)),
            "the longest counts"
        );
        assert_eq!(
            (
                pauses.confirmed(&to, true, soon),
                pauses.answered(&to, 3, soon),
                pauses.reconnected()
            ),
            (None, false, false)
        );
        assert!((4..9).all(|token| !pauses.unknown(&to, token, true, soon)));
        assert!(pauses.remaining(&to, soon).is_some_and(|left| left >= Duration::from_secs(30)));
        let after = now + wait;
        assert!(pauses.remaining(&to, after).is_none(), "then it is tried again");
        assert!(
            pauses.answered(&to, 10, after),
            "an answer then ends what the silence of others began"
        );
        assert!(!pauses.has(&to));

        // The probe of a silent destination ends after another message was throttled.
        assert!((20..30).filter(|token| pauses.unknown(&to, *token, false, now)).count() == 1);
        pauses.sent(&to, 30);
        pauses.throttled(&to, wait, now);
        pauses.unknown(&to, 30, false, now);
        assert!(pauses.remaining(&to, soon).is_some_and(|left| left >= Duration::from_secs(30)));

        // So does one that is confirmed.
        let to = Destination::new("throttled as it comes back");
        assert!((40..50).filter(|token| pauses.unknown(&to, *token, false, now)).count() == 1);
        pauses.sent(&to, 50);
        pauses.throttled(&to, wait, now);
        assert_eq!(pauses.confirmed(&to, true, soon), None);
        assert!(pauses.remaining(&to, after).is_none());
    }

    #[test]
    fn a_destination_that_does_not_confirm_is_probed_by_one_job_at_a_time() {
        let (mut pauses, to, now) = (Pauses::default(), Destination::new("silent"), clock::now());
        assert_eq!([1, 2].map(|token| pauses.unknown(&to, token, false, now)), [false, false]);
        assert!(pauses.remaining(&to, now).is_none(), "two in a row are chance");
        assert!(pauses.unknown(&to, 3, false, now), "the third is logged");
        assert!(!pauses.unknown(&to, 4, false, now) && pauses.remaining(&to, now).is_some());
        let mut at = now;
        for token in 10..14 {
            at += MAX_PAUSE;
            assert!(pauses.remaining(&to, at).is_none());
            pauses.sent(&to, token);
            at += Duration::from_secs(15);
            assert!(
                pauses.remaining(&to, at).is_some() && !pauses.forget(at),
                "no other before its outcome"
            );
            // A late outcome of the first window changes nothing.
            assert!(!pauses.unknown(&to, 5, false, at) && pauses.remaining(&to, at).is_some());
            assert!(!pauses.unknown(&to, token, false, at) && pauses.remaining(&to, at).is_some());
        }
        assert_eq!(pauses.confirmed(&to, true, now), Some(true));
        assert!(
            pauses.remaining(&to, at).is_none() && !pauses.unknown(&to, 20, false, at),
            "it starts over"
        );
    }

    #[test]
    fn a_new_connection_ends_pauses_from_a_lost_one_but_not_those_of_a_probe() {
        let (mut pauses, to, now) = (Pauses::default(), Destination::new("a"), clock::now());
        assert!((0..9).all(|token| !pauses.unknown(&to, token, true, now)), "nothing is logged");
        assert_eq!((pauses.count(), pauses.reconnected(), pauses.count()), (1, true, 0));
        assert!((0..9).all(|token| !pauses.unknown(&to, token, true, now)));
        pauses.sent(&to, 10);
        assert!(pauses.unknown(&to, 10, true, now + MAX_PAUSE));
        assert!(!pauses.reconnected());
        // A refusal, unless it is a probe's, may come from the lost connection; so may a full share
        // of the window.
        let (refuses, crowded) = (Destination::new("b"), Destination::new("c"));
        pauses.refused(&refuses, 20, QUICK_REFUSAL_TIME, now);
        pauses.crowded(&crowded, now);
        assert_eq!((pauses.count(), pauses.reconnected(), pauses.count()), (3, true, 1));
        pauses.refused(&refuses, 21, SLOW_REFUSAL_TIME, now);
        pauses.sent(&refuses, 22);
        pauses.refused(&refuses, 22, SLOW_REFUSAL_TIME, now + MAX_PAUSE);
        assert_eq!((pauses.reconnected(), pauses.count()), (false, 2));
        assert!(pauses.answered(&refuses, 23, now));
        // Any other answer ends the pause of a silent destination.
        assert!(pauses.answered(&to, 10, now) && pauses.count() == 0);
        pauses.refused(&to, 11, SLOW_REFUSAL_TIME, now);
        pauses.sent(&to, 12);
        assert!(
            pauses.remaining(&to, now + MAX_PAUSE).is_some(),
            "after a slow refusal one job at a time probes, too"
        );
        pauses.inconclusive(&to, 12);
        assert!(pauses.remaining(&to, now + MAX_PAUSE).is_none());
        // A quick refusal of another message may be of one that was never sent: the probe decides.
        pauses.sent(&to, 13);
        pauses.refused(&to, 14, QUICK_REFUSAL_TIME, now + MAX_PAUSE);
        assert!(pauses.remaining(&to, now + 3 * MAX_PAUSE).is_some());
        pauses.refused(&to, 13, QUICK_REFUSAL_TIME, now + 3 * MAX_PAUSE);
        assert!(
            !pauses.answered(&to, 15, now) && pauses.remaining(&to, now + 9 * MAX_PAUSE).is_none()
        );
    }

    #[test]
    fn a_destination_that_goes_on_refusing_is_paused_for_longer_up_to_the_bound() {
        let (mut pauses, to, mut now) = (Pauses::default(), Destination::new("full"), clock::now());
        let mut last = Duration::ZERO;
        for _ in 0..12 {
            last = pauses.refused(&to, 0, QUICK_REFUSAL_TIME, now);
            assert_eq!(
                pauses.refused(&to, 0, QUICK_REFUSAL_TIME, now),
                last,
                "more refusals of one window do not extend it"
            );
            assert!(pauses.remaining(&to, now).is_some());
            now += last;
        }
        assert!(last >= MAX_PAUSE / 2 && last <= MAX_PAUSE);
        assert!(pauses.remaining(&to, now).is_none(), "the pause is over: one may be published");
        assert!(pauses.remaining(&Destination::new("healthy"), now).is_none());
        assert_eq!(pauses.confirmed(&to, true, now), Some(false));
        assert_eq!(pauses.count(), 0);
    }

    #[test]
    fn the_cost_of_a_pause_does_not_grow_with_the_jobs_that_wait() {
        for (waiting, per_second) in [(10, 0..=50), (20_000, 500..=2000)] {
            let (mut pauses, to, began) =
                (Pauses::default(), Destination::new("full"), clock::now());
            // When each job is claimed next; the one that is published is refused.
            let mut next: BinaryHeap<_> = (0..waiting).map(|_| Reverse(began)).collect();
            let (mut given_back, mut longest) = (0, Duration::ZERO);
            for second in 0..60 {
                let end = began + Duration::from_secs(second + 1);
                while next.peek().is_some_and(|Reverse(at)| *at < end) {
                    let Some(Reverse(now)) = next.pop() else { break };
                    let wait = pauses
                        .remaining(&to, now)
                        .unwrap_or_else(|| pauses.refused(&to, 0, QUICK_REFUSAL_TIME, now));
                    next.push(Reverse(now + wait));
                    if second >= 40 {
                        (given_back, longest) = (given_back + 1, longest.max(wait));
                    }
                }
            }
            assert!(
                per_second.contains(&(given_back / 20)),
                "{waiting} waiting: {given_back} given back in 20 s"
            );
            assert!(waiting > 100 || longest <= MAX_PAUSE + MAX_PAUSE / 4, "{longest:?}");
        }
    }

    #[test]
    fn what_others_give_back_slows_only_the_destinations_whose_share_is_full() {
        let (mut pauses, now) = (Pauses::default(), clock::now());
        let longest = |pauses: &mut Pauses, name: &str, now| {
            let to = Destination::new(name);
            (0..500).filter_map(|_| pauses.remaining(&to, now)).max()
        };
        for n in 0..2000 {
            pauses.refused(&Destination::new(format!("silent-{n}")), n, SLOW_REFUSAL_TIME, now);
            pauses.crowded(&Destination::new(format!("full-{n}")), now);
        }
        pauses.refused(
            &Destination::new("refused once"),
            2000,
            QUICK_REFUSAL_TIME,
            now + COUNT_INTERVAL,
        );
        let waits = longest(&mut pauses, "refused once", now + COUNT_INTERVAL);
        assert!(waits.is_some_and(|longest| longest < Duration::from_secs(1)), "{waits:?}");
        // Jobs of full destinations are claimed beside the jobs that find a place: one limit binds
        // all of them.
        pauses.crowded(&Destination::new("full"), now + COUNT_INTERVAL);
        let waits = longest(&mut pauses, "full", now + COUNT_INTERVAL);
        assert!(waits.is_some_and(|longest| longest > Duration::from_secs(5)), "{waits:?}");
        // The others give nothing back any more.
        let later = now + COUNT_INTERVAL + CROWDED_TTL;
        pauses.crowded(&Destination::new("full later"), later);
        let waits = longest(&mut pauses, "full later", later);
        assert!(waits.is_some_and(|longest| longest < Duration::from_secs(1)), "{waits:?}");
    }

    #[test]
    fn a_confirm_ends_the_pause_of_a_full_share_once_there_is_room() {
        let (mut pauses, to, now) = (Pauses::default(), Destination::new("slow"), clock::now());
        pauses.crowded(&to, now);
        assert_eq!((pauses.confirmed(&to, false, now), pauses.has(&to)), (None, true));
        assert_eq!((pauses.confirmed(&to, true, now), pauses.has(&to)), (Some(false), false));
    }

    #[test]
    fn the_next_pause_of_a_full_share_keeps_the_rate_of_its_jobs() {
        let (mut pauses, to, mut now) = (Pauses::default(), Destination::new("late"), clock::now());
        for _ in 0..4 {
            (0..4000).for_each(|_| {
                pauses.crowded(&to, now);
            });
            now += Duration::from_secs(1);
            assert_eq!(pauses.confirmed(&to, true, now), Some(false));
            assert!(!pauses.has(&to), "there is room: jobs may wait again");
        }
        let wait = (0..100).map(|_| pauses.crowded(&to, now)).max().unwrap();
        assert!(wait > Duration::from_secs(2), "{wait:?}");
        pauses.confirmed(&to, true, now);
        pauses.forget(now + PAUSE_TTL);
        let wait = (0..100).map(|_| pauses.crowded(&to, now + PAUSE_TTL)).max().unwrap();
        assert!(wait < Duration::from_secs(1), "it starts over: {wait:?}");
    }

    #[test]
    fn twice_as_many_jobs_come_back_as_a_destination_confirms_while_it_is_not_paused() {
        let (mut pauses, to, now) = (Pauses::default(), Destination::new("quick"), clock::now());
        pauses.crowded(&to, now);
        let ended = (0..4000).filter(|_| pauses.confirmed(&to, true, now).is_some()).count();
        assert_eq!(ended, 1, "the first confirm ends the pause");
        let later = now + Duration::from_secs(1);
        let wait = (0..4000).map(|_| pauses.crowded(&to, later)).max().unwrap();
        assert!(wait < Duration::from_secs(2), "{wait:?}");
    }

    #[test]
    fn a_destination_that_nobody_publishes_to_any_more_is_forgotten() {
        let (mut pauses, now) = (Pauses::default(), clock::now());
        let (left, tried) = (Destination::new("left"), Destination::new("tried"));
        pauses.refused(&left, 0, QUICK_REFUSAL_TIME, now);
        pauses.refused(&tried, 0, QUICK_REFUSAL_TIME, now);
        assert!(!pauses.forget(now + MIN_PAUSE));
        pauses.refused(&tried, 0, QUICK_REFUSAL_TIME, now + PAUSE_TTL);
        assert!(pauses.forget(now + MIN_PAUSE + PAUSE_TTL));
        assert_eq!(pauses.count(), 1);
        assert!(pauses.remaining(&tried, now + PAUSE_TTL).is_some());
    }
}
