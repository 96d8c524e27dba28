//! The queues: their counts, and their ready jobs without a lease.

use futures_util::future::try_join_all;
use redis::{Pipeline, Value};

use crate::store::answer::score;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::reader::Reader;
use crate::store::reader::list::Query;
use crate::store::reader::lookup::{JobState, StoredJob};

/// The jobs of a queue by state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// The queue.
    pub queue: String,
    /// Jobs due later than now, also the jobs that wait for a retry.
    pub scheduled: u64,
    /// Jobs that are due, and not fetched.
    pub ready: u64,
    /// Jobs that are fetched, with a lease.
    pub reserved: u64,
    /// Dead jobs.
    pub dead: u64,
    /// The due time of the oldest ready job, epoch ms.
    pub oldest_ready_ms: Option<i64>,
    /// The queue hands nothing out.
    pub paused: bool,
}

/// The commands of one queue in one bucket.
pub(super) const COMMANDS_PER_QUEUE: usize = 6;
/// The most queues in one pipeline.
const QUEUES_PER_PIPELINE: usize = 64;

impl Reader {
    /// Counts the jobs of these queues, in their order. Not atomic: a job that moves meanwhile may
    /// count twice or not at all.
    pub async fn queue_counts(&self, queues: &[String]) -> Result<Vec<QueueCounts>, StoreError> {
        let now_ms = self.namespace.read_clock().await? / 1000;
        let mut counts: Vec<QueueCounts> = queues
            .iter()
            .map(|queue| QueueCounts { queue: queue.clone(), ..QueueCounts::default() })
            .collect();
        for counts in counts.chunks_mut(QUEUES_PER_PIPELINE) {
            let sets: Vec<String> =
                counts.iter().map(|counts| DueSet::Queue(&counts.queue).to_string()).collect();
            let buckets = (0..self.namespace.keys.buckets())
                .map(|bucket| self.count_in(bucket, &sets, now_ms));
            for answers in try_join_all(buckets).await? {
                for (counts, answers) in counts.iter_mut().zip(answers.chunks(COMMANDS_PER_QUEUE)) {
                    counts.add(answers);
                }
            }
        }
        counts.iter_mut().for_each(|counts| counts.until(now_ms));
        Ok(counts)
    }

    pub(super) async fn count_in(
        &self,
        bucket: u16,
        sets: &[String],
        now_ms: i64,
    ) -> Result<Vec<Value>, StoreError> {
        let keys = &self.namespace.keys;
        let mut pipeline = Pipeline::new();
        for set in sets {
            let due = keys.due(bucket, set);
            pipeline.cmd("ZCARD").arg(&due);
            pipeline.cmd("ZCOUNT").arg(&due).arg("-inf").arg(now_ms);
            pipeline.cmd("HGET").arg(keys.queues(bucket)).arg(set);
            pipeline.cmd("ZCARD").arg(keys.dead_of(bucket, set));
            pipeline.cmd("ZRANGE").arg(&due).arg(0).arg(0).arg("WITHSCORES");
            pipeline.cmd("HGET").arg(keys.queues(bucket)).arg(format!("!{set}"));
        }
        if pipeline.is_empty() {
            Ok(Vec::new())
        } else {
            self.namespace.link.pipeline("counting the queues", &pipeline).await
        }
    }

    /// The number of ready or dead jobs of a queue: one command for each bucket.
    pub async fn queue_count(&self, queue: &str, state: JobState) -> Result<u64, StoreError> {
        let (keys, set) = (&self.namespace.keys, DueSet::Queue(queue).to_string());
        let now_ms = self.namespace.read_clock().await? / 1000;
        let counts = (0..keys.buckets()).map(|bucket| {
            let mut command = redis::cmd("ZCOUNT");
            match state {
                JobState::Dead => command.arg(keys.dead_of(bucket, &set)).arg("-inf").arg("+inf"),
                _ => command.arg(keys.due(bucket, &set)).arg("-inf").arg(now_ms),
            };
            async move { self.namespace.link.command("counting a queue", &command).await }
        });
        let counts = try_join_all(counts).await?;
        Ok(counts
            .into_iter()
            .map(
                |count| {
                    if let Value::Int(count) = count {
                        u64::try_from(count).unwrap_or(0)
                    } else {
                        0
                    }
                },
            )
            .sum())
    }

    /// The ready jobs of a queue, the oldest first over all buckets, with their bodies: up to the
    /// job with which the bodies reach `most_bytes`. No job is fetched.
    pub async fn peek(
        &self,
        queue: &str,
        most: usize,
        most_bytes: usize,
    ) -> Result<Vec<StoredJob>, StoreError> {
        let query =
            Query { queue: Some(queue.to_owned()), limit: most, ..Query::new(JobState::Ready) };
        let mut jobs = self.list(&query).await?.jobs;
        let mut bytes = 0;
        let last = jobs.iter().position(|job| {
            bytes += job.size;
            bytes >= most_bytes
        });
        jobs.truncate(last.map_or(jobs.len(), |last| last + 1));
        self.with_bodies(jobs).await
    }

    /// These jobs again, each with its body. A job that left meanwhile is left out.
    pub async fn with_bodies(&self, jobs: Vec<StoredJob>) -> Result<Vec<StoredJob>, StoreError> {
        let mut found = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(QUEUES_PER_PIPELINE) {
            let looked = try_join_all(jobs.iter().map(|job| self.find(&job.id))).await?;
            let same = looked.into_iter().flatten().zip(jobs).filter(|(now, then)| {
                now.state == then.state && now.job().queue() == then.job().queue()
            });
            found.extend(same.map(|(now, _)| now));
        }
        Ok(found)
    }
}

impl QueueCounts {
    /// Whether the queue has no jobs and is not paused: nothing distinguishes it from a queue that
    /// never had one.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        !self.paused && self.jobs() == 0
    }

    /// The jobs in any state.
    pub(super) fn jobs(&self) -> u64 {
        self.scheduled + self.ready + self.reserved + self.dead
    }

    /// Drops the time of the oldest ready job if that job is not due by `now_ms`.
    pub(super) fn until(&mut self, now_ms: i64) {
        self.oldest_ready_ms = self.oldest_ready_ms.filter(|ms| *ms <= now_ms);
    }

    /// Adds the counts of another bucket.
    pub(super) fn join(&mut self, other: &QueueCounts) {
        self.scheduled += other.scheduled;
        self.ready += other.ready;
        self.reserved += other.reserved;
        self.dead += other.dead;
        self.oldest_ready_ms = self.oldest_ready_ms.into_iter().chain(other.oldest_ready_ms).min();
        self.paused |= other.paused;
    }

    /// Adds the answers of one bucket.
    pub(super) fn add(&mut self, answers: &[Value]) {
        let number = |at: usize| match answers.get(at) {
            Some(Value::Int(number)) => u64::try_from(*number).unwrap_or(0),
            Some(Value::BulkString(text)) => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
            }
            _ => 0,
        };
        let ready = number(1);
        self.scheduled += number(0).saturating_sub(ready);
        self.ready += ready;
        self.reserved += number(2);
        self.dead += number(3);
        if let Some(Value::Array(head)) = answers.get(4) {
            let oldest = head.get(1).cloned().and_then(score);
            self.oldest_ready_ms = self.oldest_ready_ms.into_iter().chain(oldest).min();
        }
        self.paused |= matches!(answers.get(5), Some(Value::BulkString(_)));
    }
}
