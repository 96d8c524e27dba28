//! Tells of the occurrences that were made or missed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::events::{JobEvent, Observer};
use crate::job::JobId;
use crate::policy::occurrences::{OVERLAP, Plan};
use crate::schedule::StoredSchedule;
use crate::store::due_set::DueSet;

/// The log tells at most once in this time that a schedule skips occurrences.
const SKIPS_LOG_INTERVAL: Duration = Duration::from_secs(3600);
/// The most schedules of which is remembered when the log told that they skip.
const MAX_SKIPPING: usize = 20_000;

/// Tells the observer of the schedules of a bucket.
pub(super) struct Teller {
    observer: Arc<dyn Observer>,
    skipping: HashMap<JobId, Skips>,
}

/// The occurrences that a schedule skipped while the one before was alive.
struct Skips {
    /// When the log told of them.
    told: Instant,
    /// How many there were since then.
    untold: u64,
}

impl Teller {
    pub(super) fn new(observer: Arc<dyn Observer>) -> Self {
        Teller { observer, skipping: HashMap::new() }
    }

    /// Tells of a plan that was applied. `made`: the id and the due time, epoch ms, of each
    /// occurrence that it makes.
    pub(super) fn tell<'a>(
        &mut self,
        schedule: &StoredSchedule,
        plan: &Plan,
        made: impl Iterator<Item = (&'a JobId, i64)>,
        now: Instant,
    ) {
        let set = DueSet::of(&schedule.job);
        for (planned, (id, due_ms)) in plan.make.iter().zip(made) {
            self.observer.observe(&JobEvent::OccurrenceMade {
                schedule: &schedule.id,
                id,
                set,
                to: schedule.job.destination(),
                due_ms,
                number: planned.number,
                is_caught_up: planned.is_caught_up,
            });
        }
        for missed in &plan.missed {
            let to_log = if missed.reason == OVERLAP {
                self.skips_to_log(&schedule.id, missed.count, now)
            } else {
                Some(missed.count)
            };
            self.observer.observe(&JobEvent::OccurrencesMissed {
                schedule: &schedule.id,
                set,
                count: missed.count,
                times: &missed.times,
                reason: missed.reason,
                to_log,
            });
        }
    }

    /// How many skipped occurrences the log tells of, with these; `None`: the log told of the
    /// schedule a short time ago.
    fn skips_to_log(&mut self, id: &JobId, count: u64, now: Instant) -> Option<u64> {
        if let Some(skips) = self.skipping.get_mut(id) {
            skips.untold = skips.untold.saturating_add(count);
            if now.duration_since(skips.told) < SKIPS_LOG_INTERVAL {
                return None;
            }
            skips.told = now;
            return Some(std::mem::take(&mut skips.untold));
        }
        if self.skipping.len() >= MAX_SKIPPING {
            self.skipping.clear();
        }
        self.skipping.insert(id.clone(), Skips { told: now, untold: 0 });
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_log_tells_of_a_schedule_that_skips_at_once_and_then_once_an_hour() {
        let (mut teller, begun) = (Teller::new(Arc::new(())), clock::now());
        let (slow, other) = (JobId::new("slow").unwrap(), JobId::new("other").unwrap());
        let mut after = |id: &JobId, minutes: u64, count: u64| {
            teller.skips_to_log(id, count, begun + Duration::from_secs(60 * minutes))
        };
        assert_eq!(after(&slow, 0, 1), Some(1));
        assert_eq!(after(&slow, 1, 1), None);
        assert_eq!(after(&other, 1, 3), Some(3), "each for itself");
        assert_eq!(after(&slow, 59, 4), None);
        assert_eq!(after(&slow, 60, 2), Some(7), "with those before");
        assert_eq!(after(&slow, 61, 1), None);
        assert_eq!(after(&slow, 300, 1), Some(2));
    }
}
