//! The slot map of a cluster, with one connection per master. Asks for a new map when the current
//! one is outdated.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use parking_lot::RwLock;
use redis::Value;

use super::connection::{Connection, To};
use super::endpoint::{self, Address};
use super::login;
use crate::config::Redis;
use crate::store::error::{Class, StoreError};

/// The number of slots in every cluster.
const SLOTS: u16 = 16_384;

/// The hint for a cluster that has slots without a master.
const SLOTS_HINT: &str = "look at `CLUSTER INFO`: every slot must have a master";

/// After this many single moved slots, the client asks for a whole new map.
const MAX_MOVED_SLOTS: usize = 4;

/// The masters of a cluster, by slot.
pub(super) struct Cluster {
    settings: Redis,
    map: RwLock<Option<Arc<SlotMap>>>,
    /// The last map that the cluster gave, even if it is discarded.
    last: RwLock<Option<Arc<SlotMap>>>,
    asking: tokio::sync::Mutex<()>,
    /// Nodes to ask only if no other answers: the source of an outdated map, and the node that
    /// failed.
    doubted: RwLock<Vec<Connection>>,
    /// Nodes to ask: the nodes of the settings, and the masters, because the nodes of the settings
    /// may all be down.
    known: RwLock<HashMap<Address, Connection>>,
}

/// The masters by slot.
pub(super) struct SlotMap {
    /// First slot, last slot, and the index of their master in `masters`.
    ranges: Vec<(u16, u16, usize)>,
    pub(super) masters: Vec<Connection>,
    /// The number of moved slots learned since the map was given; their ranges come first.
    told: usize,
    /// The node that gave the map.
    source: Connection,
}

impl Cluster {
    /// A cluster that was not asked yet.
    pub(super) fn new(settings: &Redis) -> Self {
        Cluster {
            settings: settings.clone(),
            map: RwLock::new(None),
            last: RwLock::new(None),
            asking: tokio::sync::Mutex::new(()),
            doubted: RwLock::new(Vec::new()),
            known: RwLock::new(HashMap::new()),
        }
    }

    /// The current map; asks the cluster if there is none.
    pub(super) async fn map(&self) -> Result<Arc<SlotMap>, StoreError> {
        let current = self.map.read().clone();
        match current {
            Some(map) => Ok(map),
            // Boxed: rare, and the future is large.
            None => self.ask_all().boxed().await,
        }
    }

    async fn ask_all(&self) -> Result<Arc<SlotMap>, StoreError> {
        let _one_at_a_time = self.asking.lock().await;
        if let Some(map) = self.map.read().clone() {
            return Ok(map);
        }
        let seeds = self.seeds().await?;
        let known: Vec<Connection> = {
            let mut known = self.known.write();
            for address in &seeds {
                known.entry(address.clone()).or_insert_with(|| self.node(address));
            }
            known.values().cloned().collect()
        };
        let (doubted, others) = self.by_doubt(known);
        let mut last = None;
        for nodes in [others, doubted].into_iter().filter(|nodes| !nodes.is_empty()) {
            // Ask all at once and take the first answer: a node that hangs must not delay the
            // others.
            match select_ok(nodes.into_iter().map(|wire| Box::pin(self.ask(wire, &seeds)))).await {
                Ok((map, _)) => return Ok(map),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| StoreError::new(Class::Settings, "redis.urls is empty")))
    }

    /// Divides nodes into doubted and others. A nearby node that has not heard of a failover would
    /// otherwise answer first each time.
    fn by_doubt(&self, known: Vec<Connection>) -> (Vec<Connection>, Vec<Connection>) {
        let doubted = self.doubted.read();
        known.into_iter().partition(|wire| doubted.iter().any(|other| other.is(wire)))
    }

    /// A master answered that another one has this slot. The map takes that over, up to
    /// `MAX_MOVED_SLOTS` times; after that the next call asks for a new map.
    pub(super) fn moved(&self, node: &Connection, slot: u16, to: &str) {
        // The same lock order as in `learn`.
        let (mut known, mut current) = (self.known.write(), self.map.write());
        let Some(map) = current.clone().filter(|map| map.told < MAX_MOVED_SLOTS) else {
            drop(current);
            self.forget(node);
            return;
        };
        let Some((host, Ok(port))) = to.rsplit_once(':').map(|(host, port)| (host, port.parse()))
        else {
            drop(current);
            self.forget(node);
            return;
        };
        // An empty host stands for the host of the node that answered.
        let place = node.place();
        let host = if host.is_empty() {
            place.rsplit_once(':').map_or(&*place, |(host, _)| host)
        } else {
            host
        };
        let address = (host.to_owned(), port);
        let wire = known.entry(address.clone()).or_insert_with(|| self.node(&address)).clone();
        let mut masters = map.masters.clone();
        let at = masters.iter().position(|master| master.is(&wire)).unwrap_or_else(|| {
            masters.push(wire);
            masters.len() - 1
        });
        let ranges = std::iter::once((slot, slot, at))
            .chain(map.ranges.iter().copied().filter(|range| *range != (slot, slot, at)))
            .collect();
        *current = Some(Arc::new(SlotMap {
            ranges,
            masters,
            told: map.told + 1,
            source: map.source.clone(),
        }));
    }

    /// The master of this slot. A map with a gap may come from a cluster in the course of creation;
    /// the next call asks for a new map.
    pub(super) fn master<'m>(
        &self,
        map: &'m Arc<SlotMap>,
        slot: u16,
    ) -> Result<&'m Connection, StoreError> {
        map.of(slot).inspect_err(|_| {
            let mut current = self.map.write();
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, map)) {
                *self.doubted.write() = vec![map.source.clone()];
                *current = None;
            }
        })
    }

    /// The last map, even if it is outdated.
    pub(super) fn last(&self) -> Option<Arc<SlotMap>> {
        self.last.read().clone()
    }

    /// Discards the map after a failure of this node. The next call asks the other nodes first. If
    /// the node is not a master in the current map, its error does not invalidate the map.
    pub(super) fn forget(&self, failed: &Connection) {
        let mut current = self.map.write();
        let mut doubted = self.doubted.write();
        match &*current {
            Some(map) if map.masters.iter().all(|master| !master.is(failed)) => return,
            Some(map) => *doubted = vec![map.source.clone(), failed.clone()],
            None if doubted.iter().any(|other| other.is(failed)) => {}
            None => doubted.push(failed.clone()),
        }
        *current = None;
    }

    /// The nodes of the settings.
    async fn seeds(&self) -> Result<Vec<Address>, StoreError> {
        let settings = login::fresh(&self.settings).await?;
        Ok(endpoint::infos(&settings)?.iter().map(endpoint::address).collect())
    }

    fn node(&self, address: &Address) -> Connection {
        Connection::new(&self.settings, To::Node(address.clone()))
    }

    async fn ask(&self, node: Connection, seeds: &[Address]) -> Result<Arc<SlotMap>, StoreError> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let answer = node.command("CLUSTER SLOTS", &command).await.map_err(|error| {
            if error.message.contains("cluster support disabled") {
                return StoreError { class: Class::Settings, ..error }
                    .hint("set redis.mode = \"single\": this server is no cluster");
            }
            if error.message.contains("unknown command") {
                return StoreError { class: Class::Settings, ..error }.hint(
                    "set redis.mode = \"sentinel\" if this server is a sentinel, else \"single\": it is no node of a cluster",
                );
            }
            error
        })?;
        Ok(self.learn(seeds, served(answer, &node.place())?, &node))
    }

    /// Stores a new map and keeps the connections to nodes that are still masters.
    fn learn(
        &self,
        seeds: &[Address],
        found: Vec<(u16, u16, Address)>,
        source: &Connection,
    ) -> Arc<SlotMap> {
        let mut known = self.known.write();
        let mut places: HashMap<Address, usize> = HashMap::new();
        let (mut ranges, mut masters) = (Vec::new(), Vec::new());
        for (first, last, address) in found {
            let at = *places.entry(address.clone()).or_insert_with(|| {
                masters.push(known.get(&address).cloned().unwrap_or_else(|| self.node(&address)));
                masters.len() - 1
            });
            ranges.push((first, last, at));
        }
        known.retain(|address, _| seeds.contains(address));
        known.extend(places.into_iter().map(|(address, at)| (address, masters[at].clone())));
        let map = Arc::new(SlotMap { ranges, masters, told: 0, source: source.clone() });
        *self.last.write() = Some(map.clone());
        *self.map.write() = Some(map.clone());
        map
    }
}

impl SlotMap {
    pub(super) fn of(&self, slot: u16) -> Result<&Connection, StoreError> {
        let range = self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        range.map(|(_, _, at)| &self.masters[*at]).ok_or_else(|| {
            StoreError::new(
                Class::Unserved,
                format!("redis: no master of the cluster has slot {slot}"),
            )
            .hint(SLOTS_HINT)
        })
    }
}

/// The ranges in CLUSTER SLOTS; an error if no master has slots.
fn served(answer: Value, asked: &str) -> Result<Vec<(u16, u16, Address)>, StoreError> {
    let ranges = slots(answer, asked);
    if ranges.is_empty() {
        let message = format!("redis: {asked} knows of no master that has slots");
        return Err(StoreError::new(Class::Unserved, message).hint(SLOTS_HINT));
    }
    Ok(ranges)
}

/// First slot, last slot and master of each range in CLUSTER SLOTS. A node that does not know its
/// own name is at the address that was asked.
fn slots(answer: Value, asked: &str) -> Vec<(u16, u16, Address)> {
    let host_asked = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
    let Value::Array(ranges) = answer else { return Vec::new() };
    let range = |range: Value| {
        let Value::Array(items) = range else { return None };
        let mut items = items.into_iter();
        let (Some(Value::Int(first)), Some(Value::Int(last)), Some(Value::Array(master))) =
            (items.next(), items.next(), items.next())
        else {
            return None;
        };
        let mut master = master.into_iter();
        let host = match master.next() {
            Some(Value::BulkString(host)) => String::from_utf8(host).ok()?,
            _ => String::new(),
        };
        let Some(Value::Int(port)) = master.next() else { return None };
        let host = if host.is_empty() || host == "0.0.0.0" { host_asked.to_owned() } else { host };
        // `?` stands for a node whose name the asked node does not know.
        let address = (host != "?").then(|| Some((host, u16::try_from(port).ok()?)))??;
        Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?, address))
    };
    ranges.into_iter().filter_map(range).collect()
}

/// The slot of a key, computed from its hash tag if it has one.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    // CRC-16/XMODEM, as in the specification of Redis Cluster.
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{}{bar}"), 8363);
        assert_eq!(slot_of(b"{dwell:07}:jobs"), slot_of(b"{dwell:07}:due:main"));
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![
            Value::BulkString(host.as_bytes().to_vec()),
            Value::Int(port),
            Value::BulkString(b"name".to_vec()),
        ])
    }

    fn cluster() -> Cluster {
        Cluster::new(&Redis {
            mode: crate::config::RedisMode::Cluster,
            ..Redis::new("redis://user:word@seed:1")
        })
    }

    fn address(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    #[test]
    fn whose_map_proved_old_is_asked_after_all_others() {
        let cluster = cluster();
        let seeds = [address("seed", 1)];
        let [near, far] = ["near", "far"].map(|host| cluster.node(&address(host, 1)));
        let dead = vec![(0, 9, ("dead".to_owned(), 1)), (10, 19, ("b".to_owned(), 2))];
        let map = cluster.learn(&seeds, dead, &near);
        let (dead, other) = (map.of(0).unwrap(), map.of(10).unwrap());
        let asked = || {
            let all = vec![near.clone(), far.clone(), dead.clone(), other.clone()];
            cluster.by_doubt(all).1.iter().map(Connection::place).collect::<Vec<_>>()
        };
        // Several calls to both masters fail.
        cluster.forget(dead);
        cluster.forget(dead);
        assert_eq!(asked(), ["far:1", "b:2"]);
        cluster.forget(other);
        assert_eq!(asked(), ["far:1"]);
        // The source of a new map is doubted too once that map is outdated. An error from a former
        // master does not invalidate the map.
        let next = cluster.learn(&seeds, vec![(0, 19, ("b".to_owned(), 2))], &far);
        cluster.forget(dead);
        assert!(cluster.map.read().is_some());
        cluster.forget(next.of(0).unwrap());
        assert_eq!(
            (cluster.map.read().is_none(), asked()),
            (true, vec!["near:1".to_owned(), "dead:1".to_owned()])
        );
    }

    #[test]
    fn a_cluster_without_slots_is_refused_with_a_hint() {
        let error = served(Value::Array(Vec::new()), "a:1").unwrap_err();
        assert_eq!((error.class, &*error.hint), (Class::Unserved, SLOTS_HINT));
        assert!(error.message.contains("a:1 knows of no master"), "{error}");
    }

    #[test]
    fn a_map_is_read_with_its_gaps_and_without_what_cannot_be_reached() {
        let range = |first, last, master| {
            Value::Array(vec![Value::Int(first), Value::Int(last), master, node("replica", 1)])
        };
        let answer = Value::Array(vec![
            range(0, 9, node("a", 1)),
            range(10, 19, node("", 2)),
            range(20, 29, node("?", 3)),
            Value::Nil,
        ]);
        let found = slots(answer, "asked.example:6379");
        assert_eq!(found, [(0, 9, ("a".to_owned(), 1)), (10, 19, ("asked.example".to_owned(), 2))]);
        let cluster = cluster();
        let seeds = [address("seed", 1)];
        let asked = cluster.node(&address("asked.example", 6379));
        let map = cluster.learn(&seeds, found, &asked);
        assert_eq!(map.of(9).unwrap().place(), "a:1");
        assert_eq!(map.of(20).err().map(|error| error.class), Some(Class::Unserved));
        // A map with a gap is discarded; a map that was learned later stays.
        assert!(cluster.master(&map, 9).is_ok() && cluster.map.read().is_some());
        assert!(cluster.master(&map, 20).is_err() && cluster.map.read().is_none());
        // The next map keeps the connections to nodes that are in both maps.
        let next = cluster.learn(&seeds, vec![(0, 29, ("a".to_owned(), 1))], &asked);
        assert!(next.of(20).unwrap().is(map.of(0).unwrap()));
        assert!(cluster.master(&map, 20).is_err() && cluster.map.read().is_some());
        // A single moved slot changes the map, more than once; after several, the map is discarded.
        for (slot, to) in [(5, "b:2"), (5, "c:3"), (6, ":7"), (7, "a:1")] {
            cluster.moved(map.of(0).unwrap(), slot, to);
        }
        let told = cluster.map.read().clone().unwrap();
        assert_eq!(
            [4, 5, 6, 7].map(|slot| told.of(slot).unwrap().place()),
            ["a:1", "c:3", "a:7", "a:1"]
        );
        cluster.moved(map.of(0).unwrap(), 8, "b:2");
        assert!(cluster.map.read().is_none());
    }
}
