//! The explanation of each copy: the fault that it belongs to, or a finding.

use super::limits::SLACK_US;
use super::{Copy, FaultWindow, FaultWindows};
use crate::chaos::checker::Wrong;
use crate::chaos::checker::verdict::Verdict;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Fault, Job};

/// The longest time from the end of a lease until the job is published again, µs: scan of its
/// bucket, claim and publication.
const MAX_TAKE_OVER_US: i64 = 5_000_000;

/// The age up to which a killed server may lose acknowledgements, µs: `sync_interval` of JetStream
/// is two minutes.
const MAX_LOST_ACK_AGE_US: i64 = 150_000_000;

impl<'a> FaultWindows<'a> {
    /// Assigns each copy to a fault that explains it, and reports the others.
    pub(in crate::chaos::checker) fn explain(
        &mut self,
        mut copies: Vec<Copy<'a>>,
        verdict: &mut Verdict,
    ) {
        let (lease_us, late_us) = (self.lease_us(), self.head.late_ms * 1000);
        let reach_us = lease_us + SLACK_US;
        copies.sort_by_key(|copy| copy.first_us);
        for copy in copies {
            let is_read_anew = self.is_read_anew(&copy);
            let explains = |window: &&mut FaultWindow<'_>| {
                let Fault { began_us, healed_us, .. } = *window.fault;
                // The claims of a dead instance are taken over within the lease and five seconds. A
                // batch is redelivered after the broker's own time-out.
                let again_us = if copy.of_job { lease_us + MAX_TAKE_OVER_US } else { late_us };
                // A silent target affects only its own jobs.
                let concerns = |job: &Job| window.fault.affects_only(copy.id, job);
                // A master that is replaced affects its own buckets.
                (!window.fault.kind.replaces_master()
                    || !copy.of_job
                    || window.fault.rolls_back(copy.id))
                    && (!window.fault.kind.effects().silences || copy.job.is_some_and(concerns))
                    && (window.room > 0 || !copy.of_job)
                    && copy.first_us >= began_us - reach_us
                    && copy.first_us <= healed_us + reach_us
                    && (began_us..=healed_us + again_us).contains(&copy.again_us)
            };
            // Prefers a fault that was active between the two arrivals to one whose leases still
            // ran, and among the latter the last one.
            let turn = |window: &&mut FaultWindow<'_>| {
                ((copy.first_us - window.fault.healed_us).max(0), window.fault.healed_us)
            };
            match self.windows.iter_mut().filter(explains).min_by_key(turn) {
                Some(window) => {
                    if copy.of_job {
                        window.room -= 1;
                        window.copies.push(copy);
                    }
                    verdict.counts.duplicates += 1;
                }
                None if is_read_anew => verdict.counts.duplicates += 1,
                None => {
                    let after_ms = (copy.again_us - copy.first_us) / 1000;
                    let Copy { id, again_us, .. } = copy;
                    let why = format!("{id}: again {after_ms} ms after the first, at {again_us}");
                    verdict.find(Wrong::Unexplained, why);
                }
            }
        }
    }

    /// Whether the request was read again from the start of its stream: the consumer was created
    /// again, after a killed server had lost acknowledgements. JetStream stores the removal of a
    /// message later.
    fn is_read_anew(&self, copy: &Copy<'_>) -> bool {
        let late_us = self.head.late_ms * 1000;
        let forgets_us = copy.first_us..=copy.first_us + MAX_LOST_ACK_AGE_US;
        let of = |kind: FaultKind| self.faults().filter(move |fault| fault.kind == kind);
        let killed = of(FaultKind::BrokerKill).map(|kill| kill.began_us);
        let killed_us = killed.filter(|began_us| forgets_us.contains(began_us)).min();
        !copy.of_job
            && of(FaultKind::ConsumerDeleted).any(|fault| {
                (fault.began_us..=fault.healed_us + late_us).contains(&copy.again_us)
                    && killed_us.is_some_and(|killed_us| killed_us <= fault.healed_us)
            })
    }
}
