//! The counts of the instances, beside the copies that the faults explain.

use std::collections::BTreeMap;

use super::limits::SLACK_US;
use super::{FaultWindow, FaultWindows};
use crate::chaos::checker::Wrong;
use crate::chaos::checker::verdict::{LeaseStates, Verdict};
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Event, Leases, Op, Sample};

impl FaultWindows<'_> {
    /// Checks that an instance has counted each copy as a possible duplicate when it became
    /// possible, and that no count covers two copies.
    pub(in crate::chaos::checker) fn counted(&self, events: &[Event], verdict: &mut Verdict) {
        let counted =
            |from_us, to_us| increase(events, from_us, to_us, |sample| sample.possible_duplicates);
        // A failover loses data unnoticed, so that its copies cannot be counted.
        let known = || self.windows.iter().filter(|window| !window.fault.has_forgotten());
        let alone = known().filter(|window| !window.fault.kind.effects().stops_instance);
        let alone = alone.filter_map(|window| {
            let last_us = window.copies.iter().map(|copy| copy.again_us).max()?;
            let (kind, began_us) = (window.fault.kind, window.fault.began_us);
            let counted = counted(began_us - SLACK_US, last_us + SLACK_US);
            Some((format!("{kind} at {began_us}"), window.owed(), counted))
        });
        // The counts since the last sample are lost with a killed instance.
        let killed = self.faults().filter(|fault| fault.kind == FaultKind::DwellKill);
        let lost: u64 = killed.map(|fault| fault.in_flight).sum();
        let whole = (
            "the whole run, with counts of killed instances".to_owned(),
            known().map(FaultWindow::owed).sum::<u64>(),
            counted(i64::MIN, i64::MAX) + lost,
        );
        let uncounted = alone.chain([whole]).find(|(_, copies, counted)| counted < copies);
        if let Some((what, copies, counted)) = uncounted {
            verdict.find(Wrong::Uncounted, format!("{what}: {copies} copies, {counted} counted"));
        }
    }

    /// The states of the leases that the faults met, and the fates of leases.
    pub(in crate::chaos::checker) fn leases(&self, events: &[Event]) -> LeaseStates {
        let met = |is: fn(&Leases) -> bool| {
            self.faults().filter(|fault| fault.leases.as_ref().is_some_and(is)).count() as u64
        };
        let sum = |of| increase(events, i64::MIN, i64::MAX, of);
        LeaseStates {
            met_claimed: met(|leases| leases.claimed > 0),
            met_half_settled: met(|leases| leases.half_settled > 0),
            met_held: met(|leases| leases.held > 0),
            rescued: sum(|sample| sample.rescued),
            reclaimed: sum(|sample| sample.reclaimed),
            lost: sum(|sample| sample.leases_lost),
        }
    }
}

/// The increase of a counter of all instances between these times, over restarts. A sample without
/// an answer leaves a gap, so that the first count of a process after the end belongs to it.
fn increase(events: &[Event], from_us: i64, to_us: i64, of: fn(&Sample) -> Option<u64>) -> u64 {
    let mut last: BTreeMap<(usize, u32), (i64, u64)> = BTreeMap::new();
    let mut sum = 0;
    for event in events {
        let Op::Sample(sample) = &event.op else { continue };
        let Some(now) = of(sample) else { continue };
        // A new process counts from zero.
        let (at_us, before) = last
            .insert((sample.instance, sample.pid), (event.t_us, now))
            .unwrap_or((event.t_us, 0));
        if at_us <= to_us && event.t_us >= from_us {
            sum += now.saturating_sub(before);
        }
    }
    sum
}
