//! Jobs of queues that have an end of their own (`Job::remove_at_ms`, the `ttl` of lmstfy): they leave
//! in any state, without a dead letter or an outcome. And jobs with an expiry (`Job::expire`) that
//! wait: they die where nobody claims or pops them.
//!
//! An index shows the jobs whose end has come. The index is a hint: the record says when its job
//! ends. An entry without a job is harmless. A job without an entry ends when it is fetched, when
//! its lease ends, or when a caller looks at the dead jobs of its queue.

mod judged;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use redis::{Pipeline, Value};

use self::judged::{Death, Ending, Expiring, Judged, UNREADABLE_RETRY_MS, tell};
use crate::events::Observer;
use crate::job::{JobId, Target};
use crate::policy::expiry;
use crate::policy::late::LateRules;
use crate::store::answer::{Items, score};
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::record::{self, Generation, StateRecord};
use crate::store::scripts::Name;

/// Entries are removed from a bucket that has more of them than twice its jobs and this number.
const SPARE_ENTRIES: i64 = 1024;
/// The number of entries that one read fetches.
const ENTRIES_PER_READ: usize = 512;
/// The time to the next look at an entry whose record changed meanwhile, ms.
const CHANGED_RETRY_MS: i64 = 1000;
/// The state of the index of a bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndsSnapshot {
    /// The end of a job has come, as far as the index knows.
    pub has_ended: bool,
    /// Many entries have no job any more.
    pub is_crowded: bool,
}

/// A job whose end has come.
#[derive(Debug, Clone)]
pub struct Over {
    /// The job's id.
    pub id: JobId,
    /// The queue of the job.
    pub queue: String,
    /// The generation of the record that was read.
    pub generation: Generation,
    /// Bytes of the record, or of the body, which is nearly all of it.
    pub size: usize,
}

/// The state of an index entry, by the record of its id.
enum Entry {
    /// The job is over.
    Over(Over),
    /// The job has an expiry: its state says when.
    Expires(Box<Expiring>),
    /// The next look is due at this time, epoch ms: the job ends later, or cannot be read.
    RecheckAt(i64),
    /// No job of this id has an end.
    Idle,
}

impl Jobs {
    /// Notes the end of a job, epoch ms. Call it before the job is stored, so that nothing comes in
    /// between. An earlier note stays: it leads to the record.
    pub async fn note_end(&self, id: &JobId, remove_at_ms: i64) -> Result<(), StoreError> {
        let bucket = self.namespace.keys.bucket_of(id.as_str());
        let mut command = redis::cmd("ZADD");
        command.arg(self.namespace.keys.ends(bucket)).arg("LT").arg(remove_at_ms).arg(id.as_str());
        self.namespace.link.command("noting the end of a job", &command).await.map(|_| ())
    }

    /// Looks at the index of these buckets; in a cluster, of one bucket at a time.
    pub async fn look_at_ends(&self, buckets: &[u16]) -> Result<Vec<EndsSnapshot>, StoreError> {
        let Some(first) = buckets.first() else { return Ok(Vec::new()) };
        let now_ms = self.namespace.read_clock_of(*first).await?;
        let mut pipeline = Pipeline::new();
        for bucket in buckets {
            let key = self.namespace.keys.ends(*bucket);
            pipeline.cmd("ZCOUNT").arg(&key).arg("-inf").arg(now_ms);
            pipeline.cmd("ZCARD").arg(&key);
            pipeline.cmd("HLEN").arg(self.namespace.keys.jobs(*bucket));
        }
        let counts =
            self.namespace.link.pipeline("looking for jobs past their end", &pipeline).await?;
        let number = |count: &Value| if let Value::Int(count) = count { *count } else { 0 };
        let look = |counts: &[Value]| EndsSnapshot {
            has_ended: number(&counts[0]) > 0,
            is_crowded: number(&counts[1])
                > number(&counts[2]).saturating_mul(2).saturating_add(SPARE_ENTRIES),
        };
        Ok(counts.chunks_exact(3).map(look).collect())
    }

    /// Removes the jobs of this bucket whose end has come, and ends those that wait past their
    /// expiry: a job of a queue is dead, one of a broker is due for its dead letter. `rules`: for
    /// late jobs that do not set their own. The observer is told of deaths and drops. No caller learns of an end, so the end
    /// waits for no durability: a job that a failover brings back ends again. Repeat the call after
    /// an error.
    pub async fn end_jobs(
        &self,
        bucket: u16,
        rules: LateRules,
        observer: &dyn Observer,
    ) -> Result<(), StoreError> {
        let key = self.namespace.keys.ends(bucket);
        // Entries that a full Redis does not move: the read goes on behind them.
        let mut stay = 0;
        loop {
            let now_ms = self.namespace.read_clock_of(bucket).await?;
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(&key).arg("-inf").arg(now_ms).arg("LIMIT").arg(stay).arg(ENTRIES_PER_READ);
            let ids = strings(
                self.namespace.link.command("looking for jobs past their end", &command).await?,
            );
            if ids.is_empty() {
                return Ok(());
            }
            let (mut pipeline, mut over, mut left) = (Pipeline::new(), Vec::new(), Vec::new());
            let mut expiring = Vec::new();
            for (name, record) in self.records(bucket, &ids).await? {
                match classify(&name, record, now_ms) {
                    Entry::Over(job) => over.push(Ending::from(job)),
                    Entry::Expires(job) => expiring.push(*job),
                    Entry::RecheckAt(at_ms) => {
                        pipeline.cmd("ZADD").arg(&key).arg(at_ms).arg(name);
                    }
                    Entry::Idle => left.push(name),
                }
            }
            for judged in self.judge(bucket, expiring, rules, now_ms).await? {
                match judged {
                    Judged::Ends(job) => over.push(*job),
                    Judged::RecheckAt(id, at_ms) => {
                        pipeline.cmd("ZADD").arg(&key).arg(at_ms).arg(id.as_str());
                    }
                }
            }
            // Before the deaths: whoever hears of one may requeue the job at once, and the time that
            // the requeue notes is to stay.
            for job in over.iter().filter(|job| job.dies()) {
                let again_ms = job.again_ms(now_ms);
                pipeline.cmd("ZADD").arg(&key).arg(again_ms).arg(job.id.as_str());
            }
            stay += self.move_entries(&pipeline).await?;
            let mut changed = Pipeline::new();
            for (job, has_ended) in over.iter().zip(self.end(bucket, &over).await?) {
                match has_ended {
                    true => {
                        tell(job, observer);
                        if !job.dies() {
                            left.push(job.id.as_str().into());
                        }
                    }
                    // The id has another record or state by now.
                    false => {
                        let again_ms = now_ms + CHANGED_RETRY_MS;
                        changed.cmd("ZADD").arg(&key).arg(again_ms).arg(job.id.as_str());
                    }
                }
            }
            self.forget(bucket, &left).await?;
            stay += self.move_entries(&changed).await?;
        }
    }

    /// Moves entries of the index. Returns the number of those that a full Redis leaves in place.
    async fn move_entries(&self, pipeline: &Pipeline) -> Result<usize, StoreError> {
        match self.namespace.link.pipeline("moving the ends of jobs", pipeline).await {
            Err(error) if error.class == Class::Oom => Ok(pipeline.len()),
            moved => moved.map(|_| 0),
        }
    }

    /// Ends these jobs, whose end has come, where the record is still the one that was read.
    pub async fn end_these(&self, jobs: impl IntoIterator<Item = Over>) -> Result<(), StoreError> {
        let mut buckets: BTreeMap<u16, Vec<Over>> = BTreeMap::new();
        for job in jobs {
            buckets.entry(self.namespace.keys.bucket_of(job.id.as_str())).or_default().push(job);
        }
        for (bucket, jobs) in buckets {
            let jobs: Vec<Ending> = jobs.into_iter().map(Ending::from).collect();
            self.end(bucket, &jobs).await?;
        }
        Ok(())
    }

    /// Judges jobs with an expiry: those that wait may be past it.
    async fn judge(
        &self,
        bucket: u16,
        jobs: Vec<Expiring>,
        rules: LateRules,
        now_ms: i64,
    ) -> Result<Vec<Judged>, StoreError> {
        let keys = &self.namespace.keys;
        let mut pipeline = Pipeline::new();
        for Expiring { id, job, .. } in &jobs {
            let set = DueSet::of(job).to_string();
            let dead = match job.queue() {
                Some(_) => keys.dead_of(bucket, &set),
                None => keys.dead(bucket).to_owned(),
            };
            pipeline.cmd("HGET").arg(keys.state(bucket)).arg(id.as_str());
            pipeline.cmd("ZSCORE").arg(keys.due(bucket, &set)).arg(id.as_str());
            pipeline.cmd("ZSCORE").arg(dead).arg(id.as_str());
        }
        let mut places =
            self.namespace.link.pipeline("looking for expired jobs", &pipeline).await?.into_iter();
        let mut next = || places.next().unwrap_or(Value::Nil);
        Ok(jobs
            .into_iter()
            .map(|job| {
                let read = string(next()).unwrap_or_default();
                let (due_ms, died_ms) = (score(next()), score(next()));
                job.judged(read, (due_ms, died_ms.is_some()), rules, now_ms)
            })
            .collect())
    }

    /// Ends jobs of this bucket. Returns for each whether it existed.
    async fn end(&self, bucket: u16, jobs: &[Ending]) -> Result<Vec<bool>, StoreError> {
        let mut ended = Vec::with_capacity(jobs.len());
        for jobs in calls_of(jobs) {
            let sets: BTreeSet<String> = jobs.iter().map(|job| job.set.clone()).collect();
            let mut call = self.namespace.script_call(
                Name::End,
                bucket,
                &sets.into_iter().collect::<Vec<_>>(),
            );
            for Ending { id, set, generation, death, .. } in jobs {
                call.arg(id.as_str()).arg(set).arg(&generation[..]);
                match death {
                    None => call.arg("*").arg(""),
                    Some(Death { read, state, .. }) => call
                        .arg(&read[..])
                        .arg(state.as_ref().map(StateRecord::encode).unwrap_or_default()),
                };
            }
            let mut items = Items::new("end", self.namespace.call(&call).await?)?;
            for _ in jobs {
                ended.push(items.text()? == "ended");
            }
        }
        Ok(ended)
    }

    /// Removes entries without a job.
    pub async fn forget_ends(&self, bucket: u16) -> Result<(), StoreError> {
        let (key, jobs) = (self.namespace.keys.ends(bucket), self.namespace.keys.jobs(bucket));
        // Reads by rank, beyond the entries that stay.
        let mut stay = 0;
        loop {
            let mut command = redis::cmd("ZRANGE");
            command.arg(&key).arg(stay).arg(stay + ENTRIES_PER_READ - 1);
            let ids =
                strings(self.namespace.link.command("reading the ends of jobs", &command).await?);
            if ids.is_empty() {
                return Ok(());
            }
            let mut pipeline = Pipeline::new();
            for id in &ids {
                pipeline.cmd("HEXISTS").arg(jobs).arg(id);
            }
            let exist = self.namespace.link.pipeline("reading the ends of jobs", &pipeline).await?;
            let count = ids.len();
            let gone =
                ids.into_iter().zip(exist).filter(|(_, exists)| matches!(exists, Value::Int(0)));
            let gone: Vec<Vec<u8>> = gone.map(|(id, _)| id).collect();
            stay += count - gone.len();
            self.forget(bucket, &gone).await?;
        }
    }

    /// Removes the index entries of these ids whose job has no end of its own.
    async fn forget(&self, bucket: u16, ids: &[Vec<u8>]) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let key = self.namespace.keys.ends(bucket);
        let mut command = redis::cmd("ZREM");
        command.arg(&key).arg(ids);
        self.namespace.link.command("forgetting the ends of jobs", &command).await?;
        let (mut pipeline, mut rest) = (Pipeline::new(), ids);
        while !rest.is_empty() {
            let records = self.records(bucket, rest).await?;
            rest = &rest[records.len().max(1)..];
            for (name, record) in records {
                let at_ms = match classify(&name, record, 0) {
                    Entry::RecheckAt(at_ms) => at_ms,
                    // Another job by now: its state says when.
                    Entry::Expires(_) => 0,
                    Entry::Over(_) | Entry::Idle => continue,
                };
                pipeline.cmd("ZADD").arg(&key).arg("LT").arg(at_ms).arg(name);
            }
        }
        self.namespace.link.pipeline("forgetting the ends of jobs", &pipeline).await.map(|_| ())
    }

    /// The records of these ids, up to [`CALL_BYTES`] of them, at least one.
    async fn records(
        &self,
        bucket: u16,
        ids: &[Vec<u8>],
    ) -> Result<Vec<(Vec<u8>, Option<Bytes>)>, StoreError> {
        let jobs = self.namespace.keys.jobs(bucket);
        let mut pipeline = Pipeline::new();
        for id in ids {
            pipeline.cmd("HSTRLEN").arg(jobs).arg(id);
        }
        let lengths =
            self.namespace.link.pipeline("reading jobs past their end", &pipeline).await?;
        let (mut size, mut count) = (0, 0);
        for length in lengths {
            size += if let Value::Int(length) = length {
                usize::try_from(length).unwrap_or(0)
            } else {
                0
            };
            if count > 0 && size > CALL_BYTES {
                break;
            }
            count += 1;
        }
        let mut command = redis::cmd("HMGET");
        command.arg(jobs).arg(&ids[..count]);
        let Value::Array(records) =
            self.namespace.link.command("reading jobs past their end", &command).await?
        else {
            return Ok(Vec::new());
        };
        Ok(ids
            .iter()
            .cloned()
            .zip(records.into_iter().map(|record| string(record).map(Bytes::from)))
            .collect())
    }
}

/// Cuts jobs into calls: the script reads all records of a call at once.
fn calls_of(mut jobs: &[Ending]) -> Vec<&[Ending]> {
    let mut calls = Vec::new();
    while !jobs.is_empty() {
        let mut bytes = 0;
        let fits = |job: &&Ending| {
            bytes += job.size;
            bytes <= CALL_BYTES
        };
        let count = jobs.iter().take(CALL_JOBS).take_while(fits).count().max(1);
        let (call, more) = jobs.split_at(count);
        calls.push(call);
        jobs = more;
    }
    calls
}

/// The state of an index entry at this time, by the record of its id.
fn classify(name: &[u8], record: Option<Bytes>, now_ms: i64) -> Entry {
    let id = std::str::from_utf8(name).ok().and_then(|id| JobId::new(id).ok());
    let (Some(id), Some(record)) = (id, record) else { return Entry::Idle };
    let size = record.len();
    let fresh = StateRecord::of_record(&record, 0);
    let Ok(mut record) = record::decode(record) else {
        return Entry::RecheckAt(now_ms.saturating_add(UNREADABLE_RETRY_MS));
    };
    // Only a job of a queue has an end of its own.
    let has_ended = record.job.queue().is_some() && expiry::has_ended(&record.job, now_ms);
    if record.job.expire.is_some() && !has_ended {
        let generation = record.generation;
        record.job.body = Bytes::new();
        let job = record.job;
        return Entry::Expires(Box::new(Expiring { id, generation, size, job, fresh }));
    }
    match (record.job.target, record.job.remove_at_ms) {
        (Target::Broker { .. }, _) | (Target::Queue { .. }, None) => Entry::Idle,
        (Target::Queue { queue }, Some(_)) if has_ended => {
            Entry::Over(Over { id, queue, generation: record.generation, size })
        }
        (Target::Queue { .. }, Some(remove_at_ms)) => Entry::RecheckAt(remove_at_ms),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_no_more_bytes_of_records_than_one_call_may_read() {
        let of = |size: usize| {
            let id = JobId::new("a").unwrap();
            Ending::from(Over { id, queue: "q".to_owned(), generation: [0; 8], size })
        };
        let counts = |sizes: &[usize]| -> Vec<usize> {
            let jobs: Vec<Ending> = sizes.iter().map(|size| of(*size)).collect();
            calls_of(&jobs).into_iter().map(<[Ending]>::len).collect()
        };
        assert_eq!(counts(&[CALL_BYTES; 3]), [1, 1, 1]);
        assert_eq!(counts(&[2 * CALL_BYTES, 1, CALL_BYTES - 1, 1]), [1, 2, 1]);
        assert_eq!(counts(&[1; 300]), [CALL_JOBS, CALL_JOBS, 300 - 2 * CALL_JOBS]);
        assert_eq!(counts(&[]), [0; 0]);
    }
}
