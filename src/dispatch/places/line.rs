//! The jobs of one limit that wait for a place: they are in the store, due again one after another,
//! so that those of a long backlog are not claimed all at once. When a place comes free, the first
//! ones are due at once.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;
use crate::job::JobId;
use crate::policy::limit::Turn;

/// The bounds of the wait of the first job. The longer no job gets a place, the longer it is.
const MIN_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The jobs come back so far apart: up to a thousand a second ask for a place.
const GAP: Duration = Duration::from_millis(1);
/// The same where no job has got a place for [`STUCK`].
const SLOW_GAP: Duration = Duration::from_millis(4);
const STUCK: Duration = Duration::from_secs(5);
/// The most jobs that are remembered. The others come back by themselves.
const MAX_KNOWN: usize = 10_000;
/// A job that is due at once asks for its place within this time.
const COMES_WITHIN: Duration = Duration::from_millis(100);

/// A job that waits in the store.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) bucket: u16,
    pub(super) id: JobId,
    /// What its state has: the job still waits as long as it does.
    pub(super) turn: Turn,
    /// When the job comes back by itself.
    pub(super) at: Instant,
}

/// The line of one limit.
#[derive(Debug)]
pub(super) struct Line {
    jobs: VecDeque<Parked>,
    /// When the last one comes back.
    end: Instant,
    /// When a job got a place last, or the line began.
    moved: Instant,
    /// The jobs that were called and have not asked yet, and until when they are waited for.
    called: usize,
    called_until: Option<Instant>,
}

impl Line {
    pub(super) fn new(now: Instant) -> Line {
        Line { jobs: VecDeque::new(), end: now, moved: now, called: 0, called_until: None }
    }

    /// The wait of one more job.
    pub(super) fn next(&mut self, now: Instant) -> Duration {
        if self.end <= now {
            (self.end, self.moved) = (now, now);
        }
        let first = (now.saturating_duration_since(self.moved) / 2).clamp(MIN_WAIT, MAX_WAIT);
        let gap = if self.is_stuck(now) { SLOW_GAP } else { GAP };
        self.end = (self.end + gap).max(now + first);
        self.end.saturating_duration_since(now)
    }

    /// Adds a job that is back in the store.
    pub(super) fn add(&mut self, job: Parked) {
        if self.jobs.len() < MAX_KNOWN {
            self.jobs.push_back(job);
        }
    }

    /// A job asks for a place.
    pub(super) fn asked(&mut self) {
        self.called = self.called.saturating_sub(1);
    }

    /// A job got a place.
    pub(super) fn moved(&mut self, now: Instant) {
        self.moved = now;
    }

    /// Whether no job has got a place for long.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.moved) >= STUCK
    }

    /// Whether no job is known to wait.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        while self.jobs.front().is_some_and(|job| job.at <= now) {
            self.jobs.pop_front();
        }
        self.jobs.is_empty()
    }

    /// About how many jobs wait.
    pub(super) fn waiting(&mut self, now: Instant) -> u64 {
        if self.is_empty(now) {
            return 0;
        }
        let known = self.jobs.len();
        let beyond = match self.jobs.back() {
            Some(last) if known >= MAX_KNOWN => {
                self.end.saturating_duration_since(last.at).as_micros() / GAP.as_micros()
            }
            _ => 0,
        };
        known as u64 + u64::try_from(beyond).unwrap_or(0)
    }

    /// Takes the jobs for so many free places, without those that were called before.
    pub(super) fn call(&mut self, free: usize, now: Instant) -> Vec<Parked> {
        if self.is_empty(now) {
            return Vec::new();
        }
        if self.called_until.is_none_or(|until| now >= until) {
            self.called = 0;
        }
        let count = free.saturating_sub(self.called).min(self.jobs.len());
        if count > 0 {
            self.called += count;
            self.called_until = Some(now + COMES_WITHIN);
        }
        let called = self.jobs.drain(..count).collect();
        if self.jobs.is_empty() {
            self.end = now;
        }
        called
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::clock;

    fn park(line: &mut Line, now: Instant) -> Duration {
        let wait = line.next(now);
        let (id, turn) = (JobId::new("a".to_owned()).unwrap(), Turn::NONE);
        line.add(Parked { bucket: 0, id, turn, at: now + wait });
        wait
    }

    #[test]
    fn jobs_come_back_apart() {
        let now = clock::now();
        let mut line = Line::new(now);
        let waits: Vec<u128> = (0..3).map(|_| park(&mut line, now).as_millis()).collect();
        assert_eq!((waits, line.waiting(now)), (vec![250, 251, 252], 3));
        let later = now + Duration::from_millis(251);
        assert_eq!(line.waiting(later), 1, "two came back");
        let idle = now + Duration::from_secs(60);
        assert_eq!(park(&mut line, idle).as_millis(), 250, "a new line");
    }

    #[test]
    fn a_line_that_does_not_move_is_asked_rarely() {
        let now = clock::now();
        let mut line = Line::new(now);
        for _ in 0..20_000 {
            park(&mut line, now);
        }
        assert!((19_900..=20_100).contains(&line.waiting(now)), "{}", line.waiting(now));
        let later = now + STUCK;
        let last = line.end;
        assert!(line.is_stuck(later));
        park(&mut line, later);
        assert_eq!(line.end, last + SLOW_GAP);
        line.moved(later);
        assert!(!line.is_stuck(later));
    }

    #[test]
    fn as_many_jobs_are_called_as_there_are_places() {
        let now = clock::now();
        let mut line = Line::new(now);
        for _ in 0..10 {
            park(&mut line, now);
        }
        assert_eq!(line.call(3, now).len(), 3);
        assert_eq!(line.call(3, now).len(), 0, "they have not asked yet");
        line.asked();
        assert_eq!(line.call(3, now).len(), 1);
        assert_eq!(line.call(4, now + COMES_WITHIN).len(), 4, "those did not come");
        assert_eq!(line.call(9, now + 2 * COMES_WITHIN).len(), 2);
        assert_eq!(line.waiting(now), 0);
    }
}
