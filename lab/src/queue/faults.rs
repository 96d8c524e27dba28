//! The faults of a campaign on queues: faults of instances and of Redis.

use std::collections::BTreeMap;

use dwell::clock;
use dwell_testkit::environment::Failure;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::scene::Scene;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Fault, Forgotten};
use crate::chaos::inject::inject;
use crate::chaos::plan::{Pace, Plan};
use crate::chaos::system::{System, SystemOptions};
use dwell::config::{Durability, RedisMode};

/// The faults that are injected unless the command names others.
const DEFAULT_FAULTS: [FaultKind; 8] = [
    FaultKind::DwellKill,
    FaultKind::DwellTerm,
    FaultKind::RedisKill,
    FaultKind::RedisFailover,
    FaultKind::RedisMasterKilled,
    FaultKind::RedisMasterFrozen,
    FaultKind::RedisFailoverOrdered,
    FaultKind::RedisSlotsMoved,
];
/// The other faults that the command may name.
const OPTIONAL_FAULTS: [FaultKind; 10] = [
    FaultKind::DwellFreeze,
    FaultKind::RedisFreeze,
    FaultKind::RedisRestart,
    FaultKind::RedisScriptFlush,
    FaultKind::RedisClientKill,
    FaultKind::RedisPasswordRotated,
    FaultKind::LinkCutRedis,
    FaultKind::LinkStallRedis,
    FaultKind::LinkSlowRedis,
    FaultKind::LinkDropAnswersRedis,
];

/// The kinds to inject into such a system: these, or all that kill.
pub(super) fn kinds(only: &[FaultKind], system: &SystemOptions) -> Result<Vec<FaultKind>, Failure> {
    if only.is_empty() {
        return Ok(DEFAULT_FAULTS.into_iter().filter(|kind| kind.applies(system)).collect());
    }
    let is_possible = |kind: &FaultKind| {
        (DEFAULT_FAULTS.contains(kind) || OPTIONAL_FAULTS.contains(kind)) && kind.applies(system)
    };
    match only.iter().find(|kind| !is_possible(kind)) {
        None => Ok(only.to_vec()),
        Some(kind) => {
            let possible = DEFAULT_FAULTS
                .into_iter()
                .chain(OPTIONAL_FAULTS)
                .filter(|kind| kind.applies(system));
            let possible: Vec<String> = possible.map(|kind| kind.to_string()).collect();
            Err(Failure::Unexpected(format!(
                "{kind} is not possible here; possible are {}",
                possible.join(", ")
            )))
        }
    }
}

/// The faults so far.
#[derive(Debug, Default)]
pub(super) struct Struck {
    pub(super) faults: Vec<Fault>,
    /// The problems during faults.
    pub(super) wrong: Vec<String>,
}

impl Struck {
    /// Injects one fault after another until told that it is enough.
    pub(super) async fn strike(
        &mut self,
        system: &System,
        scene: &Scene,
        plan: (u64, &[FaultKind]),
        say: fn(&str),
        is_enough: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        for step in Plan::new(plan.0, plan.1, Pace::Even) {
            if is_enough() {
                break;
            }
            let (cut_off, served) =
                (scene.tally.pops_cut_off.get(), scene.tally.pops_with_jobs.get());
            let mut random = StdRng::seed_from_u64(step.seed);
            let injected = Box::pin(inject(step.kind, system, &mut random, step.hold)).await;
            let mut fault = Fault::from(
                injected.map_err(|error| Failure::Unexpected(format!("{}: {error}", step.kind)))?,
            );
            forget_more(&mut fault, system);
            say(&format!(
                "{}: {}, {} ms, {} pops cut off, {} jobs finished",
                step.kind,
                fault.detail,
                (fault.healed_us - fault.began_us) / 1000,
                scene.tally.pops_cut_off.get() - cut_off,
                scene.ledger.lock().finished(),
            ));
            // The masters that live have jobs.
            let is_served = scene.tally.pops_with_jobs.get() > served;
            if step.kind == FaultKind::RedisMasterFrozen
                && system.options().redis == RedisMode::Cluster
                && !is_served
            {
                self.wrong.push(format!(
                    "no pop had a job while one of the masters was frozen: {}",
                    fault.detail
                ));
            }
            self.faults.push(fault);
            clock::sleep(step.pause).await;
        }
        Ok(())
    }

    /// The number of faults of these kinds.
    pub(super) fn count(&self, is: impl Fn(&Fault) -> bool) -> usize {
        self.faults.iter().filter(|fault| is(fault)).count()
    }

    /// The number of faults of each kind.
    pub(super) fn by_kind(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for fault in &self.faults {
            *kinds.entry(fault.kind.to_string()).or_default() += 1;
        }
        kinds
    }
}

/// Whether Redis was killed.
pub(super) fn kills_redis(fault: &Fault) -> bool {
    matches!(
        fault.kind,
        FaultKind::RedisKill | FaultKind::RedisMasterKilled | FaultKind::RedisFailover
    )
}

/// Whether an instance was killed.
pub(super) fn kills_dwell(fault: &Fault) -> bool {
    fault.kind == FaultKind::DwellKill
}

/// Whether another master was promoted.
pub(super) fn fails_over(fault: &Fault) -> bool {
    fault.kind.replaces_master() || fault.has_forgotten()
}

/// With `appendfsync everysec` a Redis that is killed may have answered what the operating system
/// never got. A pop does not wait for the durability level.
fn forget_more(fault: &mut Fault, system: &System) {
    let is_late =
        matches!(system.options().durability, Durability::Fsync | Durability::FsyncReplica);
    if is_late && kills_redis(fault) && fault.forgotten.is_none() {
        let of = system.store_settings().buckets;
        fault.forgotten = Some(Forgotten { buckets: (0..of).collect(), of });
    }
}
