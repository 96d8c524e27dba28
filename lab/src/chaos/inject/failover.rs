//! A master of a Cluster, or of sentinels, that is replaced, and slots that move.

use dwell::clock;
use rand::RngExt;

use super::redis::any;
use super::{Done, Injection, Outcome, back};
use crate::chaos::system::{Error, Servers};

/// The most buckets that move at once.
const MAX_MOVED_BUCKETS: usize = 3;

/// Kills a master and waits until another is promoted; then it returns as a replica.
pub(super) async fn master_killed(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let mut servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let slot = slot_of(&servers, index).await?;
    let promoted = match servers.all_mut()[index].kill() {
        Ok(()) => promoted(&servers, index, slot).await,
        Err(error) => Err(error.into()),
    };
    let healed_us = clock::wall_us();
    // Sentinels have it follow the new master only after seconds. A supervisor may know that
    // before.
    let knows: bool = rng.random();
    let master = promoted.as_ref().ok().filter(|_| knows);
    let follows = master.map(|master| servers.all()[*master].port());
    servers.follow(index, follows);
    back(hold, Ok(()), async || servers.all_mut()[index].restart().await).await?;
    let master = promoted?;
    servers.in_sync(&system.redis.census).await?;
    let detail = format!("redis-{index}; redis-{master} was promoted");
    Ok(Done { healed_us: Some(healed_us), ..Done::new(detail) })
}

/// Freezes a master until another is promoted. When it wakes up it takes itself for the master.
pub(super) async fn master_frozen(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let slot = slot_of(&servers, index).await?;
    servers.all()[index].freeze()?;
    let promoted = promoted(&servers, index, slot).await;
    clock::sleep(hold).await;
    servers.all()[index].thaw()?;
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
            let port = cluster.nodes[index].port();
            let owners = system.redis.census.owners().await.unwrap_or_default();
            let owned = (0..).zip(owners).filter(|(_, owner)| *owner == port);
            handed_over.extend(owned.map(|(bucket, _)| bucket));
            cluster.fail_over(index).await?
        }
        Servers::Sentinel(sentinel) => sentinel.fail_over().await?,
        Servers::Single(_) => return Err(Error::unexpected("a single Redis has no such command")),
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
        return Err(Error::unexpected("only a Cluster has slots"));
    };
    let census = &system.redis.census;
    let (mut handed_over, mut told) = (Vec::new(), Vec::new());
    for _ in 0..rng.random_range(1..=MAX_MOVED_BUCKETS) {
        let bucket = rng.random_range(0..census.keys.buckets());
        let slot = cluster.slot_of(&census.key_in(bucket)).await?;
        let (from, masters) = (cluster.master_of(slot).await?, cluster.masters().await?);
        let others: Vec<usize> = masters.into_iter().filter(|master| *master != from).collect();
        let to = others[rng.random_range(0..others.len())];
        cluster.migrate(slot, to).await?;
        told.push(format!("bucket {bucket} from redis-{from} to redis-{to}"));
        handed_over.push(bucket);
    }
    // The master that has them now may be lost only after its replica has them too.
    servers.in_sync(census).await?;
    let done = Done::healed(told.join(", "));
    clock::sleep(hold).await;
    Ok(Done { handed_over, ..done })
}

/// A slot of this master, in a Cluster.
async fn slot_of(servers: &Servers, index: usize) -> Result<Option<u16>, Error> {
    match servers {
        Servers::Cluster(cluster) => Ok(Some(cluster.slot_at(index).await?)),
        Servers::Single(_) | Servers::Sentinel(_) => Ok(None),
    }
}

/// Waits until another server is the master.
async fn promoted(servers: &Servers, index: usize, slot: Option<u16>) -> Result<usize, Error> {
    match (servers, slot) {
        (Servers::Cluster(cluster), Some(slot)) => Ok(cluster.failed_over(slot, index).await?),
        (Servers::Sentinel(sentinel), _) => Ok(sentinel.failed_over(index).await?),
        _ => Err(Error::unexpected("a single Redis promotes nothing by itself")),
    }
}
