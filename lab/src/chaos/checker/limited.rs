//! The limited target. Over any time its jobs arrive no more often than `rate * time + burst`, with
//! a burst of one. To that a fault adds once the turns of the time that it lasts: what it holds back
//! comes at once when it is over. A turn is good for two seconds after its time, and an attempt lasts
//! a lease at most, so that a longer fault adds no more than that. A failover doubles the turns, since
//! the promoted master does not know the last ones, and a clock of Redis adds its jumps. The copies
//! of a job do not count: other rules judge these.

use std::collections::BTreeMap;

use super::Case;
use super::timeline::{Came, Timeline};
use super::verdict::{Verdict, Wrong};
use super::windows::FaultWindows;
use crate::chaos::history::{Fault, Job};

/// The tolerance for the way from a turn to an arrival on a busy machine, µs.
const TOLERANCE_US: i64 = 1_500_000;
/// How long after its time a turn is good, µs.
const TURN_TTL_US: i64 = 2_000_000;
/// The longest time from the end of a lease until the job is published again, µs.
const MAX_TAKE_OVER_US: i64 = 5_000_000;

/// A fault, and what is left of the time that it adds, µs.
struct Addition<'a> {
    fault: &'a Fault,
    left_us: i64,
}

impl<'a> Addition<'a> {
    fn of(fault: &'a Fault, lease_us: i64) -> Addition<'a> {
        let lasted_us = (fault.healed_us - fault.began_us).min(TURN_TTL_US + lease_us);
        let times = if fault.has_forgotten() { 2 } else { 1 };
        // A clock jumps, and jumps back.
        let jumps_us = 2 * fault.kind.allows().early_us;
        Addition { fault, left_us: times * (lasted_us + TOLERANCE_US) + jumps_us }
    }

    /// Takes so much for a job that arrives at this time, or what is left.
    fn take(&mut self, wanted_us: i64, (id, job): (&str, &Job), at_us: i64, lease_us: i64) -> i64 {
        let Fault { began_us, healed_us, beside, .. } = self.fault;
        let is_on = (*began_us..=healed_us + lease_us + MAX_TAKE_OVER_US).contains(&at_us);
        let concerns = beside.as_ref().is_none_or(|beside| beside.only.concerns(id, job));
        let taken_us = if is_on && concerns { wanted_us.min(self.left_us) } else { 0 };
        self.left_us -= taken_us;
        taken_us
    }
}

/// Checks the rate of the limited target.
pub(super) fn check(
    windows: &FaultWindows<'_>,
    timelines: &BTreeMap<&str, Timeline<'_>>,
    verdict: &mut Verdict,
) {
    let Some(rate) = windows.head.limited_per_s else { return };
    let lease_us = windows.lease_us();
    let turn_us = 1_000_000 / i64::from(rate.max(1));
    let mut came: Vec<(i64, &str, &Job)> = Vec::new();
    for (id, timeline) in timelines {
        let Some(job) = timeline.job.filter(|job| job.limited) else { continue };
        came.extend(timeline.deliveries.iter().map(Came::taken_us).min().map(|us| (us, *id, job)));
    }
    came.sort_unstable_by_key(|(at_us, ..)| *at_us);
    verdict.counts.limited += came.len() as u64;
    let mut additions: Vec<Addition<'_>> =
        windows.faults().map(|fault| Addition::of(fault, lease_us)).collect();
    // The time that the turns of the jobs so far are worth, beyond the time that has passed.
    let (mut ahead_us, mut last_us) = (0_i64, i64::MAX);
    for (at_us, id, job) in came {
        ahead_us = (ahead_us - (at_us - last_us.min(at_us))).max(0) + turn_us;
        last_us = at_us;
        for addition in &mut additions {
            let over_us = (ahead_us - turn_us - TOLERANCE_US).max(0);
            ahead_us -= addition.take(over_us, (id, job), at_us, lease_us);
        }
        let over_us = ahead_us - turn_us - TOLERANCE_US;
        if over_us > 0 {
            ahead_us -= over_us;
            let why = format!("{id}: at {at_us}, {over_us} µs too early for {rate} a second");
            verdict.find(Wrong::OverLimit, why);
        }
    }
}

impl Case<'_, '_> {
    /// A job that waits for its turn uses up no attempt.
    pub(super) fn turn(&mut self) {
        let Case { job, timeline, windows, .. } = *self;
        let Some(came) = timeline.deliveries.first().filter(|_| job.limited) else { return };
        if came.what.attempt > Some(1) && windows.is_calm(timeline.sent_us, came.taken_us()) {
            let attempt = came.what.attempt;
            self.find(Wrong::WrongAttempt, format!("{attempt:?} is the first that arrived"));
        }
    }
}
