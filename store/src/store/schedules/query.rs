//! The query of a list of schedules, and a page of the list.

use super::pattern::{fits, is_own};
use crate::job::JobId;
use crate::request::OwnQueues;
use crate::schedule::StoredSchedule;

/// Selects schedules. The default selects all.
#[derive(Debug, Clone, Default)]
pub struct ScheduleFilter {
    /// A part of the id.
    pub q: Option<String>,
    /// Only schedules that are paused, or only those that are not.
    pub paused: Option<bool>,
    /// Only schedules of this queue, or of the queues of this pattern; `*` is any characters.
    pub queue: Option<String>,
    /// Only schedules for this target: a subject, topic or routing key, or `exchange/routing key`.
    pub target: Option<String>,
    /// Only schedules whose newest missed occurrence is not before this time, epoch ms.
    pub missed_since_ms: Option<i64>,
    /// Only schedules of these queues, and none of brokers.
    pub own_queues: Option<OwnQueues>,
}

/// Selects a page of schedules.
#[derive(Debug, Clone, Default)]
pub struct ScheduleQuery {
    /// Selects the schedules.
    pub filter: ScheduleFilter,
    /// The most schedules in the page.
    pub limit: usize,
    /// Only schedules after this id: the `next` of the page before.
    pub after: Option<String>,
}

/// A page of a list of schedules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SchedulePage {
    /// The schedules, in the order of their ids.
    pub schedules: Vec<StoredSchedule>,
    /// The cursor of the next page, if more schedules may follow.
    pub next: Option<String>,
}

impl ScheduleFilter {
    /// Whether a schedule of this id may be wanted.
    pub(super) fn is_for_id(&self, id: &JobId) -> bool {
        self.q.as_ref().is_none_or(|part| id.as_str().contains(part.as_str()))
    }

    /// Whether this schedule is wanted.
    pub(super) fn is_for(&self, schedule: &StoredSchedule) -> bool {
        let StoredSchedule { id, job, progress, .. } = schedule;
        let is_of_queue = |pattern: &String| job.queue().is_some_and(|queue| fits(queue, pattern));
        let is_for_target = |target: &String| {
            job.destination().is_some_and(|to| *target == to.address || *target == to.to_string())
        };
        let was_missed =
            |since_ms| progress.last_missed_ms.is_some_and(|missed_ms| missed_ms >= since_ms);
        self.is_for_id(id)
            && self.paused.is_none_or(|paused| paused == progress.is_paused)
            && self.queue.as_ref().is_none_or(is_of_queue)
            && self.target.as_ref().is_none_or(is_for_target)
            && self.missed_since_ms.is_none_or(was_missed)
            && is_own(job, self.own_queues.as_ref())
    }
}
