//! The possible effects of each kind of fault: a checker allows a deviation only for a fault that
//! can cause it.

use super::FaultKind;

/// The possible effects of a kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effects {
    /// Publications fail: attempts are used up, and dead letters and answers are not accepted.
    /// Faults of Dwell and Redis do not have this effect.
    pub(crate) fails_publish: bool,
    /// Publications to the affected target fail, and to no other.
    pub(crate) silences: bool,
    /// Requests are returned because the job's bucket is unreadable.
    pub(crate) refuses: bool,
    /// An earlier message may arrive after a later one: it was held back on the way, or in a frozen
    /// instance.
    pub(crate) holds_back: bool,
    /// Stored data is lost, such as the number of an attempt.
    pub(crate) rolls_back: bool,
    /// A request is redelivered while its first reader still works on it and may store it last. A
    /// killed instance stores nothing, and a stopping instance returns its requests first.
    pub(crate) requeues: bool,
    /// Connections to the broker end. A slow link keeps them.
    pub(crate) breaks_broker: bool,
    /// The broker itself is down.
    pub(crate) stops_broker: bool,
    /// The instance begins no publication during the fault.
    pub(crate) stops_instance: bool,
}

const NONE: Effects = Effects {
    fails_publish: false,
    silences: false,
    refuses: false,
    holds_back: false,
    rolls_back: false,
    requeues: false,
    breaks_broker: false,
    stops_broker: false,
    stops_instance: false,
};

/// The link to the broker transfers nothing, or loses what it transfers.
const LINK: Effects =
    Effects { fails_publish: true, holds_back: true, requeues: true, breaks_broker: true, ..NONE };

impl FaultKind {
    /// The possible effects of the fault.
    pub(crate) fn effects(self) -> Effects {
        match self {
            FaultKind::BrokerKill | FaultKind::BrokerFreeze | FaultKind::BrokerRestart => {
                Effects { stops_broker: true, ..LINK }
            }
            FaultKind::LinkCutBroker
            | FaultKind::LinkStallBroker
            | FaultKind::LinkDropAnswersBroker
            | FaultKind::LinkHalfOpenBroker => LINK,
            FaultKind::LinkSlowBroker => Effects { requeues: false, breaks_broker: false, ..LINK },
            FaultKind::TargetFull
            | FaultKind::TargetDeleted
            | FaultKind::HostDown
            | FaultKind::HostSilent
            | FaultKind::HostRefuses
            | FaultKind::HostDropsAnswers
            | FaultKind::HostsSlow => Effects { fails_publish: true, ..NONE },
            // Requests of one id may be in two partitions, which are read beside each other.
            FaultKind::PartitionAdded => Effects { holds_back: true, requeues: true, ..NONE },
            FaultKind::PermissionsWithdrawn => {
                Effects { fails_publish: true, requeues: true, ..NONE }
            }
            FaultKind::ConnectionBlocked => {
                Effects { fails_publish: true, holds_back: true, ..NONE }
            }
            FaultKind::TargetSilent => Effects { silences: true, ..NONE },
            FaultKind::WrongType => Effects { refuses: true, ..NONE },
            FaultKind::DwellKill | FaultKind::DwellTerm => Effects { stops_instance: true, ..NONE },
            FaultKind::DwellFreeze => {
                Effects { stops_instance: true, holds_back: true, requeues: true, ..NONE }
            }
            FaultKind::InstanceCutOff => Effects { requeues: true, ..NONE },
            FaultKind::RedisFailover => Effects { rolls_back: true, ..NONE },
            // The writes that a promoted master may have forgotten are recorded with the fault.
            FaultKind::RedisMasterKilled
            | FaultKind::RedisMasterFrozen
            | FaultKind::RedisFailoverOrdered => NONE,
            FaultKind::StartWithoutBroker
            | FaultKind::RedisSlotsMoved
            | FaultKind::RedisKill
            | FaultKind::RedisFreeze
            | FaultKind::RedisRestart
            | FaultKind::RedisFull
            | FaultKind::RedisReadonly
            | FaultKind::RedisNoReplicas
            | FaultKind::RedisBusy
            | FaultKind::RedisScriptFlush
            | FaultKind::RedisClientKill
            | FaultKind::RedisPasswordRotated
            | FaultKind::LinkCutRedis
            | FaultKind::LinkStallRedis
            | FaultKind::LinkSlowRedis
            | FaultKind::LinkDropAnswersRedis
            | FaultKind::LinkHalfOpenRedis
            | FaultKind::ConsumerDeleted
            | FaultKind::ClockJump
            | FaultKind::RedisClockJump
            | FaultKind::DiskFull
            | FaultKind::PoisonedRecords
            | FaultKind::RecordDamaged => NONE,
        }
    }
}
