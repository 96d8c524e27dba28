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
            (pause.max, pause.early) = (MAX_PAUSE, pause.early && !probed);
            pause.end_crowd();
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
        pause.end_crowd();
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
        (pause.one_at_a_time, pause.max, pause.early) = (true, MAX_PAUSE, early && !probed);
        pause.end_crowd();
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

    /// Whether jobs for this destination wait.
    #[must_use]
    pub(super) fn is_paused(&self, to: &Destination, now: Instant) -> bool {
        self.paused.get(to).is_some_and(|pause| pause.until > now || pause.probe.is_some())
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
mod tests;
