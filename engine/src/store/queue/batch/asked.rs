//! One request of a batch, borrowed.

use crate::request::{Act, Request, Schedule};

/// One request of a batch.
#[derive(Debug, Clone, Copy)]
pub enum RequestRef<'a> {
    /// A new job.
    Schedule(&'a Schedule),
    /// An action on a job that exists.
    Act(&'a Act),
}

impl<'a> From<&'a Request> for RequestRef<'a> {
    fn from(request: &'a Request) -> Self {
        match request {
            Request::Schedule(schedule) => RequestRef::Schedule(schedule),
            Request::Act(act) => RequestRef::Act(act),
        }
    }
}

impl<'a> RequestRef<'a> {
    pub(super) fn id(self) -> &'a str {
        match self {
            RequestRef::Schedule(schedule) => schedule.id.as_str(),
            RequestRef::Act(act) => act.id.as_str(),
        }
    }
}
