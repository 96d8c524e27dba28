//! A request of a batch, borrowed.

use crate::request::{Act, NewJob, Request};

/// A request of a batch.
#[derive(Debug, Clone, Copy)]
pub enum RequestRef<'a> {
    /// A new job.
    NewJob(&'a NewJob),
    /// An action on a job that exists.
    Act(&'a Act),
}

impl<'a> From<&'a Request> for RequestRef<'a> {
    fn from(request: &'a Request) -> Self {
        match request {
            Request::NewJob(new_job) => RequestRef::NewJob(new_job),
            Request::Act(act) => RequestRef::Act(act),
        }
    }
}

impl<'a> RequestRef<'a> {
    pub(super) fn id(self) -> &'a str {
        match self {
            RequestRef::NewJob(new_job) => new_job.id.as_str(),
            RequestRef::Act(act) => act.id.as_str(),
        }
    }
}
