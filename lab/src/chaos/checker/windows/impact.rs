//! The impact of each fault on the jobs: copies, lateness, and the recovery time.

use super::{FaultWindow, FaultWindows};
use crate::chaos::checker::timeline::{Came, Timeline};
use crate::chaos::checker::verdict::FaultImpact;
use crate::chaos::history::{Fault, Job, Scope};

impl FaultWindows<'_> {
    /// The impact of each fault.
    pub(in crate::chaos::checker) fn impacts<'b>(
        &self,
        timelines: impl Iterator<Item = &'b Timeline<'b>> + Clone,
    ) -> Vec<FaultImpact> {
        let lease_us = self.head.lease_ms * 1000;
        let healed_before = |began_us: i64| {
            self.faults().map(|fault| fault.healed_us).filter(|at_us| *at_us <= began_us).max()
        };
        let owes_from = |window: &FaultWindow<'_>| {
            (window.fault.began_us - lease_us)
                .max(healed_before(window.fault.began_us).unwrap_or(i64::MIN))
        };
        self.windows
            .iter()
            .map(|window| impact(window, owes_from(window), timelines.clone()))
            .collect()
    }
}

/// The impact of a fault on the jobs due from `owes_from_us` on.
fn impact<'a>(
    window: &FaultWindow<'_>,
    owes_from_us: i64,
    timelines: impl Iterator<Item = &'a Timeline<'a>>,
) -> FaultImpact {
    let Fault { began_us, healed_us, .. } = *window.fault;
    let duplicates = window.copies.len() as u64;
    let mut impact = FaultImpact { duplicates, ..FaultImpact::from(window.fault) };
    // After the heal: the first arrival, and the earliest possible one.
    let mut after: Option<(i64, i64)> = None;
    for timeline in timelines {
        let Some(came @ Came { what, .. }) = timeline.deliveries.first() else { continue };
        let at_us = came.taken_us();
        let (Some(due_ms), false) = (what.due_ms, timeline.job.is_none_or(|job| job.absent)) else {
            continue;
        };
        let due_us = due_ms * 1000;
        if at_us >= healed_us {
            let could_us = due_us.max(timeline.sent_us);
            let (first_us, since_us) = after.unwrap_or((at_us, could_us));
            after = Some((first_us.min(at_us), since_us.min(could_us)));
        }
        // Jobs claimed at the start of the fault were due before it. Jobs due before the heal of an
        // earlier fault belong to that one.
        if !(owes_from_us..healed_us).contains(&due_us) {
            continue;
        }
        impact.lateness_us = impact.lateness_us.max(at_us - due_us);
        let served = |beside: &&Scope, job: &&Job| {
            (timeline.certain && timeline.sent_us >= began_us)
                && beside.from_us <= due_us
                && !beside.only.concerns(&what.id, job)
        };
        if window
            .fault
            .beside
            .as_ref()
            .zip(timeline.job)
            .is_some_and(|(beside, job)| served(&beside, &job))
        {
            impact.beside_us = impact.beside_us.max(Some(at_us - due_us.max(timeline.sent_us)));
        }
        if at_us >= healed_us {
            let after_us = at_us - healed_us;
            impact.overdue += 1;
            impact.last_us = Some(impact.last_us.map_or(after_us, |last| last.max(after_us)));
        }
    }
    impact.first_us = after.map(|(first_us, since_us)| (first_us - since_us.max(healed_us)).max(0));
    impact
}
