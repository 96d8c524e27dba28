//! Jobs that are claimed shortly before they are due.
//!
//! The claim's round trip to Redis is over when they fall due, and one claim takes what falls due
//! within a few ms.

use std::collections::BTreeMap;

use crate::clock::Instant;

/// Items in the order of their due times.
#[derive(Debug)]
pub(super) struct DueQueue<T> {
    /// The sequence number orders items of one instant by arrival.
    items: BTreeMap<(Instant, u64), T>,
    sequence: u64,
}

impl<T> Default for DueQueue<T> {
    fn default() -> Self {
        DueQueue { items: BTreeMap::new(), sequence: 0 }
    }
}

impl<T> DueQueue<T> {
    pub(super) fn push(&mut self, due: Instant, item: T) {
        self.sequence += 1;
        self.items.insert((due, self.sequence), item);
    }

    /// Takes the earliest item that is due by `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = self.items.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// When the next item is due.
    #[must_use]
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.items.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes all items, due or not.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.items).into_values()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn none_is_due_before_its_time_and_each_once_in_order() {
        let (now, ms) = (clock::now(), Duration::from_millis(1));
        let mut queue = DueQueue::default();
        for (name, due) in [("c", 3), ("a", 1), ("d", 3), ("b", 2)] {
            queue.push(now + due * ms, name);
        }
        assert_eq!((queue.pop_due(now), queue.next_due()), (None, Some(now + ms)));
        assert_eq!(
            [queue.pop_due(now + 2 * ms), queue.pop_due(now + 2 * ms), queue.pop_due(now + 2 * ms)],
            [Some("a"), Some("b"), None]
        );
        assert_eq!(queue.next_due(), Some(now + 3 * ms));
        assert_eq!(queue.drain().collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!((queue.pop_due(now + 9 * ms), queue.next_due()), (None, None));
    }
}
