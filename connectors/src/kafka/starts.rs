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
pub(super) struct Starts(HashMap<i32, Start>);

#[derive(Debug)]
struct Start {
    assigned: Instant,
    /// When it was assigned last.
    since: Instant,
    patience: Duration,
    after_error: Duration,
}

impl Starts {
    /// A partition is ours, and shall be read.
    pub(super) fn assigned(&mut self, partition: i32) {
        let now = Instant::now();
        self.0.insert(partition, Start { assigned: now, since: now, patience: FIRST, after_error: AFTER_ERROR });
    }

    /// Something came of it.
    pub(super) fn came(&mut self, partition: i32) {
        if !self.0.is_empty() {
            self.0.remove(&partition);
        }
    }

    /// They are not ours any more.
    pub(super) fn gone(&mut self, partitions: &[i32]) {
        self.0.retain(|partition, _| !partitions.contains(partition));
    }

    /// What was paused could not come.
    pub(super) fn wait_anew(&mut self) {
        let now = Instant::now();
        for start in self.0.values_mut() {
            (start.assigned, start.since) = (now, now);
        }
    }

    /// Something went wrong, with one of them or with anything else.
    pub(super) fn disturbed(&mut self) {
        let now = Instant::now();
        for start in self.0.values_mut() {
            start.patience = start.patience.min(now.duration_since(start.since) + start.after_error);
        }
    }

    /// Those that are silent for too long, and since when. They are given more time.
    pub(super) fn late(&mut self) -> Vec<(i32, Duration)> {
        let now = Instant::now();
        let mut late = Vec::new();
        for (partition, start) in self.0.iter_mut().filter(|(_, start)| now.duration_since(start.since) >= start.patience) {
            start.since = now;
            start.after_error = (start.after_error * 2).min(MOST);
            start.patience = (start.patience * 2).clamp(FIRST, MOST);
            late.push((*partition, now.duration_since(start.assigned)));
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn what_stays_silent_is_late_again_and_again_and_ever_more_rarely() {
        let mut starts = Starts::default();
        starts.assigned(0);
        starts.assigned(1);
        starts.assigned(2);
        starts.came(1);
        starts.gone(&[2]);
        let mut after = Duration::ZERO;
        for wait in [5, 10, 20, 40, 80, 120, 120].map(Duration::from_secs) {
            tokio::time::advance(wait - MOMENT).await;
            assert_eq!(starts.late(), []);
            tokio::time::advance(MOMENT).await;
            after += wait;
            assert_eq!(starts.late(), [(0, after)]);
        }
        starts.assigned(0);
        tokio::time::advance(FIRST - MOMENT).await;
        starts.wait_anew();
        tokio::time::advance(MOMENT).await;
        assert_eq!(starts.late(), []);
        tokio::time::advance(FIRST).await;
        assert_eq!(starts.late(), [(0, FIRST + MOMENT)]);
        starts.came(0);
        tokio::time::advance(MOST).await;
        starts.disturbed();
        assert_eq!(starts.late(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_error_it_is_late_sooner_and_more_rarely_each_time() {
        let mut starts = Starts::default();
        starts.assigned(0);
        for wait in [500, 1000, 2000, 4000].map(Duration::from_millis) {
            tokio::time::advance(MOMENT).await;
            starts.disturbed();
            tokio::time::advance(wait - MOMENT).await;
            assert_eq!(starts.late(), [], "{wait:?}");
            tokio::time::advance(MOMENT).await;
            assert_eq!(starts.late().len(), 1, "{wait:?}");
        }
    }
}
