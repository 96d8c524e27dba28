//! One connection of a listener: its state, and whether it waits for its client.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{self, Instant};
use crate::http::server::transfers::HangUp;
use crate::http::server::waits::WaitShare;

/// The longest time that a client may send or read nothing of a request or an answer that is under
/// way, while others need the buffers of its connection.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_millis(500);

/// The state of a connection, as reported by its task.
#[derive(Debug)]
pub(super) struct Slot {
    peer: IpAddr,
    /// When the connection was accepted.
    accepted: Instant,
    /// The calls of the peer that may wait.
    waits: WaitShare,
    /// The sequence number of the last request; before the first one, of the accept.
    turn: AtomicU64,
    /// A request has come.
    begun: AtomicBool,
    /// A request is being answered.
    busy: AtomicBool,
    /// The client does not read the answer.
    stuck: AtomicBool,
    /// A part of the last request was not read: the connection ends with its answer.
    unread: AtomicBool,
    /// A call waits for the body of its request.
    starved: AtomicBool,
    /// The client has sent a part of a head.
    partial: AtomicBool,
    /// When the client last sent or read something, or a call began to wait for that.
    moved: Mutex<Instant>,
    /// The connection ends with the next answer.
    over: AtomicBool,
    /// A call waits, and the client has sent more meanwhile.
    ahead: AtomicBool,
    /// The connection waits for buffers: its client has sent something.
    queued: AtomicBool,
    /// Ends the connection.
    hang_up: HangUp,
    /// Takes the buffers of the connection.
    yields: Notify,
}

impl Slot {
    pub(super) fn new(peer: IpAddr, waits: WaitShare) -> Arc<Self> {
        let [begun, busy, stuck, unread, starved, partial, over, ahead, queued] =
            [(); 9].map(|()| AtomicBool::new(false));
        let accepted = clock::now();
        let moved = Mutex::new(accepted);
        let (turn, hang_up, yields) = (AtomicU64::new(turn()), HangUp::default(), Notify::new());
        Arc::new(Slot {
            peer: peer.to_canonical(),
            accepted,
            waits,
            turn,
            begun,
            busy,
            stuck,
            unread,
            starved,
            partial,
            moved,
            over,
            ahead,
            queued,
            hang_up,
            yields,
        })
    }

    /// The address of the client.
    pub(super) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// The calls of the peer that may wait.
    pub(super) fn waits(&self) -> &WaitShare {
        &self.waits
    }

    /// The sequence number of the last request; before the first one, of the accept.
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    pub(super) fn set_stuck(&self, is_stuck: bool) {
        if self.stuck.swap(is_stuck, Ordering::Relaxed) != is_stuck {
            *self.moved.lock() = clock::now();
        }
    }

    /// The client has sent something: a part of a head, unless a call runs.
    pub(super) fn received(&self) {
        *self.moved.lock() = clock::now();
        if !self.is_busy() {
            self.partial.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the client does not read the answer.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    pub(super) fn set_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// Whether the client may still send a part of its last request.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Returns the signal that ends the connection.
    pub(super) fn hang_up(&self) -> &HangUp {
        &self.hang_up
    }

    /// Told when another connection needs the buffers of this one.
    pub(super) fn yields(&self) -> &Notify {
        &self.yields
    }

    pub(super) fn set_starved(&self, is_starved: bool) {
        if self.starved.swap(is_starved, Ordering::Relaxed) != is_starved {
            *self.moved.lock() = clock::now();
        }
    }

    /// Whether the client has sent nothing of a request, or read nothing of an answer, for
    /// [`STALL_TIMEOUT`].
    pub(super) fn is_slow(&self) -> bool {
        let is_under_way = [&self.stuck, &self.starved, &self.partial]
            .iter()
            .any(|flag| flag.load(Ordering::Relaxed));
        is_under_way && clock::now().saturating_duration_since(*self.moved.lock()) >= STALL_TIMEOUT
    }

    /// Whether the connection waits for its next request, and nothing of the last one is under way.
    pub(super) fn is_idle(&self) -> bool {
        let flags = [&self.busy, &self.stuck, &self.unread, &self.partial];
        flags.iter().all(|flag| !flag.load(Ordering::Relaxed))
    }

    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ends with the next answer.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn set_ahead(&self, is_ahead: bool) {
        self.ahead.store(is_ahead, Ordering::Relaxed);
    }

    pub(super) fn set_queued(&self, is_queued: bool) {
        self.queued.store(is_queued, Ordering::Relaxed);
    }

    /// Whether the connection waits for buffers, and not for its client.
    pub(super) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    /// Whether the connection can give its buffers back: it is idle, its client is slow, or has
    /// sent more than the call that waits.
    pub(super) fn may_yield(&self) -> bool {
        self.is_idle() || self.is_slow() || self.ahead.load(Ordering::Relaxed)
    }

    /// Whether a request has come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether the client had no time yet to ask: less than [`STALL_TIMEOUT`] since the accept,
    /// whatever it has sent meanwhile.
    pub(super) fn is_new(&self) -> bool {
        let since = clock::now().saturating_duration_since(self.accepted);
        !self.has_begun() && since < STALL_TIMEOUT
    }

    /// Whether a request is being answered.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether the connection waits for its client.
    pub(super) fn waits_for_client(&self) -> bool {
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
        slot.begun.store(true, Ordering::Relaxed);
        slot.busy.store(true, Ordering::Relaxed);
        slot.partial.store(false, Ordering::Relaxed);
        BusyGuard(slot.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}
