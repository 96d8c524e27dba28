//! The number of jobs of a namespace, by state, bucket and broker.

use std::collections::BTreeSet;
use std::time::SystemTime;

use redis::{Pipeline, Value};

use crate::clock::time_of;
use crate::store::answer::{score, text};
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::reader::Reader;
use crate::store::reader::active::{ActiveQueues, SETS_PER_PIPELINE};
use crate::store::reader::leases;

/// Counts of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Counts {
    /// Jobs in `due`, per bucket, without the ready jobs of queues.
    pub scheduled: Vec<u64>,
    /// Jobs of queues that are due and not fetched, per bucket.
    pub ready: Vec<u64>,
    /// Jobs in leases, held for their consumers or fetched from a queue, per bucket.
    pub reserved: Vec<u64>,
    /// Jobs in `dead`, per bucket.
    pub dead: Vec<u64>,
    /// Jobs in `dead` that died within the last hour.
    pub died: u64,
    /// The due time of the oldest ready job of any queue that is not paused, epoch ms.
    #[doc(hidden)]
    pub oldest_ready_ms: Option<i64>,
    /// The paused queues.
    pub paused_queues: BTreeSet<String>,
    /// Jobs in `due` per broker.
    pub brokers: Vec<(String, u64)>,
    /// Jobs of brokers in `due` whose due time has passed.
    pub overdue: u64,
    /// The same per broker, in the order of `brokers`.
    #[doc(hidden)]
    pub overdue_of: Vec<u64>,
    /// Jobs due within each of the requested spans from now, in the order of the spans; overdue
    /// ones too, but no ready ones.
    #[doc(hidden)]
    pub within: Vec<u64>,
    /// The earliest due time, epoch ms; of an overdue job too, but of no ready one.
    #[doc(hidden)]
    pub next_due_ms: Option<i64>,
    /// Redis's clock at the count, epoch ms.
    #[doc(hidden)]
    pub now_ms: i64,
}

impl Counts {
    /// The due time of the oldest ready job of any queue that is not paused.
    #[must_use]
    pub fn oldest_ready(&self) -> Option<SystemTime> {
        self.oldest_ready_ms.map(time_of)
    }

    /// The earliest due time; of an overdue job too, but of no ready one.
    #[must_use]
    pub fn next_due(&self) -> Option<SystemTime> {
        self.next_due_ms.map(time_of)
    }

    /// Redis's clock at the count.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        time_of(self.now_ms)
    }
}

/// The age up to which a death counts as recent, ms.
pub const RECENT_DEATH_MS: i64 = 3_600_000;

impl Reader {
    /// Counts all jobs. `within`: spans from now, seconds.
    pub async fn counts(&self, within: &[u64]) -> Result<Counts, StoreError> {
        let now_ms = self.namespace.read_clock().await? / 1000;
        let brokers = self.namespace.brokers();
        let mut counts = Counts {
            within: vec![0; within.len()],
            brokers: brokers.iter().map(|name| (name.clone(), 0)).collect(),
            overdue_of: vec![0; brokers.len()],
            now_ms,
            ..Counts::default()
        };
        for (bucket, active) in (0..).zip(self.namespace.active_queues().await?) {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("HGETALL").arg(self.namespace.keys.settled(bucket));
            pipeline.cmd("ZCARD").arg(self.namespace.keys.held(bucket));
            count_dead(&mut pipeline, self.namespace.keys.dead(bucket), now_ms);
            let mut answers =
                self.namespace.link.pipeline("counting", &pipeline).await?.into_iter();
            counts.reserved.push(answers.next().map_or(0, leases::count) + number(answers.next()));
            counts.dead.push(number(answers.next()));
            counts.died += number(answers.next());
            counts.scheduled.push(0);
            counts.ready.push(0);
            for sets in self.namespace.sets_with(&active).chunks(SETS_PER_PIPELINE) {
                self.count_sets(bucket, sets, &active, within, &mut counts).await?;
            }
            counts.paused_queues.extend(active.paused);
        }
        Ok(counts)
    }

    /// Counts the jobs of the queues that are wanted, and of no broker.
    pub async fn counts_of(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Counts, StoreError> {
        let mut counts =
            Counts { now_ms: self.namespace.read_clock().await? / 1000, ..Counts::default() };
        for (bucket, mut active) in (0..).zip(self.namespace.active_queues().await?) {
            active.retain(&is_wanted);
            for counts in
                [&mut counts.scheduled, &mut counts.ready, &mut counts.reserved, &mut counts.dead]
            {
                counts.push(0);
            }
            let sets: Vec<String> = active.sets.iter().cloned().collect();
            for sets in sets.chunks(SETS_PER_PIPELINE) {
                let mut held = redis::cmd("HMGET");
                held.arg(self.namespace.keys.queues(bucket)).arg(sets);
                if let Value::Array(held) = self.namespace.link.command("counting", &held).await? {
                    let held: u64 =
                        held.into_iter().filter_map(|held| text(held).parse::<u64>().ok()).sum();
                    counts.reserved.last_mut().into_iter().for_each(|count| *count += held);
                }
                self.count_sets(bucket, sets, &active, &[], &mut counts).await?;
            }
            counts.paused_queues.extend(active.paused);
        }
        Ok(counts)
    }

    /// Adds the jobs of these sets to the last bucket.
    async fn count_sets(
        &self,
        bucket: u16,
        sets: &[String],
        active: &ActiveQueues,
        within: &[u64],
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        let (keys, now_ms) = (&self.namespace.keys, counts.now_ms);
        let mut pipeline = Pipeline::new();
        for set in sets {
            // A due job of a queue waits for a consumer, not for Dwell.
            let is_queue = DueSet::named(set).is_of_queue();
            let from = if is_queue { format!("({now_ms}") } else { "-inf".to_owned() };
            let due = keys.due(bucket, set);
            pipeline.cmd("ZCARD").arg(&due);
            pipeline.cmd("ZCOUNT").arg(&due).arg("-inf").arg(now_ms);
            if is_queue {
                count_dead(&mut pipeline, &keys.dead_of(bucket, set), now_ms);
                pipeline
                    .cmd("ZRANGEBYSCORE")
                    .arg(&due)
                    .arg("-inf")
                    .arg(now_ms)
                    .arg("WITHSCORES")
                    .arg("LIMIT")
                    .arg(0)
                    .arg(1);
            }
            pipeline
                .cmd("ZRANGEBYSCORE")
                .arg(&due)
                .arg(&from)
                .arg("+inf")
                .arg("WITHSCORES")
                .arg("LIMIT")
                .arg(0)
                .arg(1);
            for seconds in within {
                pipeline
                    .cmd("ZCOUNT")
                    .arg(&due)
                    .arg(&from)
                    .arg(now_ms + i64::try_from(seconds * 1000).unwrap_or(i64::MAX / 2));
            }
        }
        if pipeline.is_empty() {
            return Ok(());
        }
        let mut answers = self.namespace.link.pipeline("counting", &pipeline).await?.into_iter();
        for set in sets {
            let (waiting, past) = (number(answers.next()), number(answers.next()));
            let (mut scheduled, mut ready, mut dead) = (waiting, 0, 0);
            if let Some(queue) = DueSet::named(set).queue() {
                (scheduled, ready, dead) =
                    (waiting.saturating_sub(past), past, number(answers.next()));
                counts.died += number(answers.next());
                // A paused queue has no consumer that could be late.
                let oldest =
                    answers.next().and_then(first_score).filter(|_| !active.paused.contains(queue));
                counts.oldest_ready_ms = counts.oldest_ready_ms.into_iter().chain(oldest).min();
            } else {
                counts.overdue += past;
                let of_broker = counts.brokers.iter_mut().zip(&mut counts.overdue_of);
                for ((_, count), overdue) in of_broker.filter(|((name, _), _)| name == set) {
                    *count += waiting;
                    *overdue += past;
                }
            }
            let of_bucket = [
                (&mut counts.scheduled, scheduled),
                (&mut counts.ready, ready),
                (&mut counts.dead, dead),
            ];
            of_bucket.into_iter().for_each(|(all, more)| {
                all.last_mut().into_iter().for_each(|count| *count += more)
            });
            counts.next_due_ms =
                counts.next_due_ms.into_iter().chain(answers.next().and_then(first_score)).min();
            counts.within.iter_mut().for_each(|span| *span += number(answers.next()));
        }
        Ok(())
    }
}

/// The score of a dead job is the time of its death.
fn count_dead(pipeline: &mut Pipeline, dead: &str, now_ms: i64) {
    pipeline.cmd("ZCARD").arg(dead);
    pipeline.cmd("ZCOUNT").arg(dead).arg(now_ms - RECENT_DEATH_MS).arg("+inf");
}

/// The score in an answer of one member with its score.
fn first_score(answer: Value) -> Option<i64> {
    match answer {
        Value::Array(head) => head.into_iter().nth(1).and_then(score),
        _ => None,
    }
}

fn number(answer: Option<Value>) -> u64 {
    match answer {
        Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
        _ => 0,
    }
}
