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
