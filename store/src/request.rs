//! The requests to the store: a new job, a recurring schedule, or an action on either.

pub(crate) mod caller;
mod kept;

use std::time::SystemTime;

use dwell_core::Destination;

pub use self::caller::{Origin, OwnQueues};
pub use self::kept::KeptParts;
use crate::clock::ms_of;
use crate::job::{Action, Conflict, Due, Job, JobId};
use crate::schedule::{Progress, StoredSchedule, Timing};

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A new job.
    NewJob(Box<NewJob>),
    /// A recurring schedule.
    NewSchedule(Box<NewSchedule>),
    /// An action on an existing job or schedule.
    Act(Act),
}

impl Request {
    /// The id of the job or schedule.
    #[must_use]
    pub fn id(&self) -> &JobId {
        match self {
            Request::NewJob(new_job) => &new_job.id,
            Request::NewSchedule(new) => &new.id,
            Request::Act(act) => &act.id,
        }
    }

    /// The identity of the inbound message.
    pub fn origin_mut(&mut self) -> &mut Origin {
        match self {
            Request::NewJob(new_job) => &mut new_job.origin,
            Request::NewSchedule(new) => &mut new.origin,
            Request::Act(act) => &mut act.origin,
        }
    }

    /// Gives a new job a random id if another message has its id (see
    /// [`NewJob::is_new_message`]). False for any other request.
    pub fn take_another_id(&mut self) -> bool {
        let Request::NewJob(new_job) = self else { return false };
        let is_other = std::mem::take(&mut new_job.is_new_message);
        if is_other {
            new_job.id = JobId::random();
            new_job.origin.fingerprint = rand::random();
            new_job.call_id = Some(rand::random());
        }
        is_other
    }

    /// The size of the body, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Request::NewJob(new_job) => new_job.job.body.len(),
            Request::NewSchedule(new) => new.job.body.len(),
            Request::Act(_) => 0,
        }
    }
}

/// A new job.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct NewJob {
    /// The id of the job.
    pub id: JobId,
    /// The id was generated from position or content: the job never replaces another one.
    pub generated: bool,
    /// Identifies the calls for this job if the message does not: the broker reports a first
    /// delivery, or reports nothing. Becomes the generation of the job.
    pub call_id: Option<[u8; 8]>,
    /// A job with this id comes from another message, unless this call is a repeat: the id was
    /// generated from the content, and the broker reports a first delivery.
    pub is_new_message: bool,
    /// The job's queue has as many jobs as it may have: a job with a new id is refused, and nothing
    /// changes.
    pub queue_full: bool,
    /// The caller has only these queues: if a job of another owner has the id, nothing changes.
    pub own_queues: Option<OwnQueues>,
    /// The due time of the job.
    pub due: Due,
    /// The rule for an id that exists.
    pub conflict: Conflict,
    /// The job.
    pub job: Job,
    /// The identity of the inbound message.
    pub origin: Origin,
    /// The destination of the verdict, on the ingest's broker.
    pub reply_to: Option<Destination>,
}

/// A request for a recurring schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    /// The id of the schedule.
    pub id: JobId,
    /// The rule for an id that exists: [`Conflict::Replace`], `Keep` or `Reject`.
    pub conflict: Conflict,
    /// The caller has only these queues: if a schedule or job of another owner has the id, nothing
    /// changes.
    pub own_queues: Option<OwnQueues>,
    /// A schedule that is new begins paused.
    pub is_paused: bool,
    /// The schedule is one of the settings (`[schedules.NAME]`).
    pub from_settings: bool,
    /// When the schedule fires.
    pub timing: Timing,
    /// The job of each occurrence. `created_ms` is the time of the request.
    pub job: Job,
    /// The parts of the job that stay as they are stored when the request is applied.
    pub keep: KeptParts,
    /// The identity of the inbound message.
    pub origin: Origin,
    /// The destination of the verdict, on the ingest's broker.
    pub reply_to: Option<Destination>,
}

/// An action on an existing job.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Act {
    /// The action; never [`Action::Add`].
    pub action: Action,
    /// The job's id.
    pub id: JobId,
    /// The new time of a `reschedule`.
    pub due: Option<Due>,
    /// The `delayed-due` that a `finish` or `fail` returns, epoch ms.
    pub seen_due: Option<i64>,
    /// The `delayed-attempt` that a `finish` or `fail` returns.
    pub seen_attempt: Option<u32>,
    /// The caller has only these queues: a job of others is `not_found`.
    pub own_queues: Option<OwnQueues>,
    /// The identity of the inbound message.
    pub origin: Origin,
    /// The destination of the verdict, on the ingest's broker.
    pub reply_to: Option<Destination>,
}

/// The attempt that a consumer names, from its message. If the job has another one, the answer is
/// `Stale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRef {
    /// `delayed-due`, epoch ms.
    pub due_ms: i64,
    /// `delayed-attempt`, from 1.
    pub number: u32,
}

impl NewJob {
    /// A new job with a random id, due after a [`Duration`](std::time::Duration) or at a
    /// [`SystemTime`]. `id` and `conflict` may be set before the call; the other fields identify the
    /// call, so that repeating it stores one job.
    #[must_use]
    pub fn new(job: Job, due: impl Into<Due>) -> Self {
        NewJob {
            id: JobId::random(),
            generated: false,
            call_id: None,
            is_new_message: false,
            queue_full: false,
            own_queues: None,
            due: due.into(),
            conflict: Conflict::default(),
            job,
            origin: Origin::of_call(),
            reply_to: None,
        }
    }

    /// The same job with this id.
    #[must_use]
    pub fn id(mut self, id: JobId) -> Self {
        self.id = id;
        self
    }

    /// The same job with this rule for an id that exists; default: replace.
    #[must_use]
    pub fn on_conflict(mut self, conflict: Conflict) -> Self {
        self.conflict = conflict;
        self
    }
}

impl NewSchedule {
    /// The schedule as it was stored at `now_ms`, before its first occurrence. `next_ms`: its next
    /// nominal time, epoch ms.
    #[must_use]
    pub fn begun(self, now_ms: i64, next_ms: Option<i64>) -> StoredSchedule {
        let NewSchedule { id, timing, job, from_settings, is_paused, .. } = self;
        let progress = Progress { grid_ms: now_ms, next_ms, is_paused, ..Progress::default() };
        StoredSchedule { id, timing, job, from_settings, progress }
    }
}

impl Act {
    /// An action on the current schedule and attempt of this job. A `reschedule` needs a `due`.
    #[must_use]
    pub fn new(action: Action, id: JobId) -> Self {
        Act {
            action,
            id,
            due: None,
            seen_due: None,
            seen_attempt: None,
            own_queues: None,
            origin: Origin::of_call(),
            reply_to: None,
        }
    }

    /// The same with this due time, for a `reschedule`.
    #[must_use]
    pub fn due(mut self, due: impl Into<Due>) -> Self {
        self.due = Some(due.into());
        self
    }

    /// The same, for this attempt only.
    #[must_use]
    pub fn of(mut self, attempt: Option<AttemptRef>) -> Self {
        (self.seen_due, self.seen_attempt) =
            (attempt.map(|attempt| attempt.due_ms), attempt.map(|attempt| attempt.number));
        self
    }
}

impl AttemptRef {
    /// The attempt of this `delayed-due`, which is a whole number of epoch ms, and this
    /// `delayed-attempt`.
    #[must_use]
    pub fn new(due: SystemTime, number: u32) -> Self {
        AttemptRef { due_ms: ms_of(due), number }
    }
}
