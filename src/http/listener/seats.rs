//! The connections of a listener: how many, of whom, and which one makes room for a new one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::{AbortHandle, Id};

/// The most connections at once.
pub(super) const MOST: usize = 512;
/// The most of one peer, so that one that comes from elsewhere finds room.
pub(super) const MOST_OF_PEER: usize = MOST / 2;

/// One connection, as its own task tells of it.
#[derive(Debug)]
pub(super) struct Seat {
    peer: IpAddr,
    /// Its last request, in the order of all; until the first one, when it was accepted.
    turn: AtomicU64,
    /// A request is being answered.
    at_work: AtomicBool,
    /// The client does not take what is written.
    stuck: AtomicBool,
}

impl Seat {
    pub(super) fn new(peer: IpAddr) -> Arc<Self> {
        let turn = AtomicU64::new(turn());
        Arc::new(Seat { peer: peer.to_canonical(), turn, at_work: AtomicBool::new(false), stuck: AtomicBool::new(false) })
    }

    pub(super) fn set_stuck(&self, is_stuck: bool) {
        self.stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// Nothing goes on there before the client does something.
    fn waits_for_client(&self) -> bool {
        !self.at_work.load(Ordering::Relaxed) || self.stuck.load(Ordering::Relaxed)
    }
}

fn turn() -> u64 {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    TURNS.fetch_add(1, Ordering::Relaxed)
}

/// A request is being answered on this connection, as long as this lives.
#[derive(Debug)]
pub(super) struct Work(Arc<Seat>);

impl Work {
    pub(super) fn on(seat: &Arc<Seat>) -> Self {
        seat.turn.store(turn(), Ordering::Relaxed);
        seat.at_work.store(true, Ordering::Relaxed);
        Work(seat.clone())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.at_work.store(false, Ordering::Relaxed);
    }
}

/// All connections of a listener.
#[derive(Debug, Default)]
pub(super) struct Seats(HashMap<Id, (Arc<Seat>, AbortHandle)>);

impl Seats {
    /// Whether one more can be taken, be it in place of another.
    pub(super) fn has_room(&self) -> bool {
        self.0.len() < MOST || self.0.values().any(|(seat, _)| seat.waits_for_client())
    }

    /// Takes one more. Where its peer has its share, one of that peer that waits for its client is closed, or else the new one. Where there are too many of
    /// all, one that waits is closed: of the peer that has the most, the one that asked least recently.
    pub(super) fn take(&mut self, seat: Arc<Seat>, task: AbortHandle) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        if self.0.len() >= MOST_OF_PEER {
            self.0.values().for_each(|(seat, _)| *counts.entry(seat.peer).or_default() += 1);
        }
        let of = |peer: &IpAddr| counts.get(peer).copied().unwrap_or(0);
        let (is_full, is_crowd) = (self.0.len() >= MOST, of(&seat.peer) >= MOST_OF_PEER);
        if is_full || is_crowd {
            let may_go = self.0.iter().filter(|(_, (other, _))| other.waits_for_client() && (!is_crowd || other.peer == seat.peer));
            let goes = may_go.max_by_key(|(_, (other, _))| (of(&other.peer), Reverse(other.turn.load(Ordering::Relaxed))));
            match goes.map(|(id, _)| *id).and_then(|id| self.0.remove(&id)) {
                Some((_, other)) => other.abort(),
                None if is_crowd => return task.abort(),
                None => {}
            }
        }
        self.0.insert(task.id(), (seat, task));
    }

    /// This one ended.
    pub(super) fn leave(&mut self, id: Id) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    struct Table(Seats, tokio::task::JoinSet<()>);

    impl Table {
        fn add(&mut self, peer: IpAddr) -> Arc<Seat> {
            let seat = Seat::new(peer);
            self.0.take(seat.clone(), self.1.spawn(std::future::pending()));
            seat
        }

        fn has(&self, seat: &Arc<Seat>) -> bool {
            self.0.0.values().any(|(other, _)| Arc::ptr_eq(other, seat))
        }
    }

    #[tokio::test]
    async fn a_peer_that_has_its_share_loses_the_connection_that_asked_least_recently() {
        let mut table = Table(Seats::default(), tokio::task::JoinSet::new());
        let other = table.add(OTHER);
        let crowd: Vec<_> = (0..MOST_OF_PEER).map(|_| table.add(CROWD)).collect();
        drop(Work::on(&crowd[0]));
        let working = Work::on(&crowd[1]);
        for _ in 0..2 {
            table.add(CROWD);
        }
        let left: Vec<usize> = (0..5).filter(|n| table.has(&crowd[*n])).collect();
        assert_eq!((left, table.has(&other)), (vec![0, 1, 4], true));
        // One that does not take its answer waits for its client too.
        crowd[1].set_stuck(true);
        crowd[2..].iter().for_each(|seat| drop(Work::on(seat)));
        drop(Work::on(&crowd[0]));
        table.add(CROWD);
        assert!(!table.has(&crowd[1]) && table.has(&crowd[0]));
        drop(working);
    }

    #[tokio::test]
    async fn a_peer_whose_share_is_all_at_work_has_no_more_and_takes_nobody_elses() {
        let mut table = Table(Seats::default(), tokio::task::JoinSet::new());
        let other = table.add(OTHER);
        let _works: Vec<Work> = (0..MOST_OF_PEER).map(|_| Work::on(&table.add(CROWD))).collect();
        for _ in 0..MOST {
            let one_more = table.add(CROWD);
            assert!(!table.has(&one_more));
        }
        assert!(table.has(&other) && table.0.has_room());
    }

    #[tokio::test]
    async fn who_is_at_work_is_left_alone_and_takes_no_room_from_who_waits() {
        let mut table = Table(Seats::default(), tokio::task::JoinSet::new());
        let mut works = Vec::new();
        let waits = table.add(OTHER);
        for n in 1..MOST {
            let peer = IpAddr::V4(std::net::Ipv4Addr::from(u32::try_from(n).unwrap() % 5));
            works.push(Work::on(&table.add(peer)));
        }
        assert!(table.0.has_room());
        let newest = table.add(CROWD);
        assert!(!table.has(&waits) && table.has(&newest));
        works.push(Work::on(&newest));
        assert!(!table.0.has_room(), "all are at work");
        works.pop();
        assert!(table.0.has_room());
    }
}
