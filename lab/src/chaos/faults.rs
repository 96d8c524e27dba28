//! Each fault: a file for whom it is done to. All hold what they break until it is whole again.

mod amqp;
mod broker;
mod clocks;
mod damaged;
mod data;
mod nats;
mod network;
mod process;
mod redis;
mod silent;

use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::{BrokerKind, ServerError};
use rand::rngs::StdRng;

use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Beside, Only};
use crate::chaos::world::{Error, World};

/// What was done.
pub(crate) struct Done {
    /// To whom, and how.
    pub(crate) detail: String,
    /// When it was whole again, wall clock, epoch µs, where something else was waited for after that.
    pub(crate) healed_us: Option<i64>,
    /// By how much a clock jumped, µs.
    pub(crate) clock_step_us: Option<i64>,
    /// Who else was served as ever.
    pub(crate) beside: Option<Beside>,
}

impl From<String> for Done {
    fn from(detail: String) -> Done {
        Done { detail, healed_us: None, clock_step_us: None, beside: None }
    }
}

impl Done {
    /// It is whole now.
    fn healed(detail: impl Into<String>) -> Done {
        Done { healed_us: Some(clock::wall_us()), ..Done::from(detail.into()) }
    }

    /// It is whole now, and from then on it concerned these alone.
    fn healed_beside(detail: impl Into<String>, from_us: i64, only: Only) -> Done {
        Done { beside: Some(Beside { from_us, only }), ..Done::healed(detail) }
    }
}

/// How often a server is started again that would not.
const STARTS: usize = 10;

/// Does it, holds it and heals it; says to whom and how.
pub(crate) async fn strike(kind: FaultKind, world: &World, rng: &mut StdRng, hold: Duration) -> Result<Done, Error> {
    let nats = world.options().broker == BrokerKind::Nats;
    let detail = match kind {
        FaultKind::DwellKill => process::kill(world, rng, hold).await,
        FaultKind::DwellFreeze => process::freeze(world, rng, hold).await,
        FaultKind::DwellTerm => process::term(world, rng, hold).await,
        FaultKind::InstanceCutOff => return network::instance_cut_off(world, rng, hold).await,
        FaultKind::StartWithoutBroker => return process::start_without_broker(world, rng, hold).await,
        FaultKind::RedisKill => return redis::kill(world, hold).await,
        FaultKind::RedisFreeze => return redis::freeze(world, hold).await,
        FaultKind::RedisRestart => return redis::restart(world, hold).await,
        FaultKind::RedisFull => return redis::full(world, hold).await,
        FaultKind::RedisReadonly => return redis::readonly(world, hold).await,
        FaultKind::RedisNoReplicas => return redis::no_replicas(world, hold).await,
        FaultKind::RedisBusy => return redis::busy(world, hold).await,
        FaultKind::RedisScriptFlush => redis::script_flush(world, hold).await,
        FaultKind::RedisClientKill => redis::client_kill(world, hold).await,
        FaultKind::RedisFailover => return redis::failover(world, rng, hold).await,
        FaultKind::LinkCutRedis => network::cut(&world.redis.link, hold).await,
        FaultKind::LinkStallRedis => network::stall(&world.redis.link, hold).await,
        FaultKind::LinkSlowRedis => network::slow(&world.redis.link, hold).await,
        FaultKind::LinkDropAnswersRedis => network::drop_answers(&world.redis.link, hold).await,
        FaultKind::LinkHalfOpenRedis => network::half_open(&world.redis.link, hold).await,
        FaultKind::LinkCutBroker => network::cut(&world.broker.link, hold).await,
        FaultKind::LinkStallBroker => network::stall(&world.broker.link, hold).await,
        FaultKind::LinkSlowBroker => network::slow_or_thin(&world.broker.link, rng, hold).await,
        FaultKind::LinkDropAnswersBroker => network::drop_answers(&world.broker.link, hold).await,
        FaultKind::LinkHalfOpenBroker => network::half_open(&world.broker.link, hold).await,
        FaultKind::BrokerKill => broker::kill(world, hold).await,
        FaultKind::BrokerFreeze => broker::freeze(world, hold).await,
        FaultKind::BrokerRestart => broker::restart(world, hold).await,
        FaultKind::TargetFull if nats => nats::target_full(world, rng, hold).await,
        FaultKind::TargetFull => amqp::target_full(world, rng, hold).await,
        FaultKind::TargetDeleted if nats => nats::target_deleted(world, rng, hold).await,
        FaultKind::TargetDeleted => amqp::target_deleted(world, rng, hold).await,
        FaultKind::TargetSilent => return silent::target_silent(world, rng, hold).await,
        FaultKind::ConsumerDeleted => nats::consumer_deleted(world, hold).await,
        FaultKind::PermissionsWithdrawn if nats => nats::permissions_withdrawn(world, rng, hold).await,
        FaultKind::PermissionsWithdrawn => amqp::permissions_withdrawn(world, hold).await,
        FaultKind::ConnectionBlocked => amqp::connection_blocked(world, hold).await,
        FaultKind::ClockJump => return clocks::of_instances(world, rng, hold).await,
        FaultKind::RedisClockJump => return clocks::of_redis(world, rng, hold).await,
        FaultKind::DiskFull => return data::disk_full(world, hold).await,
        FaultKind::PoisonedRecords => data::poisoned_records(world, rng, hold).await,
        FaultKind::RecordDamaged => return damaged::record_damaged(world, rng, hold).await,
        FaultKind::WrongType => return data::wrong_type(world, rng, hold).await,
    };
    detail.map(Done::from)
}

/// After a break that may have failed, and its heal, which was tried in any case: the first error.
fn both<T>(broken: Result<T, Error>, healed: Result<(), Error>) -> Result<T, Error> {
    let value = broken?;
    healed.map(|()| value)
}

/// Starts a server as whoever watches over it would: again where it ends, because what it needs may still be away.
async fn start(mut once: impl AsyncFnMut() -> Result<(), ServerError>) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        match once().await {
            Err(ServerError::Ended { .. }) if tries < STARTS => tries += 1,
            result => return Ok(result?),
        }
    }
}
