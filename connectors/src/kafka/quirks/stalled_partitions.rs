//! Assigned partitions that have delivered nothing yet, neither a message nor the end of the log.
//!
//! - Behaviour: librdkafka asks the group's coordinator once for the committed offset of an
//!   assigned partition. If that request fails as a whole (the broker is no longer or not yet the
//!   coordinator), the partition stays assigned and is never read:
//!   `rd_kafka_assignment_apply_offsets` in `rdkafka_assignment.c` of 2.12 has "Do nothing for
//!   request-level errors" (confluentinc/librdkafka#5586).
//! - Workaround: a partition that stays silent for too long, or for a short time after an error, is
//!   assigned again. If the group's protocol cannot assign a single partition, the source ends, and
//!   joins anew.
//! - May go when librdkafka repeats the request.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The time that a partition may be silent before it is assigned again. Doubled each time, up to
/// [`MAX_STALL_TIMEOUT`]: its first message may be large or far away.
const MIN_STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest of these waits.
const MAX_STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// The same after an error that may concern the partition; doubled each time too.
const ERROR_STALL_TIMEOUT: Duration = Duration::from_millis(500);

/// The silent partitions.
#[derive(Debug, Default)]
pub(in crate::kafka) struct StalledPartitions {
    silent: HashMap<i32, StalledPartition>,
    /// Since when all partitions are paused.
    paused_since: Option<Instant>,
}

#[derive(Debug)]
struct StalledPartition {
    assigned: Instant,
    /// The time of the last assignment.
    since: Instant,
    timeout: Duration,
    /// The timeout while other partitions have queued messages.
    behind: Duration,
    after_error: Duration,
    /// An error occurred since the assignment.
    troubled: bool,
}

impl StalledPartitions {
    /// A partition was assigned.
    pub(in crate::kafka) fn assigned(&mut self, partition: i32) {
        let now = self.now();
        self.silent.insert(
            partition,
            StalledPartition {
                assigned: now,
                since: now,
                timeout: MIN_STALL_TIMEOUT,
                behind: MAX_STALL_TIMEOUT,
                after_error: ERROR_STALL_TIMEOUT,
                troubled: false,
            },
        );
    }

    /// The partition delivered something.
    pub(in crate::kafka) fn came(&mut self, partition: i32) {
        if !self.silent.is_empty() {
            self.silent.remove(&partition);
        }
    }

    /// The partitions were revoked.
    pub(in crate::kafka) fn gone(&mut self, partitions: &[i32]) {
        self.silent.retain(|partition, _| !partitions.contains(partition));
    }

    /// All partitions are paused or resumed. Paused partitions deliver nothing, so that time does
    /// not count.
    pub(in crate::kafka) fn set_paused(&mut self, is_paused: bool) {
        if is_paused {
            self.paused_since.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.paused_since.take() {
            let paused = since.elapsed();
            for start in self.silent.values_mut() {
                start.assigned += paused;
                start.since += paused;
            }
        }
    }

    /// The time, which stops while all partitions are paused.
    fn now(&self) -> Instant {
        self.paused_since.unwrap_or_else(Instant::now)
    }

    /// Records an error, of one of them or of anything else.
    pub(in crate::kafka) fn disturbed(&mut self) {
        let now = self.now();
        for start in self.silent.values_mut() {
            start.timeout = start.timeout.min(now.duration_since(start.since) + start.after_error);
            start.troubled = true;
        }
    }

    /// The partitions that are silent for too long; each gets more time. While other partitions
    /// have queued messages, the awaited message may be queued behind them, so a longer timeout
    /// applies. Each new assignment loses the place in that queue, so that timeout has no bound.
    pub(in crate::kafka) fn late(&mut self, is_dry: bool) -> Vec<i32> {
        let now = self.now();
        let timeout = |start: &StalledPartition| if is_dry { start.timeout } else { start.behind };
        let mut late = Vec::new();
        for (partition, start) in self
            .silent
            .iter_mut()
            .filter(|(_, start)| now.duration_since(start.since) >= timeout(start))
        {
            start.since = now;
            if !is_dry {
                start.behind *= 2;
            }
            start.after_error = (start.after_error * 2).min(MAX_STALL_TIMEOUT);
            start.timeout = (start.timeout * 2).clamp(MIN_STALL_TIMEOUT, MAX_STALL_TIMEOUT);
            late.push(*partition);
        }
        late
    }

    /// A partition that an error may have affected, and that is silent for longer than any timeout.
    pub(in crate::kafka) fn stuck(&self) -> Option<i32> {
        let now = self.now();
        let mut stuck = self.silent.iter().filter(|(_, start)| {
            start.troubled && now.duration_since(start.assigned) >= MAX_STALL_TIMEOUT
        });
        stuck.next().map(|(partition, _)| *partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn what_stays_silent_is_late_again_and_again_and_ever_more_rarely() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        stalled.assigned(1);
        stalled.assigned(2);
        stalled.came(1);
        stalled.gone(&[2]);
        for wait in [5, 10, 20, 40, 80, 120, 120].map(Duration::from_secs) {
            tokio::time::advance(wait - MS).await;
            assert!(stalled.late(true).is_empty());
            tokio::time::advance(MS).await;
            assert_eq!(stalled.late(true), [0]);
        }
        assert_eq!(stalled.stuck(), None, "nothing went wrong");
        stalled.came(0);
        tokio::time::advance(MAX_STALL_TIMEOUT).await;
        stalled.disturbed();
        assert_eq!((stalled.late(true), stalled.stuck()), (vec![], None));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_time_that_is_paused_does_not_count() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        // Each shorter than any timeout.
        for _ in 0..4 {
            tokio::time::advance(MIN_STALL_TIMEOUT / 5).await;
            stalled.set_paused(true);
            tokio::time::advance(MAX_STALL_TIMEOUT).await;
            stalled.assigned(1);
            stalled.set_paused(false);
        }
        tokio::time::advance(MIN_STALL_TIMEOUT / 5 - MS).await;
        assert!(stalled.late(true).is_empty());
        tokio::time::advance(MS).await;
        assert_eq!(stalled.late(true), [0], "1 was assigned while all was paused");
        stalled.disturbed();
        tokio::time::advance(MAX_STALL_TIMEOUT - MIN_STALL_TIMEOUT - MS).await;
        assert_eq!(stalled.stuck(), None);
        tokio::time::advance(MS).await;
        assert_eq!(stalled.stuck(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn behind_what_others_have_it_may_be_silent_for_longer() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        stalled.disturbed();
        tokio::time::advance(MAX_STALL_TIMEOUT - MS).await;
        assert_eq!((stalled.late(false), stalled.stuck()), (vec![], None));
        tokio::time::advance(MS).await;
        assert_eq!((stalled.late(false), stalled.stuck()), (vec![0], Some(0)));
        // Each time longer, because it starts at the end of the queue again.
        for wait in [MAX_STALL_TIMEOUT * 2, MAX_STALL_TIMEOUT * 4, MAX_STALL_TIMEOUT * 8] {
            tokio::time::advance(wait - MS).await;
            assert!(stalled.late(false).is_empty(), "{wait:?}");
            tokio::time::advance(MS).await;
            assert_eq!(stalled.late(false), [0], "{wait:?}");
        }
        tokio::time::advance(MAX_STALL_TIMEOUT).await;
        assert_eq!(stalled.late(true), [0], "nothing stands before it");
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_error_it_is_late_sooner_and_more_rarely_each_time() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        for wait in [500, 1000, 2000, 4000].map(Duration::from_millis) {
            tokio::time::advance(MS).await;
            stalled.disturbed();
            tokio::time::advance(wait - MS).await;
            assert!(stalled.late(true).is_empty(), "{wait:?}");
            tokio::time::advance(MS).await;
            assert_eq!(stalled.late(true), [0], "{wait:?}");
        }
    }
}
