//! The faults: their kinds, the systems that they apply to, and what a checker allows for each, as
//! told by `faults.toml`.

mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::table::Description;
use self::table::{ALL, TABLE};
pub(crate) use self::table::{Effects, InQueues};
use crate::chaos::system::SystemOptions;
use crate::words;

/// The jump of Redis's clock.
pub(crate) const REDIS_CLOCK_JUMP: Duration = Duration::from_secs(5);

/// A kind of fault, in JSON by its name with hyphens. [`FaultKind::description`] tells the action
/// of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each has its description")]
pub enum FaultKind {
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
        &ALL
    }

    /// Whether the fault applies to such a system.
    #[must_use]
    pub fn applies(self, options: &SystemOptions) -> bool {
        let entry = &TABLE.faults[&self];
        let is_over = |name: &String| name == options.broker.as_str();
        (entry.redis.is_empty() || entry.redis.contains(&options.redis))
            && (entry.brokers.is_empty() || entry.brokers.iter().any(is_over))
            && (!entry.has_replica || options.has_replica())
            && (!entry.http || options.http)
            && options.instances >= entry.instances
    }

    /// The possible effects of the fault.
    pub(crate) fn effects(self) -> Effects {
        TABLE.faults[&self].effects
    }

    /// When the queue scenario injects the fault.
    pub(crate) fn in_queues(self) -> InQueues {
        TABLE.faults[&self].queues
    }

    /// Whether another server of a Cluster or of sentinels becomes the master.
    #[must_use]
    pub fn replaces_master(self) -> bool {
        TABLE.faults[&self].replaces_master
    }

    /// Whether one takes ten seconds and more, with its recovery: a lease has to end, or a broker's
    /// own time-out.
    #[must_use]
    pub fn is_slow(self) -> bool {
        TABLE.faults[&self].is_slow
    }

    /// The description for the documentation.
    #[must_use]
    pub fn description(self) -> Description {
        TABLE.describe(self)
    }

    /// The allowance of a checker for the fault.
    #[must_use]
    pub fn allows(self) -> Allowance {
        let early_us = if self == FaultKind::RedisClockJump {
            i64::try_from(REDIS_CLOCK_JUMP.as_micros()).unwrap_or(i64::MAX)
        } else {
            0
        };
        Allowance { duplicates_of_in_flight: TABLE.faults[&self].copies, early_us }
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

    use dwell::config::{Durability, RedisMode};
    use dwell_testkit::servers::BrokerKind;

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
    fn every_fault_has_an_entry_with_a_complete_description() {
        assert_eq!(FaultKind::all().len(), FaultKind::WrongType as usize + 1);
        for kind in FaultKind::all() {
            let Description { injected, effect, visible } = kind.description();
            assert!(!injected.is_empty() && !effect.is_empty() && !visible.is_empty(), "{kind}");
        }
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
