//! Jobs of queues that have an end of their own (`Job::ends_ms`, the `ttl` of lmstfy): they leave in
//! any state, without a dead letter or an outcome.
//!
//! An index tells whose end has come. The index is a hint: the record says when its job ends. An
//! entry without a job is harmless. A job without an entry ends when it is fetched, when its lease
//! ends, or when somebody looks at the dead jobs of its queue.

use bytes::Bytes;
use redis::{Pipeline, Value};

use crate::job::{Action, JobId, Verdict};
use crate::request::Act;
use crate::store::error::StoreError;
use crate::store::queue::Queue;
use crate::store::queue::batch::RequestRef;
use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS};
use crate::store::record::{self, Generation};

/// Entries are removed from a bucket that has more of them than twice its jobs and this number.
const SPARE: i64 = 1024;
/// How many entries are read at once.
const PAGE: usize = 512;
/// When an entry is looked at again whose job cannot be read, ms.
const UNREADABLE_AGAIN: i64 = 3_600_000;

/// What a look at the index of a bucket shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndsLook {
    /// The end of a job has come, as far as the index knows.
    pub has_ended: bool,
    /// Many entries have no job any more.
    pub is_crowded: bool,
}

/// What the record of an entry says.
enum Entry {
    /// The job is over. The generation of its record.
    Over(JobId, Generation),
    /// Look again then, epoch ms: the job ends later, or cannot be read.
    Later(i64),
    /// No job of this id has an end.
    Idle,
}

impl Queue {
    /// Notes when a job ends, epoch ms. Call it before the job is stored, so that nothing comes in
    /// between. An earlier note stays: it leads to the record.
    pub async fn note_end(&self, id: &JobId, ends_ms: i64) -> Result<(), StoreError> {
        let bucket = self.namespace.keys.bucket_of(id.as_str());
        let mut command = redis::cmd("ZADD");
        command.arg(self.namespace.keys.ends(bucket)).arg("LT").arg(ends_ms).arg(id.as_str());
        self.namespace.link.command("noting the end of a job", &command).await.map(|_| ())
    }

    /// Looks at the index of these buckets; in a cluster, of one bucket at a time.
    pub async fn look_at_ends(&self, buckets: &[u16]) -> Result<Vec<EndsLook>, StoreError> {
        let now_ms = self.namespace.read_clock().await? / 1000;
        let mut pipeline = Pipeline::new();
        for bucket in buckets {
            let key = self.namespace.keys.ends(*bucket);
            pipeline.cmd("ZCOUNT").arg(&key).arg("-inf").arg(now_ms);
            pipeline.cmd("ZCARD").arg(&key);
            pipeline.cmd("HLEN").arg(self.namespace.keys.jobs(*bucket));
        }
        let counts = self.namespace.link.pipeline("looking for jobs past their end", &pipeline).await?;
        let number = |count: &Value| if let Value::Int(count) = count { *count } else { 0 };
        let look = |counts: &[Value]| EndsLook {
            has_ended: number(&counts[0]) > 0,
            is_crowded: number(&counts[1]) > number(&counts[2]).saturating_mul(2).saturating_add(SPARE),
        };
        Ok(counts.chunks_exact(3).map(look).collect())
    }

    /// Removes the jobs of this bucket whose end has come, behind the durability gate. Repeat the call
    /// after an error.
    pub async fn end_jobs(&self, bucket: u16) -> Result<(), StoreError> {
        let key = self.namespace.keys.ends(bucket);
        loop {
            let now_ms = self.namespace.read_clock().await? / 1000;
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(&key).arg("-inf").arg(now_ms).arg("LIMIT").arg(0).arg(CALL_JOBS);
            let ids = strings(self.namespace.link.command("looking for jobs past their end", &command).await?);
            if ids.is_empty() {
                return Ok(());
            }
            let (mut pipeline, mut acts, mut over) = (Pipeline::new(), Vec::new(), Vec::new());
            for (name, record) in self.records(bucket, &ids).await? {
                match judge(&name, record, now_ms) {
                    Entry::Over(id, generation) => acts.push(end(id, generation)),
                    Entry::Later(at_ms) => drop(pipeline.cmd("ZADD").arg(&key).arg(at_ms).arg(name)),
                    Entry::Idle => over.push(name),
                }
            }
            let asked: Vec<RequestRef<'_>> = acts.iter().map(RequestRef::Act).collect();
            let mut failure = None;
            for (act, answer) in acts.iter().zip(self.apply(&asked, &[]).await.answers) {
                let name = act.id.as_str().as_bytes();
                match answer {
                    // Another record has the id now: the next round reads it.
                    Ok(answer) if answer.verdict == Verdict::NotFound => {}
                    Ok(_) => over.push(name.to_vec()),
                    // One damaged job must not hold up the others.
                    Err(error) if error.is_unreadable() => drop(pipeline.cmd("ZADD").arg(&key).arg(now_ms + UNREADABLE_AGAIN).arg(name)),
                    Err(error) => failure = Some(error),
                }
            }
            self.namespace.link.pipeline("moving the ends of jobs", &pipeline).await?;
            self.forget(bucket, &over).await?;
            if let Some(error) = failure {
                return Err(error);
            }
        }
    }

    /// Ends these jobs, whose end has come, where the record is still the one that was read.
    pub async fn end_these(&self, jobs: impl IntoIterator<Item = (JobId, Generation)>) -> Result<(), StoreError> {
        let acts: Vec<Act> = jobs.into_iter().map(|(id, generation)| end(id, generation)).collect();
        let asked: Vec<RequestRef<'_>> = acts.iter().map(RequestRef::Act).collect();
        self.apply(&asked, &[]).await.answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    /// Removes entries without a job.
    pub async fn forget_ends(&self, bucket: u16) -> Result<(), StoreError> {
        let (key, jobs) = (self.namespace.keys.ends(bucket), self.namespace.keys.jobs(bucket));
        // By rank, beyond the entries that stay.
        let mut stay = 0;
        loop {
            let mut command = redis::cmd("ZRANGE");
            command.arg(&key).arg(stay).arg(stay + PAGE - 1);
            let ids = strings(self.namespace.link.command("reading the ends of jobs", &command).await?);
            if ids.is_empty() {
                return Ok(());
            }
            let mut pipeline = Pipeline::new();
            for id in &ids {
                pipeline.cmd("HEXISTS").arg(jobs).arg(id);
            }
            let exist = self.namespace.link.pipeline("reading the ends of jobs", &pipeline).await?;
            let count = ids.len();
            let gone = ids.into_iter().zip(exist).filter(|(_, exists)| matches!(exists, Value::Int(0)));
            let gone: Vec<Vec<u8>> = gone.map(|(id, _)| id).collect();
            stay += count - gone.len();
            self.forget(bucket, &gone).await?;
        }
    }

    /// Removes these entries, but those whose ids have a job with an end by now.
    async fn forget(&self, bucket: u16, ids: &[Vec<u8>]) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let key = self.namespace.keys.ends(bucket);
        let mut command = redis::cmd("ZREM");
        command.arg(&key).arg(ids);
        self.namespace.link.command("forgetting the ends of jobs", &command).await?;
        let mut pipeline = Pipeline::new();
        for (name, record) in self.records(bucket, ids).await? {
            if let Entry::Later(at_ms) = judge(&name, record, 0) {
                pipeline.cmd("ZADD").arg(&key).arg("LT").arg(at_ms).arg(name);
            }
        }
        self.namespace.link.pipeline("forgetting the ends of jobs", &pipeline).await.map(|_| ())
    }

    /// The records of these ids, up to [`CALL_BYTES`] of them, at least one.
    async fn records(&self, bucket: u16, ids: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, Option<Bytes>)>, StoreError> {
        let jobs = self.namespace.keys.jobs(bucket);
        let mut pipeline = Pipeline::new();
        for id in ids {
            pipeline.cmd("HSTRLEN").arg(jobs).arg(id);
        }
        let lengths = self.namespace.link.pipeline("reading jobs past their end", &pipeline).await?;
        let (mut size, mut count) = (0, 0);
        for length in lengths {
            size += if let Value::Int(length) = length { usize::try_from(length).unwrap_or(0) } else { 0 };
            if count > 0 && size > CALL_BYTES {
                break;
            }
            count += 1;
        }
        let mut command = redis::cmd("HMGET");
        command.arg(jobs).arg(&ids[..count]);
        let Value::Array(records) = self.namespace.link.command("reading jobs past their end", &command).await? else {
            return Ok(Vec::new());
        };
        Ok(ids.iter().cloned().zip(records.into_iter().map(|record| string(record).map(Bytes::from))).collect())
    }
}

/// Ends the job of this record, whatever its state.
fn end(id: JobId, generation: Generation) -> Act {
    Act { seen_generation: Some(generation), ..Act::new(Action::Cancel, id) }
}

/// What the record of an entry says at this time.
fn judge(name: &[u8], record: Option<Bytes>, now_ms: i64) -> Entry {
    let id = std::str::from_utf8(name).ok().and_then(|id| JobId::new(id).ok());
    let (Some(id), Some(record)) = (id, record) else { return Entry::Idle };
    let Ok(record) = record::decode(record) else { return Entry::Later(now_ms.saturating_add(UNREADABLE_AGAIN)) };
    match record.job.ends_ms.filter(|_| record.job.queue.is_some()) {
        None => Entry::Idle,
        Some(ends_ms) if ends_ms > now_ms => Entry::Later(ends_ms),
        Some(_) => Entry::Over(id, record.generation),
    }
}

/// The strings of an array.
fn strings(answer: Value) -> Vec<Vec<u8>> {
    let Value::Array(items) = answer else { return Vec::new() };
    items.into_iter().filter_map(string).collect()
}

fn string(value: Value) -> Option<Vec<u8>> {
    if let Value::BulkString(bytes) = value { Some(bytes) } else { None }
}
