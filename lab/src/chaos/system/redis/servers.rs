//! The servers of each kind of Redis, and their masters.

use std::time::Duration;

use dwell::config::RedisMode;
use dwell_testkit::servers::{RedisCluster, RedisOptions, RedisSentinel, RedisServer};
use redis::aio::MultiplexedConnection;

use super::census::Census;
use super::{Error, open};
use crate::chaos::wait::until;

/// The longest time until the replicas of all masters catch up.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);
/// The `failover-timeout` of the sentinels, ms: the next failover may begin twice as long after the
/// last one.
const FAILOVER_TIMEOUT_MS: u32 = 2000;

/// The servers.
pub(crate) enum Servers {
    /// The master, and its replica if there is one.
    Single(Vec<RedisServer>),
    Cluster(RedisCluster),
    Sentinel(RedisSentinel),
}

impl Servers {
    pub(crate) async fn start(
        mode: RedisMode,
        has_replica: bool,
        options: RedisOptions,
    ) -> Result<Servers, Error> {
        let mut servers = match mode {
            RedisMode::Single => {
                let mut servers = vec![RedisServer::start(options.clone()).await?];
                if has_replica {
                    let replica_of = Some(servers[0].port());
                    servers.push(RedisServer::start(RedisOptions { replica_of, ..options }).await?);
                }
                Servers::Single(servers)
            }
            RedisMode::Cluster => Servers::Cluster(RedisCluster::start(options).await?),
            // `replica` waits for one replica: with one there is no other that may be promoted.
            RedisMode::Sentinel => Servers::Sentinel(
                RedisSentinel::with_replicas(options, 1, FAILOVER_TIMEOUT_MS).await?,
            ),
        };
        servers.all_mut().iter_mut().for_each(|server| server.keep_logs());
        Ok(servers)
    }

    /// All servers: masters and replicas.
    pub(crate) fn all(&self) -> &[RedisServer] {
        match self {
            Servers::Single(servers) => servers,
            Servers::Cluster(cluster) => &cluster.nodes,
            Servers::Sentinel(sentinel) => &sentinel.servers,
        }
    }

    pub(crate) fn all_mut(&mut self) -> &mut [RedisServer] {
        match self {
            Servers::Single(servers) => servers,
            Servers::Cluster(cluster) => &mut cluster.nodes,
            Servers::Sentinel(sentinel) => &mut sentinel.servers,
        }
    }

    /// The indices of the current masters.
    pub(crate) async fn masters(&self) -> Result<Vec<usize>, Error> {
        match self {
            Servers::Single(_) => Ok(vec![0]),
            Servers::Cluster(cluster) => Ok(cluster.masters().await?),
            Servers::Sentinel(sentinel) => match sentinel.master().await {
                Some(master) => Ok(vec![master]),
                None => Err(Error::unexpected("the sentinels agree on no master")),
            },
        }
    }

    /// Sets the master that this server follows from its next start. Nodes of a Cluster know it.
    pub(crate) fn follow(&mut self, index: usize, master: Option<u16>) {
        if !matches!(self, Servers::Cluster(_)) {
            self.all_mut()[index].follow(master);
        }
    }

    /// A direct connection to the master that has this key, without a proxy.
    pub(crate) async fn connect_to(&self, key: &str) -> Result<MultiplexedConnection, Error> {
        let index = match self {
            Servers::Cluster(cluster) => cluster.master_of(cluster.slot_of(key).await?).await?,
            Servers::Single(_) | Servers::Sentinel(_) => self.masters().await?[0],
        };
        open(&self.all()[index]).await
    }

    /// Waits until the replicas of every master, if there are any, are in sync.
    pub(crate) async fn in_sync(&self, census: &Census) -> Result<(), Error> {
        match self {
            Servers::Single(servers) if servers.len() == 1 => return Ok(()),
            Servers::Single(_) => {}
            Servers::Cluster(cluster) => cluster.whole().await?,
            Servers::Sentinel(sentinel) => sentinel.whole().await?,
        }
        for index in self.masters().await? {
            let master = &self.all()[index];
            // WAIT is for the writes of its own connection: without one it would not wait.
            let Some(key) = census.key_on(master.port()).await else { continue };
            until(SYNC_TIMEOUT, "the replica was not in sync", async || {
                Ok(matches!(replicated(master, &key).await, Ok(1..)))
            })
            .await?;
        }
        Ok(())
    }
}

/// A write, and the number of replicas that have it within a second.
async fn replicated(server: &RedisServer, key: &str) -> Result<u64, Error> {
    let mut connection = open(server).await?;
    redis::cmd("SET").arg(key).arg("x").arg("PX").arg(1).query_async::<()>(&mut connection).await?;
    Ok(redis::cmd("WAIT").arg(1).arg(1000).query_async(&mut connection).await?)
}
