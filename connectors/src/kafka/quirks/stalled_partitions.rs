//! Partitions that were assigned and of which nothing came yet, neither a message nor the end of the log.
//!
//! librdkafka asks the group's coordinator once where to begin. Where that fails (the broker is not the coordinator any more, or not yet), the
//! partition stays assigned and is never read (`rd_kafka_assignment_apply_offsets` in 2.12: "Do nothing for request-level errors").

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long a partition may be silent before it is assigned again; doubled each time, up to [`MOST`]: its first message may be large, or far.
const FIRST: Duration = Duration::from_secs(5);
/// The longest of these waits.
const MOST: Duration = Duration::from_secs(120);
/// How long after an error, which may have been of it; doubled each time too.
const AFTER_ERROR: Duration = Duration::from_millis(500);

/// Those partitions.
#[derive(Debug, Default)]
pub(in crate::kafka) struct StalledPartitions {
    silent: HashMap<i32, StalledPartition>,
    /// Since when all is paused.
    held: Option<Instant>,
}

#[derive(Debug)]
struct StalledPartition {
    assigned: Instant,
    /// When it was assigned last.
    since: Instant,
    timeout: Duration,
    /// How long where it may stand behind others.
    behind: Duration,
    after_error: Duration,
    /// Something went wrong since it was assigned.
    troubled: bool,
}

impl StalledPartitions {
    /// A partition is ours, and shall be read.
    pub(in crate::kafka) fn assigned(&mut self, partition: i32) {
        let now = self.now();
        self.silent.insert(
            partition,
            StalledPartition { assigned: now, since: now, timeout: FIRST, behind: MOST, after_error: AFTER_ERROR, troubled: false },
        );
    }

    /// Something came of it.
    pub(in crate::kafka) fn came(&mut self, partition: i32) {
        if !self.silent.is_empty() {
            self.silent.remove(&partition);
        }
    }

    /// They are not ours any more.
    pub(in crate::kafka) fn gone(&mut self, partitions: &[i32]) {
        self.silent.retain(|partition, _| !partitions.contains(partition));
    }

    /// All is paused, or resumed: what is paused cannot come, and that time does not count.
    pub(in crate::kafka) fn hold(&mut self, held: bool) {
        if held {
            self.held.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.held.take() {
            let paused = since.elapsed();
            for start in self.silent.values_mut() {
                start.assigned += paused;
                start.since += paused;
            }
        }
    }

    /// It stands still while all is paused.
    fn now(&self) -> Instant {
        self.held.unwrap_or_else(Instant::now)
    }

    /// Something went wrong, with one of them or with anything else.
    pub(in crate::kafka) fn disturbed(&mut self) {
        let now = self.now();
        for start in self.silent.values_mut() {
            start.timeout = start.timeout.min(now.duration_since(start.since) + start.after_error);
            start.troubled = true;
        }
    }

    /// Those that are silent for too long; they are given more time. Where more of other partitions is there to be taken, what is awaited may stand
    /// behind it: then only those that are silent for longer than that can last. Each time they lose their place there, so that has no bound.
    pub(in crate::kafka) fn late(&mut self, is_dry: bool) -> Vec<i32> {
        let now = self.now();
        let timeout = |start: &StalledPartition| if is_dry { start.timeout } else { start.behind };
        let mut late = Vec::new();
        for (partition, start) in self.silent.iter_mut().filter(|(_, start)| now.duration_since(start.since) >= timeout(start)) {
            start.since = now;
            if !is_dry {
                start.behind *= 2;
            }
            start.after_error = (start.after_error * 2).min(MOST);
            start.timeout = (start.timeout * 2).clamp(FIRST, MOST);
            late.push(*partition);
        }
        late
    }

    /// One that an error may have met, and that is silent for longer than any of the waits.
    pub(in crate::kafka) fn stuck(&self) -> Option<i32> {
        let now = self.now();
        let mut stuck = self.silent.iter().filter(|(_, start)| start.troubled && now.duration_since(start.assigned) >= MOST);
        stuck.next().map(|(partition, _)| *partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn what_stays_silent_is_late_again_and_again_and_ever_more_rarely() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        stalled.assigned(1);
        stalled.assigned(2);
        stalled.came(1);
        stalled.gone(&[2]);
        for wait in [5, 10, 20, 40, 80, 120, 120].map(Duration::from_secs) {
            tokio::time::advance(wait - MOMENT).await;
            assert!(stalled.late(true).is_empty());
            tokio::time::advance(MOMENT).await;
            assert_eq!(stalled.late(true), [0]);
        }
        assert_eq!(stalled.stuck(), None, "nothing went wrong");
        stalled.came(0);
        tokio::time::advance(MOST).await;
        stalled.disturbed();
        assert_eq!((stalled.late(true), stalled.stuck()), (vec![], None));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_time_that_is_paused_does_not_count() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        // Each sooner than anything is late.
        for _ in 0..4 {
            tokio::time::advance(FIRST / 5).await;
            stalled.hold(true);
            tokio::time::advance(MOST).await;
            stalled.assigned(1);
            stalled.hold(false);
        }
        tokio::time::advance(FIRST / 5 - MOMENT).await;
        assert!(stalled.late(true).is_empty());
        tokio::time::advance(MOMENT).await;
        assert_eq!(stalled.late(true), [0], "1 was assigned while all was paused");
        stalled.disturbed();
        tokio::time::advance(MOST - FIRST - MOMENT).await;
        assert_eq!(stalled.stuck(), None);
        tokio::time::advance(MOMENT).await;
        assert_eq!(stalled.stuck(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn behind_what_others_have_it_may_be_silent_for_longer() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        stalled.disturbed();
        tokio::time::advance(MOST - MOMENT).await;
        assert_eq!((stalled.late(false), stalled.stuck()), (vec![], None));
        tokio::time::advance(MOMENT).await;
        assert_eq!((stalled.late(false), stalled.stuck()), (vec![0], Some(0)));
        // And ever longer: it begins at their end again.
        for wait in [MOST * 2, MOST * 4, MOST * 8] {
            tokio::time::advance(wait - MOMENT).await;
            assert!(stalled.late(false).is_empty(), "{wait:?}");
            tokio::time::advance(MOMENT).await;
            assert_eq!(stalled.late(false), [0], "{wait:?}");
        }
        tokio::time::advance(MOST).await;
        assert_eq!(stalled.late(true), [0], "nothing stands before it");
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_error_it_is_late_sooner_and_more_rarely_each_time() {
        let mut stalled = StalledPartitions::default();
        stalled.assigned(0);
        for wait in [500, 1000, 2000, 4000].map(Duration::from_millis) {
            tokio::time::advance(MOMENT).await;
            stalled.disturbed();
            tokio::time::advance(wait - MOMENT).await;
            assert!(stalled.late(true).is_empty(), "{wait:?}");
            tokio::time::advance(MOMENT).await;
            assert_eq!(stalled.late(true), [0], "{wait:?}");
        }
    }
}
