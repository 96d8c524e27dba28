//! The numbers of schedules.

use std::collections::BTreeMap;

use redis::Value;

use super::Schedules;
use super::ids::names;
use super::query::ScheduleFilter;
use crate::job::JobId;
use crate::schedule::StoredSchedule;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;

/// A schedule whose next time came so long ago is made by nobody, ms.
const STRANDED_MS: i64 = 10_000;
/// The most stranded schedules of a bucket that are counted.
const MAX_STRANDED: usize = 1_000;

/// How many schedules there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduleCounts {
    /// Schedules that are not paused.
    pub active: u64,
    /// Schedules that are paused.
    pub paused: u64,
}

impl ScheduleCounts {
    /// All schedules.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.active + self.paused
    }
}

impl Schedules {
    /// Counts the schedules. Not atomic over the buckets.
    pub async fn counts(&self) -> Result<ScheduleCounts, StoreError> {
        let keys = &self.namespace.keys;
        let answers = self
            .in_each_bucket("counting schedules", |pipeline, bucket| {
                pipeline.cmd("HLEN").arg(keys.schedule_states(bucket));
                pipeline.cmd("ZCARD").arg(keys.schedule_times(bucket));
            })
            .await?;
        let mut counts = ScheduleCounts::default();
        for of_bucket in answers {
            let mut numbers = of_bucket.into_iter().map(number);
            let all = numbers.next().unwrap_or_default();
            // The index of times has the schedules that are not paused.
            let active = numbers.next().unwrap_or_default().min(all);
            counts.active += active;
            counts.paused += all - active;
        }
        Ok(counts)
    }

    /// How many schedules that are not paused have their next nominal time between these two, epoch
    /// ms: `from_ms` is included, `to_ms` is not.
    pub async fn upcoming_between(&self, from_ms: i64, to_ms: i64) -> Result<u64, StoreError> {
        Ok(self.upcoming_in(&[(from_ms, to_ms)]).await?.into_iter().sum())
    }

    /// The same for each of these spans.
    pub async fn upcoming_in(&self, spans: &[(i64, i64)]) -> Result<Vec<u64>, StoreError> {
        let mut counts = vec![0; spans.len()];
        if spans.is_empty() {
            return Ok(counts);
        }
        let keys = &self.namespace.keys;
        let answers = self
            .in_each_bucket("counting schedules", |pipeline, bucket| {
                for (from_ms, to_ms) in spans {
                    let key = keys.schedule_times(bucket);
                    pipeline.cmd("ZCOUNT").arg(key).arg(*from_ms).arg(format!("({to_ms}"));
                }
            })
            .await?;
        for of_bucket in answers {
            for (sum, count) in counts.iter_mut().zip(of_bucket) {
                *sum += number(count);
            }
        }
        Ok(counts)
    }

    /// Counts the schedules whose next time came some seconds ago, of brokers and queues that are
    /// not served. By the broker, or `=` and the queue. Reads those schedules alone: none while
    /// instances make what is due.
    pub async fn stranded(
        &self,
        is_served: impl Fn(DueSet<'_>) -> bool,
    ) -> Result<BTreeMap<String, u64>, StoreError> {
        let (keys, until_ms) = (&self.namespace.keys, self.namespace.now_ms() - STRANDED_MS);
        let answers = self
            .in_each_bucket("counting schedules", |pipeline, bucket| {
                let key = keys.schedule_times(bucket);
                let range = pipeline.cmd("ZRANGEBYSCORE").arg(key).arg("-inf").arg(until_ms);
                range.arg("LIMIT").arg(0).arg(MAX_STRANDED);
            })
            .await?;
        let names = answers.into_iter().flatten().flat_map(names);
        let ids: Vec<JobId> = names.filter_map(|id| JobId::new(id).ok()).collect();
        let (mut rest, mut stranded) = (&ids[..], BTreeMap::new());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(self.readable_at_once(rest).await?);
            rest = others;
            for read in self.read_these(part).await? {
                add_unserved(&mut stranded, &read.schedule, &is_served);
            }
        }
        Ok(stranded)
    }

    /// Counts the schedules, paused ones too, of brokers and queues that are not served. By the
    /// broker, or `=` and the queue. Reads every schedule: for a check, not for a gauge.
    pub async fn unserved(
        &self,
        is_served: impl Fn(DueSet<'_>) -> bool,
    ) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut unserved: BTreeMap<String, u64> = BTreeMap::new();
        let all = ScheduleFilter::default();
        self.each(&all, |schedule| add_unserved(&mut unserved, &schedule, &is_served)).await?;
        Ok(unserved)
    }
}

fn add_unserved(
    unserved: &mut BTreeMap<String, u64>,
    schedule: &StoredSchedule,
    is_served: impl Fn(DueSet<'_>) -> bool,
) {
    let set = DueSet::of(&schedule.job);
    if !is_served(set) {
        *unserved.entry(set.to_string()).or_default() += 1;
    }
}

fn number(value: Value) -> u64 {
    if let Value::Int(number) = value { u64::try_from(number).unwrap_or(0) } else { 0 }
}
