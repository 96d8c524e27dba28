//! Bounds the memory of a source: its socket is not read while too many bytes are unsettled.
//!
//! A prefetch counts messages only, and lapin buffers without a bound whatever the broker sends
//! (`Consumer`, a `flume::unbounded` channel in lapin 4.12). Unread messages stay with the broker
//! and in the buffers of the connection. Meanwhile lapin would see no heartbeat of the broker and
//! close the connection, so the reader makes the stream produce heartbeats.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The upper limit of one message's estimate, so that sums do not overflow.
const MAX_ESTIMATE_BYTES: usize = 1 << 40;

/// Worst-case memory per header byte after parsing: entries of three bytes become nodes of a tree.
const MEMORY_PER_HEADER_BYTE: usize = 32;

/// Shared by the stream that lapin reads, the buffer and the reader.
#[derive(Debug)]
pub(super) struct ReadLimiter {
    max_bytes: usize,
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    /// The estimated memory of messages that passed the limiter and have not come out of lapin yet.
    pending: VecDeque<usize>,
    pending_bytes: usize,
    /// The memory of the messages that came out of lapin and are not settled.
    unsettled: usize,
    /// The bound is off: the source closes.
    disabled: bool,
    /// A heartbeat is due.
    heartbeat_due: bool,
    waiting: Option<Waker>,
}

impl LimiterState {
    /// A single message passes whatever its size.
    fn is_full(&self, max_bytes: usize) -> bool {
        let others = self.unsettled > 0 || self.pending.len() > 1;
        !self.disabled && others && self.unsettled + self.pending_bytes >= max_bytes
    }
}

impl ReadLimiter {
    /// A limiter with a bound of this many bytes.
    pub(super) fn new(max_bytes: usize) -> Self {
        ReadLimiter { max_bytes, state: Mutex::default() }
    }

    /// Waits for room; true if a heartbeat is due instead.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        if !state.is_full(self.max_bytes) {
            return Poll::Ready(false);
        }
        if std::mem::take(&mut state.heartbeat_due) {
            return Poll::Ready(true);
        }
        state.waiting = Some(context.waker().clone());
        Poll::Pending
    }

    /// Records the content header frame of a message that passes. The body size is in its payload.
    pub(super) fn message_started(&self, payload: &[u8]) {
        let body = payload.get(4..12).map_or(0, |size| {
            size.iter().fold(0_usize, |size, byte| size << 8 | usize::from(*byte))
        });
        let bytes = body.min(MAX_ESTIMATE_BYTES) + payload.len() * MEMORY_PER_HEADER_BYTE;
        let mut state = self.state.lock();
        state.pending.push_back(bytes);
        state.pending_bytes += bytes;
    }

    /// Records that this many messages came out of lapin, with this many bytes of memory.
    pub(super) fn delivered(&self, count: usize, bytes: usize) {
        self.change(|state| {
            let count = count.min(state.pending.len());
            state.pending_bytes -= state.pending.drain(..count).sum::<usize>();
            state.unsettled += bytes;
        });
    }

    /// Records that messages of this many bytes are settled.
    pub(super) fn settled(&self, bytes: usize) {
        self.change(|state| state.unsettled -= bytes);
    }

    /// Records that no message is inside lapin any more.
    pub(super) fn clear_pending(&self) {
        self.change(|state| {
            state.pending.clear();
            state.pending_bytes = 0;
        });
    }

    /// Turns the bound off.
    pub(super) fn disable(&self) {
        self.change(|state| state.disabled = true);
    }

    /// Makes the stream produce a heartbeat if the socket is not read.
    pub(super) fn send_heartbeat(&self) {
        let mut state = self.state.lock();
        if state.is_full(self.max_bytes)
            && let Some(waiting) = state.waiting.take()
        {
            state.heartbeat_due = true;
            waiting.wake();
        }
    }

    /// Whether the socket is not read now.
    pub(super) fn is_full(&self) -> bool {
        self.state.lock().is_full(self.max_bytes)
    }

    fn change(&self, change: impl FnOnce(&mut LimiterState)) {
        let mut state = self.state.lock();
        change(&mut state);
        if !state.is_full(self.max_bytes)
            && let Some(waiting) = state.waiting.take()
        {
            waiting.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The payload of a content header frame for a body of this size: class, weight, size.
    fn header(body: u64) -> Vec<u8> {
        [&[0, 60, 0, 0][..], &body.to_be_bytes()].concat()
    }

    #[test]
    fn it_is_full_at_its_bound_and_sends_heartbeats() {
        let (limiter, woken) = (ReadLimiter::new(1000), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        for _ in 0..2 {
            assert_eq!(limiter.poll_room(&context), Poll::Ready(false));
            limiter.message_started(&header(600));
        }
        assert_eq!((limiter.poll_room(&context), limiter.is_full()), (Poll::Pending, true));
        limiter.send_heartbeat();
        assert_eq!(
            (
                woken.0.load(Ordering::Relaxed),
                limiter.poll_room(&context),
                limiter.poll_room(&context)
            ),
            (1, Poll::Ready(true), Poll::Pending)
        );
        // Their memory is known now and still too much; then one is settled.
        limiter.delivered(2, 1400);
        assert_eq!(
            (woken.0.load(Ordering::Relaxed), limiter.poll_room(&context)),
            (1, Poll::Pending)
        );
        limiter.settled(700);
        assert_eq!(
            (woken.0.load(Ordering::Relaxed), limiter.poll_room(&context)),
            (2, Poll::Ready(false))
        );
        limiter.message_started(&header(1 << 40));
        assert_eq!(limiter.poll_room(&context), Poll::Pending);
        limiter.disable();
        assert_eq!(
            (woken.0.load(Ordering::Relaxed), limiter.poll_room(&context)),
            (3, Poll::Ready(false))
        );
    }

    #[test]
    fn a_message_larger_than_the_bound_comes_alone() {
        let (limiter, context) = (ReadLimiter::new(1000), Context::from_waker(Waker::noop()));
        limiter.message_started(&header(5000));
        assert_eq!(limiter.poll_room(&context), Poll::Ready(false), "its body is still to come");
        limiter.delivered(1, 5400);
        assert_eq!(limiter.poll_room(&context), Poll::Pending);
        limiter.settled(5400);
        limiter.message_started(&header(5000));
        limiter.clear_pending();
        limiter.message_started(&header(5000));
        assert_eq!(limiter.poll_room(&context), Poll::Ready(false));
    }
}
