//! The faults: what can be done to a system, to whom it can be done, and what a checker forgives
//! for it.

mod description;

use std::time::Duration;

use dwell_testkit::servers::BrokerKind;
use serde::{Deserialize, Serialize};

pub use self::description::Description;
use crate::chaos::history::Scope;
use crate::chaos::system::SystemOptions;

/// By how much Redis's clock jumps.
pub(crate) const REDIS_CLOCK_JUMP: Duration = Duration::from_secs(5);

/// One kind of fault. What each does is told by [`FaultKind::description`].
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
    RedisFailover,
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
    TargetFull,
    TargetDeleted,
    TargetSilent,
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

/// What came of a strike.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Injected {
    /// What was done.
    pub kind: FaultKind,
    /// From when on, wall clock, epoch µs.
    pub began_us: i64,
    /// When what was broken was whole again (a killed process: started, and ready), wall clock,
    /// epoch µs.
    pub healed_us: i64,
    /// The most jobs that were claimed or held at a time, from just before to the heal, as far as
    /// Redis could be asked.
    pub in_flight: u64,
    /// To whom it was done, and how.
    pub detail: String,
    /// By how much a wall clock jumped, µs: above zero it was ahead.
    #[serde(default)]
    pub clock_step_us: Option<i64>,
    /// Whom alone it concerned, where it concerns not all.
    #[serde(default)]
    pub beside: Option<Scope>,
}

/// What a checker forgives of what came while a fault was on, and until it was overcome. Losses and
/// false verdicts: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allowance {
    /// A second copy of what was in flight.
    pub duplicates_of_in_flight: bool,
    /// A second copy of what was completed, because a master that was promoted did not know of it.
    pub duplicates_of_unreplicated: bool,
    /// By how much an arrival may be early by the wall clock, because Redis's own was ahead; µs.
    pub early_us: i64,
}

impl FaultKind {
    const ALL: [FaultKind; 40] = [
        FaultKind::DwellKill,
        FaultKind::DwellFreeze,
        FaultKind::DwellTerm,
        FaultKind::InstanceCutOff,
        FaultKind::StartWithoutBroker,
        FaultKind::RedisKill,
        FaultKind::RedisFreeze,
        FaultKind::RedisRestart,
        FaultKind::RedisFull,
        FaultKind::RedisReadonly,
        FaultKind::RedisNoReplicas,
        FaultKind::RedisBusy,
        FaultKind::RedisScriptFlush,
        FaultKind::RedisClientKill,
        FaultKind::RedisFailover,
        FaultKind::LinkCutRedis,
        FaultKind::LinkStallRedis,
        FaultKind::LinkSlowRedis,
        FaultKind::LinkDropAnswersRedis,
        FaultKind::LinkHalfOpenRedis,
        FaultKind::LinkCutBroker,
        FaultKind::LinkStallBroker,
        FaultKind::LinkSlowBroker,
        FaultKind::LinkDropAnswersBroker,
        FaultKind::LinkHalfOpenBroker,
        FaultKind::BrokerKill,
        FaultKind::BrokerFreeze,
        FaultKind::BrokerRestart,
        FaultKind::TargetFull,
        FaultKind::TargetDeleted,
        FaultKind::TargetSilent,
        FaultKind::ConsumerDeleted,
        FaultKind::PermissionsWithdrawn,
        FaultKind::ConnectionBlocked,
        FaultKind::ClockJump,
        FaultKind::RedisClockJump,
        FaultKind::DiskFull,
        FaultKind::PoisonedRecords,
        FaultKind::RecordDamaged,
        FaultKind::WrongType,
    ];

    /// All of them.
    #[must_use]
    pub fn all() -> &'static [FaultKind] {
        &Self::ALL
    }

    /// Whether it can be done to such a system.
    #[must_use]
    pub fn applies(self, options: &SystemOptions) -> bool {
        match self {
            FaultKind::RedisFailover => options.has_replica(),
            // Another goes on.
            FaultKind::InstanceCutOff => options.instances > 1,
            FaultKind::ConnectionBlocked => options.broker == BrokerKind::Amqp,
            FaultKind::ConsumerDeleted => options.broker == BrokerKind::Nats,
            // Kafka has no full topics; and with a topic go the arrivals that the load has not read
            // yet, and the offsets that it knows them by. Rights need an authorizer.
            FaultKind::TargetFull | FaultKind::TargetDeleted | FaultKind::PermissionsWithdrawn => options.broker != BrokerKind::Kafka,
            _ => true,
        }
    }

    /// The fault in words.
    #[must_use]
    pub fn description(self) -> Description {
        description::of(self)
    }

    /// What a checker forgives for it.
    #[must_use]
    pub fn allows(self) -> Allowance {
        let duplicates_of_in_flight = match self {
            // Everything is given back or settled before the end; nothing comes between a publish
            // and its settle.
            FaultKind::RedisScriptFlush | FaultKind::PoisonedRecords | FaultKind::ClockJump | FaultKind::DwellTerm => false,
            // What is published is settled all the same, if slowly; and what is refused is not
            // there.
            FaultKind::RedisFull | FaultKind::LinkSlowRedis | FaultKind::RedisClockJump | FaultKind::TargetFull => false,
            // What it read is read again, and that is one job.
            FaultKind::ConsumerDeleted => false,
            // Nobody claims what cannot be read; and who ends here gives back first.
            FaultKind::RecordDamaged | FaultKind::StartWithoutBroker => false,
            _ => true,
        };
        let early_us = if self == FaultKind::RedisClockJump { i64::try_from(REDIS_CLOCK_JUMP.as_micros()).unwrap_or(i64::MAX) } else { 0 };
        Allowance { duplicates_of_in_flight, duplicates_of_unreplicated: self == FaultKind::RedisFailover, early_us }
    }
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A unit variant is a string in JSON.
        let name = serde_json::to_value(self).ok();
        f.write_str(name.as_ref().and_then(serde_json::Value::as_str).unwrap_or("fault"))
    }
}

impl std::str::FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        FaultKind::all().iter().copied().find(|kind| kind.to_string() == text).ok_or_else(|| format!("`{text}` is no fault"))
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
        assert!(FaultKind::RedisFailover.applies(&SystemOptions { durability: Durability::Replica, ..on(BrokerKind::Nats) }));
        for broker in BrokerKind::ALL {
            assert_eq!(FaultKind::ConnectionBlocked.applies(&on(broker)), broker == BrokerKind::Amqp);
            assert_eq!(FaultKind::ConsumerDeleted.applies(&on(broker)), broker == BrokerKind::Nats);
            assert_eq!(FaultKind::TargetDeleted.applies(&on(broker)), broker != BrokerKind::Kafka);
        }
    }
}
