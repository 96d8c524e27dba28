//! The faults of a campaign on queues: faults of instances and of Redis.

use dwell::config::Durability;

use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Fault, Forgotten};
use crate::chaos::system::{Error, System, SystemOptions};

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
pub(crate) fn kinds(only: &[FaultKind], system: &SystemOptions) -> Result<Vec<FaultKind>, Error> {
    if only.is_empty() {
        return Ok(DEFAULT_FAULTS.into_iter().filter(|kind| kind.applies(system)).collect());
    }
    let mut possible = [&DEFAULT_FAULTS[..], &OPTIONAL_FAULTS].concat();
    possible.retain(|kind| kind.applies(system));
    match only.iter().find(|kind| !possible.contains(kind)) {
        None => Ok(only.to_vec()),
        Some(kind) => {
            let possible: Vec<String> = possible.iter().map(ToString::to_string).collect();
            Err(Error::Unexpected(format!(
                "{kind} is not possible here; possible are {}",
                possible.join(", ")
            )))
        }
    }
}

/// Whether Redis was killed.
pub(crate) fn kills_redis(fault: &Fault) -> bool {
    matches!(
        fault.kind,
        FaultKind::RedisKill | FaultKind::RedisMasterKilled | FaultKind::RedisFailover
    )
}

/// With `appendfsync everysec` a Redis that is killed may have answered what the operating system
/// never got. A pop does not wait for the durability level.
pub(crate) fn forget_more(fault: &mut Fault, system: &System) {
    let is_late =
        matches!(system.options().durability, Durability::Fsync | Durability::FsyncReplica);
    if is_late && kills_redis(fault) && fault.forgotten.is_none() {
        let of = system.store_settings().buckets;
        fault.forgotten = Some(Forgotten { buckets: (0..of).collect(), of });
    }
}
