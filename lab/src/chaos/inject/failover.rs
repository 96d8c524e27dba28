//! A master of a Cluster, or of sentinels, that is replaced, and slots that move.

use dwell::clock;
use dwell::config::RedisMode;
use rand::RngExt;

use super::redis::any;
use super::{Done, Injection, Outcome, both, start};
use crate::chaos::system::{Error, Servers, System};

/// The most buckets that move at once.
const MAX_MOVED_BUCKETS: usize = 3;

/// Kills a master and waits until another is promoted; then it returns as a replica.
pub(super) async fn master_killed(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let mut servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let slot = slot_of(&servers, index, system).await?;
    let killed = servers.server_mut(index).kill().map_err(Error::from);
    let promoted = match killed {
        Ok(()) => promoted(&servers, index, slot).await,
        Err(error) => Err(error),
    };
    let healed_us = clock::wall_us();
    clock::sleep(hold).await;
    // Sentinels have it follow the new master only after seconds. A supervisor may know that
    // before.
    let follows = promoted
        .as_ref()
        .ok()
        .map(|master| servers.server(*master).port())
        .filter(|_| rng.random());
    servers.follow(index, follows);
    let started = start(async || servers.server_mut(index).restart().await).await;
    let master = both(promoted, started)?;
    servers.in_sync(&system.redis.census).await?;
    let detail = format!("redis-{index}; redis-{master} was promoted");
    Ok(Done { healed_us: Some(healed_us), ..Done::from(detail) })
}

/// Freezes a master until another is promoted. When it wakes up it takes itself for the master.
pub(super) async fn master_frozen(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let slot = slot_of(&servers, index, system).await?;
    servers.server(index).freeze()?;
    let promoted = promoted(&servers, index, slot).await;
    clock::sleep(hold).await;
    servers.server(index).thaw()?;
    let master = promoted?;
    servers.in_sync(&system.redis.census).await?;
    Ok(Done::healed(format!("redis-{index}; redis-{master} was promoted")))
}

/// A failover by command while the master lives: CLUSTER FAILOVER loses nothing, SENTINEL FAILOVER
/// what was not replicated.
pub(super) async fn ordered(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let mut handed_over = Vec::new();
    let master = match &*servers {
        Servers::Cluster(cluster) => {
            let port = servers.server(index).port();
            let owners = system.redis.census.owners().await.unwrap_or_default();
            handed_over.extend(
                (0..).zip(owners).filter(|(_, owner)| *owner == port).map(|(bucket, _)| bucket),
            );
            cluster.fail_over(index).await?
        }
        Servers::Sentinel(sentinel) => sentinel.fail_over().await?,
        Servers::Single(_) => {
            return Err(Error::Unexpected("a single Redis has no such command".to_owned()));
        }
    };
    servers.in_sync(&system.redis.census).await?;
    let done = Done::healed(format!("from redis-{index} to redis-{master}"));
    clock::sleep(hold).await;
    Ok(Done { handed_over, ..done })
}

/// Moves the slots of some buckets to other masters.
pub(super) async fn slots_moved(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let Servers::Cluster(cluster) = &*servers else {
        return Err(Error::Unexpected("only a Cluster has slots".to_owned()));
    };
    let settings = system.store_settings();
    let (mut handed_over, mut told) = (Vec::new(), Vec::new());
    for _ in 0..rng.random_range(1..=MAX_MOVED_BUCKETS) {
        let bucket = rng.random_range(0..settings.buckets);
        let slot = cluster.slot_of(&system.redis.census.key_in(bucket)).await?;
        let (from, masters) = (cluster.master_of(slot).await?, cluster.masters().await?);
        let others: Vec<usize> = masters.into_iter().filter(|master| *master != from).collect();
        let to = others[rng.random_range(0..others.len())];
        cluster.migrate(slot, to).await?;
        told.push(format!("bucket {bucket} from redis-{from} to redis-{to}"));
        handed_over.push(bucket);
    }
    // The master that has them now may be lost only after its replica has them too.
    servers.in_sync(&system.redis.census).await?;
    let done = Done::healed(told.join(", "));
    clock::sleep(hold).await;
    Ok(Done { handed_over, ..done })
}

/// A slot of this master, in a Cluster.
async fn slot_of(servers: &Servers, index: usize, system: &System) -> Result<Option<u16>, Error> {
    if system.options().redis != RedisMode::Cluster {
        return Ok(None);
    }
    let Servers::Cluster(cluster) = servers else { return Ok(None) };
    Ok(Some(cluster.slot_at(index).await?))
}

/// Waits until another server is the master.
async fn promoted(servers: &Servers, index: usize, slot: Option<u16>) -> Result<usize, Error> {
    match (servers, slot) {
        (Servers::Cluster(cluster), Some(slot)) => Ok(cluster.failed_over(slot, index).await?),
        (Servers::Sentinel(sentinel), _) => Ok(sentinel.failed_over(index).await?),
        _ => Err(Error::Unexpected("a single Redis promotes nothing by itself".to_owned())),
    }
}
