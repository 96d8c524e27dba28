//! The impact of each fault on the jobs: copies, lateness, and the recovery time.

use super::{FaultWindow, FaultWindows};
use crate::chaos::checker::timeline::{Came, Timeline};
use crate::chaos::checker::verdict::FaultImpact;
use crate::chaos::history::Fault;

impl FaultWindows<'_> {
    /// The impact of each fault.
    pub(in crate::chaos::checker) fn impacts<'b>(
        &self,
        timelines: impl Iterator<Item = &'b Timeline<'b>> + Clone,
    ) -> Vec<FaultImpact> {
        let impact_of = |window: &FaultWindow<'_>| {
            let began_us = window.fault.began_us;
            let healed = self.faults().map(|fault| fault.healed_us);
            let earlier_us = healed.filter(|at_us| *at_us <= began_us).max().unwrap_or(i64::MIN);
            impact(window, earlier_us.max(began_us - self.lease_us()), timelines.clone())
        };
        self.windows.iter().map(impact_of).collect()
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
        // Some jobs wait for more than the fault.
        let Some(job) = timeline.job.filter(|job| !job.absent && !job.limited) else { continue };
        let Some(came @ Came { what, .. }) = timeline.deliveries.first() else { continue };
        let Some(due_ms) = what.due_ms else { continue };
        let (at_us, due_us) = (came.taken_us(), due_ms * 1000);
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
        if let Some(beside) = &window.fault.beside
            && timeline.certain
            && timeline.sent_us >= began_us
            && beside.from_us <= due_us
            && !beside.only.concerns(&what.id, job)
        {
            impact.beside_us = impact.beside_us.max(Some(at_us - due_us.max(timeline.sent_us)));
        }
        if at_us >= healed_us {
            impact.overdue += 1;
            impact.last_us = impact.last_us.max(Some(at_us - healed_us));
        }
    }
    impact.first_us = after.map(|(first_us, since_us)| (first_us - since_us.max(healed_us)).max(0));
    impact
}
