//! The pause of one destination: how long it lasts, and over how long its jobs are spread.

use std::time::Duration;

use dwell_connectors::Token;

use crate::clock::Instant;
use crate::reconnect::jitter;

/// The first pause.
pub(super) const MIN_PAUSE: Duration = Duration::from_millis(200);
/// About how many jobs of a paused destination are claimed and given back per second: the cost of
/// its outage.
pub(super) const PAUSED_JOBS_PER_SECOND: f64 = 1000.0;
/// The jobs of a paused destination are spread over at most this time, even if they then exceed
/// [`PAUSED_JOBS_PER_SECOND`].
pub(super) const MAX_SPREAD: Duration = Duration::from_secs(30);
/// The same for a full share, before it is known how many jobs a second the destination confirms:
/// it may confirm more than come back.
const MAX_FIRST_SPREAD: Duration = Duration::from_secs(10);

/// The pause of one destination.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) began: Instant,
    pub(super) until: Instant,
    pub(super) length: Duration,
    pub(super) max: Duration,
    /// Over how long the jobs are spread after the end of the pause.
    pub(super) spread: Duration,
    /// Jobs that were given back since the pause began. For a full share, about how many wait:
    /// these, and those of earlier pauses that have not come back.
    pub(super) given_back: f64,
    /// After the end of the pause, one job at a time probes the destination, because it confirms
    /// nothing: each job holds a place in the window until its deadline.
    pub(super) one_at_a_time: bool,
    /// The publication that probes the destination now.
    pub(super) probe: Option<Token>,
    /// A lost connection may be the cause.
    pub(super) early: bool,
    /// The log says that the destination does not confirm.
    pub(super) logged: bool,
    /// The destination said how long it takes no message: nothing ends the pause before.
    pub(super) throttled: bool,
    /// The destination's share of the window is full. While it holds its places for long, a confirm
    /// frees one place, and no more of the jobs that wait.
    pub(super) crowded: bool,
    /// Confirms since `measured`.
    pub(super) confirms: u32,
    /// Confirms a second before that; `None` before the first ones.
    pub(super) confirm_rate: Option<f64>,
    pub(super) measured: Instant,
    /// When a job was last given back.
    pub(super) gave_back: Instant,
}

impl Pause {
    pub(super) fn new(now: Instant, max: Duration) -> Self {
        let until = now + jitter(MIN_PAUSE);
        let (length, spread, given_back) = (MIN_PAUSE, MIN_PAUSE / 4, 0.0);
        Pause {
            began: now,
            until,
            length,
            max,
            spread,
            given_back,
            one_at_a_time: false,
            probe: None,
            early: true,
            logged: false,
            throttled: false,
            crowded: false,
            confirms: 0,
            confirm_rate: None,
            measured: now,
            gave_back: now,
        }
    }

    /// The destination refused again after the pause: doubles the pause, and adapts the spread to
    /// the rate of jobs that were given back, of which `most` a second is meant. Pauses of a full
    /// share may end at once, so their rate says nothing: `most` a second have come back.
    pub(super) fn extend(&mut self, now: Instant, most: f64) {
        let secs = (now - self.began).as_secs_f64();
        self.length = (self.length * 2).min(self.max);
        if self.crowded {
            let max = most * self.max_spread().as_secs_f64();
            self.given_back = (self.given_back - most * secs).clamp(0.0, max);
            self.spread = self.length / 4;
        } else {
            let rate = self.given_back / secs.max(f64::EPSILON);
            self.spread = self
                .spread
                .mul_f64((rate / most).min(MAX_SPREAD.as_secs_f64()))
                .clamp(self.length / 4, MAX_SPREAD);
            self.given_back = 0.0;
        }
        (self.began, self.until, self.throttled) = (now, now + jitter(self.length), false);
    }

    /// The pause goes on for another reason than a full share: how many jobs of that one wait says
    /// nothing about the next ones.
    pub(super) fn end_crowd(&mut self) {
        if std::mem::take(&mut self.crowded) {
            self.given_back = 0.0;
        }
    }

    fn max_spread(&self) -> Duration {
        if self.crowded && self.confirm_rate.is_none() { MAX_FIRST_SPREAD } else { MAX_SPREAD }
    }

    /// Returns how many jobs a second come back. `crowded`: the least of a full share, to which
    /// twice as many come back as it confirms.
    pub(super) fn rate(&self, crowded: f64) -> f64 {
        if self.crowded {
            crowded.max(2.0 * self.confirm_rate.unwrap_or_default())
        } else {
            PAUSED_JOBS_PER_SECOND
        }
    }

    /// Sets the rate of confirms, if they were counted for long enough.
    pub(super) fn measure(&mut self, now: Instant) {
        if now >= self.measured + MIN_PAUSE {
            let confirms = std::mem::take(&mut self.confirms);
            if confirms > 0 || self.confirm_rate.is_some() {
                let secs = (now - self.measured).as_secs_f64();
                self.confirm_rate = Some(f64::from(confirms) / secs);
            }
            self.measured = now;
        }
    }

    /// Whether the destination asked for the pause, and it is not over.
    pub(super) fn is_asked_for(&self, now: Instant) -> bool {
        self.throttled && now < self.until
    }

    /// Returns the wait of another job, where `most` jobs a second come back.
    pub(super) fn wait(&mut self, now: Instant, most: f64) -> Duration {
        (self.given_back, self.gave_back) = (self.given_back + 1.0, now);
        let spread =
            self.spread.max(Duration::from_secs_f64(self.given_back / most)).min(self.max_spread());
        let left = if self.until > now { self.until - now } else { jitter(self.length) };
        left + spread.mul_f64(rand::random_range(0.0..=1.0))
    }
}
