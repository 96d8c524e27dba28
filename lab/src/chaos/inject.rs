//! The injection of faults: a file for each affected part. Every fault is held until it is
//! repaired.

mod amqp;
mod broker;
mod clocks;
mod damaged;
mod data;
mod failover;
mod host;
mod in_flight;
mod nats;
mod network;
mod process;
mod redis;
mod silent;

use std::time::Duration;

use dwell::clock;
use dwell::config::RedisMode;
use dwell_testkit::servers::{BrokerKind, ServerError};
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal};

use self::in_flight::counted;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Fault, Forgotten, Only, Scope};
use crate::chaos::proxy::Flow;
use crate::chaos::system::{Error, Manner, System};
use crate::chaos::wait::until;

/// The result of an injection.
#[derive(Default)]
pub(crate) struct Done {
    /// The target and the method.
    pub(crate) detail: String,
    /// When it was repaired, wall clock, epoch µs, if the injection waited for something else after
    /// that.
    pub(crate) healed_us: Option<i64>,
    /// The jump of a clock, µs.
    pub(crate) clock_step_us: Option<i64>,
    /// The affected jobs, if not all are affected.
    pub(crate) beside: Option<Scope>,
    /// The buckets that another master has now, with every write of the one before.
    pub(crate) handed_over: Vec<u16>,
}

impl Done {
    fn new(detail: impl Into<String>) -> Done {
        Done { detail: detail.into(), ..Done::default() }
    }

    /// A fault that is repaired now.
    fn healed(detail: impl Into<String>) -> Done {
        Done { healed_us: Some(clock::wall_us()), ..Done::new(detail) }
    }

    /// A fault that is repaired now and affected only these jobs from this time on.
    fn healed_beside(detail: impl Into<String>, from_us: i64, only: Only) -> Done {
        Done { beside: Some(Scope { from_us, only }), ..Done::healed(detail) }
    }
}

/// The longest time until each bucket of a Redis has one master again.
const OWNERSHIP_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of start attempts of a server.
const MAX_START_TRIES: usize = 10;

/// Applies a fault, holds it for this time and heals it, even if a step fails. Some faults take
/// longer than the hold time: a killed process has to start again, and a frozen instance stays
/// frozen until its lease has expired. Faults on different servers and links may overlap; faults on
/// the same one wait for each other. Await the future to its end: a dropped future heals nothing.
///
/// # Errors
/// The fault could not be applied (it was healed all the same), or could not be healed.
pub async fn inject(
    kind: FaultKind,
    system: &System,
    rng: &mut StdRng,
    hold: Duration,
) -> Result<Fault, Error> {
    if !kind.applies(system.options()) {
        return Err(Error::Unexpected(format!(
            "{kind} cannot be injected into {}",
            system.describe()
        )));
    }
    let before = owners(system).await?;
    let applied = async {
        let began_us = clock::wall_us();
        Ok((began_us, Box::pin(apply(kind, Injection { system, rng, hold })).await?))
    };
    let ((began_us, done), leases) = counted(system, applied).await?;
    let mut healed_us = done.healed_us.unwrap_or_else(clock::wall_us);
    let after = owners(system).await?;
    let of = u16::try_from(after.len()).unwrap_or(u16::MAX);
    let changed = |bucket: &u16| {
        before[usize::from(*bucket)] != after[usize::from(*bucket)]
            && !done.handed_over.contains(bucket)
    };
    let buckets: Vec<u16> = (0..of).filter(changed).collect();
    if !buckets.is_empty() && done.healed_us.is_none() {
        // It was not meant to fail over: nobody knows when it did.
        healed_us = clock::wall_us();
    }
    Ok(Fault {
        in_flight: leases.claimed,
        leases: Some(leases),
        clock_step_us: done.clock_step_us,
        beside: done.beside,
        forgotten: (!buckets.is_empty()).then_some(Forgotten { buckets, of }),
        ..Fault::new(kind, (began_us, healed_us), done.detail)
    })
}

/// The port of the master of each bucket. A single Redis is behind one address, and its failover is
/// a fault of its own.
async fn owners(system: &System) -> Result<Vec<u16>, Error> {
    if system.options().redis == RedisMode::Single {
        return Ok(vec![0; usize::from(system.settings().redis.buckets)]);
    }
    let mut owners = None;
    until(OWNERSHIP_TIMEOUT, "the buckets had no master each", async || {
        owners = system.redis.census.owners().await;
        Ok(owners.is_some())
    })
    .await?;
    Ok(owners.unwrap_or_default())
}

/// A fault that is to be injected: where, with which random choices, and for how long.
struct Injection<'a> {
    system: &'a System,
    rng: &'a mut StdRng,
    hold: Duration,
}

type Outcome = Result<Done, Error>;

/// Applies a fault, holds it and heals it; describes the target and the method.
async fn apply(kind: FaultKind, at: Injection<'_>) -> Outcome {
    let is_nats = at.system.options().broker == BrokerKind::Nats;
    let (redis, broker, hold) = (&at.system.redis.link, &at.system.broker.link, at.hold);
    let slow = [Flow::Delay(network::SLOW_DELAY); 2];
    match kind {
        FaultKind::DwellKill => process::end(at, Signal::KILL).await,
        FaultKind::DwellFreeze => process::freeze(at).await,
        FaultKind::DwellTerm => process::end(at, Signal::TERM).await,
        FaultKind::InstanceCutOff => network::instance_cut_off(at).await,
        FaultKind::StartWithoutBroker => process::start_without_broker(at).await,
        FaultKind::RedisKill => redis::end(at, Signal::KILL).await,
        FaultKind::RedisFreeze => redis::freeze(at).await,
        FaultKind::RedisRestart => redis::end(at, Signal::TERM).await,
        FaultKind::RedisFull => redis::full(at).await,
        FaultKind::RedisReadonly => {
            // No server listens on this port.
            let order = ["REPLICAOF", "127.0.0.1", "1"];
            redis::ordered(at, &order, &["REPLICAOF", "NO", "ONE"]).await
        }
        FaultKind::RedisNoReplicas => {
            let setting = |most| ["CONFIG", "SET", "min-replicas-to-write", most];
            redis::ordered(at, &setting("5"), &setting("0")).await
        }
        FaultKind::RedisBusy => redis::busy(at).await,
        FaultKind::RedisScriptFlush => redis::repeated(at, &[&["SCRIPT", "FLUSH"]]).await,
        FaultKind::RedisClientKill => {
            let kill = |kind| ["CLIENT", "KILL", "TYPE", kind];
            redis::repeated(at, &[&kill("normal"), &kill("pubsub")]).await
        }
        FaultKind::RedisPasswordRotated => redis::password_rotated(at).await,
        FaultKind::RedisFailover => redis::failover(at).await,
        FaultKind::RedisMasterKilled => failover::master_killed(at).await,
        FaultKind::RedisMasterFrozen => failover::master_frozen(at).await,
        FaultKind::RedisFailoverOrdered => failover::ordered(at).await,
        FaultKind::RedisSlotsMoved => failover::slots_moved(at).await,
        FaultKind::LinkCutRedis => network::cut(redis, hold).await,
        FaultKind::LinkStallRedis => network::flows(redis, [Flow::Stall; 2], hold).await,
        FaultKind::LinkSlowRedis => network::flows(redis, slow, hold).await,
        FaultKind::LinkDropAnswersRedis => {
            network::flows(redis, [Flow::Pass, Flow::Drop], hold).await
        }
        FaultKind::LinkHalfOpenRedis => network::half_open(redis, hold).await,
        FaultKind::LinkCutBroker => network::cut(broker, hold).await,
        FaultKind::LinkStallBroker => network::flows(broker, [Flow::Stall; 2], hold).await,
        FaultKind::LinkSlowBroker => {
            let thin = [Flow::Throttle(network::THIN_BYTES_PER_SECOND); 2];
            network::flows(broker, if at.rng.random() { slow } else { thin }, hold).await
        }
        FaultKind::LinkDropAnswersBroker => {
            network::flows(broker, [Flow::Pass, Flow::Drop], hold).await
        }
        FaultKind::LinkHalfOpenBroker => network::half_open(broker, hold).await,
        FaultKind::BrokerKill => broker::end(at, Signal::KILL).await,
        FaultKind::BrokerFreeze => broker::freeze(at).await,
        FaultKind::BrokerRestart => broker::end(at, Signal::TERM).await,
        FaultKind::TargetFull if is_nats => nats::target_full(at).await,
        FaultKind::TargetFull => amqp::target_full(at).await,
        FaultKind::TargetDeleted if is_nats => nats::target_deleted(at).await,
        FaultKind::TargetDeleted => amqp::target_deleted(at).await,
        FaultKind::TargetSilent => silent::target_silent(at).await,
        FaultKind::HostDown => host::down(at).await,
        FaultKind::HostSilent => host::behaves(at, Manner::Silent).await,
        FaultKind::HostRefuses => host::behaves(at, Manner::Refuses).await,
        FaultKind::HostDropsAnswers => host::behaves(at, Manner::DropsAnswers).await,
        FaultKind::HostsSlow => host::slow(at).await,
        FaultKind::PartitionAdded => broker::partition_added(at).await,
        FaultKind::ConsumerDeleted => nats::consumer_deleted(at).await,
        FaultKind::PermissionsWithdrawn if is_nats => nats::permissions_withdrawn(at).await,
        FaultKind::PermissionsWithdrawn => amqp::permissions_withdrawn(at).await,
        FaultKind::ConnectionBlocked => amqp::connection_blocked(at).await,
        FaultKind::ClockJump => clocks::of_instances(at).await,
        FaultKind::RedisClockJump => clocks::of_redis(at).await,
        FaultKind::DiskFull => data::disk_full(at).await,
        FaultKind::PoisonedRecords => data::poisoned_records(at).await,
        FaultKind::RecordDamaged => damaged::record_damaged(at).await,
        FaultKind::WrongType => data::wrong_type(at).await,
    }
}

/// The first error of a fault and of its repair, which runs in any case.
fn both<T>(broken: Result<T, Error>, healed: Result<(), Error>) -> Result<T, Error> {
    let value = broken?;
    healed.map(|()| value)
}

/// Holds a fault that was applied, and heals it in any case.
async fn held<T, H>(
    hold: Duration,
    broken: Result<T, Error>,
    heal: impl Future<Output = Result<H, Error>>,
) -> Result<T, Error> {
    if broken.is_ok() {
        clock::sleep(hold).await;
    }
    both(broken, heal.await.map(drop))
}

/// Waits for the hold after a server ended, and starts it as a supervisor would: again if it ends,
/// because a dependency may still be down.
async fn back<T>(
    hold: Duration,
    ended: Result<T, ServerError>,
    mut start: impl AsyncFnMut() -> Result<(), ServerError>,
) -> Result<T, Error> {
    clock::sleep(hold).await;
    let mut tries = 1;
    let started = loop {
        match start().await {
            Err(ServerError::Ended { .. }) if tries < MAX_START_TRIES => tries += 1,
            started => break started,
        }
    };
    both(ended.map_err(Error::from), started.map_err(Error::from))
}

/// The process of a server that runs.
fn running(pid: Option<u32>) -> Result<Pid, Error> {
    pid.and_then(|pid| Pid::from_raw(pid.cast_signed()))
        .ok_or_else(|| Error::unexpected("the server is not running"))
}
