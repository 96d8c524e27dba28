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

/// What is to know of a kind of fault.
struct Traits {
    /// Whether the fault applies to such a system.
    applies: fn(&SystemOptions) -> bool,
    /// Whether jobs in flight may arrive twice.
    copies: bool,
    /// Whether it takes ten seconds and more, with its recovery.
    is_slow: bool,
    effects: Effects,
    queues: InQueues,
}

/// When the queue scenario injects a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InQueues {
    /// Unless the command names others.
    Always,
    /// If the command names it.
    Named,
    Never,
}

const ALWAYS: InQueues = InQueues::Always;
const NAMED: InQueues = InQueues::Named;
const NEVER: InQueues = InQueues::Never;
const COPIES: bool = true;
const ONCE: bool = false;
const SLOW: bool = true;
const FAST: bool = false;

/// The kinds of faults, once, each with its traits.
macro_rules! faults {
    ($($name:ident: $applies:ident, $copies:ident, $pace:ident, $effects:ident, $queues:ident;)+) => {
        /// A kind of fault, in JSON by its name with hyphens. [`FaultKind::description`] tells the
        /// action of each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "each has its description")]
        pub enum FaultKind { $($name,)+ }

        impl FaultKind {
            const ALL: &'static [FaultKind] = &[$(FaultKind::$name,)+];

            fn traits(self) -> Traits {
                match self {
                    $(FaultKind::$name => Traits {
                        applies: $applies,
                        copies: $copies,
                        is_slow: $pace,
                        effects: effects::$effects,
                        queues: $queues,
                    },)+
                }
            }
        }
    };
}

// The columns are those of `Traits`.
faults! {
    DwellKill: anywhere, COPIES, SLOW, STOPS, ALWAYS;
    DwellFreeze: anywhere, COPIES, SLOW, FREEZES, NAMED;
    // All jobs are released or settled before the end.
    DwellTerm: anywhere, ONCE, FAST, STOPS, ALWAYS;
    // Another instance must continue.
    InstanceCutOff: one_for_many, COPIES, SLOW, REQUEUES, NEVER;
    // A stopped instance releases its jobs.
    StartWithoutBroker: anywhere, ONCE, FAST, NONE, NEVER;
    RedisKill: anywhere, COPIES, FAST, NONE, ALWAYS;
    RedisFreeze: anywhere, COPIES, FAST, NONE, NAMED;
    RedisRestart: anywhere, COPIES, FAST, NONE, NAMED;
    // Publications are settled, if slowly.
    RedisFull: anywhere, ONCE, FAST, NONE, NEVER;
    // Cluster and sentinels give a master that refuses writes another role.
    RedisReadonly: one_server, COPIES, FAST, NONE, NEVER;
    RedisNoReplicas: anywhere, COPIES, FAST, NONE, NEVER;
    RedisBusy: anywhere, COPIES, FAST, NONE, NEVER;
    // Nothing separates a publish from its settle.
    RedisScriptFlush: anywhere, ONCE, FAST, NONE, NAMED;
    RedisClientKill: anywhere, COPIES, FAST, NONE, NAMED;
    RedisPasswordRotated: anywhere, COPIES, FAST, NONE, NAMED;
    RedisFailover: one_with_replica, COPIES, FAST, ROLLS_BACK, ALWAYS;
    // The writes that a promoted master may have forgotten are recorded with the fault.
    RedisMasterKilled: many_servers, COPIES, FAST, NONE, ALWAYS;
    RedisMasterFrozen: many_servers, COPIES, FAST, NONE, ALWAYS;
    // CLUSTER FAILOVER loses nothing; SENTINEL FAILOVER forgets.
    RedisFailoverOrdered: many_servers, ONCE, FAST, NONE, ALWAYS;
    // A script runs on one master or on the other, and its answer arrives.
    RedisSlotsMoved: cluster, ONCE, FAST, NONE, ALWAYS;
    // Clients of a Cluster and of sentinels are told the addresses of the servers: there is no link
    // between.
    LinkCutRedis: one_server, COPIES, FAST, NONE, NAMED;
    LinkStallRedis: one_server, COPIES, FAST, NONE, NAMED;
    // Publications are settled, if slowly.
    LinkSlowRedis: one_server, ONCE, FAST, NONE, NAMED;
    LinkDropAnswersRedis: one_server, COPIES, FAST, NONE, NAMED;
    LinkHalfOpenRedis: one_server, COPIES, FAST, NONE, NEVER;
    LinkCutBroker: anywhere, COPIES, FAST, LINK, NEVER;
    LinkStallBroker: anywhere, COPIES, FAST, LINK, NEVER;
    LinkSlowBroker: anywhere, COPIES, FAST, SLOW_LINK, NEVER;
    LinkDropAnswersBroker: anywhere, COPIES, FAST, LINK, NEVER;
    LinkHalfOpenBroker: anywhere, COPIES, FAST, LINK, NEVER;
    BrokerKill: anywhere, COPIES, FAST, BROKER_DOWN, NEVER;
    BrokerFreeze: anywhere, COPIES, FAST, BROKER_DOWN, NEVER;
    BrokerRestart: anywhere, COPIES, FAST, BROKER_DOWN, NEVER;
    // Requests of one id may be in two partitions, which are read beside each other. Redelivered
    // requests belong to one job.
    PartitionAdded: kafka, ONCE, FAST, BESIDE, NEVER;
    // Kafka has no full topics. Refused messages did not arrive.
    TargetFull: not_kafka, ONCE, FAST, UNPUBLISHED, NEVER;
    // On Kafka a deleted topic loses unread arrivals, and its offsets, which identify arrivals.
    TargetDeleted: not_kafka, COPIES, FAST, UNPUBLISHED, NEVER;
    TargetSilent: anywhere, COPIES, SLOW, SILENCES, NEVER;
    HostDown: http, COPIES, FAST, UNPUBLISHED, NEVER;
    // Jobs arrive only with requests that the host takes.
    HostSilent: http, ONCE, FAST, UNPUBLISHED, NEVER;
    HostRefuses: http, ONCE, FAST, UNPUBLISHED, NEVER;
    HostDropsAnswers: http, COPIES, FAST, UNPUBLISHED, NEVER;
    HostsSlow: http, COPIES, FAST, UNPUBLISHED, NEVER;
    // Redelivered requests belong to one job.
    ConsumerDeleted: nats, ONCE, SLOW, NONE, NEVER;
    // On Kafka permissions need an authorizer.
    PermissionsWithdrawn: not_kafka, COPIES, FAST, WITHDRAWN, NEVER;
    ConnectionBlocked: amqp, COPIES, FAST, BLOCKED, NEVER;
    // Nothing separates a publish from its settle.
    ClockJump: anywhere, ONCE, FAST, NONE, NEVER;
    // Cluster and sentinels measure their time-outs by the clock that jumps.
    RedisClockJump: one_server, ONCE, FAST, NONE, NEVER;
    DiskFull: anywhere, COPIES, FAST, NONE, NEVER;
    // Nothing separates a publish from its settle.
    PoisonedRecords: anywhere, ONCE, FAST, NONE, NEVER;
    // An unreadable job is not claimed.
    RecordDamaged: anywhere, ONCE, SLOW, NONE, NEVER;
    WrongType: anywhere, COPIES, FAST, REFUSES, NEVER;
}

fn anywhere(_: &SystemOptions) -> bool {
    true
}

fn one_server(options: &SystemOptions) -> bool {
    options.redis == RedisMode::Single
}

fn one_with_replica(options: &SystemOptions) -> bool {
    one_server(options) && options.has_replica()
}

fn one_for_many(options: &SystemOptions) -> bool {
    one_server(options) && options.instances > 1
}

fn many_servers(options: &SystemOptions) -> bool {
    !one_server(options)
}

fn cluster(options: &SystemOptions) -> bool {
    options.redis == RedisMode::Cluster
}

fn http(options: &SystemOptions) -> bool {
    options.http
}

fn nats(options: &SystemOptions) -> bool {
    options.broker == BrokerKind::Nats
}

fn kafka(options: &SystemOptions) -> bool {
    options.broker == BrokerKind::Kafka
}

fn not_kafka(options: &SystemOptions) -> bool {
    !kafka(options)
}

fn amqp(options: &SystemOptions) -> bool {
    options.broker == BrokerKind::Amqp
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
        (self.traits().applies)(options)
    }

    /// The possible effects of the fault.
    pub(crate) fn effects(self) -> Effects {
        self.traits().effects
    }

    /// When the queue scenario injects the fault.
    pub(crate) fn in_queues(self) -> InQueues {
        self.traits().queues
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
        self.traits().is_slow
    }

    /// The description for the documentation.
    #[must_use]
    pub fn description(self) -> Description {
        description::of(self)
    }

    /// The allowance of a checker for the fault.
    #[must_use]
    pub fn allows(self) -> Allowance {
        let early_us = if self == FaultKind::RedisClockJump {
            i64::try_from(REDIS_CLOCK_JUMP.as_micros()).unwrap_or(i64::MAX)
        } else {
            0
        };
        Allowance { duplicates_of_in_flight: self.traits().copies, early_us }
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
