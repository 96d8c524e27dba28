//! What a spawner remembers of the schedules of a bucket: those that it leaves alone for now, and
//! the owners of the others.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::clock::Instant;
use crate::job::JobId;
use crate::store::schedules::heads::Head;

/// The time until a schedule that was left alone is looked at again.
const LEFT_ALONE: Duration = Duration::from_secs(10);
/// Looks begin this much before now if schedules before that are left alone: a schedule that
/// another instance puts comes with a time of then.
const OVERLAP_MS: i64 = 5_000;
/// The most schedules whose owner is remembered.
const MAX_OWNERS: usize = 20_000;

/// What is known of a bucket.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The schedules that are left alone, with their next times. One that is moved is another case.
    left_alone: HashMap<JobId, i64>,
    /// All are looked at again from then on.
    all_at: Option<Instant>,
    /// The next look begins at the first schedule.
    from_first: bool,
    /// The broker of a schedule, or `=` and its queue.
    owners: HashMap<JobId, Box<str>>,
    /// The schedules of which the log has said that they cannot be read.
    told: HashSet<JobId>,
}

impl Known {
    /// A look begins: from which next time on, epoch ms; `None`: at the first.
    pub(super) fn begin_look(&mut self, now: Instant, now_ms: i64) -> Option<i64> {
        if self.all_at.is_none_or(|all_at| all_at <= now) {
            self.look_at_all();
        }
        // Without a schedule that is left alone, nothing stands before the others.
        let from_first = std::mem::take(&mut self.from_first) || self.left_alone.is_empty();
        (!from_first).then(|| now_ms - OVERLAP_MS)
    }

    /// The next look begins at the first schedule: one that is long due is not left alone.
    pub(super) fn look_from_first(&mut self) {
        self.from_first = true;
    }

    /// The next look begins at the first schedule, and leaves none alone.
    pub(super) fn look_at_all(&mut self) {
        self.left_alone.clear();
        self.all_at = None;
    }

    /// Leaves a schedule alone for a while.
    pub(super) fn leave_alone(&mut self, head: Head, now: Instant) {
        self.all_at.get_or_insert(now + LEFT_ALONE);
        self.left_alone.insert(head.id, head.next_ms);
    }

    /// When all schedules are looked at again, if some are left alone.
    pub(super) fn all_at(&self) -> Option<Instant> {
        self.all_at
    }

    /// Whether a schedule is left alone.
    pub(super) fn is_left_alone(&self, head: &Head) -> bool {
        self.left_alone.get(&head.id) == Some(&head.next_ms)
    }

    /// Remembers the owner of a schedule.
    pub(super) fn learn(&mut self, id: &JobId, owner: &str) {
        if self.owners.get(id).is_some_and(|known| **known == *owner) {
            return;
        }
        if self.owners.len() >= MAX_OWNERS {
            self.owners.clear();
        }
        self.owners.insert(id.clone(), owner.into());
    }

    /// The broker of a schedule, or `=` and its queue, when the schedule was read last.
    pub(super) fn owner(&self, id: &JobId) -> Option<&str> {
        self.owners.get(id).map(|owner| &**owner)
    }

    /// The schedule cannot be read. Returns whether the log has not said so yet.
    pub(super) fn is_news(&mut self, id: &JobId) -> bool {
        if self.told.len() >= MAX_OWNERS {
            self.told.clear();
        }
        self.told.insert(id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn schedules_that_are_left_alone_stand_before_no_others_and_are_looked_at_again() {
        let (mut known, now) = (Known::default(), clock::now());
        let head = |next_ms| Head { id: JobId::new("a").unwrap(), next_ms };
        assert_eq!(known.begin_look(now, 100_000), None);
        known.leave_alone(head(7), now);
        known.leave_alone(head(7), now + LEFT_ALONE / 2);
        assert!(known.is_left_alone(&head(7)));
        // Another instance made an occurrence, and the next one is due.
        assert!(!known.is_left_alone(&head(8)));
        assert_eq!(known.begin_look(now + LEFT_ALONE / 2, 100_000), Some(95_000));
        // Of another one that is long due, a part was made.
        known.look_from_first();
        assert_eq!(known.begin_look(now + LEFT_ALONE / 2, 100_000), None);
        assert!(known.is_left_alone(&head(7)));
        assert_eq!(known.begin_look(now + LEFT_ALONE / 2, 100_000), Some(95_000));
        assert_eq!(known.all_at(), Some(now + LEFT_ALONE));
        assert_eq!(known.begin_look(now + LEFT_ALONE, 110_000), None);
        assert!(!known.is_left_alone(&head(7)));
    }

    #[test]
    fn a_schedule_that_cannot_be_read_is_news_once() {
        let (mut known, id) = (Known::default(), JobId::new("a").unwrap());
        assert!(known.is_news(&id));
        assert!(!known.is_news(&id));
    }
}
