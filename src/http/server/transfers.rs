//! The large bodies of requests and answers that are on their way. Where their memory is used up,
//! those of the slowest clients end: nobody keeps others from it by not sending or not reading.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::budget::{Budget, Share, UsedUp};
use crate::clock::{self, Instant};

/// A client that has not taken an answer after this time, or sends nothing of a body for so long,
/// loses it where others need the room.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time that a body stands in line for its room.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends one body, or its connection. Clones end the same one.
pub(super) type HangUp = Arc<Notify>;

/// The bodies of one direction, over all connections of some listeners. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Transfers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: Budget,
    /// In this order bodies get their room: a large one is not passed by small ones for ever.
    line: Line,
    /// The lines of the peers. One body of each stands in the line of all, so that a peer waits for
    /// one body of each other, however many these have.
    of_peers: Mutex<HashMap<IpAddr, Arc<Line>>>,
    begun: Mutex<Ordered>,
}

type Line = tokio::sync::Mutex<()>;

/// Bodies in the order in which they began or went on.
#[derive(Debug, Default)]
struct Ordered {
    next: u64,
    by_age: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    since: Instant,
    bytes: usize,
    hang_up: HangUp,
}

/// The room of one body. Dropped, the room is free.
#[derive(Debug)]
pub(super) struct Transfer {
    transfers: Transfers,
    /// Of a body that waits for its client.
    number: Option<u64>,
    hang_up: HangUp,
    share: Share,
}

impl Transfers {
    /// Room for so many bytes.
    pub(super) fn new(bytes: usize) -> Transfers {
        Transfers(Arc::new(Inner {
            budget: Budget::new(bytes),
            line: Line::default(),
            of_peers: Mutex::default(),
            begun: Mutex::default(),
        }))
    }

    /// Takes room for a body of this peer, which `hang_up` ends. A body that is larger than all of
    /// the room takes all. Waits some seconds for others, and ends those whose clients are slow.
    ///
    /// # Errors
    /// The room is used up by bodies that go on.
    pub(super) async fn take(
        &self,
        bytes: usize,
        peer: IpAddr,
        hang_up: &HangUp,
    ) -> Result<Transfer, UsedUp> {
        let (budget, bytes) = (&self.0.budget, bytes.min(self.0.budget.bytes()));
        let of_peer = self.line_of(peer);
        let stand = async { (of_peer.lock().await, self.0.line.lock().await) };
        let _place = clock::timeout(ROOM_TIMEOUT, stand).await.ok_or(UsedUp)?;
        let mut share = budget.share();
        if !share.grow(bytes) {
            self.hang_up_on_slow(bytes);
            share = match budget.take(bytes).await {
                Ok(share) => share,
                Err(UsedUp) => {
                    self.hang_up_on_slow(bytes);
                    budget.take(bytes).await?
                }
            };
        }
        Ok(Transfer { transfers: self.clone(), number: None, hang_up: hang_up.clone(), share })
    }

    fn line_of(&self, peer: IpAddr) -> Arc<Line> {
        let mut of_peers = self.0.of_peers.lock();
        if let Some(line) = of_peers.get(&peer) {
            return line.clone();
        }
        // Those in which nobody stands.
        of_peers.retain(|_, line| Arc::strong_count(line) > 1);
        of_peers.entry(peer).or_default().clone()
    }

    /// Whether half of the room is free.
    pub(super) fn is_half_free(&self) -> bool {
        self.0.budget.free() >= self.0.budget.bytes() / 2
    }

    /// Ends the bodies of the slowest clients, until so many bytes come back.
    fn hang_up_on_slow(&self, bytes: usize) {
        let (now, mut back) = (clock::now(), 0);
        let mut begun = self.0.begun.lock();
        while back < bytes
            && let Some(oldest) = begun.by_age.first_entry()
            && now.saturating_duration_since(oldest.get().since) >= STALL_TIMEOUT
        {
            let slow = oldest.remove();
            back += slow.bytes;
            slow.hang_up.notify_one();
            tracing::debug!(
                bytes = slow.bytes,
                "a body ends: its client does not send or read, and others need the memory"
            );
        }
    }
}

impl Transfer {
    /// The bytes of the room.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.share.bytes()
    }

    /// Keeps at most so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.share.shrink_to(bytes);
    }

    /// From now on the body waits for its client.
    pub(super) fn goes_on(&mut self) {
        self.rests();
        let entry =
            Entry { since: clock::now(), bytes: self.share.bytes(), hang_up: self.hang_up.clone() };
        let mut begun = self.transfers.0.begun.lock();
        let number = begun.next;
        begun.next += 1;
        begun.by_age.insert(number, entry);
        self.number = Some(number);
    }

    /// The body waits for its client no more.
    pub(super) fn rests(&mut self) {
        if let Some(number) = self.number.take() {
            self.transfers.0.begun.lock().by_age.remove(&number);
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.rests();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn the_oldest_slow_client_makes_room() {
        let answers = Transfers::new(10);
        let clients: Vec<HangUp> = (0..4).map(|_| HangUp::default()).collect();
        let mut held = Vec::new();
        for client in &clients[..2] {
            let mut answer = answers.take(5, PEER, client).await.unwrap();
            answer.goes_on();
            held.push(answer);
        }
        // Its connection ends, and with it its answer: here by hand.
        let (first, second) = (held.remove(0), held.remove(0));
        let ends = clients[0].clone();
        let gone = tokio::spawn(async move {
            ends.notified().await;
            drop(first);
        });
        let mut third = answers.take(4, PEER, &clients[2]).await.unwrap();
        third.goes_on();
        gone.await.unwrap();
        assert_eq!(
            (third.bytes(), clients[1].notified().now_or_never()),
            (4, None),
            "one is enough"
        );
        // Answers that have just begun make no room.
        drop(second);
        let fourth = answers.take(6, PEER, &clients[3]).await.unwrap();
        assert_eq!((fourth.bytes(), clients[2].notified().now_or_never()), (6, None));
        assert!(!answers.is_half_free());
        drop(fourth);
        assert!(answers.is_half_free());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_on_is_not_slow_and_nobody_overtakes_a_large_body() {
        let bodies = Transfers::new(10);
        let [sends, rests] = [(); 2].map(|()| HangUp::default());
        let (mut first, mut second) = (
            bodies.take(5, PEER, &sends).await.unwrap(),
            bodies.take(5, PEER, &rests).await.unwrap(),
        );
        [&mut first, &mut second].into_iter().for_each(Transfer::goes_on);
        clock::sleep(STALL_TIMEOUT).await;
        first.goes_on();
        let ends = rests.clone();
        tokio::spawn(async move {
            ends.notified().await;
            drop(second);
            clock::sleep(STALL_TIMEOUT / 2).await;
            drop(first);
        });
        let take = |bytes| {
            let bodies = bodies.clone();
            tokio::spawn(async move { bodies.take(bytes, PEER, &HangUp::default()).await })
        };
        let large = take(10);
        tokio::task::yield_now().await;
        // Five are free soon, and the large one is before it.
        let small = take(1);
        let large = large.await.unwrap().unwrap();
        assert_eq!(
            (large.bytes(), sends.notified().now_or_never(), small.is_finished()),
            (10, None, false)
        );
        drop(large);
        assert_eq!(small.await.unwrap().unwrap().bytes(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_gives_back_is_waited_for_two_seconds() {
        let answers = Transfers::new(10);
        let _held = answers.take(20, PEER, &HangUp::default()).await.unwrap();
        let begun = clock::now();
        assert_eq!(answers.take(1, PEER, &HangUp::default()).await.err(), Some(UsedUp));
        assert_eq!(clock::now() - begun, Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_deaf_clients_of_one_peer_keep_no_other_peer_in_line() {
        let answers = Transfers::new(10);
        let deaf = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        // Each takes all of the room, and reads nothing until its connection ends.
        for number in 0..200 {
            let answers = answers.clone();
            tokio::spawn(async move {
                clock::sleep(Duration::from_millis(10 * number)).await;
                let hang_up = HangUp::default();
                if let Ok(mut answer) = answers.take(10, deaf, &hang_up).await {
                    answer.goes_on();
                    hang_up.notified().await;
                }
            });
        }
        clock::sleep(Duration::from_millis(1750)).await;
        let begun = clock::now();
        assert!(answers.take(1, PEER, &HangUp::default()).await.is_ok());
        let waited = clock::now() - begun;
        assert!(waited < STALL_TIMEOUT * 2, "{waited:?}: one of the others, and no more");
        let lines = || answers.0.of_peers.lock().len();
        assert_eq!(lines(), 2);
        clock::sleep(ROOM_TIMEOUT * 2).await;
        drop(answers.line_of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))));
        assert_eq!(lines(), 1, "nobody stands in the others");
    }
}
