//! Recurring schedules: each of their times makes a job.

use std::time::SystemTime;

use dwell_schedule::{CatchUp, Expression, ParseError, Zone};
use dwell_store::job::{Conflict, Due, Job, JobId};
use dwell_store::request::{KeptParts, NewSchedule, Origin};
use dwell_store::schedule::{Overlap, Timing};
use dwell_store::store::error::StoreError;
use dwell_store::store::jobs::batch::{Answer, RequestRef};

use super::{Client, queues};

/// A recurring schedule. The jobs that it makes have its id, `@` and their time as their ids. Those
/// of a queue are made by the [workers](crate::Worker) of the queue and by the instances of the
/// sidecar that declare the queue, those of a broker by the instances that deliver to the broker.
#[derive(Debug, Clone)]
#[must_use = "a schedule does nothing until it is put"]
pub struct Recurring {
    new: NewSchedule,
}

impl Recurring {
    /// A schedule that makes this job at each time of an expression, in UTC: five or six cron
    /// fields, `@hourly`, `@daily` and the like, or `@every 30m`.
    ///
    /// # Errors
    /// [`Rejected`](crate::ErrorKind::Rejected) where the expression cannot be read.
    pub fn new(id: JobId, schedule: &str, job: Job) -> Result<Recurring, StoreError> {
        let timing = Timing {
            text: schedule.trim().to_owned(),
            expression: Expression::parse(schedule).map_err(rejected)?,
            zone: None,
            start_ms: None,
            end_ms: None,
            count: None,
            catch_up: CatchUp::default(),
            overlap: Overlap::default(),
            spread_ms: 0,
        };
        let new = NewSchedule {
            id,
            conflict: Conflict::default(),
            own_queues: None,
            is_paused: false,
            from_settings: false,
            timing,
            job,
            keep: KeptParts::default(),
            origin: Origin::of_call(),
            reply_to: None,
        };
        Ok(Recurring { new })
    }

    /// The id of the schedule.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.new.id
    }

    /// The same in the time zone of this IANA name; not with `@every`.
    ///
    /// # Errors
    /// [`Rejected`](crate::ErrorKind::Rejected) where there is no such zone.
    pub fn time_zone(mut self, name: &str) -> Result<Recurring, StoreError> {
        self.new.timing.zone = Some(Zone::parse(name).map_err(rejected)?);
        Ok(self)
    }

    /// The same with this first moment, from which `@every` counts. A past one is none to catch up.
    pub fn start(mut self, start: SystemTime) -> Recurring {
        self.new.timing.start_ms = Some(ms_of(start));
        self
    }

    /// The same with this last moment.
    pub fn end(mut self, end: SystemTime) -> Recurring {
        self.new.timing.end_ms = Some(ms_of(end));
        self
    }

    /// The same with at most this many jobs, at least 1. What was missed does not count.
    pub fn count(mut self, count: u64) -> Recurring {
        self.new.timing.count = Some(count.max(1));
        self
    }

    /// The same, and the newest 100 of the times that were missed are caught up. Default: the newest
    /// is.
    pub fn catch_up_all(mut self) -> Recurring {
        self.new.timing.catch_up = CatchUp::All;
        self
    }

    /// The same, and nothing that was missed is caught up.
    pub fn catch_up_none(mut self) -> Recurring {
        self.new.timing.catch_up = CatchUp::None;
        self
    }

    /// The same, and a time is missed while the job before waits, runs or retries.
    pub fn skip_overlap(mut self) -> Recurring {
        self.new.timing.overlap = Overlap::Skip;
        self
    }

    /// The same with this rule for an id that exists. Default: replace; a schedule does not debounce,
    /// and [`Conflict::Debounce`] replaces.
    pub fn on_conflict(mut self, conflict: Conflict) -> Recurring {
        self.new.conflict = conflict;
        self
    }
}

impl Client {
    /// Stores a recurring schedule. Answers `Added`; or, where the id exists, `Replaced`, `Kept` or
    /// `Conflict`; `Duplicate` where the same schedule is there. So a program may put its schedules
    /// at each of its starts. A schedule with the same expression, zone and start goes on with its
    /// next time, and a paused one stays paused. [`cancel`](Client::cancel) ends it;
    /// [`fire`](Client::fire) makes a job now.
    ///
    /// # Errors
    /// As [`schedule`](Client::schedule); and [`Rejected`](crate::ErrorKind::Rejected) where the id
    /// or the times cannot be used.
    pub async fn put_schedule(&self, recurring: &Recurring) -> Result<Answer, StoreError> {
        let mut new = recurring.new.clone();
        if let Some(queue) = new.job.queue() {
            queues::refuse_invalid_queue(queue)?;
            if !self.has_fresh_brokers() {
                self.rejoin().await?;
            }
        }
        if let Some(broker) = new.job.broker() {
            self.refuse_unknown_broker(broker).await?;
        }
        // As a job of a queue, which carries its retry array.
        if new.job.queue().is_some() && new.job.retry.is_none() && new.job.tries.is_none() {
            new.job.retry = Some(self.retry_ms.to_vec());
        }
        self.apply(RequestRef::NewSchedule(&new)).await
    }

    /// Pauses a recurring schedule: nothing is made until it is resumed, and nothing of that time is
    /// caught up. The reason is kept until then. False if there is no such schedule.
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn pause_schedule(
        &self,
        id: &JobId,
        reason: Option<&str>,
    ) -> Result<bool, StoreError> {
        Ok(self.store.schedules.pause(id, reason, None).await?.is_some())
    }

    /// Resumes a recurring schedule with the first of its times from now on. False if there is no
    /// such schedule, or it has no time left.
    ///
    /// # Errors
    /// As [`act`](Client::act).
    pub async fn resume_schedule(&self, id: &JobId) -> Result<bool, StoreError> {
        Ok(self.store.schedules.resume(id, None).await?.is_some())
    }
}

fn rejected(why: ParseError) -> StoreError {
    StoreError::rejected(why.to_string())
}

/// Epoch ms, rounded up.
fn ms_of(time: SystemTime) -> i64 {
    if let Due::At(ms) = Due::from(time) { ms } else { 0 }
}
