//! Destinations that refuse, or confirm nothing: their jobs wait in due, burn no attempt, and starve nobody.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::{Destination, Token};

use crate::clock::Instant;
use crate::reconnect::jitter;

const LEAST: Duration = Duration::from_millis(200);
/// For no longer is a destination left untried: so soon is seen that it takes messages again.
const MOST: Duration = Duration::from_secs(4);
/// The same of one that has its share of the window out, and may confirm it any moment.
const MOST_CROWDED: Duration = Duration::from_secs(1);
/// So many outcomes in a row that are unknown pause a destination.
const IN_A_ROW: u32 = 3;
/// A refusal that took so long is as bad as none: each try holds a place for as long.
const SLOW: Duration = Duration::from_secs(2);
/// How many jobs of a paused destination are claimed and given back per second, about: what an outage of it may cost.
const RATE: f64 = 1000.0;
/// Over no more than this are they spread, whatever it costs then.
const SPREAD: Duration = Duration::from_secs(30);
/// A pause that has been over for so long is forgotten: no job waits for it, or one would have been tried.
const FORGET: Duration = Duration::from_secs(30);
/// The same of one that confirmed nothing: its jobs may come up again only by the waits of their arrays.
const FORGET_SILENT: Duration = Duration::from_secs(15 * 60);
/// How often is looked for those.
const LOOK: Duration = Duration::from_secs(1);

/// The pauses of one broker's destinations.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    paused: HashMap<Destination, Pause>,
    /// Those whose last outcomes are unknown.
    doubted: HashMap<Destination, Doubt>,
    looked: Option<Instant>,
}

/// Outcomes in a row that are unknown.
#[derive(Debug)]
struct Doubt {
    count: u32,
    last: Instant,
    /// All came before their time was over: perhaps because the link was lost.
    early: bool,
}

#[derive(Debug)]
struct Pause {
    began: Instant,
    until: Instant,
    length: Duration,
    most: Duration,
    /// Over how long its jobs are spread behind its end.
    spread: Duration,
    /// Jobs that were given back since it began.
    seen: u32,
    /// Behind its end one job at a time is tried: nothing is confirmed, and each try holds a place until its time is over.
    one: bool,
    /// The one that is tried now.
    probe: Option<Token>,
    /// It may be the link's fault.
    early: bool,
    told: bool,
}

impl Pause {
    fn new(now: Instant, most: Duration) -> Self {
        let until = now + jitter(LEAST);
        let (length, spread, seen) = (LEAST, LEAST / 4, 0);
        Pause { began: now, until, length, most, spread, seen, one: false, probe: None, early: true, told: false }
    }

    /// It refused once more after its time: twice as long, and as many jobs a second as may be by what came back this time.
    fn again(&mut self, now: Instant) {
        let rate = f64::from(self.seen) / (now - self.began).as_secs_f64().max(f64::EPSILON);
        self.length = (self.length * 2).min(self.most);
        self.spread = self.spread.mul_f64((rate / RATE).min(SPREAD.as_secs_f64())).clamp(self.length / 4, SPREAD);
        (self.began, self.until, self.seen) = (now, now + jitter(self.length), 0);
    }

    /// How long one more job waits.
    fn wait(&mut self, now: Instant) -> Duration {
        self.seen = self.seen.saturating_add(1);
        let spread = self.spread.max(Duration::from_secs_f64(f64::from(self.seen) / RATE)).min(SPREAD);
        let left = if self.until > now { self.until - now } else { jitter(self.length) };
        left + spread.mul_f64(rand::random_range(0.0..=1.0))
    }
}

impl Pauses {
    /// How many destinations are paused.
    #[must_use]
    pub(super) fn count(&self) -> usize {
        self.paused.len()
    }

    /// Whether this one is, also where its time is over and it is about to be tried.
    #[must_use]
    pub(super) fn has(&self, to: &Destination) -> bool {
        !self.paused.is_empty() && self.paused.contains_key(to)
    }

    /// It refused this one, after so long: how long the job waits. Refusals within one pause count as one: a window full of them came from one state of
    /// the queue.
    pub(super) fn refused(&mut self, to: &Destination, token: Token, took: Duration, now: Instant) -> Duration {
        self.doubted.remove(to);
        if !self.paused.contains_key(to) {
            self.paused.insert(to.clone(), Pause::new(now, MOST));
        } else if let Some(pause) = self.paused.get_mut(to) {
            let probed = pause.probe.take_if(|probe| *probe == token).is_some();
            (pause.most, pause.early) = (MOST, pause.early && !probed);
            if pause.until <= now {
                pause.again(now);
            }
        }
        let Some(pause) = self.paused.get_mut(to) else { return LEAST };
        pause.one = took >= SLOW;
        pause.until.saturating_duration_since(now)
    }

    /// It has its share of the window out, and this job has waited for a place: how long it waits in due.
    pub(super) fn crowded(&mut self, to: &Destination, now: Instant) -> Duration {
        if !self.paused.contains_key(to) {
            self.paused.insert(to.clone(), Pause::new(now, MOST_CROWDED));
        }
        let Some(pause) = self.paused.get_mut(to) else { return LEAST };
        if pause.until <= now {
            pause.again(now);
        }
        pause.wait(now)
    }

    /// What became of this one is unknown; `early`, where its time was not over. True where it is to be told that the destination confirms nothing.
    pub(super) fn unknown(&mut self, to: &Destination, token: Token, early: bool, now: Instant) -> bool {
        if !self.doubted.contains_key(to) {
            self.doubted.insert(to.clone(), Doubt { count: 0, last: now, early: true });
        }
        let Some(doubt) = self.doubted.get_mut(to) else { return false };
        (doubt.count, doubt.last, doubt.early) = (doubt.count.saturating_add(1), now, doubt.early && early);
        let (count, early) = (doubt.count, doubt.early);
        if count < IN_A_ROW && !self.paused.get(to).is_some_and(|pause| pause.one) {
            self.lapsed(to, token);
            return false;
        }
        if !self.paused.contains_key(to) {
            self.paused.insert(to.clone(), Pause::new(now, MOST));
        }
        let Some(pause) = self.paused.get_mut(to) else { return false };
        let probed = pause.probe.take_if(|probe| *probe == token).is_some();
        (pause.one, pause.most, pause.early) = (true, MOST, early && !probed);
        if probed || (pause.probe.is_none() && pause.until <= now) {
            pause.again(now);
        }
        let tell = !pause.early && !pause.told;
        pause.told |= tell;
        tell
    }

    /// This one was not published after all, or its outcome says nothing of the destination.
    pub(super) fn lapsed(&mut self, to: &Destination, token: Token) {
        if !self.paused.is_empty()
            && let Some(pause) = self.paused.get_mut(to)
        {
            pause.probe.take_if(|probe| *probe == token);
        }
    }

    /// The broker said something of the destination itself: it is not silent. True where it was paused as such.
    pub(super) fn answered(&mut self, to: &Destination, token: Token) -> bool {
        self.doubted.remove(to);
        self.lapsed(to, token);
        self.paused.get(to).is_some_and(|pause| pause.one) && self.paused.remove(to).is_some()
    }

    /// It took a message: the pause is over. Where there was one: whether it was told that it confirms nothing.
    pub(super) fn confirmed(&mut self, to: &Destination) -> Option<bool> {
        if !self.doubted.is_empty() {
            self.doubted.remove(to);
        }
        if self.paused.is_empty() {
            return None;
        }
        self.paused.remove(to).map(|pause| pause.told)
    }

    /// The connection is a new one. Forgets each pause that the loss of the last connection may have caused: what came early, and refusals, for what a
    /// dying connection never took counts as refused. A probe's outcome stays. True where a pause ended.
    pub(super) fn forgive(&mut self) -> bool {
        let before = self.paused.len();
        self.paused.retain(|_, pause| !pause.early);
        self.doubted.retain(|_, doubt| !doubt.early);
        self.paused.len() < before
    }

    /// This one is tried while its destination is paused, if it is: no other is until it has its outcome.
    pub(super) fn sent(&mut self, to: &Destination, token: Token) {
        if !self.paused.is_empty()
            && let Some(pause) = self.paused.get_mut(to).filter(|pause| pause.one)
        {
            pause.probe = Some(token);
        }
    }

    /// Forgets destinations that nobody publishes to any more: producers name them, so there may be many. True where one was paused.
    pub(super) fn forget(&mut self, now: Instant) -> bool {
        if (self.paused.is_empty() && self.doubted.is_empty()) || self.looked.is_some_and(|looked| now < looked + LOOK) {
            return false;
        }
        self.looked = Some(now);
        let before = self.paused.len();
        self.paused.retain(|_, pause| pause.probe.is_some() || now < pause.until + if pause.one { FORGET_SILENT } else { FORGET });
        self.doubted.retain(|_, doubt| now < doubt.last + FORGET_SILENT);
        self.paused.len() < before
    }

    /// How long a job for it has yet to wait; `None` where one may be tried. Spread, so that they do not come back at one instant.
    #[must_use]
    pub(super) fn left(&mut self, to: &Destination, now: Instant) -> Option<Duration> {
        if self.paused.is_empty() {
            return None;
        }
        Some(self.paused.get_mut(to).filter(|pause| pause.until > now || pause.probe.is_some())?.wait(now))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::clock;

    const QUICK: Duration = Duration::from_millis(1);

    #[test]
    fn one_that_confirms_nothing_is_tried_by_one_job_at_a_time_until_one_is_confirmed() {
        let (mut pauses, to, now) = (Pauses::default(), Destination::new("silent"), clock::now());
        assert_eq!([1, 2].map(|token| pauses.unknown(&to, token, false, now)), [false, false]);
        assert!(pauses.left(&to, now).is_none(), "two in a row are chance");
        assert!(pauses.unknown(&to, 3, false, now), "the third is told");
        assert!(!pauses.unknown(&to, 4, false, now) && pauses.left(&to, now).is_some());
        let mut at = now;
        for token in 10..14 {
            at += MOST;
            assert!(pauses.left(&to, at).is_none());
            pauses.sent(&to, token);
            at += Duration::from_secs(15);
            assert!(pauses.left(&to, at).is_some() && !pauses.forget(at), "no other while it is out");
            // One of the first window is late; it ends nothing.
            assert!(!pauses.unknown(&to, 5, false, at) && pauses.left(&to, at).is_some());
            assert!(!pauses.unknown(&to, token, false, at) && pauses.left(&to, at).is_some());
        }
        assert_eq!(pauses.confirmed(&to), Some(true));
        assert!(pauses.left(&to, at).is_none() && !pauses.unknown(&to, 20, false, at), "it begins anew");
    }

    #[test]
    fn what_a_lost_link_left_unknown_is_forgiven_and_a_probe_of_the_next_is_not() {
        let (mut pauses, to, now) = (Pauses::default(), Destination::new("a"), clock::now());
        assert!((0..9).all(|token| !pauses.unknown(&to, token, true, now)), "nothing is told");
        assert_eq!((pauses.count(), pauses.forgive(), pauses.count()), (1, true, 0));
        assert!((0..9).all(|token| !pauses.unknown(&to, token, true, now)));
        pauses.sent(&to, 10);
        assert!(pauses.unknown(&to, 10, true, now + MOST));
        assert!(!pauses.forgive());
        // A refusal may be the lost connection's too, unless it is a probe's; so may a share of the window that is full.
        let (refuses, crowded) = (Destination::new("b"), Destination::new("c"));
        pauses.refused(&refuses, 20, QUICK, now);
        pauses.crowded(&crowded, now);
        assert_eq!((pauses.count(), pauses.forgive(), pauses.count()), (3, true, 1));
        pauses.refused(&refuses, 21, SLOW, now);
        pauses.sent(&refuses, 22);
        pauses.refused(&refuses, 22, SLOW, now + MOST);
        assert_eq!((pauses.forgive(), pauses.count()), (false, 2));
        assert!(pauses.answered(&refuses, 23));
        // Others do forget one that answers in another way.
        assert!(pauses.answered(&to, 10) && pauses.count() == 0);
        pauses.refused(&to, 11, SLOW, now);
        pauses.sent(&to, 12);
        assert!(pauses.left(&to, now + MOST).is_some(), "a slow refusal is tried one at a time too");
        pauses.lapsed(&to, 12);
        assert!(pauses.left(&to, now + MOST).is_none());
        // A quick refusal of another comes between the try and its answer, which ends the try all the same.
        pauses.sent(&to, 13);
        pauses.refused(&to, 14, QUICK, now + MOST);
        assert!(!pauses.answered(&to, 13) && pauses.left(&to, now + 3 * MOST).is_none());
    }

    #[test]
    fn a_destination_that_goes_on_refusing_is_paused_for_longer_up_to_the_bound() {
        let (mut pauses, to, mut now) = (Pauses::default(), Destination::new("full"), clock::now());
        let mut last = Duration::ZERO;
        for _ in 0..12 {
            last = pauses.refused(&to, 0, QUICK, now);
            assert_eq!(pauses.refused(&to, 0, QUICK, now), last, "the rest of the window makes it no longer");
            assert!(pauses.left(&to, now).is_some());
            now += last;
        }
        assert!(last >= MOST / 2 && last <= MOST);
        assert!(pauses.left(&to, now).is_none(), "its time is over: one may try");
        assert!(pauses.left(&Destination::new("healthy"), now).is_none());
        assert_eq!(pauses.confirmed(&to), Some(false));
        assert_eq!(pauses.count(), 0);
    }

    #[test]
    fn however_many_wait_they_cost_as_much_and_a_few_wait_for_no_longer_than_the_pause() {
        for (waiting, per_second) in [(10, 0..=50), (20_000, 500..=2000)] {
            let (mut pauses, to, began) = (Pauses::default(), Destination::new("full"), clock::now());
            // When each is claimed next; the one that is tried is refused.
            let mut next: BinaryHeap<_> = (0..waiting).map(|_| Reverse(began)).collect();
            let (mut given_back, mut longest) = (0, Duration::ZERO);
            for second in 0..60 {
                let end = began + Duration::from_secs(second + 1);
                while next.peek().is_some_and(|Reverse(at)| *at < end) {
                    let Some(Reverse(now)) = next.pop() else { break };
                    let wait = pauses.left(&to, now).unwrap_or_else(|| pauses.refused(&to, 0, QUICK, now));
                    next.push(Reverse(now + wait));
                    if second >= 40 {
                        (given_back, longest) = (given_back + 1, longest.max(wait));
                    }
                }
            }
            assert!(per_second.contains(&(given_back / 20)), "{waiting} waiting: {given_back} given back in 20 s");
            assert!(waiting > 100 || longest <= MOST + MOST / 4, "{longest:?}");
        }
    }

    #[test]
    fn a_destination_that_nobody_publishes_to_any_more_is_forgotten() {
        let (mut pauses, now) = (Pauses::default(), clock::now());
        let (left, tried) = (Destination::new("left"), Destination::new("tried"));
        pauses.refused(&left, 0, QUICK, now);
        pauses.refused(&tried, 0, QUICK, now);
        assert!(!pauses.forget(now + LEAST));
        pauses.refused(&tried, 0, QUICK, now + FORGET);
        assert!(pauses.forget(now + LEAST + FORGET));
        assert_eq!(pauses.count(), 1);
        assert!(pauses.left(&tried, now + FORGET).is_some());
    }
}
