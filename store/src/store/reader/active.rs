//! The queues that have jobs, as each bucket knows them: the fields of its hash `queues`. A queue
//! without a job is in no bucket, and costs nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use redis::{Pipeline, Value};

use crate::store::answer::text;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::namespace::Namespace;
use crate::store::reader::Reader;
use crate::store::reader::queues::{COMMANDS_PER_QUEUE, QueueCounts};

/// The most sets that one pipeline asks for.
pub(in crate::store) const SETS_PER_PIPELINE: usize = 64;

/// The queues that a bucket knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::store) struct ActiveQueues {
    /// `=` and the name of each queue that has jobs, or had some a moment ago.
    pub(in crate::store) sets: BTreeSet<String>,
    /// The paused queues.
    pub(in crate::store) paused: BTreeSet<String>,
}

/// The counts of one bucket.
#[derive(Debug, Clone, Default)]
pub struct BucketCounts {
    /// The counts of each counted queue, also of one without a job.
    queues: Vec<QueueCounts>,
    /// The paused queues.
    paused: BTreeSet<String>,
}

/// The counts of all queues that have jobs, and the queues without a job per bucket.
#[derive(Debug, Clone, Default)]
pub struct ActiveCounts {
    /// The counts by queue.
    pub queues: BTreeMap<String, QueueCounts>,
    /// Per bucket: the queues that it knows and of which it has no job.
    pub empty: Vec<Vec<String>>,
    /// Per bucket: the queues of which it has dead jobs.
    pub dead: Vec<Vec<String>>,
    /// The number of counted sets.
    pub sets: usize,
}

impl ActiveCounts {
    /// Adds these queues, without a job where they have none.
    pub fn name<'a>(&mut self, queues: impl Iterator<Item = &'a str>) {
        for queue in queues {
            of(&mut self.queues, queue);
        }
    }

    /// Adds the counts of the next bucket. Only those that were read just now say what the bucket
    /// can forget.
    pub fn add(&mut self, bucket: &BucketCounts, is_current: bool) {
        for queue in &bucket.paused {
            of(&mut self.queues, queue).paused = true;
        }
        self.sets += bucket.queues.len();
        let named = |is_it: fn(&QueueCounts) -> bool| {
            bucket
                .queues
                .iter()
                .filter(|counts| is_current && is_it(counts))
                .map(|counts| counts.queue.clone())
                .collect()
        };
        self.empty.push(named(|counts| counts.jobs() == 0));
        self.dead.push(named(|counts| counts.dead > 0));
        bucket
            .queues
            .iter()
            .filter(|counts| !counts.is_unused())
            .for_each(|counts| of(&mut self.queues, &counts.queue).join(counts));
    }
}

impl ActiveQueues {
    /// Keeps the queues that are wanted.
    pub(in crate::store) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.sets.retain(|set| DueSet::named(set).queue().is_some_and(&is_wanted));
        self.paused.retain(|queue| is_wanted(queue));
    }

    fn of(answer: Value) -> ActiveQueues {
        let mut active = ActiveQueues::default();
        let fields: Vec<Value> =
            if let Value::Array(fields) = answer { fields } else { Vec::new() };
        for field in fields.into_iter().map(text) {
            match field.strip_prefix('!').and_then(|set| DueSet::named(set).queue()) {
                Some(queue) => drop(active.paused.insert(queue.to_owned())),
                None if DueSet::named(&field).is_of_queue() => drop(active.sets.insert(field)),
                None => {}
            }
        }
        active
    }
}

impl Namespace {
    /// The queues that each bucket knows.
    pub(in crate::store) async fn active_queues(&self) -> Result<Vec<ActiveQueues>, StoreError> {
        let part = |buckets: Vec<u16>| {
            let mut pipeline = Pipeline::new();
            for bucket in buckets {
                pipeline.cmd("HKEYS").arg(self.keys.queues(bucket));
            }
            async move { self.link.pipeline("looking for queues", &pipeline).await }
        };
        let buckets = 0..self.keys.buckets();
        // In a cluster, a pipeline reaches one master.
        let answers = if self.is_cluster() {
            try_join_all(buckets.map(|bucket| part(vec![bucket]))).await?.concat()
        } else {
            part(buckets.collect()).await?
        };
        Ok(answers.into_iter().map(ActiveQueues::of).collect())
    }

    /// The queues that one bucket knows.
    pub(in crate::store) async fn active_queues_of(
        &self,
        bucket: u16,
    ) -> Result<ActiveQueues, StoreError> {
        let answer = self
            .link
            .command("looking for queues", redis::cmd("HKEYS").arg(self.keys.queues(bucket)))
            .await?;
        Ok(ActiveQueues::of(answer))
    }

    /// The sets of a bucket: the brokers, then `=` and each queue of which it has jobs.
    pub(in crate::store) fn sets_with(&self, active: &ActiveQueues) -> Vec<String> {
        self.brokers().iter().cloned().chain(active.sets.iter().cloned()).collect()
    }
}

impl Reader {
    /// The queues that have jobs or are paused, sorted.
    pub async fn queues(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut names = BTreeSet::new();
        for active in self.namespace.active_queues().await? {
            names.extend(
                active.sets.iter().filter_map(|set| DueSet::named(set).queue()).map(str::to_owned),
            );
            names.extend(active.paused);
        }
        Ok(names)
    }

    /// Counts the jobs of all queues that have some, or are paused, and that are wanted. Not
    /// atomic, as [`queue_counts`](Reader::queue_counts).
    pub async fn active_counts(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<ActiveCounts, StoreError> {
        let now_ms = self.namespace.read_clock().await? / 1000;
        let mut active = self.namespace.active_queues().await?;
        active.iter_mut().for_each(|active| active.retain(&is_wanted));
        let counting =
            (0..).zip(active).map(|(bucket, active)| self.count_active(bucket, active, now_ms));
        let mut counted = ActiveCounts::default();
        try_join_all(counting).await?.iter().for_each(|bucket| counted.add(bucket, true));
        Ok(counted)
    }

    /// The part of one bucket of [`active_counts`](Reader::active_counts). Its own master alone is
    /// asked.
    pub async fn active_counts_of(
        &self,
        bucket: u16,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<BucketCounts, StoreError> {
        let now_ms = self.namespace.read_clock_of(bucket).await?;
        let mut active = self.namespace.active_queues_of(bucket).await?;
        active.retain(is_wanted);
        self.count_active(bucket, active, now_ms).await
    }

    /// The part of one bucket of [`queue_counts`](Reader::queue_counts). Its own master alone is
    /// asked.
    pub async fn queue_counts_of(
        &self,
        bucket: u16,
        queues: &[String],
    ) -> Result<BucketCounts, StoreError> {
        let now_ms = self.namespace.read_clock_of(bucket).await?;
        let sets = queues.iter().map(|queue| DueSet::Queue(queue).to_string()).collect();
        let active = ActiveQueues { sets, paused: BTreeSet::new() };
        self.count_active(bucket, active, now_ms).await
    }

    async fn count_active(
        &self,
        bucket: u16,
        active: ActiveQueues,
        now_ms: i64,
    ) -> Result<BucketCounts, StoreError> {
        let sets: Vec<String> = active.sets.into_iter().collect();
        let mut queues = Vec::with_capacity(sets.len());
        for sets in sets.chunks(SETS_PER_PIPELINE) {
            let answers = self.count_in(bucket, sets, now_ms).await?;
            for (set, answers) in sets.iter().zip(answers.chunks(COMMANDS_PER_QUEUE)) {
                let mut here = QueueCounts {
                    queue: DueSet::named(set).queue().unwrap_or_default().to_owned(),
                    ..QueueCounts::default()
                };
                here.add(answers);
                here.until(now_ms);
                queues.push(here);
            }
        }
        Ok(BucketCounts { queues, paused: active.paused })
    }
}

fn of<'a>(queues: &'a mut BTreeMap<String, QueueCounts>, queue: &str) -> &'a mut QueueCounts {
    queues
        .entry(queue.to_owned())
        .or_insert_with(|| QueueCounts { queue: queue.to_owned(), ..QueueCounts::default() })
}
