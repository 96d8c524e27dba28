//! Jobs that were claimed a moment before they are due, until they are: so that a claim's way to Redis and back is over by then, and one claim takes
//! what falls due within a few ms.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Instant;

/// A bucket is read so long before its next job is due: the time for the claim and its answer. The rest of [`AHEAD`](crate::store::lease::AHEAD) is what
/// one claim gathers.
pub(super) const LEAD: Duration = Duration::from_millis(3);

/// What is not due yet, by when it is.
#[derive(Debug)]
pub(super) struct Early<T> {
    /// The number tells those of one instant apart, in the order in which they came.
    kept: BTreeMap<(Instant, u64), T>,
    count: u64,
}

impl<T> Default for Early<T> {
    fn default() -> Self {
        Early { kept: BTreeMap::new(), count: 0 }
    }
}

impl<T> Early<T> {
    /// Keeps it until it is due.
    pub(super) fn keep(&mut self, until: Instant, what: T) {
        self.count += 1;
        self.kept.insert((until, self.count), what);
    }

    /// One that is due by now; the earliest.
    pub(super) fn due(&mut self, now: Instant) -> Option<T> {
        let first = self.kept.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// When the next is due.
    #[must_use]
    pub(super) fn next(&self) -> Option<Instant> {
        self.kept.first_key_value().map(|((until, _), _)| *until)
    }

    /// All of them, due or not.
    pub(super) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.kept).into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn none_is_due_before_its_time_and_each_once_in_order() {
        let (now, ms) = (clock::now(), Duration::from_millis(1));
        let mut early = Early::default();
        for (name, until) in [("c", 3), ("a", 1), ("d", 3), ("b", 2)] {
            early.keep(now + until * ms, name);
        }
        assert_eq!((early.due(now), early.next()), (None, Some(now + ms)));
        assert_eq!([early.due(now + 2 * ms), early.due(now + 2 * ms), early.due(now + 2 * ms)], [Some("a"), Some("b"), None]);
        assert_eq!(early.next(), Some(now + 3 * ms));
        assert_eq!(early.take().collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!((early.due(now + 9 * ms), early.next()), (None, None));
    }
}
