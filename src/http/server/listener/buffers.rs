//! The connections that have buffers at a time: for the heads of requests, and for answers. A
//! connection that waits for its next request needs none. The others wait for their turn before
//! their bytes are read.
//!
//! While some wait, a connection gives its buffers back as soon as it waits for its next request.
//! It ends if its client sends nothing more of a request, or reads nothing of an answer, for half a
//! second.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::slot::Slot;
use crate::clock::{self, Instant};

/// The most connections with buffers: each takes up to 32 KiB, so all take 32 MiB.
pub(super) const MAX_BUFFERED_CONNECTIONS: usize = 1024;

/// The interval at which connections that wait for buffers look for others that can give theirs
/// back by now.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(250);
/// A look that found none is not repeated within this time, however many connections come
/// meanwhile.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(10);

/// The most answers of a connection that keeps its buffers while others wait: its client sends
/// requests without waiting for their answers.
const MAX_PIPELINED_ANSWERS: u32 = 8;

/// The connections with buffers. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Buffers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    taken: Mutex<Taken>,
}

/// By the time of the last bytes of a client, the oldest first.
#[derive(Debug, Default)]
struct Taken {
    next: u64,
    by_age: BTreeMap<u64, Held>,
    /// No connection could give its buffers back then.
    none: Option<Instant>,
}

/// A connection with buffers.
#[derive(Debug)]
struct Held {
    slot: Arc<Slot>,
    /// When the connection was asked for them. Until [`RECLAIM_INTERVAL`] later, others are asked.
    asked: Option<Instant>,
}

/// The buffers of a connection. Dropped, another connection may have some.
#[derive(Debug)]
pub(super) struct Buffered {
    buffers: Buffers,
    number: u64,
    answers: u32,
    /// Something was written since the last answer.
    has_written: bool,
    _permit: OwnedSemaphorePermit,
}

/// Waits for buffers.
pub(super) type Turn = Pin<Box<dyn Future<Output = Option<Buffered>> + Send>>;

impl Default for Buffers {
    fn default() -> Buffers {
        let free = Arc::new(Semaphore::new(MAX_BUFFERED_CONNECTIONS));
        Buffers(Arc::new(Inner { free, waiting: AtomicUsize::new(0), taken: Mutex::default() }))
    }
}

impl Buffers {
    /// Buffers for a connection whose client has sent bytes, if there are some.
    pub(super) fn try_take(&self, slot: &Arc<Slot>) -> Option<Buffered> {
        let permit = self.0.free.clone().try_acquire_owned().ok()?;
        Some(self.taken(slot, permit))
    }

    /// Waits for buffers, in the order of the calls. The connection that has waited the longest for
    /// its client gives its own back, and others do while none are free.
    pub(super) fn turn(&self, slot: &Arc<Slot>) -> Turn {
        let (buffers, slot) = (self.clone(), slot.clone());
        let waits = Waits::of(&buffers);
        self.make_room(1);
        Box::pin(async move {
            let mut permit = pin!(buffers.0.free.clone().acquire_owned());
            let permit = loop {
                match clock::timeout(RECLAIM_INTERVAL, permit.as_mut()).await {
                    Some(permit) => break permit.ok()?,
                    // A call that ran may wait for its client by now.
                    None => buffers.make_room(buffers.0.waiting.load(Ordering::Relaxed)),
                }
            };
            drop(waits);
            Some(buffers.taken(&slot, permit))
        })
    }

    /// Makes so many connections give their buffers back, the longest waits for a client first.
    fn make_room(&self, count: usize) {
        let mut taken = self.0.taken.lock();
        if taken
            .none
            .is_some_and(|none| clock::now().saturating_duration_since(none) < MIN_SCAN_INTERVAL)
        {
            return;
        }
        // A call that runs keeps its buffers, unless its client is slow.
        let now = clock::now();
        let is_asked = |held: &Held| {
            held.asked.is_some_and(|asked| now.saturating_duration_since(asked) < RECLAIM_INTERVAL)
        };
        let oldest = taken
            .by_age
            .values_mut()
            .filter(|held| !is_asked(held) && held.slot.may_yield())
            .take(count);
        let asked = oldest.map(|held| held.ask(now)).count();
        if asked < count {
            taken.none = Some(now);
        }
    }

    fn taken(&self, slot: &Arc<Slot>, permit: OwnedSemaphorePermit) -> Buffered {
        Buffered {
            number: self.0.taken.lock().add(slot.clone()),
            buffers: self.clone(),
            answers: 0,
            has_written: false,
            _permit: permit,
        }
    }
}

impl Taken {
    fn add(&mut self, slot: Arc<Slot>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_age.insert(number, Held { slot, asked: None });
        number
    }
}

impl Held {
    fn ask(&mut self, now: Instant) {
        self.asked = Some(now);
        self.slot.yields().notify_one();
    }
}

impl Buffered {
    /// The client has sent more: the connection is the newest.
    pub(super) fn renew(&mut self) {
        let mut taken = self.buffers.0.taken.lock();
        if let Some(held) = taken.by_age.remove(&self.number) {
            self.number = taken.add(held.slot);
        }
    }

    /// A part of an answer is written.
    pub(super) fn written(&mut self) {
        self.has_written = true;
    }

    pub(super) fn has_written(&self) -> bool {
        self.has_written
    }

    /// An answer is written. Whether the connection has had its turn: it ends with the next answer.
    pub(super) fn answered(&mut self) -> bool {
        self.answers = self.answers.saturating_add(1);
        self.has_written = false;
        self.answers >= MAX_PIPELINED_ANSWERS && self.has_waiting()
    }

    fn has_waiting(&self) -> bool {
        self.buffers.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// The connection waits for its client: others that wait may have its buffers.
    pub(super) fn offer(&self) {
        if self.has_waiting()
            && let Some(held) = self.buffers.0.taken.lock().by_age.get_mut(&self.number)
        {
            held.ask(clock::now());
        }
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.buffers.0.taken.lock().by_age.remove(&self.number);
    }
}

/// Counts a connection that waits for buffers.
struct Waits(Buffers);

impl Waits {
    fn of(buffers: &Buffers) -> Waits {
        buffers.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(buffers.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod pressure;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use futures_util::FutureExt;

    use super::super::slot::BusyGuard;
    use super::*;
    use crate::http::server::waits::WaitShare;

    fn slots(count: usize) -> Vec<Arc<Slot>> {
        (0..count)
            .map(|_| Slot::new(IpAddr::V4(Ipv4Addr::LOCALHOST), WaitShare::endless()))
            .collect()
    }

    fn yielding(slots: &[Arc<Slot>]) -> Vec<usize> {
        (0..slots.len())
            .filter(|at| slots[*at].yields().notified().now_or_never().is_some())
            .collect()
    }

    #[tokio::test]
    async fn the_connection_that_has_waited_the_longest_gives_its_buffers_back() {
        let (buffers, slots, other) =
            (Buffers::default(), slots(MAX_BUFFERED_CONNECTIONS), &slots(1)[0]);
        let mut held: Vec<_> = slots.iter().map(|slot| buffers.try_take(slot).unwrap()).collect();
        assert!(buffers.try_take(other).is_none());
        let _call = BusyGuard::new(&slots[0]);
        held[1].renew();
        let mut turn = buffers.turn(other);
        assert_eq!(
            yielding(&slots),
            [2],
            "the first has a call, and the client of the second has sent more"
        );
        assert!((&mut turn).now_or_never().is_none());
        held.swap_remove(2);
        assert!(turn.await.is_some());
        held[3].offer();
        assert_eq!(yielding(&slots), [0; 0], "nobody waits");
        assert!((0..MAX_PIPELINED_ANSWERS * 2).all(|_| !held[3].answered()));
        let _turn = buffers.turn(other);
        let ends: Vec<bool> = (0..MAX_PIPELINED_ANSWERS).map(|_| held[4].answered()).collect();
        assert_eq!(ends.iter().position(|ends| *ends), Some(7), "others wait");
        drop(held);
        assert!(buffers.0.taken.lock().by_age.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn while_some_wait_a_connection_that_waits_for_its_client_offers_its_buffers_once() {
        let (buffers, slots, others) =
            (Buffers::default(), slots(MAX_BUFFERED_CONNECTIONS), &slots(2));
        let calls: Vec<_> = slots.iter().map(BusyGuard::new).collect();
        let held: Vec<_> = slots.iter().map(|slot| buffers.try_take(slot).unwrap()).collect();
        let mut turns: Vec<_> = others.iter().map(|slot| buffers.turn(slot)).collect();
        assert_eq!(yielding(&slots), [0; 0]);
        drop(calls);
        // The connections that wait look again, for as many as wait.
        assert!(clock::timeout(RECLAIM_INTERVAL * 3 / 2, turns.remove(0)).await.is_none());
        assert_eq!(yielding(&slots), [0, 1]);
        held[5].offer();
        held[5].offer();
        assert_eq!((yielding(&slots), yielding(&slots)), (vec![5], vec![]));
        drop(turns);
        held[6].offer();
        assert_eq!(yielding(&slots), [0; 0], "nobody waits any more");
    }
}
