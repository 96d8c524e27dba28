//! The budget of fetch requests: unsettled messages, and requested messages not delivered yet, in
//! number and in bytes.
//!
//! A request is bounded in bytes on the wire, but the budget is in bytes of memory: many small
//! headers take many times their size. The ratio is learned from deliveries.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The time that a request for messages stays open at the server. Small, because `close` waits for
/// the end of the request: a request cannot be cancelled, and messages sent to a closed reader wait
/// for `ack_wait`.
pub(super) const REQUEST_TTL: Duration = Duration::from_secs(1);
/// The most messages of one request.
const MAX_REQUEST_MESSAGES: usize = 4096;
/// The most messages requested at once while more messages may come that end the connection: those
/// on their way behind such a message are delivered twice.
const MAX_CAUTIOUS_MESSAGES: usize = 64;
/// The time after which a request is over whatever the server said: longer than its time at the
/// server. The server ends a request without a message if its bytes are used up exactly.
const STALE_REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The most bytes of one request, unless a single message is larger: its messages may take more
/// memory than estimated.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// The assumed memory per byte on the wire before any delivery, in parts of a byte.
const INITIAL_MEMORY_RATIO: usize = 4 * RATIO_PARTS;
const RATIO_PARTS: usize = 16;
/// The upper limit of the size of one message, however often the server says that a message does
/// not fit.
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// A request for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// The most messages.
    pub(super) count: usize,
    /// The most bytes on the wire, subjects and headers included: the server ends the request
    /// before a message that does not fit.
    pub(super) bytes: usize,
}

/// Delivered messages: their number, and their bytes on the wire and in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivered {
    pub(super) count: usize,
    pub(super) wire: usize,
    pub(super) bytes: usize,
}

/// The bounds, and their use.
#[derive(Debug)]
pub(super) struct FetchBudget {
    max_count: usize,
    /// In memory.
    max_bytes: usize,
    /// The most bytes of a message on the wire.
    largest: usize,
    /// The memory per byte on the wire, in parts of a byte.
    memory_ratio: usize,
    unsettled_count: usize,
    /// In memory.
    unsettled_bytes: usize,
    /// The rest of the open requests, the oldest first. A server may serve requests in turn, but
    /// each delivery counts for the oldest. So for a moment up to two requests more than needed are
    /// open.
    open: VecDeque<(Request, Instant)>,
    cautious: bool,
}

impl FetchBudget {
    /// A budget of this many messages and bytes of memory. `largest`: the most bytes of a message
    /// on the wire.
    pub(super) fn new(max_count: usize, max_bytes: usize, largest: usize) -> Self {
        let (unsettled_count, unsettled_bytes) = (0, 0);
        FetchBudget {
            max_count,
            max_bytes,
            largest,
            memory_ratio: INITIAL_MEMORY_RATIO,
            unsettled_count,
            unsettled_bytes,
            open: VecDeque::new(),
            cautious: false,
        }
    }

    /// The number of requested and undelivered messages.
    pub(super) fn asked(&self) -> usize {
        self.open.iter().map(|(request, _)| request.count).sum()
    }

    /// Drops the requests that are over by now.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.stale().is_some_and(|stale| stale <= now) {
            self.open.pop_front();
        }
    }

    /// When the oldest request is dropped.
    pub(super) fn stale(&self) -> Option<Instant> {
        self.open.front().map(|(_, since)| *since + STALE_REQUEST_TIMEOUT)
    }

    /// The number of messages that there is room for besides the unsettled ones.
    pub(super) fn left(&self) -> usize {
        self.max_count.saturating_sub(self.unsettled_count)
    }

    /// Limits requests to few messages, or lifts the limit.
    pub(super) fn set_cautious(&mut self, cautious: bool) {
        self.cautious = cautious;
    }

    /// The next request. Small requests are postponed unless none is open. A request has few bytes,
    /// at most half of the budget, so that the next one can be open before it ends. It never has
    /// fewer bytes than one message may need, because the server would deliver nothing for it.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Request> {
        self.expire(now);
        let asked = self.asked();
        let most =
            if self.cautious { MAX_CAUTIOUS_MESSAGES.min(self.max_count) } else { self.max_count };
        let count = self
            .left()
            .saturating_sub(asked)
            .min(most.saturating_sub(asked))
            .min(MAX_REQUEST_MESSAGES);
        let max_bytes = self.max_bytes.max(self.largest.saturating_mul(2));
        let most_bytes = (max_bytes / 2).min(MAX_REQUEST_BYTES.max(self.largest));
        let open_bytes: usize = self.open.iter().map(|(request, _)| request.bytes).sum();
        let free = max_bytes.saturating_sub(self.unsettled_bytes).saturating_mul(RATIO_PARTS)
            / self.memory_ratio;
        // A single message may exceed the budget if no other is unsettled.
        let free = if self.unsettled_count == 0 { free.max(self.largest) } else { free };
        let bytes = free.min(2 * most_bytes).saturating_sub(open_bytes).min(most_bytes);
        let worth =
            asked == 0 || (count >= MAX_REQUEST_MESSAGES.min(most / 4) && bytes >= most_bytes / 2);
        if count == 0 || bytes < self.largest || !worth {
            return None;
        }
        let request = Request { count, bytes };
        self.open.push_back((request, now));
        Some(request)
    }

    /// Records deliveries; `ended`: requested messages that will not come.
    pub(super) fn came(&mut self, Delivered { count, wire, bytes }: Delivered, ended: usize) {
        self.unsettled_count += count;
        self.unsettled_bytes += bytes;
        if wire > 0 {
            // A higher ratio counts at once, a lower one gradually.
            let seen = bytes.saturating_mul(RATIO_PARTS).div_ceil(wire).max(RATIO_PARTS);
            self.memory_ratio =
                seen.max(self.memory_ratio - self.memory_ratio.saturating_sub(seen).div_ceil(8));
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

    /// Records that a request ended because the next message exceeded its remaining bytes. If a
    /// message should have fit, messages are larger than assumed.
    pub(super) fn too_large(&mut self, left: usize) {
        if left >= self.largest {
            self.largest = self.largest.saturating_mul(2).min(MAX_MESSAGE_BYTES);
        }
    }

    /// Records settled messages and their memory in bytes.
    pub(super) fn settled(&mut self, count: usize, bytes: usize) {
        self.unsettled_count -= count;
        self.unsettled_bytes -= bytes;
    }

    /// Drops all open requests.
    pub(super) fn cancel_requests(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    /// Messages that take as many bytes in memory as on the wire.
    fn plain(count: usize, bytes: usize) -> Delivered {
        Delivered { count, wire: bytes, bytes }
    }

    /// A budget with a memory ratio of 1.
    fn budget(max_count: usize, max_bytes: usize, largest: usize) -> FetchBudget {
        FetchBudget { memory_ratio: RATIO_PARTS, ..FetchBudget::new(max_count, max_bytes, largest) }
    }

    #[test]
    fn small_messages_are_bounded_by_their_number() {
        let (mut budget, now) = (budget(1000, 1000 * KIB, 10 * KIB), Instant::now());
        assert_eq!(budget.ask(now), Some(Request { count: 1000, bytes: 500 * KIB }));
        assert_eq!(budget.ask(now), None);
        budget.came(plain(600, 60 * KIB), 0);
        assert_eq!(
            (budget.ask(now), budget.asked(), budget.left()),
            (None, 400, 400),
            "all of it is unsettled or asked for"
        );
        budget.settled(300, 30 * KIB);
        assert_eq!(
            budget.ask(now),
            Some(Request { count: 300, bytes: 500 * KIB }),
            "before the first has ended"
        );
        budget.came(plain(400, 40 * KIB), 0);
        assert_eq!((budget.asked(), budget.left()), (300, 300));
        budget.came(plain(0, 0), usize::MAX);
        assert_eq!(
            (budget.asked(), budget.ask(now)),
            (0, Some(Request { count: 300, bytes: 500 * KIB }))
        );
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
        assert_eq!(budget.ask(now).map(|request| request.bytes), Some(MAX_REQUEST_BYTES));
        assert_eq!(
            budget.ask(now).map(|request| request.bytes),
            Some(MAX_REQUEST_BYTES),
            "another is there before the first has ended"
        );
        assert_eq!(budget.ask(now), None, "what is on its way is bounded, whatever it becomes");
        budget.came(Delivered { count: 10, wire: 1 << 20, bytes: 30 << 20 }, usize::MAX);
        let mut wire = 1 << 20;
        while let Some(request) = budget.ask(now) {
            wire += request.bytes;
            budget.came(
                Delivered { count: 1, wire: request.bytes, bytes: 30 * request.bytes },
                usize::MAX,
            );
        }
        assert!(
            (1 << 20..=(64 << 20) / 30).contains(&wire) && budget.unsettled_bytes <= 64 << 20,
            "{wire} bytes of the wire"
        );
        budget.settled(1, 32 << 20);
        for _ in 0..100 {
            budget.came(plain(1, 1), 0);
        }
        assert_eq!(
            (budget.memory_ratio / RATIO_PARTS, budget.ask(now).map(|request| request.bytes)),
            (1, Some(MAX_REQUEST_BYTES))
        );
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
        assert_eq!(
            (budget.ask(now + STALE_REQUEST_TIMEOUT / 2), budget.stale()),
            (None, Some(now + STALE_REQUEST_TIMEOUT))
        );
        assert_eq!(
            budget.ask(now + STALE_REQUEST_TIMEOUT),
            Some(Request { count: 950, bytes: 500 * KIB })
        );
    }

    #[test]
    fn while_the_next_may_end_the_line_few_are_asked_for() {
        let (mut budget, now) = (budget(1000, 1000 * KIB, KIB), Instant::now());
        budget.set_cautious(true);
        assert_eq!(budget.ask(now).map(|request| request.count), Some(64));
        budget.cancel_requests();
        budget.set_cautious(false);
        assert_eq!(budget.ask(now).map(|request| request.count), Some(1000));
    }
}
