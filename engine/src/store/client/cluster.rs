//! The masters of a cluster, and which of them has which slots: a wire to each, by a map that is asked for again when it proves old.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use parking_lot::RwLock;
use redis::{ConnectionInfo, Value};

use super::connection::{Connection, To};
use super::endpoint;
use crate::config::Redis;
use crate::store::error::{Class, StoreError};

/// So many slots has every cluster.
const SLOTS: u16 = 16_384;

/// A map that was told of more slots than these is asked for anew.
const TOLD_MAX: usize = 4;

/// Host and port.
type Address = (String, u16);

/// The masters that serve, by slots.
pub(super) struct Cluster {
    settings: Redis,
    map: RwLock<Option<Arc<SlotMap>>>,
    /// The map that was last asked for, forgotten or not.
    last: RwLock<Option<Arc<SlotMap>>>,
    asking: tokio::sync::Mutex<()>,
    /// Who is asked again only where no other answers: the node whose map proved old, and the one that failed.
    doubted: RwLock<Vec<Connection>>,
    /// Who is asked: the places of the settings, and the masters, because the former may all have gone.
    known: RwLock<HashMap<Address, Connection>>,
}

/// Who has what.
pub(super) struct SlotMap {
    /// First and last slot, and the place of its master among `masters`.
    ranges: Vec<(u16, u16, usize)>,
    pub(super) masters: Vec<Connection>,
    /// How many slots it was told of since it was asked for: their ranges stand first.
    told: usize,
    /// Who gave it.
    source: Connection,
}

impl Cluster {
    /// A cluster that was not asked for anything yet.
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

    /// The map, asked for where there is none.
    pub(super) async fn map(&self) -> Result<Arc<SlotMap>, StoreError> {
        let current = self.map.read().clone();
        match current {
            Some(map) => Ok(map),
            // Rare, and its future is large and deep.
            None => self.ask_all().boxed().await,
        }
    }

    async fn ask_all(&self) -> Result<Arc<SlotMap>, StoreError> {
        let _one_at_a_time = self.asking.lock().await;
        if let Some(map) = self.map.read().clone() {
            return Ok(map);
        }
        let seeds = self.seeds()?;
        let known: Vec<Connection> = {
            let mut known = self.known.write();
            for (address, info) in seeds {
                known.entry(address).or_insert_with(|| Connection::new(To::Node(Box::new(info))));
            }
            known.values().cloned().collect()
        };
        let (doubted, others) = self.by_doubt(known);
        let mut last = None;
        for nodes in [others, doubted].into_iter().filter(|nodes| !nodes.is_empty()) {
            // All at once, and the first one counts: one that hangs must not keep the others from being heard.
            match select_ok(nodes.into_iter().map(|wire| Box::pin(self.ask(wire)))).await {
                Ok((map, _)) => return Ok(map),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| StoreError::new(Class::Settings, "redis.urls is empty")))
    }

    /// Who is doubted, and who is not: a node that does not know of a failover yet, and is near, would be the first to answer each time.
    fn by_doubt(&self, known: Vec<Connection>) -> (Vec<Connection>, Vec<Connection>) {
        let doubted = self.doubted.read();
        known.into_iter().partition(|wire| doubted.iter().any(|other| other.is(wire)))
    }

    /// A master said that another has this slot: its word counts until the map is asked for anew, which it is where it had to be repaired often.
    pub(super) fn moved(&self, node: &Connection, slot: u16, to: &str) {
        // In this order, as where a map is learned.
        let (mut known, mut current) = (self.known.write(), self.map.write());
        let Some(map) = current.clone().filter(|map| map.told < TOLD_MAX) else {
            drop(current);
            self.forget(node);
            return;
        };
        let (Ok(seeds), Some((host, Ok(port)))) = (self.seeds(), to.rsplit_once(':').map(|(host, port)| (host, port.parse()))) else {
            drop(current);
            self.forget(node);
            return;
        };
        // An empty host is that of the node which says so.
        let place = node.place();
        let host = if host.is_empty() { place.rsplit_once(':').map_or(&*place, |(host, _)| host) } else { host };
        let wire = known.entry((host.to_owned(), port)).or_insert_with(|| node_wire(&seeds, host, port)).clone();
        let mut masters = map.masters.clone();
        let at = masters.iter().position(|master| master.is(&wire)).unwrap_or_else(|| {
            masters.push(wire);
            masters.len() - 1
        });
        let ranges =
            std::iter::once((slot, slot, at)).chain(map.ranges.iter().copied().filter(|range| *range != (slot, slot, at))).collect();
        *current = Some(Arc::new(SlotMap { ranges, masters, told: map.told + 1, source: map.source.clone() }));
    }

    /// The master of this slot. A map without one may have been learned while the cluster was being made: it is asked for anew.
    pub(super) fn master<'m>(&self, map: &'m Arc<SlotMap>, slot: u16) -> Result<&'m Connection, StoreError> {
        map.of(slot).inspect_err(|_| {
            let mut current = self.map.write();
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, map)) {
                *self.doubted.write() = vec![map.source.clone()];
                *current = None;
            }
        })
    }

    /// The last map, even if it may be old.
    pub(super) fn last(&self) -> Option<Arc<SlotMap>> {
        self.last.read().clone()
    }

    /// The map may be old: the next call asks again, and others than this one, which failed, before it. A map in which it is no master says
    /// already what its failure could tell.
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

    fn seeds(&self) -> Result<Vec<(Address, ConnectionInfo)>, StoreError> {
        Ok(endpoint::infos(&self.settings)?.into_iter().map(|info| (endpoint::address(&info), info)).collect())
    }

    async fn ask(&self, node: Connection) -> Result<Arc<SlotMap>, StoreError> {
        let seeds = self.seeds()?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let answer = node.command("CLUSTER SLOTS", &command).await.map_err(|error| {
            if error.message.contains("cluster support disabled") {
                return StoreError { class: Class::Settings, ..error }.hint("set redis.mode = \"single\": this server is no cluster");
            }
            error
        })?;
        let ranges = slots(answer, &node.place());
        if ranges.is_empty() {
            return Err(StoreError::new(Class::Unserved, format!("redis: {} knows of no master that has slots", node.place())));
        }
        Ok(self.learn(&seeds, ranges, &node))
    }

    /// Keeps the wires to those that are masters still.
    fn learn(&self, seeds: &[(Address, ConnectionInfo)], found: Vec<(u16, u16, Address)>, source: &Connection) -> Arc<SlotMap> {
        let mut known = self.known.write();
        let mut places: HashMap<Address, usize> = HashMap::new();
        let (mut ranges, mut masters) = (Vec::new(), Vec::new());
        for (first, last, address) in found {
            let at = *places.entry(address.clone()).or_insert_with(|| {
                masters.push(known.get(&address).cloned().unwrap_or_else(|| node_wire(seeds, &address.0, address.1)));
                masters.len() - 1
            });
            ranges.push((first, last, at));
        }
        known.retain(|address, _| seeds.iter().any(|(seed, _)| seed == address));
        known.extend(places.into_iter().map(|(address, at)| (address, masters[at].clone())));
        let map = Arc::new(SlotMap { ranges, masters, told: 0, source: source.clone() });
        *self.last.write() = Some(map.clone());
        *self.map.write() = Some(map.clone());
        map
    }
}

fn node_wire(seeds: &[(Address, ConnectionInfo)], host: &str, port: u16) -> Connection {
    Connection::new(To::Node(Box::new(endpoint::elsewhere(&seeds[0].1, host, port))))
}

impl SlotMap {
    pub(super) fn of(&self, slot: u16) -> Result<&Connection, StoreError> {
        let range = self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        range.map(|(_, _, at)| &self.masters[*at]).ok_or_else(|| {
            StoreError::new(Class::Unserved, format!("redis: no master of the cluster has slot {slot}"))
                .hint("look at `CLUSTER INFO`: every slot must have a master")
        })
    }
}

/// First slot, last slot and master of each range that CLUSTER SLOTS names. A node that does not know its own name is where it was asked.
fn slots(answer: Value, asked: &str) -> Vec<(u16, u16, Address)> {
    let host_asked = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
    let Value::Array(ranges) = answer else { return Vec::new() };
    let range = |range: Value| {
        let Value::Array(items) = range else { return None };
        let mut items = items.into_iter();
        let (Some(Value::Int(first)), Some(Value::Int(last)), Some(Value::Array(master))) = (items.next(), items.next(), items.next())
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
        // `?`: a node whose name is not known to the one that was asked.
        let address = (host != "?").then(|| Some((host, u16::try_from(port).ok()?)))??;
        Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?, address))
    };
    ranges.into_iter().filter_map(range).collect()
}

/// The slot of a key: of its hash tag, where it has one.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    // CRC-16/XMODEM, as the specification of Redis Cluster has it.
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
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
        Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(port), Value::BulkString(b"name".to_vec())])
    }

    fn cluster() -> Cluster {
        let settings = Redis {
            mode: crate::config::RedisMode::Cluster,
            urls: vec!["redis://user:word@seed:1".to_owned()],
            master: String::new(),
            namespace: String::new(),
            buckets: 1,
            durability: crate::config::Durability::Memory,
            assume_fsync: false,
        };
        Cluster::new(&settings)
    }

    #[test]
    fn whose_map_proved_old_is_asked_after_all_others() {
        let cluster = cluster();
        let seeds = cluster.seeds().unwrap();
        let [near, far] = ["near", "far"].map(|host| node_wire(&seeds, host, 1));
        let dead = vec![(0, 9, ("dead".to_owned(), 1)), (10, 19, ("b".to_owned(), 2))];
        let map = cluster.learn(&seeds, dead, &near);
        let (dead, other) = (map.of(0).unwrap(), map.of(10).unwrap());
        let asked = || {
            let all = vec![near.clone(), far.clone(), dead.clone(), other.clone()];
            cluster.by_doubt(all).1.iter().map(Connection::place).collect::<Vec<_>>()
        };
        // Several calls fail, of both masters.
        cluster.forget(dead);
        cluster.forget(dead);
        assert_eq!(asked(), ["far:1", "b:2"]);
        cluster.forget(other);
        assert_eq!(asked(), ["far:1"]);
        // Who told the news counts as much as any when it is old again; a failure of who is no master any more says nothing of it.
        let next = cluster.learn(&seeds, vec![(0, 19, ("b".to_owned(), 2))], &far);
        cluster.forget(dead);
        assert!(cluster.map.read().is_some());
        cluster.forget(next.of(0).unwrap());
        assert_eq!((cluster.map.read().is_none(), asked()), (true, vec!["near:1".to_owned(), "dead:1".to_owned()]));
    }

    #[test]
    fn a_map_is_read_with_its_gaps_and_without_what_cannot_be_reached() {
        let range = |first, last, master| Value::Array(vec![Value::Int(first), Value::Int(last), master, node("replica", 1)]);
        let answer = Value::Array(vec![range(0, 9, node("a", 1)), range(10, 19, node("", 2)), range(20, 29, node("?", 3)), Value::Nil]);
        let found = slots(answer, "asked.example:6379");
        assert_eq!(found, [(0, 9, ("a".to_owned(), 1)), (10, 19, ("asked.example".to_owned(), 2))]);
        let cluster = cluster();
        let seeds = cluster.seeds().unwrap();
        let asked = node_wire(&seeds, "asked.example", 6379);
        let map = cluster.learn(&seeds, found, &asked);
        assert_eq!(map.of(9).unwrap().place(), "a:1");
        assert_eq!(map.of(20).err().map(|error| error.class), Some(Class::Unserved));
        // A map with a gap does not stay; one that was learned since is not forgotten for it.
        assert!(cluster.master(&map, 9).is_ok() && cluster.map.read().is_some());
        assert!(cluster.master(&map, 20).is_err() && cluster.map.read().is_none());
        // Another map keeps the wire to who is in both.
        let next = cluster.learn(&seeds, vec![(0, 29, ("a".to_owned(), 1))], &asked);
        assert!(next.of(20).unwrap().is(map.of(0).unwrap()));
        assert!(cluster.master(&map, 20).is_err() && cluster.map.read().is_some());
        // Of one slot another's word counts, and again another's; told often, all is asked for anew.
        for (slot, to) in [(5, "b:2"), (5, "c:3"), (6, ":7"), (7, "a:1")] {
            cluster.moved(map.of(0).unwrap(), slot, to);
        }
        let told = cluster.map.read().clone().unwrap();
        assert_eq!([4, 5, 6, 7].map(|slot| told.of(slot).unwrap().place()), ["a:1", "c:3", "a:7", "a:1"]);
        cluster.moved(map.of(0).unwrap(), 8, "b:2");
        assert!(cluster.map.read().is_none());
    }
}
