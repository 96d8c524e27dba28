//! Plans whose calls failed: Redis may have applied them all the same.

use crate::job::JobId;
use crate::policy::occurrences::Plan;
use crate::schedule::StoredSchedule;
use crate::store::schedules::Read;
use crate::store::schedules::change::Change;

/// A plan without an answer.
pub(super) struct Unanswered {
    /// The schedule before the plan, without the body and the headers of its job.
    pub(super) schedule: StoredSchedule,
    pub(super) plan: Plan,
    /// The id and the due time, epoch ms, of each occurrence to make.
    pub(super) made: Vec<(JobId, i64)>,
}

impl Unanswered {
    pub(super) fn new(mut schedule: StoredSchedule, plan: Plan, change: Change) -> Self {
        // They may be large, and nobody is told of them.
        schedule.job.body = Default::default();
        schedule.job.headers = Default::default();
        let made = change.make.into_iter().map(|made| (made.id, made.due_ms)).collect();
        Unanswered { schedule, plan, made }
    }

    /// Whether the schedule is as this plan leaves it. That of another spawner leaves another
    /// revision. If the schedule has changed again meanwhile, nobody knows who made what: no event
    /// is told rather than one that others told.
    pub(super) fn is_applied(&self, found: Option<&Read>) -> bool {
        match (&self.plan.progress, found) {
            (Some(planned), Some(read)) => {
                let found = &read.schedule.progress;
                (planned.generation, planned.revision) == (found.generation, found.revision)
            }
            // It ended with its last occurrence. If another spawner made that one, or somebody ended
            // the schedule, there is no state that could say so.
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}
