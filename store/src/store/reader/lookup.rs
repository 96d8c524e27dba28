//! Looks a job up by its id.

use std::time::SystemTime;

use bytes::Bytes;
use redis::{Pipeline, Value};

use crate::clock::time_of;
use crate::job::{Job, JobId};
use crate::store::answer::score;
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError, UNREADABLE_HINT};
use crate::store::namespace::Namespace;
use crate::store::reader::Reader;
use crate::store::record::{self, Nonce, Record, StateRecord};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum JobState {
    /// The job is in `due`; a job of a queue is due later than now.
    Scheduled,
    /// A job of a queue is due, and not fetched.
    Ready,
    /// The job is in a claim, or held for its consumer.
    Reserved,
    /// The job is in `dead`.
    Dead,
}

impl JobState {
    /// The word of the HTTP API and the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Scheduled => "scheduled",
            JobState::Ready => "ready",
            JobState::Reserved => "reserved",
            JobState::Dead => "dead",
        }
    }
}

/// A job as it is stored.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct StoredJob {
    /// The job's id.
    pub id: JobId,
    /// The state of the job.
    pub state: JobState,
    /// The score in the set of that state, epoch ms: the next due time, the lease's deadline, or
    /// the time of death.
    #[doc(hidden)]
    pub score_ms: i64,
    /// The immutable part of the job.
    #[doc(hidden)]
    pub record: Record,
    /// The mutable part, with the attempt in flight; `None` if the job was never attempted or
    /// changed.
    #[doc(hidden)]
    pub state_record: Option<StateRecord>,
    /// The proof of the pop under which a consumer holds the job. Lists leave it out.
    #[doc(hidden)]
    pub held_by: Option<Nonce>,
    /// Size of the body, bytes. Lists leave out the body itself.
    pub size: usize,
}

impl StoredJob {
    /// The job to deliver. Its body is empty in a list of jobs.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.record.job
    }

    /// The number of attempts begun.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.state_record.as_ref().map_or(0, |state| state.attempt)
    }

    /// The error of the last attempt; empty if no attempt failed.
    #[must_use]
    pub fn last_error(&self) -> &str {
        self.state_record.as_ref().map_or("", |state| &state.last_error)
    }

    /// The next due time of a scheduled job; the due time of the schedule if the job is reserved or
    /// dead, or waits for its turn at a limited target.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        time_of(self.due_ms())
    }

    /// The same, epoch ms.
    #[doc(hidden)]
    #[must_use]
    pub fn due_ms(&self) -> i64 {
        match (self.state, &self.state_record) {
            (JobState::Reserved | JobState::Dead, Some(state)) => state.due_ms,
            (JobState::Scheduled, Some(state)) if state.waits_for_turn(self.score_ms) => {
                state.due_ms
            }
            (JobState::Scheduled | JobState::Ready, _)
            | (JobState::Reserved | JobState::Dead, None) => self.score_ms,
        }
    }
}

impl Reader {
    /// Finds a job by its id.
    pub async fn find(&self, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        find(&self.namespace, id).await
    }
}

/// Finds a job by its id. A job that moves between the reads is looked up once more.
pub(in crate::store) async fn find(
    namespace: &Namespace,
    id: &JobId,
) -> Result<Option<StoredJob>, StoreError> {
    match find_once(namespace, id).await? {
        Some(found) if found.state == JobState::Reserved && found.score_ms == 0 => {
            find_once(namespace, id).await
        }
        found => Ok(found),
    }
}

async fn find_once(namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
    let bucket = namespace.keys.bucket_of(id.as_str());
    let brokers = namespace.brokers();
    let mut pipeline = Pipeline::new();
    pipeline.cmd("HGET").arg(namespace.keys.jobs(bucket)).arg(id.as_str());
    pipeline.cmd("HGET").arg(namespace.keys.state(bucket)).arg(id.as_str());
    pipeline.cmd("ZSCORE").arg(namespace.keys.held(bucket)).arg(id.as_str());
    pipeline.cmd("ZSCORE").arg(namespace.keys.dead(bucket)).arg(id.as_str());
    for broker in brokers.iter() {
        pipeline.cmd("ZSCORE").arg(namespace.keys.due(bucket, broker)).arg(id.as_str());
    }
    let mut answers = namespace.link.pipeline("looking a job up", &pipeline).await?.into_iter();
    let (record, stored_state) = (answers.next(), answers.next());
    let Some(Value::BulkString(bytes)) = record else { return Ok(None) };
    let unreadable = |why: record::Unreadable| {
        StoreError::new(Class::Script, format!("redis: job `{id}`: {why}")).hint(UNREADABLE_HINT)
    };
    let bytes = Bytes::from(bytes);
    let record = record::decode(bytes.clone()).map_err(unreadable)?;
    let (mut state_record, pop) = match stored_state {
        Some(Value::BulkString(stored)) => {
            let state =
                StateRecord::decode(&stored).map_err(unreadable)?.with_turn(&stored, &bytes);
            (Some(state), StateRecord::pop_of(&stored))
        }
        _ => (None, None),
    };
    let mut scores = answers.map(score);
    let (held, mut dead) = (scores.next().flatten(), scores.next().flatten());
    let mut due = scores.flatten().next();
    if record.job.queue().is_some() {
        let mut pipeline = Pipeline::new();
        for key in namespace.keys.sets(bucket, &DueSet::of(&record.job).name()) {
            pipeline.cmd("ZSCORE").arg(key).arg(id.as_str());
        }
        let mut scores =
            namespace.link.pipeline("looking a job up", &pipeline).await?.into_iter().map(score);
        (due, dead) = (scores.next().flatten(), scores.next().flatten());
    }
    let (state, score_ms) = match (held, dead, due) {
        (Some(ms), _, _) => (JobState::Reserved, ms),
        (_, Some(ms), _) => (JobState::Dead, ms),
        (_, _, Some(ms)) if record.job.queue().is_some() && ms <= namespace.now_ms() => {
            (JobState::Ready, ms)
        }
        (_, _, Some(ms)) => (JobState::Scheduled, ms),
        (None, None, None) => match namespace
            .claimed_jobs(bucket)
            .await?
            .into_iter()
            .find(|claimed| claimed.id == id.as_str())
        {
            Some(claimed) => {
                state_record = state_record
                    .or_else(|| StateRecord::of_record(&bytes, claimed.due_ms))
                    .map(StateRecord::in_flight);
                (JobState::Reserved, claimed.deadline_ms)
            }
            // The job moved between two reads, or the data is damaged. Show both as reserved.
            None => (JobState::Reserved, 0),
        },
    };
    let size = record.job.body.len();
    let held_by = held.and(pop);
    Ok(Some(StoredJob { id: id.clone(), state, score_ms, record, state_record, held_by, size }))
}
