//! A request of a batch, borrowed.

use crate::job::JobId;
use crate::request::NewSchedule;
use crate::request::{Act, NewJob, Origin, OwnQueues, Request};

/// A request of a batch.
#[derive(Debug, Clone, Copy)]
pub enum RequestRef<'a> {
    /// A new job.
    NewJob(&'a NewJob),
    /// A recurring schedule.
    NewSchedule(&'a NewSchedule),
    /// An action on a job or schedule that exists.
    Act(&'a Act),
}

impl<'a> From<&'a Request> for RequestRef<'a> {
    fn from(request: &'a Request) -> Self {
        match request {
            Request::NewJob(new_job) => RequestRef::NewJob(new_job),
            Request::NewSchedule(new) => RequestRef::NewSchedule(new),
            Request::Act(act) => RequestRef::Act(act),
        }
    }
}

impl<'a> RequestRef<'a> {
    pub(super) fn id(self) -> &'a str {
        self.job_id().as_str()
    }

    pub(super) fn job_id(self) -> &'a JobId {
        match self {
            RequestRef::NewJob(new_job) => &new_job.id,
            RequestRef::NewSchedule(new) => &new.id,
            RequestRef::Act(act) => &act.id,
        }
    }

    /// The identity of the message.
    pub(super) fn origin(self) -> &'a Origin {
        match self {
            RequestRef::NewJob(new_job) => &new_job.origin,
            RequestRef::NewSchedule(new) => &new.origin,
            RequestRef::Act(act) => &act.origin,
        }
    }

    /// The queues of the caller, if those are not all.
    pub(super) fn own_queues(self) -> Option<&'a OwnQueues> {
        match self {
            RequestRef::NewJob(new_job) => new_job.own_queues.as_ref(),
            RequestRef::NewSchedule(new) => new.own_queues.as_ref(),
            RequestRef::Act(act) => act.own_queues.as_ref(),
        }
    }
}
