//! The servers of each kind of Redis, and their masters.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::{RedisCluster, RedisSentinel, RedisServer, ServerError};
use redis::aio::MultiplexedConnection;

use super::census::Census;
use super::{COMMAND_TIMEOUT, Error, connect};

/// The longest time until the replicas of all masters catch up.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The servers.
pub(crate) enum Servers {
    Single(Box<Pair>),
    Cluster(RedisCluster),
    Sentinel(RedisSentinel),
}

/// A master and its replica.
pub(crate) struct Pair {
    pub(crate) master: RedisServer,
    pub(crate) replica: Option<RedisServer>,
}

impl Servers {
    /// The pair of `mode = "single"`.
    pub(crate) fn pair(&mut self) -> Result<&mut Pair, Error> {
        match self {
            Servers::Single(pair) => Ok(pair),
            Servers::Cluster(_) | Servers::Sentinel(_) => {
                Err(Error::Unexpected("the fault is for a single Redis".to_owned()))
            }
        }
    }

    /// The indices of the current masters.
    pub(crate) async fn masters(&self) -> Result<Vec<usize>, Error> {
        match self {
            Servers::Single(_) => Ok(vec![0]),
            Servers::Cluster(cluster) => Ok(cluster.masters().await?),
            Servers::Sentinel(sentinel) => {
                let master = sentinel.master().await.ok_or_else(|| {
                    Error::Unexpected("the sentinels agree on no master".to_owned())
                })?;
                Ok(vec![master])
            }
        }
    }

    /// The number of servers: masters and replicas.
    pub(crate) fn count(&self) -> usize {
        match self {
            Servers::Single(pair) => 1 + usize::from(pair.replica.is_some()),
            Servers::Cluster(cluster) => cluster.nodes.len(),
            Servers::Sentinel(sentinel) => sentinel.servers.len(),
        }
    }

    pub(crate) fn server(&self, index: usize) -> &RedisServer {
        match self {
            Servers::Single(pair) => {
                pair.replica.as_ref().filter(|_| index > 0).unwrap_or(&pair.master)
            }
            Servers::Cluster(cluster) => &cluster.nodes[index],
            Servers::Sentinel(sentinel) => &sentinel.servers[index],
        }
    }

    pub(crate) fn server_mut(&mut self, index: usize) -> &mut RedisServer {
        match self {
            Servers::Single(pair) => match &mut pair.replica {
                Some(replica) if index > 0 => replica,
                _ => &mut pair.master,
            },
            Servers::Cluster(cluster) => &mut cluster.nodes[index],
            Servers::Sentinel(sentinel) => &mut sentinel.servers[index],
        }
    }

    /// Sets the master that this server follows from its next start. Nodes of a Cluster know it.
    pub(crate) fn follow(&mut self, index: usize, master: Option<u16>) {
        if !matches!(self, Servers::Cluster(_)) {
            self.server_mut(index).follow(master);
        }
    }

    /// The master that has this key.
    pub(crate) async fn master_of(&self, key: &str) -> Result<&RedisServer, Error> {
        let index = match self {
            Servers::Cluster(cluster) => cluster.master_of(cluster.slot_of(key).await?).await?,
            Servers::Single(_) | Servers::Sentinel(_) => self.masters().await?[0],
        };
        Ok(self.server(index))
    }

    /// A direct connection to the master that has this key, without a proxy.
    pub(crate) async fn connect_to(&self, key: &str) -> Result<MultiplexedConnection, Error> {
        Ok(connect(&self.master_of(key).await?.url(), COMMAND_TIMEOUT).await?)
    }

    /// Waits until the replicas of every master, if there are any, are in sync.
    pub(crate) async fn in_sync(&self, census: &Census) -> Result<(), Error> {
        match self {
            Servers::Single(pair) if pair.replica.is_none() => return Ok(()),
            Servers::Single(_) => {}
            Servers::Cluster(cluster) => cluster.whole().await?,
            Servers::Sentinel(sentinel) => sentinel.whole().await?,
        }
        for index in self.masters().await? {
            self.synced(index, census).await?;
        }
        Ok(())
    }

    /// Waits until the replica of this master has all that the master has now.
    async fn synced(&self, index: usize, census: &Census) -> Result<(), Error> {
        // WAIT is for the writes of its own connection: without one it would not wait.
        let server = self.server(index);
        let Some(key) = census.key_on(server.port(), matches!(self, Servers::Cluster(_))).await
        else {
            return Ok(());
        };
        let waited = clock::timeout(SYNC_TIMEOUT, async {
            loop {
                if let Ok(1..) = once(server, &key).await {
                    return;
                }
                clock::sleep(CHECK_INTERVAL).await;
            }
        });
        waited.await.ok_or_else(|| {
            Error::Unexpected(format!("the replica was not in sync within {SYNC_TIMEOUT:?}"))
        })
    }

    pub(super) async fn stop(self) -> Result<(), ServerError> {
        match self {
            Servers::Single(mut pair) => {
                if let Some(replica) = &mut pair.replica {
                    replica.stop().await?;
                }
                pair.master.stop().await?;
            }
            Servers::Cluster(mut cluster) => {
                for node in &mut cluster.nodes {
                    node.kill()?;
                }
            }
            Servers::Sentinel(mut sentinel) => {
                for server in &mut sentinel.sentinels {
                    server.kill()?;
                }
                for server in &mut sentinel.servers {
                    server.kill()?;
                }
            }
        }
        Ok(())
    }
}

/// A write, and the number of replicas that have it within a second.
async fn once(server: &RedisServer, key: &str) -> Result<u64, redis::RedisError> {
    let mut connection = connect(&server.url(), COMMAND_TIMEOUT).await?;
    redis::cmd("SET").arg(key).arg("x").arg("PX").arg(1).query_async::<()>(&mut connection).await?;
    redis::cmd("WAIT").arg(1).arg(1000).query_async(&mut connection).await
}
