//! The report of a job that is finished for a consumer without a lease to show.

use crate::events::{JobEvent, Observer};
use crate::job::{Action, JobId, Verdict};
use crate::store::due_set::DueSet;
use crate::store::jobs::acknowledge::{LeaseAction, LeaseObserver, LeaseVerdict};
use crate::store::wake_up::WakeUp;
use crate::telemetry::Events;

/// Reports the end of a job and of its lease.
pub(super) struct HeldFinish {
    /// Where the reports go.
    pub(super) events: Events,
    /// The due time of the job, epoch ms.
    pub(super) due_ms: i64,
    /// A consumer held the job when it was read.
    pub(super) is_reserved: bool,
}

impl HeldFinish {
    /// The action `finish` followed an acknowledgement that ended nothing, and its verdict is
    /// reported. `is_answered`: Redis answered the acknowledgement. Returns what became of the job.
    pub(super) fn acted(
        &self,
        queue: &str,
        id: &JobId,
        verdict: Verdict,
        is_answered: bool,
    ) -> Verdict {
        match verdict {
            // The acknowledgement without an answer took effect.
            Verdict::Fired if !is_answered => {
                self.finished(queue, id);
                Verdict::Finished
            }
            Verdict::Finished if self.is_reserved => {
                self.lease_ended(queue, id);
                verdict
            }
            _ => verdict,
        }
    }

    /// The acknowledgement finished the job.
    fn finished(&self, queue: &str, id: &JobId) {
        let (action, verdict, due_ms) = (Action::Finish, Verdict::Finished, Some(self.due_ms));
        let (set, to) = (Some(DueSet::Queue(queue)), None);
        self.events.observe(&JobEvent::Applied { id, set, to, action, verdict, due_ms });
        self.lease_ended(queue, id);
    }

    fn lease_ended(&self, queue: &str, id: &JobId) {
        let (verdict, error, is_applied) = (LeaseVerdict::Finished, "", true);
        self.events.observe(&JobEvent::Acknowledged { queue, id, verdict, error, is_applied });
    }
}

impl LeaseObserver for HeldFinish {
    fn acknowledged(&self, queue: &str, id: &JobId, _: &LeaseAction, verdict: LeaseVerdict) {
        if verdict == LeaseVerdict::Finished {
            self.finished(queue, id);
        }
    }

    /// A finished job is not due again.
    fn due_again(&self, _: &WakeUp) {}
}
