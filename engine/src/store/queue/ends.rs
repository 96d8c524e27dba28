//! Jobs of queues that have an end of their own (`Job::ends_ms`, the `ttl` of lmstfy): they leave in
//! any state, without a trace.
//!
//! An index tells whose end has come. The index is a hint: the record says when its job ends. An
//! entry without a job is harmless, and a job without an entry ends when it is fetched.

use bytes::Bytes;
use redis::{Pipeline, Value};

use crate::job::{Action, JobId, Verdict};
use crate::request::Act;
use crate::store::error::StoreError;
use crate::store::queue::Queue;
use crate::store::queue::batch::RequestRef;
use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS};
use crate::store::record;

/// The most entries of jobs that left before their end, beyond one for each job of the bucket. More
/// are removed.
const SPARE: i64 = 1024;
/// How many entries are read at once.
const PAGE: usize = 512;

/// What is known of an entry of the index.
#[allow(clippy::large_enum_variant, reason = "few live at a time")]
enum Entry {
    /// The job is over by its record.
    Over(Act),
    /// The job ends later, epoch ms.
    Later(i64),
    /// No job of this id has an end.
    Idle,
}

impl Queue {
    /// Notes when a job ends, epoch ms. Call it after the job is stored: an entry without a job may
    /// be removed at any time.
    pub async fn note_end(&self, id: &JobId, ends_ms: i64) -> Result<(), StoreError> {
        let bucket = self.namespace.keys.bucket_of(id.as_str());
        let mut command = redis::cmd("ZADD");
        command.arg(self.namespace.keys.ends(bucket)).arg(ends_ms).arg(id.as_str());
        self.namespace.link.command("noting the end of a job", &command).await.map(|_| ())
    }

    /// Whether the end of a job in each of these buckets has come, as far as the index knows. The
    /// buckets have one master.
    pub async fn has_ended(&self, buckets: &[u16]) -> Result<Vec<bool>, StoreError> {
        let now_ms = self.namespace.read_clock().await? / 1000;
        let mut pipeline = Pipeline::new();
        for bucket in buckets {
            pipeline.cmd("ZCOUNT").arg(self.namespace.keys.ends(*bucket)).arg("-inf").arg(now_ms);
        }
        let counts = self.namespace.link.pipeline("looking for jobs past their end", &pipeline).await?;
        Ok(counts.into_iter().map(|count| !matches!(count, Value::Int(0))).collect())
    }

    /// Removes the jobs of this bucket whose end has come, behind the durability gate. Returns their
    /// number. Repeat the call after an error.
    pub async fn end_jobs(&self, bucket: u16) -> Result<u64, StoreError> {
        let key = self.namespace.keys.ends(bucket);
        let mut ended = 0;
        loop {
            let now_ms = self.namespace.read_clock().await? / 1000;
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(&key).arg("-inf").arg(now_ms).arg("LIMIT").arg(0).arg(CALL_JOBS);
            let ids = strings(self.namespace.link.command("looking for jobs past their end", &command).await?);
            if ids.is_empty() {
                return Ok(ended);
            }
            let (mut pipeline, mut acts, mut over) = (Pipeline::new(), Vec::new(), Vec::new());
            for (name, record) in self.records(bucket, ids).await? {
                match judge(&name, record, now_ms) {
                    Entry::Over(act) => acts.push(act),
                    Entry::Later(ends_ms) => drop(pipeline.cmd("ZADD").arg(&key).arg(ends_ms).arg(name)),
                    Entry::Idle => over.push(name),
                }
            }
            let asked: Vec<RequestRef<'_>> = acts.iter().map(RequestRef::Act).collect();
            let mut failure = None;
            for (act, answer) in acts.iter().zip(self.apply(&asked, &[]).await.answers) {
                match answer {
                    // Another record has the id now: the next round reads it.
                    Ok(answer) if answer.verdict == Verdict::NotFound => continue,
                    Ok(_) => ended += 1,
                    // One damaged job must not hold up the others.
                    Err(error) if error.is_unreadable() => {}
                    Err(error) => {
                        failure = Some(error);
                        continue;
                    }
                }
                over.push(act.id.as_str().as_bytes().to_vec());
            }
            if !over.is_empty() {
                pipeline.cmd("ZREM").arg(&key).arg(over);
            }
            self.namespace.link.pipeline("forgetting the ends of jobs", &pipeline).await?;
            if let Some(error) = failure {
                return Err(error);
            }
        }
    }

    /// The records of these ids, up to [`CALL_BYTES`] of them, at least one.
    async fn records(&self, bucket: u16, ids: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, Option<Bytes>)>, StoreError> {
        let jobs = self.namespace.keys.jobs(bucket);
        let mut pipeline = Pipeline::new();
        for id in &ids {
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
        Ok(ids.into_iter().zip(records.into_iter().map(|record| string(record).map(Bytes::from))).collect())
    }

    /// Removes entries of jobs that left this bucket before their end, once there are more entries
    /// than that would take [`SPARE`] beyond the jobs.
    pub async fn forget_ends(&self, bucket: u16) -> Result<(), StoreError> {
        let (key, jobs) = (self.namespace.keys.ends(bucket), self.namespace.keys.jobs(bucket));
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ZCARD").arg(&key);
        pipeline.cmd("HLEN").arg(jobs);
        let counts = self.namespace.link.pipeline("counting the ends of jobs", &pipeline).await?;
        let [Value::Int(entries), Value::Int(alive)] = counts[..] else { return Ok(()) };
        if entries <= alive.saturating_mul(2).saturating_add(SPARE) {
            return Ok(());
        }
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
            if !gone.is_empty() {
                let mut command = redis::cmd("ZREM");
                command.arg(&key).arg(gone);
                self.namespace.link.command("forgetting the ends of jobs", &command).await?;
            }
        }
    }
}

/// What the record of an entry says.
fn judge(name: &[u8], record: Option<Bytes>, now_ms: i64) -> Entry {
    let id = std::str::from_utf8(name).ok().and_then(|id| JobId::new(id).ok());
    let (Some(id), Some(Ok(record))) = (id, record.map(record::decode)) else { return Entry::Idle };
    match record.job.ends_ms.filter(|_| record.job.queue.is_some()) {
        None => Entry::Idle,
        Some(ends_ms) if ends_ms > now_ms => Entry::Later(ends_ms),
        Some(_) => Entry::Over(Act { seen_generation: Some(record.generation), ..Act::new(Action::Cancel, id) }),
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
