//! Read one job, count jobs. Reads change nothing.

use bytes::Bytes;
use redis::{Pipeline, Value};

use super::Store;
use super::error::{Class, StoreError, UNREADABLE};
use super::record::{self, Record, State};
use crate::job::{Job, JobId};

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In `due`.
    Scheduled,
    /// In `run`.
    Reserved,
    /// In `dead`.
    Dead,
}

impl Place {
    /// The word of the HTTP API and the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Place::Scheduled => "scheduled",
            Place::Reserved => "reserved",
            Place::Dead => "dead",
        }
    }
}

/// A job as it is stored.
#[derive(Debug, Clone)]
pub struct StoredJob {
    /// The job's id.
    pub id: JobId,
    /// Where the job is.
    pub place: Place,
    /// The score at that place, epoch ms: the next due time, the lease's deadline, or the time of
    /// death.
    pub score_ms: i64,
    /// The immutable part of the job.
    pub record: Record,
    /// The mutable part; `None` if the job was never claimed or changed.
    pub state: Option<State>,
    /// Size of the body, bytes. Lists leave out the body itself.
    pub size: usize,
}

impl StoredJob {
    /// The job to deliver. Its body is empty in a [`list`](crate::Client::list).
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.record.job
    }

    /// The number of attempts begun.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.state.as_ref().map_or(0, |state| state.attempt)
    }

    /// Why the last attempt failed; empty if none failed.
    #[must_use]
    pub fn last_error(&self) -> &str {
        self.state.as_ref().map_or("", |state| &state.last_error)
    }

    /// The next due time of a scheduled job; the due time of the schedule if the job is reserved or
    /// dead. Epoch ms.
    #[must_use]
    pub fn due_ms(&self) -> i64 {
        match (self.place, &self.state) {
            (Place::Reserved | Place::Dead, Some(state)) => state.due_ms,
            (Place::Scheduled, _) | (Place::Reserved | Place::Dead, None) => self.score_ms,
        }
    }
}

/// Counts of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs in `due`, per bucket.
    pub scheduled: Vec<u64>,
    /// Jobs in `run`, per bucket.
    pub reserved: Vec<u64>,
    /// Jobs in `dead`, per bucket.
    pub dead: Vec<u64>,
    /// Jobs in `due` per broker.
    pub brokers: Vec<(String, u64)>,
    /// Jobs in `due` whose due time has passed.
    pub overdue: u64,
    /// Jobs due within each of the requested spans from now, in the order of the spans.
    pub within: Vec<u64>,
    /// The earliest due time, epoch ms.
    pub next_due_ms: Option<i64>,
    /// Redis's clock at the count, epoch ms.
    pub now_ms: i64,
}

impl Store {
    /// Finds a job by its id.
    pub async fn find(&self, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        let bucket = self.keys.bucket_of(id.as_str());
        let brokers = self.brokers();
        let mut pipeline = Pipeline::new();
        pipeline.cmd("HGET").arg(self.keys.jobs(bucket)).arg(id.as_str());
        pipeline.cmd("HGET").arg(self.keys.state(bucket)).arg(id.as_str());
        pipeline.cmd("ZSCORE").arg(self.keys.run(bucket)).arg(id.as_str());
        pipeline.cmd("ZSCORE").arg(self.keys.dead(bucket)).arg(id.as_str());
        for broker in brokers.iter() {
            pipeline.cmd("ZSCORE").arg(self.keys.due(bucket, broker)).arg(id.as_str());
        }
        let mut answers = self.link.pipeline("looking a job up", &pipeline).await?.into_iter();
        let (record, state) = (answers.next(), answers.next());
        let Some(Value::BulkString(bytes)) = record else { return Ok(None) };
        let unreadable = |why: record::Unreadable| StoreError::new(Class::Script, format!("redis: job `{id}`: {why}")).hint(UNREADABLE);
        let record = record::decode(Bytes::from(bytes)).map_err(unreadable)?;
        let state = match state {
            Some(Value::BulkString(bytes)) => Some(State::decode(&bytes).map_err(unreadable)?),
            _ => None,
        };
        let mut scores = answers.map(score);
        let (run, dead) = (scores.next().flatten(), scores.next().flatten());
        let due = scores.flatten().next();
        let (place, score_ms) = match (run, dead, due) {
            (Some(ms), _, _) => (Place::Reserved, ms),
            (_, Some(ms), _) => (Place::Dead, ms),
            (_, _, Some(ms)) => (Place::Scheduled, ms),
            // A pipeline is not atomic: the job moved between two reads, or the data is damaged.
            // Show both cases as reserved.
            (None, None, None) => (Place::Reserved, 0),
        };
        let size = record.job.body.len();
        Ok(Some(StoredJob { id: id.clone(), place, score_ms, record, state, size }))
    }

    /// Counts all jobs. `within`: spans from now, seconds.
    pub async fn counts(&self, within: &[u64]) -> Result<Counts, StoreError> {
        let now_ms = self.read_clock().await? / 1000;
        let brokers = self.brokers();
        let mut counts = Counts {
            within: vec![0; within.len()],
            brokers: brokers.iter().map(|name| (name.clone(), 0)).collect(),
            now_ms,
            ..Counts::default()
        };
        for bucket in 0..self.keys.buckets() {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("ZCARD").arg(self.keys.run(bucket));
            pipeline.cmd("ZCARD").arg(self.keys.dead(bucket));
            for broker in brokers.iter() {
                let due = self.keys.due(bucket, broker);
                pipeline.cmd("ZCARD").arg(&due);
                pipeline.cmd("ZCOUNT").arg(&due).arg("-inf").arg(now_ms);
                pipeline.cmd("ZRANGE").arg(&due).arg(0).arg(0).arg("WITHSCORES");
                for seconds in within {
                    pipeline.cmd("ZCOUNT").arg(&due).arg("-inf").arg(now_ms + i64::try_from(seconds * 1000).unwrap_or(i64::MAX / 2));
                }
            }
            let mut answers = self.link.pipeline("counting", &pipeline).await?.into_iter();
            let mut number = || match answers.next() {
                Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
                _ => 0,
            };
            counts.reserved.push(number());
            counts.dead.push(number());
            let mut scheduled = 0;
            for (_, of_broker) in &mut counts.brokers {
                let waiting = match answers.next() {
                    Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
                    _ => 0,
                };
                scheduled += waiting;
                *of_broker += waiting;
                if let Some(Value::Int(overdue)) = answers.next() {
                    counts.overdue += u64::try_from(overdue).unwrap_or(0);
                }
                if let Some(Value::Array(head)) = answers.next()
                    && let Some(ms) = head.into_iter().nth(1).and_then(score)
                {
                    counts.next_due_ms = Some(counts.next_due_ms.map_or(ms, |first: i64| first.min(ms)));
                }
                for span in &mut counts.within {
                    if let Some(Value::Int(number)) = answers.next() {
                        *span += u64::try_from(number).unwrap_or(0);
                    }
                }
            }
            counts.scheduled.push(scheduled);
        }
        Ok(counts)
    }
}

/// A zset score; Dwell writes only whole ms.
#[allow(clippy::cast_possible_truncation, reason = "whole ms below 2^53")]
pub(super) fn score(value: Value) -> Option<i64> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(&bytes).ok()?.parse::<f64>().ok().map(|score| score as i64),
        Value::Double(score) => Some(score as i64),
        Value::Int(score) => Some(score),
        _ => None,
    }
}
