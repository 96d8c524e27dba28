//! The connections of a listener: their number, their peers, and which one is closed for a new one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::{AbortHandle, Id};

/// The most connections.
pub(super) const CONNECTIONS_MAX: usize = 512;

/// The state of a connection, as reported by its task.
#[derive(Debug)]
pub(super) struct Slot {
    peer: IpAddr,
    /// The sequence number of the last request; before the first one, of the accept.
    turn: AtomicU64,
    /// A request is being answered.
    busy: AtomicBool,
    /// The client does not read the answer.
    stuck: AtomicBool,
}

impl Slot {
    pub(super) fn new(peer: IpAddr) -> Arc<Self> {
        let turn = AtomicU64::new(turn());
        Arc::new(Slot { peer: peer.to_canonical(), turn, busy: AtomicBool::new(false), stuck: AtomicBool::new(false) })
    }

    pub(super) fn set_stuck(&self, is_stuck: bool) {
        self.stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// Whether the client does not read the answer.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Whether the connection waits for its client.
    fn waits_for_client(&self) -> bool {
        !self.busy.load(Ordering::Relaxed) || self.stuck.load(Ordering::Relaxed)
    }
}

fn turn() -> u64 {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    TURNS.fetch_add(1, Ordering::Relaxed)
}

/// Marks the connection as busy with a request while it lives.
#[derive(Debug)]
pub(super) struct BusyGuard(Arc<Slot>);

impl BusyGuard {
    pub(super) fn new(slot: &Arc<Slot>) -> Self {
        slot.turn.store(turn(), Ordering::Relaxed);
        slot.busy.store(true, Ordering::Relaxed);
        BusyGuard(slot.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct Slots {
    taken: HashMap<Id, (Arc<Slot>, AbortHandle)>,
    /// The most connections.
    most: usize,
    /// The most connections of one peer, so that other peers find room.
    most_of_peer: usize,
}

impl Slots {
    /// No connection yet.
    pub(super) fn new(most: usize, most_of_peer: usize) -> Slots {
        Slots { taken: HashMap::new(), most, most_of_peer }
    }

    /// Whether another connection can be accepted, possibly by closing one.
    pub(super) fn has_room(&self) -> bool {
        self.taken.len() < self.most || self.taken.values().any(|(slot, _)| slot.waits_for_client())
    }

    /// Adds a connection. If its peer is at its limit, a waiting connection of that peer is closed,
    /// or else the new one. If the listener is at its limit, a waiting connection of the peer with
    /// the most connections is closed: the one whose last request is the oldest.
    pub(super) fn add(&mut self, slot: Arc<Slot>, task: AbortHandle) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        if self.taken.len() >= self.most_of_peer {
            self.taken.values().for_each(|(slot, _)| *counts.entry(slot.peer).or_default() += 1);
        }
        let of = |peer: &IpAddr| counts.get(peer).copied().unwrap_or(0);
        let (is_full, is_peer_full) = (self.taken.len() >= self.most, of(&slot.peer) >= self.most_of_peer);
        if is_full || is_peer_full {
            let may_go = self.taken.iter().filter(|(_, (other, _))| other.waits_for_client() && (!is_peer_full || other.peer == slot.peer));
            let goes = may_go.max_by_key(|(_, (other, _))| (of(&other.peer), Reverse(other.turn.load(Ordering::Relaxed))));
            match goes.map(|(id, _)| *id).and_then(|id| self.taken.remove(&id)) {
                Some((_, other)) => other.abort(),
                None if is_peer_full => return task.abort(),
                None => {}
            }
        }
        self.taken.insert(task.id(), (slot, task));
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, id: Id) {
        self.taken.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS_PER_PEER: usize = CONNECTIONS_MAX / 2;

    const CROWD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    struct Table(Slots, tokio::task::JoinSet<()>);

    impl Table {
        fn add(&mut self, peer: IpAddr) -> Arc<Slot> {
            let slot = Slot::new(peer);
            self.0.add(slot.clone(), self.1.spawn(std::future::pending()));
            slot
        }

        fn has(&self, slot: &Arc<Slot>) -> bool {
            self.0.taken.values().any(|(other, _)| Arc::ptr_eq(other, slot))
        }
    }

    #[tokio::test]
    async fn a_peer_at_its_limit_loses_its_least_recent_connection() {
        let mut table = Table(Slots::new(CONNECTIONS_MAX, CONNECTIONS_PER_PEER), tokio::task::JoinSet::new());
        let other = table.add(OTHER);
        let crowd: Vec<_> = (0..CONNECTIONS_PER_PEER).map(|_| table.add(CROWD)).collect();
        drop(BusyGuard::new(&crowd[0]));
        let working = BusyGuard::new(&crowd[1]);
        for _ in 0..2 {
            table.add(CROWD);
        }
        let left: Vec<usize> = (0..5).filter(|n| table.has(&crowd[*n])).collect();
        assert_eq!((left, table.has(&other)), (vec![0, 1, 4], true));
        // A connection whose client does not read its answer also waits for its client.
        crowd[1].set_stuck(true);
        crowd[2..].iter().for_each(|slot| drop(BusyGuard::new(slot)));
        drop(BusyGuard::new(&crowd[0]));
        table.add(CROWD);
        assert!(!table.has(&crowd[1]) && table.has(&crowd[0]));
        drop(working);
    }

    #[tokio::test]
    async fn a_peer_at_its_limit_with_busy_connections_gets_no_more() {
        let mut table = Table(Slots::new(CONNECTIONS_MAX, CONNECTIONS_PER_PEER), tokio::task::JoinSet::new());
        let other = table.add(OTHER);
        let _works: Vec<BusyGuard> = (0..CONNECTIONS_PER_PEER).map(|_| BusyGuard::new(&table.add(CROWD))).collect();
        for _ in 0..CONNECTIONS_MAX {
            let one_more = table.add(CROWD);
            assert!(!table.has(&one_more));
        }
        assert!(table.has(&other) && table.0.has_room());
    }

    #[tokio::test]
    async fn a_busy_connection_is_never_closed_for_a_new_one() {
        let mut table = Table(Slots::new(CONNECTIONS_MAX, CONNECTIONS_PER_PEER), tokio::task::JoinSet::new());
        let mut works = Vec::new();
        let waits = table.add(OTHER);
        for n in 1..CONNECTIONS_MAX {
            let peer = IpAddr::V4(std::net::Ipv4Addr::from(u32::try_from(n).unwrap() % 5));
            works.push(BusyGuard::new(&table.add(peer)));
        }
        assert!(table.0.has_room());
        let newest = table.add(CROWD);
        assert!(!table.has(&waits) && table.has(&newest));
        works.push(BusyGuard::new(&newest));
        assert!(!table.0.has_room(), "all are busy");
        works.pop();
        assert!(table.0.has_room());
    }
}
