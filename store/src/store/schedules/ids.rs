//! The ids of the schedules, without their records.

use std::collections::{BTreeMap, HashSet};

use futures_util::future::try_join_all;
use redis::{Pipeline, Value};

use super::{Read, Schedules, look};
use crate::job::JobId;
use crate::store::error::StoreError;

/// The name of these reads in errors.
const DOING: &str = "listing schedules";
/// The most bytes of records that are read at once.
const READ_BYTES: usize = 4 << 20;
/// The most schedules that are read at once.
const READ_SCHEDULES: usize = 512;

impl Schedules {
    /// The ids of all schedules; `is_paused`: only of those that are paused, or only of those that
    /// are not.
    pub(super) async fn ids(&self, is_paused: Option<bool>) -> Result<Vec<JobId>, StoreError> {
        let answers = self
            .in_each_bucket(DOING, |pipeline, bucket| {
                pipeline.cmd("HKEYS").arg(self.namespace.keys.schedule_states(bucket));
                // The index of times has the schedules that are not paused.
                if is_paused.is_some() {
                    let key = self.namespace.keys.schedule_times(bucket);
                    pipeline.cmd("ZRANGE").arg(key).arg(0).arg(-1);
                }
            })
            .await?;
        let mut ids = Vec::new();
        for mut of_bucket in answers {
            let active = match (is_paused, of_bucket.len()) {
                (Some(_), 2) => of_bucket.pop().map(names).unwrap_or_default(),
                _ => Vec::new(),
            };
            let active: HashSet<String> = active.into_iter().collect();
            let all = of_bucket.pop().map(names).unwrap_or_default();
            let wanted = all
                .into_iter()
                .filter(|id| is_paused.is_none_or(|paused| paused != active.contains(id)));
            ids.extend(wanted.filter_map(|id| JobId::new(id).ok()));
        }
        Ok(ids)
    }

    /// Sends commands for every bucket, and returns their answers by bucket. In a cluster each
    /// bucket has a pipeline of its own.
    pub(super) async fn in_each_bucket(
        &self,
        doing: &str,
        ask: impl Fn(&mut Pipeline, u16),
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        let buckets: Vec<u16> = (0..self.namespace.keys.buckets()).collect();
        let at_once = if self.namespace.is_cluster() { 1 } else { buckets.len().max(1) };
        let parts = buckets.chunks(at_once).map(|buckets| {
            let mut pipeline = Pipeline::new();
            buckets.iter().for_each(|bucket| ask(&mut pipeline, *bucket));
            async move {
                let answers = self.namespace.link.pipeline(doing, &pipeline).await?;
                let of_bucket = answers.len() / buckets.len();
                let chunks = answers.chunks(of_bucket.max(1)).map(<[Value]>::to_vec);
                Ok::<Vec<Vec<Value>>, StoreError>(chunks.collect())
            }
        });
        Ok(try_join_all(parts).await?.into_iter().flatten().collect())
    }

    /// The number of these schedules, from the first one, whose records may be in memory together;
    /// at least 1.
    pub(crate) async fn readable_at_once(&self, ids: &[JobId]) -> Result<usize, StoreError> {
        let ids = &ids[..ids.len().min(READ_SCHEDULES)];
        let mut sizes: BTreeMap<&JobId, usize> = BTreeMap::new();
        let lengths = self.by_bucket(ids).into_iter().map(|(bucket, ids)| async move {
            let lengths = self.sizes(bucket, &ids).await?;
            Ok::<_, StoreError>((ids, lengths))
        });
        for (ids, lengths) in try_join_all(lengths).await? {
            sizes.extend(ids.into_iter().zip(lengths));
        }
        let mut bytes = 0_usize;
        let fits = |id: &&JobId| {
            bytes = bytes.saturating_add(sizes.get(id).copied().unwrap_or(0));
            bytes <= READ_BYTES
        };
        Ok(ids.iter().take_while(fits).count().max(1).min(ids.len()))
    }

    /// The sizes of the records of these schedules of one bucket, bytes.
    pub(crate) async fn sizes(
        &self,
        bucket: u16,
        ids: &[&JobId],
    ) -> Result<Vec<usize>, StoreError> {
        let mut pipeline = Pipeline::new();
        for id in ids {
            pipeline.cmd("HSTRLEN").arg(self.namespace.keys.schedules(bucket)).arg(id.as_str());
        }
        let size = |length: Value| match length {
            Value::Int(length) => usize::try_from(length).unwrap_or(0),
            _ => 0,
        };
        let lengths = self.namespace.link.pipeline(DOING, &pipeline).await?;
        Ok(lengths.into_iter().map(size).collect())
    }

    /// These schedules, in their order. One that cannot be read is left out, as is one that does
    /// not exist.
    pub(crate) async fn read_these(&self, ids: &[JobId]) -> Result<Vec<Read>, StoreError> {
        let reads = self.by_bucket(ids).into_iter().map(|(bucket, ids)| async move {
            let ids: Vec<JobId> = ids.into_iter().cloned().collect();
            self.read(bucket, &ids).await
        });
        let found = try_join_all(reads).await?.into_iter().flatten().flatten();
        let mut by_id: BTreeMap<JobId, Read> =
            found.map(|read| (read.schedule.id.clone(), read)).collect();
        Ok(ids.iter().filter_map(|id| by_id.remove(id)).collect())
    }

    /// Schedules of one bucket by id. The error of one that cannot be read is its own.
    pub(crate) async fn read_each(
        &self,
        bucket: u16,
        ids: &[JobId],
    ) -> Result<Vec<Result<Option<Read>, StoreError>>, StoreError> {
        let names: Vec<&str> = ids.iter().map(JobId::as_str).collect();
        let found = look(&self.namespace, bucket, &names).await?;
        Ok(found.into_iter().map(|found| found.read).collect())
    }

    /// The schedule of this id; an error if it cannot be read.
    pub(super) async fn read_one(
        &self,
        bucket: u16,
        id: &JobId,
    ) -> Result<Option<Read>, StoreError> {
        self.read_each(bucket, std::slice::from_ref(id)).await?.pop().unwrap_or(Ok(None))
    }

    /// The ids of the schedules of one bucket that are not paused.
    pub(crate) async fn active_ids(&self, bucket: u16) -> Result<Vec<JobId>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.namespace.keys.schedule_times(bucket)).arg(0).arg(-1);
        let ids = names(self.namespace.link.command(DOING, &command).await?);
        Ok(ids.into_iter().filter_map(|id| JobId::new(id).ok()).collect())
    }

    fn by_bucket<'a>(&self, ids: &'a [JobId]) -> BTreeMap<u16, Vec<&'a JobId>> {
        let mut buckets: BTreeMap<u16, Vec<&JobId>> = BTreeMap::new();
        for id in ids {
            buckets.entry(self.namespace.keys.bucket_of(id.as_str())).or_default().push(id);
        }
        buckets
    }
}

/// The texts of an array. An id that is not UTF-8, which Dwell never writes, is left out.
pub(super) fn names(answer: Value) -> Vec<String> {
    let Value::Array(items) = answer else { return Vec::new() };
    items.into_iter().filter_map(|item| redis::from_redis_value(item).ok()).collect()
}
