//! The counts of the instances, beside the copies that the faults explain.

use super::limits::SLACK_US;
use super::{FaultWindow, FaultWindows};
use crate::chaos::checker::Wrong;
use crate::chaos::checker::verdict::{LeaseStates, Verdict};
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Event, Leases, Op, Sample};

impl FaultWindows<'_> {
    /// Checks that an instance has counted each copy as a possible duplicate when it became
    /// possible.
    pub(in crate::chaos::checker) fn counted(&self, events: &[Event], verdict: &mut Verdict) {
        // A failover loses data unnoticed, so that its copies cannot be counted.
        let known = || {
            self.windows
                .iter()
                .filter(|window| !window.copies.is_empty() && !window.fault.has_forgotten())
        };
        for window in known().filter(|window| !window.fault.kind.effects().stops_instance) {
            let from_us = window.fault.began_us - SLACK_US;
            let to_us =
                window.copies.iter().map(|copy| copy.again_us).max().unwrap_or(i64::MAX) + SLACK_US;
            let counted = increase(events, from_us, to_us, |sample| sample.possible_duplicates);
            let copies = window.owed();
            if counted < copies as u64 {
                let kind = &window.fault.kind;
                verdict.find(
                    Wrong::Uncounted,
                    format!(
                        "{kind} at {}: {copies} copies, {counted} counted",
                        window.fault.began_us
                    ),
                );
                return;
            }
        }
        // No count covers two copies. The counts since the last sample are lost with a killed
        // instance.
        let copies: usize = known().map(FaultWindow::owed).sum();
        let killed = self.faults().filter(|fault| fault.kind == FaultKind::DwellKill);
        let killed = killed.map(|fault| fault.in_flight);
        let counted = increase(events, i64::MIN, i64::MAX, |sample| sample.possible_duplicates)
            + killed.sum::<u64>();
        if counted < copies as u64 {
            verdict.find(Wrong::Uncounted, format!("the whole run: {copies} copies, {counted} counted, or lost with killed instances"));
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

/// The increase of a counter of all instances between these times, over restarts.
fn increase(events: &[Event], from_us: i64, to_us: i64, of: fn(&Sample) -> Option<u64>) -> u64 {
    let mut last: std::collections::BTreeMap<usize, (u32, u64)> = std::collections::BTreeMap::new();
    let mut sum = 0;
    for event in events.iter().filter(|event| event.t_us <= to_us) {
        let Op::Sample(sample) = &event.op else { continue };
        let (instance, pid) = (sample.instance, sample.pid);
        let Some(now) = of(sample) else { continue };
        // A new process counts from zero.
        let before = last
            .insert(instance, (pid, now))
            .filter(|(of, _)| *of == pid)
            .map_or(0, |(_, count)| count);
        if event.t_us >= from_us {
            sum += now.saturating_sub(before);
        }
    }
    sum
}
