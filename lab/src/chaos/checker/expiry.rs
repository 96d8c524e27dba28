//! Jobs with `delay-expire`: each is delivered before it expires, or is dead after that.

use super::Case;
use super::timeline::Came;
use super::verdict::Wrong;

/// The reason of their death.
pub(super) const EXPIRED: &str = "expired";

/// The longest time until an expired job that nobody claims is found, µs.
const MAX_SWEEP_US: i64 = 60_000_000;

impl Case<'_, '_> {
    /// When the job expires, epoch µs.
    fn expires_us(&self) -> Option<i64> {
        Some((self.job.due_ms + self.job.expire_ms?) * 1000)
    }

    /// No attempt begins after the end: what was in flight may still land. Redis's clock may have
    /// been behind.
    pub(super) fn expiry(&mut self) {
        let Case { timeline, windows, .. } = *self;
        let Some(end_us) = self.expires_us() else { return };
        for at_us in timeline.deliveries.iter().map(Came::taken_us) {
            let by_us = windows.read_by_us(windows.lands_by_us(end_us));
            if at_us > by_us + windows.jump_us(end_us, at_us) {
                let late_ms = (at_us - end_us) / 1000;
                self.find(Wrong::Late, format!("{late_ms} ms after it had expired"));
            }
        }
        for Came { at_us, what } in &timeline.deaths {
            let late_us = windows.unbroken_us(end_us, *at_us) - MAX_SWEEP_US;
            if what.reason == EXPIRED && late_us / 1000 > windows.head.late_ms {
                let late_ms = late_us / 1000;
                self.find(Wrong::Late, format!("its dead letter is {late_ms} ms late"));
            }
        }
    }

    /// The job died because it had expired. A wait that would end later is not begun: for a turn,
    /// or after an attempt that failed.
    pub(super) fn expired(&mut self, at_us: i64) {
        let Case { job, windows, .. } = *self;
        self.verdict.counts.expired += 1;
        let due_us = job.due_ms * 1000;
        let waits = job.absent || job.limited || !windows.is_calm(due_us.min(at_us), at_us);
        let earliest_us = self.expires_us().map(|end_us| if waits { due_us } else { end_us });
        // It may have died before it was due, by a clock of Redis that was ahead.
        let jump_us = windows.jump_us(due_us.min(at_us), at_us);
        if earliest_us.is_none_or(|us| at_us + jump_us < us) {
            let expire_ms = job.expire_ms;
            let why =
                format!("`{EXPIRED}` at {at_us}, due {due_us}, expires {expire_ms:?} ms later");
            self.find(Wrong::DeadTooEarly, why);
        }
    }
}
