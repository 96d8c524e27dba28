//! A private Redis Cluster: three masters with a replica each.

use std::time::Duration;

use dwell::clock;

use super::port::Port;
use super::redis::{RedisOptions, RedisServer};
use super::{POLL_INTERVAL, ServerError, until};

/// The number of masters, and of replicas.
const MASTERS: usize = 3;
/// The number of slots.
const SLOTS: u16 = 16_384;
/// The time after which a silent master counts as failed, ms.
const NODE_TIMEOUT: &str = "2000";
/// The longest time of an ordered failover, with a margin.
const FAILOVER: Duration = Duration::from_secs(6);
/// The number of keys that move together.
const KEYS_PER_MOVE: &str = "50";

/// A private Redis Cluster. Its nodes are killed when the value is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    /// The first three nodes start as masters, the others as their replicas, in this order.
    pub nodes: Vec<RedisServer>,
    /// The ports of the links between the nodes.
    _ports: Vec<Port>,
}

/// The report of one node about another.
#[derive(Debug)]
struct Node {
    port: u16,
    is_master: bool,
    failed: bool,
    slots: Vec<(u16, u16)>,
}

impl RedisCluster {
    /// Starts the nodes with these options, joins them, and returns once every node accepts writes
    /// and every replica has caught up.
    pub async fn start(options: RedisOptions) -> Result<Self, ServerError> {
        let mut cluster = RedisCluster { nodes: Vec::new(), _ports: Vec::new() };
        for _ in 0..2 * MASTERS {
            // The default port of the links is above 65535 for many nodes.
            let port = Port::reserve()?;
            let mut options = options.clone();
            let bus = port.number.to_string();
            let own = [("enabled", "yes"), ("node-timeout", NODE_TIMEOUT), ("port", &bus)];
            let own = own.map(|(name, value)| (format!("cluster-{name}"), value.to_owned()));
            options.more.extend(own);
            cluster.nodes.push(RedisServer::start(options).await?);
            cluster._ports.push(port);
        }
        cluster.join().await?;
        Ok(cluster)
    }

    async fn join(&self) -> Result<(), ServerError> {
        let mut ids = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            node.order(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]).await?;
            let (port, bus) = (self.nodes[0].port().to_string(), self._ports[0].number.to_string());
            node.order(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
            ids.push(node.order(&["CLUSTER", "MYID"]).await?.concat());
        }
        for (at, node) in self.nodes[..MASTERS].iter().enumerate() {
            let share = usize::from(SLOTS).div_ceil(MASTERS);
            let (first, last) = (at * share, ((at + 1) * share).min(SLOTS.into()) - 1);
            node.order(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()])
                .await?;
        }
        for node in &self.nodes {
            until("the nodes know each other", async || {
                view(node).await.is_some_and(|nodes| nodes.len() == self.nodes.len())
            })
            .await?;
        }
        for (replica, id) in self.nodes[MASTERS..].iter().zip(&ids) {
            replica.order(&["CLUSTER", "REPLICATE", id]).await?;
        }
        self.whole().await
    }

    /// The URLs of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Waits until every node reports a healthy cluster, and every master of slots has a replica
    /// that has caught up.
    pub async fn whole(&self) -> Result<(), ServerError> {
        for node in &self.nodes {
            until("the cluster is whole", async || {
                let (Ok(state), Ok(info)) = (
                    node.order(&["CLUSTER", "INFO"]).await,
                    node.order(&["INFO", "replication"]).await,
                ) else {
                    return false;
                };
                let seen = view(node).await.unwrap_or_default();
                let serves = seen.iter().any(|other| {
                    other.port == node.port() && other.is_master && !other.slots.is_empty()
                });
                let follows = info.iter().any(|line| line == "master_link_status:up");
                let followed = info
                    .iter()
                    .any(|line| line.starts_with("slave") && line.contains("state=online"));
                // A node can be ok before it knows the masters of all slots.
                ["cluster_state:ok", "cluster_slots_assigned:16384"]
                    .iter()
                    .all(|wanted| state.iter().any(|line| line == wanted))
                    && seen.iter().all(|node| !node.failed)
                    && if serves { followed } else { follows }
            })
            .await?;
        }
        Ok(())
    }

    /// The index in `nodes` of the master of this slot, as the running nodes report it.
    pub async fn master_of(&self, slot: u16) -> Result<usize, ServerError> {
        self.master_but(slot, None).await
    }

    /// As [`RedisCluster::master_of`], without asking this node.
    async fn master_but(&self, slot: u16, dead: Option<usize>) -> Result<usize, ServerError> {
        for (at, node) in self.nodes.iter().enumerate() {
            if Some(at) == dead || node.pid().is_none() {
                continue;
            }
            let nodes = view(node).await.unwrap_or_default();
            let holds = |(first, last): &(u16, u16)| (*first..=*last).contains(&slot);
            let owner = nodes.iter().find(|node| node.is_master && node.slots.iter().any(holds));
            let at = owner
                .and_then(|owner| self.nodes.iter().position(|node| node.port() == owner.port));
            if let Some(at) = at {
                return Ok(at);
            }
        }
        Err(ServerError::missing(format!("the master of slot {slot}, as a running node knows it")))
    }

    /// A slot of this master.
    pub async fn slot_at(&self, master: usize) -> Result<u16, ServerError> {
        let port = self.nodes[master].port();
        let nodes = view(&self.nodes[master]).await.unwrap_or_default();
        let first = nodes.iter().find(|node| node.port == port).and_then(|node| node.slots.first());
        first
            .map(|(first, _)| *first)
            .ok_or_else(|| ServerError::missing(format!("a slot of the node on port {port}")))
    }

    /// The slot of a key.
    pub async fn slot_of(&self, key: &str) -> Result<u16, ServerError> {
        let node = self.nodes.iter().find(|node| node.pid().is_some()).unwrap_or(&self.nodes[0]);
        let slot = node.order(&["CLUSTER", "KEYSLOT", key]).await?.concat();
        slot.parse()
            .map_err(std::io::Error::other)
            .map_err(ServerError::prepare(format!("the slot of {key}")))
    }

    /// Moves a slot with its keys to another master, as `redis-cli --cluster reshard` does.
    pub async fn migrate(&self, slot: u16, to: usize) -> Result<(), ServerError> {
        let from = self.master_of(slot).await?;
        let (source, target, slot) = (&self.nodes[from], &self.nodes[to], slot.to_string());
        let id = async |node: &RedisServer| {
            node.order(&["CLUSTER", "MYID"]).await.map(|lines| lines.concat())
        };
        let (source_id, target_id) = (id(source).await?, id(target).await?);
        target.order(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await?;
        source.order(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await?;
        loop {
            let keys = source.order(&["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_PER_MOVE]).await?;
            let keys: Vec<&str> =
                keys.iter().map(String::as_str).filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                break;
            }
            let port = target.port().to_string();
            let words =
                [&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"][..], &keys].concat();
            source.order(&words).await?;
        }
        for node in [target, source] {
            node.order(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await?;
        }
        Ok(())
    }

    /// Makes the replica of this master its successor, without loss: the master waits until the
    /// replica has all its writes. Returns the new master.
    pub async fn fail_over(&self, master: usize) -> Result<usize, ServerError> {
        let port = self.nodes[master].port().to_string();
        let mut replica = None;
        for (at, node) in self.nodes.iter().enumerate() {
            let role = node.order(&["ROLE"]).await?;
            if role.first().is_some_and(|role| role == "slave") && role.get(2) == Some(&port) {
                replica = Some(at);
            }
        }
        let replica =
            replica.ok_or_else(|| ServerError::missing(format!("the replica of port {port}")))?;
        let is_master = async |at: usize| {
            let role = self.nodes[at].order(&["ROLE"]).await.unwrap_or_default();
            role.first().is_some_and(|role| role == "master")
        };
        let is_over = async || {
            while !is_master(replica).await || is_master(master).await {
                clock::sleep(POLL_INTERVAL).await;
            }
        };
        // The nodes give a failover up that takes too long.
        until("the replica is the master", async || {
            let ordered = is_master(replica).await
                || self.nodes[replica].order(&["CLUSTER", "FAILOVER"]).await.is_ok();
            ordered && clock::timeout(FAILOVER, is_over()).await.is_some()
        })
        .await?;
        Ok(replica)
    }

    /// The index in `nodes` of every master of slots, as the running nodes report them.
    pub async fn masters(&self) -> Result<Vec<usize>, ServerError> {
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            let Some(nodes) = view(node).await else { continue };
            let serving = nodes.iter().filter(|node| node.is_master && !node.slots.is_empty());
            let found: Option<Vec<usize>> = serving
                .map(|other| self.nodes.iter().position(|node| node.port() == other.port))
                .collect();
            if let Some(masters) = found.filter(|masters| masters.len() == MASTERS) {
                return Ok(masters);
            }
        }
        Err(ServerError::missing("the masters, as a running node knows them"))
    }

    /// Waits until another running node is the master of this slot. The given node may be frozen.
    pub async fn failed_over(&self, slot: u16, dead: usize) -> Result<usize, ServerError> {
        until("another master", async || {
            self.master_but(slot, Some(dead)).await.is_ok_and(|at| at != dead)
        })
        .await?;
        self.master_but(slot, Some(dead)).await
    }
}

/// The view of this node; `None` if it does not answer or does not know all nodes yet.
async fn view(node: &RedisServer) -> Option<Vec<Node>> {
    let lines = node.order(&["CLUSTER", "NODES"]).await.ok()?;
    lines.iter().filter(|line| !line.is_empty()).map(|line| parse(line)).collect()
}

/// `id ip:port@bus[,host] flags master ping pong epoch state slots…`
fn parse(line: &str) -> Option<Node> {
    let words: Vec<&str> = line.split(' ').collect();
    let (place, flags) = (words.get(1)?, words.get(2)?);
    let port = place.split('@').next()?.rsplit(':').next()?.parse().ok()?;
    let has = |flag: &str| flags.split(',').any(|word| word == flag);
    let slots = words.iter().skip(8).filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    let is_met = !has("handshake");
    is_met.then(|| Node {
        port,
        is_master: has("master"),
        failed: has("fail") || has("fail?"),
        slots: slots.collect(),
    })
}
