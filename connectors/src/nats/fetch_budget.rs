//! How much may be asked for: what was delivered and is not settled, and what was asked for and is not delivered, in messages and in bytes.
//!
//! A request is bounded in bytes of the wire, and what counts are bytes of memory: many small headers become many times as much. How many times is
//! learnt from what comes.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How long one request for messages stays open at the server. The value is small because `close` waits for the
/// end of the request: a request cannot be cancelled, and messages sent to a closed reader wait for `ack_wait`.
pub(super) const EXPIRES: Duration = Duration::from_secs(1);
/// The most messages of one request.
const REQUEST: usize = 4096;
/// The most messages that are asked for at once while more may come that end the line: what is on its way behind one waits for `ack_wait`.
const CAREFUL: usize = 64;
/// After so long a request is over, whatever was heard of it: longer than it stands at the server. One whose bytes are used up to the last ends there
/// without a word.
const STALE: Duration = Duration::from_secs(3);
/// The most bytes of one request, but for one message: what is on its way may become more than is thought.
const REQUEST_BYTES: usize = 1 << 20;
/// How much memory a byte of the wire is taken to become before any has come, in parts of a byte.
const MEMORY_RATIO: usize = 4 * PARTS;
const PARTS: usize = 16;
/// The most that one message is taken to need, however often the server says that one does not fit.
const LARGEST: usize = 1 << 30;

/// A request for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// At most so many.
    pub(super) count: usize,
    /// At most so many bytes of them on the wire, subjects and headers included: the server ends a request before the message that does not fit.
    pub(super) bytes: usize,
}

/// Messages that were delivered: how many, of how many bytes on the wire and in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivered {
    pub(super) count: usize,
    pub(super) wire: usize,
    pub(super) bytes: usize,
}

/// The bounds, and what is used of them.
#[derive(Debug)]
pub(super) struct FetchBudget {
    max_count: usize,
    /// In memory.
    max_bytes: usize,
    /// What the largest message may need on the wire.
    largest: usize,
    /// How much memory a byte of the wire becomes, in parts of a byte.
    memory_ratio: usize,
    unsettled_count: usize,
    /// In memory.
    unsettled_bytes: usize,
    /// What is left of the requests that are open, the oldest first. A server may serve requests in turns, and each delivery is taken off the
    /// oldest. So for a moment up to two requests more than needed are open.
    open: VecDeque<(Request, Instant)>,
    careful: bool,
}

impl FetchBudget {
    /// Room for so many messages and bytes of memory; one message takes up to `largest` on the wire.
    pub(super) fn new(max_count: usize, max_bytes: usize, largest: usize) -> Self {
        let (unsettled_count, unsettled_bytes) = (0, 0);
        FetchBudget {
            max_count,
            max_bytes,
            largest,
            memory_ratio: MEMORY_RATIO,
            unsettled_count,
            unsettled_bytes,
            open: VecDeque::new(),
            careful: false,
        }
    }

    /// Messages that are asked for and not delivered.
    pub(super) fn asked(&self) -> usize {
        self.open.iter().map(|(request, _)| request.count).sum()
    }

    /// Gives up the requests that are over by now, whatever was heard of them.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.stale().is_some_and(|stale| stale <= now) {
            self.open.pop_front();
        }
    }

    /// When the oldest request is given up.
    pub(super) fn stale(&self) -> Option<Instant> {
        self.open.front().map(|(_, since)| *since + STALE)
    }

    /// Messages that there is room for besides those that are unsettled.
    pub(super) fn left(&self) -> usize {
        self.max_count.saturating_sub(self.unsettled_count)
    }

    /// Whether to ask for little at once.
    pub(super) fn be_careful(&mut self, careful: bool) {
        self.careful = careful;
    }

    /// What to ask for now. Small requests are saved up, unless nothing is asked for. Few bytes at once, and half of what there is at most, so that the
    /// next request can be there before one has ended; and never less than what one message may need, which nothing would be delivered for.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Request> {
        self.expire(now);
        let asked = self.asked();
        let most = if self.careful { CAREFUL.min(self.max_count) } else { self.max_count };
        let count = self.left().saturating_sub(asked).min(most.saturating_sub(asked)).min(REQUEST);
        let max_bytes = self.max_bytes.max(self.largest.saturating_mul(2));
        let most_bytes = (max_bytes / 2).min(REQUEST_BYTES.max(self.largest));
        let open_bytes: usize = self.open.iter().map(|(request, _)| request.bytes).sum();
        let free = max_bytes.saturating_sub(self.unsettled_bytes).saturating_mul(PARTS) / self.memory_ratio;
        // One message is asked for whatever it may become, where there is no other.
        let free = if self.unsettled_count == 0 { free.max(self.largest) } else { free };
        let bytes = free.min(2 * most_bytes).saturating_sub(open_bytes).min(most_bytes);
        let worth = asked == 0 || (count >= REQUEST.min(most / 4) && bytes >= most_bytes / 2);
        if count == 0 || bytes < self.largest || !worth {
            return None;
        }
        let request = Request { count, bytes };
        self.open.push_back((request, now));
        Some(request)
    }

    /// So many were delivered; `ended` more will not come of what was asked for.
    pub(super) fn came(&mut self, Delivered { count, wire, bytes }: Delivered, ended: usize) {
        self.unsettled_count += count;
        self.unsettled_bytes += bytes;
        if wire > 0 {
            // More is believed at once, less bit by bit.
            let seen = bytes.saturating_mul(PARTS).div_ceil(wire).max(PARTS);
            self.memory_ratio = seen.max(self.memory_ratio - self.memory_ratio.saturating_sub(seen).div_ceil(8));
        }
        if let Some((first, _)) = self.open.front_mut() {
            first.bytes = first.bytes.saturating_sub(wire);
        }
        let mut gone = count.saturating_add(ended);
        while let Some((first, _)) = self.open.front_mut().filter(|_| gone > 0) {
            let of_it = gone.min(first.count);
            (first.count, gone) = (first.count - of_it, gone - of_it);
            if first.count == 0 {
                self.open.pop_front();
            }
        }
    }

    /// A request ended before a message that did not fit into the bytes that were left of it. Where one should have fitted, messages are larger than was
    /// thought.
    pub(super) fn too_large(&mut self, left: usize) {
        if left >= self.largest {
            self.largest = self.largest.saturating_mul(2).min(LARGEST);
        }
    }

    /// So many are settled, of so many bytes.
    pub(super) fn settled(&mut self, count: usize, bytes: usize) {
        self.unsettled_count -= count;
        self.unsettled_bytes -= bytes;
    }

    /// What was asked for and is not here will not come.
    pub(super) fn nothing_comes(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    /// So many that are as large in memory as on the wire.
    fn plain(count: usize, bytes: usize) -> Delivered {
        Delivered { count, wire: bytes, bytes }
    }

    /// Room where a byte of the wire is one of memory.
    fn budget(max_count: usize, max_bytes: usize, largest: usize) -> FetchBudget {
        FetchBudget { memory_ratio: PARTS, ..FetchBudget::new(max_count, max_bytes, largest) }
    }

    #[test]
    fn small_messages_are_bounded_by_their_number() {
        let (mut budget, now) = (budget(1000, 1000 * KIB, 10 * KIB), Instant::now());
        assert_eq!(budget.ask(now), Some(Request { count: 1000, bytes: 500 * KIB }));
        assert_eq!(budget.ask(now), None);
        budget.came(plain(600, 60 * KIB), 0);
        assert_eq!((budget.ask(now), budget.asked(), budget.left()), (None, 400, 400), "all of it is unsettled or asked for");
        budget.settled(300, 30 * KIB);
        assert_eq!(budget.ask(now), Some(Request { count: 300, bytes: 500 * KIB }), "before the first has ended");
        budget.came(plain(400, 40 * KIB), 0);
        assert_eq!((budget.asked(), budget.left()), (300, 300));
        budget.came(plain(0, 0), usize::MAX);
        assert_eq!((budget.asked(), budget.ask(now)), (0, Some(Request { count: 300, bytes: 500 * KIB })));
    }

    #[test]
    fn large_messages_are_bounded_by_their_bytes() {
        let (mut budget, now) = (budget(1000, 1000 * KIB, 100 * KIB), Instant::now());
        assert_eq!(budget.ask(now), Some(Request { count: 1000, bytes: 500 * KIB }));
        for _ in 0..5 {
            budget.came(plain(1, 99 * KIB), 0);
        }
        // The sixth did not fit.
        budget.too_large(5 * KIB);
        budget.came(plain(0, 0), 995);
        assert_eq!(budget.ask(now).map(|request| request.bytes), Some(500 * KIB));
        budget.came(plain(5, 495 * KIB), 995);
        assert_eq!((budget.ask(now), budget.asked()), (None, 0), "less is left than one may need");
        budget.settled(1, 99 * KIB);
        assert_eq!(budget.ask(now).map(|request| request.bytes), Some(109 * KIB));
    }

    #[test]
    fn what_swells_is_asked_for_in_smaller_pieces() {
        let (mut budget, now) = (budget(100_000, 64 << 20, 100 * KIB), Instant::now());
        assert_eq!(budget.ask(now).map(|request| request.bytes), Some(REQUEST_BYTES));
        assert_eq!(budget.ask(now).map(|request| request.bytes), Some(REQUEST_BYTES), "another is there before the first has ended");
        assert_eq!(budget.ask(now), None, "what is on its way is bounded, whatever it becomes");
        budget.came(Delivered { count: 10, wire: 1 << 20, bytes: 30 << 20 }, usize::MAX);
        let mut wire = 1 << 20;
        while let Some(request) = budget.ask(now) {
            wire += request.bytes;
            budget.came(Delivered { count: 1, wire: request.bytes, bytes: 30 * request.bytes }, usize::MAX);
        }
        assert!((1 << 20..=(64 << 20) / 30).contains(&wire) && budget.unsettled_bytes <= 64 << 20, "{wire} bytes of the wire");
        budget.settled(1, 32 << 20);
        for _ in 0..100 {
            budget.came(plain(1, 1), 0);
        }
        assert_eq!((budget.memory_ratio / PARTS, budget.ask(now).map(|request| request.bytes)), (1, Some(REQUEST_BYTES)));
    }

    #[test]
    fn a_message_larger_than_any_that_the_server_takes_now_comes_at_last() {
        let (mut budget, now) = (budget(10, KIB, KIB), Instant::now());
        let mut asked = Vec::new();
        for _ in 0..3 {
            let request = budget.ask(now).map(|request| request.bytes);
            asked.extend(request);
            budget.too_large(request.unwrap_or_default());
            budget.came(plain(0, 0), usize::MAX);
        }
        assert_eq!(asked, [KIB, 2 * KIB, 4 * KIB]);
    }

    #[test]
    fn a_request_that_ended_without_a_word_is_given_up() {
        let (mut budget, now) = (budget(1000, 1000 * KIB, 10 * KIB), Instant::now());
        assert!(budget.ask(now).is_some());
        budget.came(plain(50, 500 * KIB), 0);
        assert_eq!((budget.ask(now + STALE / 2), budget.stale()), (None, Some(now + STALE)));
        assert_eq!(budget.ask(now + STALE), Some(Request { count: 950, bytes: 500 * KIB }));
    }

    #[test]
    fn while_the_next_may_end_the_line_few_are_asked_for() {
        let (mut budget, now) = (budget(1000, 1000 * KIB, KIB), Instant::now());
        budget.be_careful(true);
        assert_eq!(budget.ask(now).map(|request| request.count), Some(64));
        budget.nothing_comes();
        budget.be_careful(false);
        assert_eq!(budget.ask(now).map(|request| request.count), Some(1000));
    }
}
