//! The connections of a listener: their number, their peers, and which one is closed for a new one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id};

use super::held;
use super::room::{ConnectionPermit, Room};
use super::slot::Slot;
use crate::clock::{self, Instant};

/// The most connections.
pub(super) const MAX_CONNECTIONS: usize = 512;
/// The least time between two lines of the log about refused connections.
const REFUSED_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct Slots {
    taken: HashMap<Id, Taken>,
    /// The most connections.
    most: usize,
    /// The most connections of one peer, so that other peers find room.
    most_of_peer: usize,
    /// The room that the listeners share.
    room: Room,
    /// The connections that were closed before their first request since the last line of the log
    /// about them, and when that was.
    refused: usize,
    told_at: Option<Instant>,
}

#[derive(Debug)]
struct Taken {
    slot: Arc<Slot>,
    task: AbortHandle,
    /// In the room of all listeners, beyond the listener's own.
    permit: Option<ConnectionPermit>,
}

/// The room of one connection, with its permit in that of all listeners.
#[derive(Debug)]
pub(super) struct Vacancy(Option<ConnectionPermit>);

impl Slots {
    /// No connection yet.
    pub(super) fn new(most: usize, most_of_peer: usize, room: Room) -> Slots {
        Slots { taken: HashMap::new(), most, most_of_peer, room, refused: 0, told_at: None }
    }

    /// Whether another connection can be accepted, possibly by closing one.
    pub(super) fn has_room(&self) -> bool {
        let is_free = self.taken.len() < self.most
            && (self.taken.len() < self.room.own() || self.room.has_place());
        is_free || self.taken.values().any(|taken| taken.slot.waits_for_client())
    }

    /// Makes room for a connection of this peer; `None`: there is none. If the peer is at its
    /// limit, a waiting connection of its own is closed. If the listener is at its limit, or the
    /// listeners together are, a waiting connection of the peer with the most connections is
    /// closed: the one whose last request is the oldest.
    ///
    /// `may_wait`: the new connection can be held meanwhile. Then a peer at its limit has no room
    /// either where few of its connections wait, and the one to close had no time to ask.
    pub(super) fn make_room(&mut self, peer: IpAddr, may_wait: bool) -> Option<Vacancy> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        if self.taken.len() >= self.most_of_peer {
            self.taken
                .values()
                .for_each(|taken| *counts.entry(taken.slot.peer()).or_default() += 1);
        }
        let of = |peer: IpAddr| counts.get(&peer).copied().unwrap_or(0);
        let mut permit = if self.taken.len() < self.room.own() { None } else { self.room.take() };
        let is_full = self.taken.len() >= self.most
            || self.taken.len() >= self.room.own() && permit.is_none();
        let is_peer_full = of(peer) >= self.most_of_peer;
        if is_full || is_peer_full {
            let others = self.taken.iter().map(|(id, taken)| (*id, &taken.slot));
            let may_go = others.filter(|(_, other)| {
                other.waits_for_client() && (!is_peer_full || other.peer() == peer)
            });
            let are_few = may_wait && is_peer_full && may_go.clone().count() <= held::MAX_OF_PEER;
            // A connection that waits for buffers goes last: its client waits for an answer.
            let goes = may_go.max_by_key(|(_, other)| {
                (!other.is_queued(), of(other.peer()), Reverse(other.turn()))
            });
            let goes = goes.filter(|(_, other)| !(are_few && other.is_new())).map(|(id, _)| id);
            match goes.and_then(|id| self.taken.remove(&id)) {
                Some(other) => {
                    other.task.abort();
                    permit = permit.or(other.permit);
                    if !other.slot.has_begun() {
                        self.refused(other.slot.peer());
                    }
                }
                // The peer has no more; or the last place went to another listener, or to a
                // connection that began a request.
                None => {
                    if !may_wait {
                        self.refused(peer);
                    }
                    return None;
                }
            }
        }
        Some(Vacancy(permit))
    }

    /// Adds the connection for which there is this room.
    pub(super) fn add(&mut self, slot: Arc<Slot>, task: AbortHandle, Vacancy(permit): Vacancy) {
        self.taken.insert(task.id(), Taken { slot, task, permit });
    }

    /// Counts a connection that is closed before its first request, and tells of those of the last
    /// minute.
    fn refused(&mut self, peer: IpAddr) {
        self.refused += 1;
        let now = clock::now();
        if self.told_at.is_some_and(|told| now < told + REFUSED_LOG_INTERVAL) {
            return;
        }
        tracing::warn!(
            %peer,
            refused = self.refused,
            most = self.most,
            most_of_peer = self.most_of_peer,
            "connections were closed before their first request, for lack of room"
        );
        (self.refused, self.told_at) = (0, Some(now));
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, id: Id) {
        self.taken.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::{BusyGuard, STALL_TIMEOUT};
    use super::*;
    use crate::http::server::waits::WaitShare;

    const MAX_CONNECTIONS_PER_PEER: usize = MAX_CONNECTIONS / 2;

    const CROWD_PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER_PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    struct Table(Slots, tokio::task::JoinSet<()>);

    impl Table {
        fn add(&mut self, peer: IpAddr) -> Arc<Slot> {
            let slot = Slot::new(peer, WaitShare::endless());
            if let Some(room) = self.0.make_room(peer, false) {
                self.0.add(slot.clone(), self.1.spawn(std::future::pending()), room);
            }
            slot
        }

        /// Whether there is room for a connection that could be held.
        fn takes(&mut self, peer: IpAddr) -> bool {
            self.0.make_room(peer, true).is_some()
        }

        fn has(&self, slot: &Arc<Slot>) -> bool {
            self.0.taken.values().any(|taken| Arc::ptr_eq(&taken.slot, slot))
        }
    }

    #[tokio::test]
    async fn a_peer_at_its_limit_loses_its_least_recent_connection() {
        let mut table = Table(
            Slots::new(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_PEER, Room::default()),
            tokio::task::JoinSet::new(),
        );
        let other = table.add(OTHER_PEER);
        let crowd: Vec<_> = (0..MAX_CONNECTIONS_PER_PEER).map(|_| table.add(CROWD_PEER)).collect();
        drop(BusyGuard::new(&crowd[0]));
        let working = BusyGuard::new(&crowd[1]);
        assert_eq!(table.0.told_at, None);
        for _ in 0..2 {
            table.add(CROWD_PEER);
        }
        assert!(table.0.told_at.is_some() && table.0.refused == 1, "both had no request");
        let left: Vec<usize> = (0..5).filter(|n| table.has(&crowd[*n])).collect();
        assert_eq!((left, table.has(&other)), (vec![0, 1, 4], true));
        // A connection whose client does not read its answer also waits for its client.
        crowd[1].set_stuck(true);
        crowd[2..].iter().for_each(|slot| drop(BusyGuard::new(slot)));
        drop(BusyGuard::new(&crowd[0]));
        table.add(CROWD_PEER);
        assert!(!table.has(&crowd[1]) && table.has(&crowd[0]));
        assert_eq!(table.0.refused, 1, "an idle one is no loss");
        drop(working);
    }

    #[tokio::test]
    async fn a_peer_at_its_limit_with_busy_connections_gets_no_more() {
        let mut table = Table(
            Slots::new(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_PEER, Room::default()),
            tokio::task::JoinSet::new(),
        );
        let other = table.add(OTHER_PEER);
        assert_eq!(table.0.told_at, None);
        let _works: Vec<BusyGuard> =
            (0..MAX_CONNECTIONS_PER_PEER).map(|_| BusyGuard::new(&table.add(CROWD_PEER))).collect();
        for _ in 0..MAX_CONNECTIONS {
            let one_more = table.add(CROWD_PEER);
            assert!(!table.has(&one_more));
        }
        assert!(table.has(&other) && table.0.has_room());
        // The first one is told of at once, the others in the next minute.
        assert!(table.0.told_at.is_some() && table.0.refused > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_be_held_waits_for_a_busy_connection_and_for_a_new_one_alone() {
        let table = |most_of_peer| {
            Table(Slots::new(9, most_of_peer, Room::default()), tokio::task::JoinSet::new())
        };
        let mut few = table(2);
        let works = BusyGuard::new(&few.add(CROWD_PEER));
        assert!(few.takes(CROWD_PEER) && few.takes(OTHER_PEER));
        let new = few.add(CROWD_PEER);
        assert!(!few.takes(CROWD_PEER), "one is busy, and one is new");
        assert!(few.takes(OTHER_PEER));
        clock::sleep(STALL_TIMEOUT / 2).await;
        new.received();
        assert!(!few.takes(CROWD_PEER) && few.0.told_at.is_none(), "nobody was refused");
        clock::sleep(STALL_TIMEOUT / 2).await;
        assert!(few.takes(CROWD_PEER) && !few.has(&new), "a byte makes it no newer");
        let new = few.add(CROWD_PEER);
        assert!(!few.takes(CROWD_PEER));
        drop(works);
        assert!(few.takes(CROWD_PEER) && few.has(&new), "one waits for its next request");
        let mut many = table(3);
        let burst = [(); 3].map(|()| many.add(CROWD_PEER));
        assert!(many.takes(CROWD_PEER), "all are new, and more than probes are");
        assert_eq!(burst.each_ref().map(|slot| many.has(slot)), [false, true, true]);
    }

    #[tokio::test]
    async fn a_busy_connection_is_never_closed_for_a_new_one() {
        let mut table = Table(
            Slots::new(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_PEER, Room::default()),
            tokio::task::JoinSet::new(),
        );
        let mut works = Vec::new();
        let waits = table.add(OTHER_PEER);
        for n in 1..MAX_CONNECTIONS {
            let peer = IpAddr::V4(std::net::Ipv4Addr::from(u32::try_from(n).unwrap() % 5));
            works.push(BusyGuard::new(&table.add(peer)));
        }
        assert!(table.0.has_room());
        let newest = table.add(CROWD_PEER);
        assert!(!table.has(&waits) && table.has(&newest));
        works.push(BusyGuard::new(&newest));
        assert!(!table.0.has_room(), "all are busy");
        works.pop();
        assert!(table.0.has_room());
    }

    #[tokio::test]
    async fn a_connection_that_waits_for_buffers_is_the_last_that_is_closed() {
        let mut table = Table(Slots::new(3, 3, Room::default()), tokio::task::JoinSet::new());
        let [first, second, third] = [(); 3].map(|()| table.add(CROWD_PEER));
        first.set_queued(true);
        table.add(OTHER_PEER);
        assert_eq!([&first, &second, &third].map(|slot| table.has(slot)), [true, false, true]);
    }

    #[tokio::test]
    async fn listeners_that_share_their_room_leave_each_other_some() {
        let room = Room::of(64);
        let table = || {
            Table(
                Slots::new(MAX_CONNECTIONS, MAX_CONNECTIONS, room.clone()),
                tokio::task::JoinSet::new(),
            )
        };
        let (mut one, mut other) = (table(), table());
        let mut works = Vec::new();
        while one.0.has_room() {
            works.push(BusyGuard::new(&one.add(CROWD_PEER)));
        }
        assert_eq!(works.len(), room.most());
        works.extend((0..room.own()).map(|_| BusyGuard::new(&other.add(OTHER_PEER))));
        assert!(!other.0.has_room(), "all are busy");
        let refused = other.add(OTHER_PEER);
        assert!(!other.has(&refused));
        works.pop();
        let newest = other.add(OTHER_PEER);
        assert!(other.has(&newest), "one that waits for its client is closed for it");
    }
}
