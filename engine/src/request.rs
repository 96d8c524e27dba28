//! What the store is asked for: a new job, or an action on a job that exists.

use dwell_core::Destination;

use crate::job::{Action, Conflict, Due, Job, JobId};

/// What a message on an ingest asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A new job.
    Schedule(Box<Schedule>),
    /// Something about a job that exists.
    Act(Act),
}

impl Request {
    /// The inbound message.
    pub fn origin_mut(&mut self) -> &mut Origin {
        match self {
            Request::Schedule(schedule) => &mut schedule.origin,
            Request::Act(act) => &mut act.origin,
        }
    }

    /// Gives a schedule whose id another message has, as [`Schedule::apart`] tells, an id like no other; false for any other request.
    pub fn take_another_id(&mut self) -> bool {
        let Request::Schedule(schedule) = self else { return false };
        let is_other = std::mem::take(&mut schedule.apart);
        if is_other {
            schedule.id = JobId::random();
            schedule.origin.fingerprint = rand::random();
            schedule.first = Some(rand::random());
        }
        is_other
    }

    /// Of the body that it brings.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Request::Schedule(schedule) => schedule.job.body.len(),
            Request::Act(_) => 0,
        }
    }
}

/// A new job.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Its id.
    pub id: JobId,
    /// The id was made here, from position or content: it never replaces another job.
    pub generated: bool,
    /// Tells every call for this schedule from all others, where nothing of the message does: the broker says that it delivers the message for the first
    /// time, or tells nothing. It is the generation of the job.
    pub first: Option<[u8; 8]>,
    /// Whoever has the id is another message, but for a copy of this one: the id is of what the producer wrote, and the broker says that it delivers the message
    /// for the first time.
    pub apart: bool,
    /// When.
    pub due: Due,
    /// What if the id exists.
    pub conflict: Conflict,
    /// What is delivered.
    pub job: Job,
    /// The inbound message.
    pub origin: Origin,
    /// Where the verdict goes, on the ingest's broker.
    pub reply_to: Option<Destination>,
}

/// An action on a job that exists.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// Which; never `Schedule`.
    pub action: Action,
    /// Whose.
    pub id: JobId,
    /// The new time of a `reschedule`.
    pub due: Option<Due>,
    /// `delayed-due` that a `finish` or `fail` carried back, epoch ms.
    pub seen_due: Option<i64>,
    /// `delayed-attempt` that a `finish` or `fail` carried back.
    pub seen_attempt: Option<u32>,
    /// The inbound message.
    pub origin: Origin,
    /// Where the verdict goes, on the ingest's broker.
    pub reply_to: Option<Destination>,
}

/// Tells one inbound message from every other, so that its redelivery changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Of broker, position and so on; random where the broker tells nothing that would be the same in a redelivery.
    pub fingerprint: [u8; 8],
    /// Whether this delivery may be a redelivery, so that the fingerprint is to be looked up among those applied before.
    pub check: bool,
    /// It is of a message, which may come again behind later ones; else of a call, which nobody repeats once it is answered.
    pub is_message: bool,
}

/// Which attempt a consumer speaks of, as its message had it: what no longer is so is `Stale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// `delayed-due`, epoch ms.
    pub due_ms: i64,
    /// `delayed-attempt`, from 1.
    pub number: u32,
}

impl Schedule {
    /// A new job under a random id. `id` and `conflict` may be set before it is sent; the rest tells
    /// this call from every other, so that sending it twice stores one job.
    #[must_use]
    pub fn new(job: Job, due: Due) -> Self {
        Schedule {
            id: JobId::random(),
            generated: false,
            first: None,
            apart: false,
            due,
            conflict: Conflict::default(),
            job,
            origin: Origin::of_call(),
            reply_to: None,
        }
    }

    /// The same under this id.
    #[must_use]
    pub fn id(mut self, id: JobId) -> Self {
        self.id = id;
        self
    }

    /// The same with this rule for an id that exists; default: replace.
    #[must_use]
    pub fn on_conflict(mut self, conflict: Conflict) -> Self {
        self.conflict = conflict;
        self
    }
}

impl Act {
    /// An action on whichever schedule and attempt of this job stands. A `reschedule` needs a `due`.
    #[must_use]
    pub fn new(action: Action, id: JobId) -> Self {
        Act { action, id, due: None, seen_due: None, seen_attempt: None, origin: Origin::of_call(), reply_to: None }
    }

    /// The same, for this attempt alone.
    #[must_use]
    pub fn of(mut self, attempt: Option<Attempt>) -> Self {
        (self.seen_due, self.seen_attempt) = (attempt.map(|attempt| attempt.due_ms), attempt.map(|attempt| attempt.number));
        self
    }
}

impl Origin {
    /// Of a call: like no other, and looked up all the same, because a call whose answer was lost is
    /// sent again.
    #[must_use]
    pub fn of_call() -> Self {
        Origin { fingerprint: rand::random(), check: true, is_message: false }
    }
}
