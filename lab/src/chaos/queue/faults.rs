//! The faults of a campaign on queues: faults of instances and of Redis.

use dwell::config::Durability;

use crate::chaos::fault::{FaultKind, InQueues};
use crate::chaos::history::{Fault, Forgotten};
use crate::chaos::system::{Error, System, SystemOptions};

/// The kinds to inject into such a system: these, or all that kill.
pub(crate) fn kinds(only: &[FaultKind], system: &SystemOptions) -> Result<Vec<FaultKind>, Error> {
    let mut possible = FaultKind::all().to_vec();
    possible.retain(|kind| kind.in_queues() != InQueues::Never && kind.applies(system));
    if only.is_empty() {
        possible.retain(|kind| kind.in_queues() == InQueues::Always);
        return Ok(possible);
    }
    match only.iter().find(|kind| !possible.contains(kind)) {
        None => Ok(only.to_vec()),
        Some(kind) => {
            let possible: Vec<String> = possible.iter().map(ToString::to_string).collect();
            let possible = possible.join(", ");
            let why = format!("{kind} is not possible here; possible are {possible}");
            Err(Error::Unexpected(why))
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
        let of = system.settings().redis.buckets;
        fault.forgotten = Some(Forgotten { buckets: (0..of).collect(), of });
    }
}
