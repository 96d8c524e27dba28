//! The faults: their kinds, the systems that they apply to, and what a checker allows
//! for each.

mod description;
mod effects;

use std::time::Duration;

use dwell::config::RedisMode;
use dwell_testkit::servers::BrokerKind;
use serde::{Deserialize, Serialize};

pub use self::description::Description;
pub(crate) use self::effects::Effects;
use crate::chaos::system::SystemOptions;
use crate::words;

/// The jump of Redis's clock.
pub(crate) const REDIS_CLOCK_JUMP: Duration = Duration::from_secs(5);

/// The kinds of faults, once.
macro_rules! faults {
    ($($name:ident,)+) => {
        /// A kind of fault, in JSON by its name with hyphens. [`FaultKind::description`] tells the
        /// action of each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "each has its description")]
        pub enum FaultKind { $($name,)+ }

        impl FaultKind {
            const ALL: &'static [FaultKind] = &[$(FaultKind::$name,)+];
        }
    };
}

faults! {
    DwellKill,
    DwellFreeze,
    DwellTerm,
    InstanceCutOff,
    StartWithoutBroker,
    RedisKill,
    RedisFreeze,
    RedisRestart,
    RedisFull,
    RedisReadonly,
    RedisNoReplicas,
    RedisBusy,
    RedisScriptFlush,
    RedisClientKill,
    RedisPasswordRotated,
    RedisFailover,
    RedisMasterKilled,
    RedisMasterFrozen,
    RedisFailoverOrdered,
    RedisSlotsMoved,
    LinkCutRedis,
    LinkStallRedis,
    LinkSlowRedis,
    LinkDropAnswersRedis,
    LinkHalfOpenRedis,
    LinkCutBroker,
    LinkStallBroker,
    LinkSlowBroker,
    LinkDropAnswersBroker,
    LinkHalfOpenBroker,
    BrokerKill,
    BrokerFreeze,
    BrokerRestart,
    PartitionAdded,
    TargetFull,
    TargetDeleted,
    TargetSilent,
    HostDown,
    HostSilent,
    HostRefuses,
    HostDropsAnswers,
    HostsSlow,
    ConsumerDeleted,
    PermissionsWithdrawn,
    ConnectionBlocked,
    ClockJump,
    RedisClockJump,
    DiskFull,
    PoisonedRecords,
    RecordDamaged,
    WrongType,
}

/// The deviations that a checker allows during a fault and until it is overcome. Losses and false
/// verdicts are never allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allowance {
    /// Second copies of jobs in flight.
    pub duplicates_of_in_flight: bool,
    /// The most that an arrival may be early by the wall clock, because Redis's clock was ahead;
    /// µs.
    pub early_us: i64,
}

impl FaultKind {
    /// All kinds.
    #[must_use]
    pub fn all() -> &'static [FaultKind] {
        Self::ALL
    }

    /// Whether the fault applies to such a system.
    #[must_use]
    pub fn applies(self, options: &SystemOptions) -> bool {
        let is_single = options.redis == RedisMode::Single;
        match self {
            FaultKind::RedisFailover => is_single && options.has_replica(),
            FaultKind::RedisMasterKilled
            | FaultKind::RedisMasterFrozen
            | FaultKind::RedisFailoverOrdered => !is_single,
            FaultKind::RedisSlotsMoved => options.redis == RedisMode::Cluster,
            // Another instance must continue.
            FaultKind::InstanceCutOff => is_single && options.instances > 1,
            // Clients of a Cluster and of sentinels are told the addresses of the servers: there is
            // no link between. Cluster and sentinels measure their time-outs by the clock that
            // jumps, and give a master that refuses writes another role.
            FaultKind::RedisReadonly
            | FaultKind::RedisClockJump
            | FaultKind::LinkCutRedis
            | FaultKind::LinkStallRedis
            | FaultKind::LinkSlowRedis
            | FaultKind::LinkDropAnswersRedis
            | FaultKind::LinkHalfOpenRedis => is_single,
            FaultKind::HostDown
            | FaultKind::HostSilent
            | FaultKind::HostRefuses
            | FaultKind::HostDropsAnswers
            | FaultKind::HostsSlow => options.http,
            FaultKind::PartitionAdded => options.broker == BrokerKind::Kafka,
            FaultKind::ConnectionBlocked => options.broker == BrokerKind::Amqp,
            FaultKind::ConsumerDeleted => options.broker == BrokerKind::Nats,
            // Kafka has no full topics. A deleted topic loses unread arrivals, and its
            // offsets, which identify arrivals. Permissions need an authorizer.
            FaultKind::TargetFull | FaultKind::TargetDeleted | FaultKind::PermissionsWithdrawn => {
                options.broker != BrokerKind::Kafka
            }
            FaultKind::DwellKill
            | FaultKind::DwellFreeze
            | FaultKind::DwellTerm
            | FaultKind::StartWithoutBroker
            | FaultKind::RedisKill
            | FaultKind::RedisFreeze
            | FaultKind::RedisRestart
            | FaultKind::RedisFull
            | FaultKind::RedisNoReplicas
            | FaultKind::RedisBusy
            | FaultKind::RedisScriptFlush
            | FaultKind::RedisClientKill
            | FaultKind::RedisPasswordRotated
            | FaultKind::LinkCutBroker
            | FaultKind::LinkStallBroker
            | FaultKind::LinkSlowBroker
            | FaultKind::LinkDropAnswersBroker
            | FaultKind::LinkHalfOpenBroker
            | FaultKind::BrokerKill
            | FaultKind::BrokerFreeze
            | FaultKind::BrokerRestart
            | FaultKind::TargetSilent
            | FaultKind::ClockJump
            | FaultKind::DiskFull
            | FaultKind::PoisonedRecords
            | FaultKind::RecordDamaged
            | FaultKind::WrongType => true,
        }
    }

    /// Whether another server of a Cluster or of sentinels becomes the master.
    #[must_use]
    pub fn replaces_master(self) -> bool {
        matches!(
            self,
            FaultKind::RedisMasterKilled
                | FaultKind::RedisMasterFrozen
                | FaultKind::RedisFailoverOrdered
        )
    }

    /// Whether one takes ten seconds and more, with its recovery: a lease has to end, or a broker's
    /// own time-out.
    #[must_use]
    pub fn is_slow(self) -> bool {
        matches!(
            self,
            FaultKind::DwellKill
                | FaultKind::DwellFreeze
                | FaultKind::InstanceCutOff
                | FaultKind::TargetSilent
                | FaultKind::ConsumerDeleted
                | FaultKind::RecordDamaged
        )
    }

    /// The description for the documentation.
    #[must_use]
    pub fn description(self) -> Description {
        description::of(self)
    }

    /// The allowance of a checker for the fault.
    #[must_use]
    pub fn allows(self) -> Allowance {
        let duplicates_of_in_flight = match self {
            // All jobs are released or settled before the end, and nothing separates a publish
            // from its settle.
            FaultKind::RedisScriptFlush
            | FaultKind::PoisonedRecords
            | FaultKind::ClockJump
            | FaultKind::DwellTerm => false,
            // Publications are settled, if slowly; refused messages did not
            // arrive.
            FaultKind::RedisFull
            | FaultKind::LinkSlowRedis
            | FaultKind::RedisClockJump
            | FaultKind::TargetFull => false,
            // Jobs arrive only with requests that the host takes.
            FaultKind::HostSilent | FaultKind::HostRefuses => false,
            // Redelivered requests belong to one job.
            FaultKind::ConsumerDeleted | FaultKind::PartitionAdded => false,
            // An unreadable job is not claimed, and a stopped instance releases its jobs.
            FaultKind::RecordDamaged | FaultKind::StartWithoutBroker => false,
            // A script runs on one master or on the other, and its answer arrives.
            FaultKind::RedisSlotsMoved => false,
            // CLUSTER FAILOVER as well; SENTINEL FAILOVER forgets.
            FaultKind::RedisFailoverOrdered => false,
            FaultKind::DwellKill
            | FaultKind::DwellFreeze
            | FaultKind::InstanceCutOff
            | FaultKind::RedisKill
            | FaultKind::RedisFreeze
            | FaultKind::RedisRestart
            | FaultKind::RedisReadonly
            | FaultKind::RedisNoReplicas
            | FaultKind::RedisBusy
            | FaultKind::RedisClientKill
            | FaultKind::RedisPasswordRotated
            | FaultKind::RedisFailover
            | FaultKind::RedisMasterKilled
            | FaultKind::RedisMasterFrozen
            | FaultKind::LinkCutRedis
            | FaultKind::LinkStallRedis
            | FaultKind::LinkDropAnswersRedis
            | FaultKind::LinkHalfOpenRedis
            | FaultKind::LinkCutBroker
            | FaultKind::LinkStallBroker
            | FaultKind::LinkSlowBroker
            | FaultKind::LinkDropAnswersBroker
            | FaultKind::LinkHalfOpenBroker
            | FaultKind::BrokerKill
            | FaultKind::BrokerFreeze
            | FaultKind::BrokerRestart
            | FaultKind::TargetDeleted
            | FaultKind::TargetSilent
            | FaultKind::HostDown
            | FaultKind::HostDropsAnswers
            | FaultKind::HostsSlow
            | FaultKind::PermissionsWithdrawn
            | FaultKind::ConnectionBlocked
            | FaultKind::DiskFull
            | FaultKind::WrongType => true,
        };
        let early_us = if self == FaultKind::RedisClockJump {
            i64::try_from(REDIS_CLOCK_JUMP.as_micros()).unwrap_or(i64::MAX)
        } else {
            0
        };
        Allowance { duplicates_of_in_flight, early_us }
    }
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&words::word(self))
    }
}

impl std::str::FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        words::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use dwell::config::Durability;

    use super::*;

    #[test]
    fn each_fault_has_a_name_of_its_own_and_is_found_by_it() {
        let names: HashSet<String> = FaultKind::all().iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), FaultKind::all().len());
        for kind in FaultKind::all() {
            assert_eq!(kind.to_string().parse(), Ok(*kind));
        }
        assert_eq!(FaultKind::LinkDropAnswersBroker.to_string(), "link-drop-answers-broker");
        assert!("no-such-fault".parse::<FaultKind>().is_err());
    }

    #[test]
    fn a_fault_is_only_done_to_whom_it_can_be_done() {
        let on = |broker| SystemOptions { broker, ..SystemOptions::default() };
        assert!(!FaultKind::RedisFailover.applies(&on(BrokerKind::Nats)));
        let over = |redis| SystemOptions {
            durability: Durability::Replica,
            redis,
            ..on(BrokerKind::Nats)
        };
        for (kind, applies) in [
            (FaultKind::RedisFailover, [true, false, false]),
            (FaultKind::LinkCutRedis, [true, false, false]),
            (FaultKind::RedisMasterKilled, [false, true, true]),
            (FaultKind::RedisSlotsMoved, [false, true, false]),
            (FaultKind::RedisKill, [true, true, true]),
        ] {
            assert_eq!(
                [RedisMode::Single, RedisMode::Cluster, RedisMode::Sentinel]
                    .map(|redis| kind.applies(&over(redis))),
                applies,
                "{kind}"
            );
        }
        for broker in BrokerKind::ALL {
            assert!(
                !FaultKind::HostDown.applies(&on(broker))
                    && FaultKind::HostDown.applies(&SystemOptions { http: true, ..on(broker) })
            );
            assert_eq!(
                FaultKind::ConnectionBlocked.applies(&on(broker)),
                broker == BrokerKind::Amqp
            );
            assert_eq!(FaultKind::ConsumerDeleted.applies(&on(broker)), broker == BrokerKind::Nats);
            assert_eq!(FaultKind::TargetDeleted.applies(&on(broker)), broker != BrokerKind::Kafka);
        }
    }
}
