//! The rounds in which the jobs of queues are counted. In a cluster each bucket is counted by
//! itself: a master that hangs leaves the last counts of its buckets as they are, and delays no
//! others.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};

use crate::clock;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::reader::active::{ActiveCounts, BucketCounts};
use crate::store::reader::queues::QueueCounts;

/// The longest wait of a round for buckets, after the first round: half of the shortest interval
/// between rounds, so that a master that hangs makes none longer.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The counts of all buckets, as far as known.
pub struct Counting {
    store: Arc<Store>,
    /// By bucket: the last counts; none before the first.
    last: Vec<BucketCounts>,
    /// The counts on their way, and their buckets.
    calls: JoinSet<(u16, Result<BucketCounts, StoreError>)>,
    counting: BTreeSet<u16>,
    has_begun: bool,
    /// The log has that counts are missing.
    is_told: bool,
}

/// The finds of one round.
#[derive(Default)]
struct Found {
    /// The buckets whose counts were read.
    current: BTreeSet<u16>,
    /// The last error.
    failed: Option<StoreError>,
}

impl Counting {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        let last = vec![BucketCounts::default(); usize::from(store.keys().buckets())];
        Counting {
            store,
            last,
            calls: JoinSet::new(),
            counting: BTreeSet::new(),
            has_begun: false,
            is_told: false,
        }
    }

    /// Counts the queues that have jobs, or are paused, and that are wanted.
    pub async fn active(
        &mut self,
        is_wanted: impl Fn(&str) -> bool + Clone + Send + 'static,
    ) -> Result<ActiveCounts, StoreError> {
        if !self.store.is_cluster() {
            let counted = self.store.reader.active_counts(is_wanted).await;
            self.tell(counted.as_ref().err(), counted.is_ok());
            return counted;
        }
        self.round(move |store, bucket| {
            let is_wanted = is_wanted.clone();
            async move { store.reader.active_counts_of(bucket, is_wanted).await }
        })
        .await
    }

    /// Counts these queues.
    pub async fn named(&mut self, queues: &[String]) -> Result<Vec<QueueCounts>, StoreError> {
        if !self.store.is_cluster() {
            let counted = self.store.reader.queue_counts(queues).await;
            self.tell(counted.as_ref().err(), counted.is_ok());
            return counted;
        }
        let queues: Arc<[String]> = queues.into();
        let counted = self.round(move |store, bucket| {
            let queues = queues.clone();
            async move { store.reader.queue_counts_of(bucket, &queues).await }
        });
        Ok(counted.await?.queues.into_values().collect())
    }

    /// Counts the buckets that are not being counted still, and adds up the last counts of all. An
    /// error if no bucket could be counted.
    async fn round<C>(
        &mut self,
        count: impl Fn(Arc<Store>, u16) -> C,
    ) -> Result<ActiveCounts, StoreError>
    where
        C: Future<Output = Result<BucketCounts, StoreError>> + Send + 'static,
    {
        let buckets = 0..self.store.keys().buckets();
        let mut found = Found::default();
        while let Some(counted) = self.calls.try_join_next() {
            self.take(counted, &mut found);
        }
        if self.calls.is_empty() {
            self.counting.clear();
        }
        let mut awaited: BTreeSet<u16> =
            buckets.clone().filter(|bucket| !self.counting.contains(bucket)).collect();
        for bucket in awaited.iter().copied() {
            let call = count(self.store.clone(), bucket);
            self.calls.spawn(async move { (bucket, call.await) });
        }
        self.counting.extend(&awaited);
        let until = clock::now() + MAX_WAIT;
        while !awaited.is_empty() {
            let next = self.calls.join_next();
            let next = if self.has_begun {
                clock::timeout(until.saturating_duration_since(clock::now()), next).await.flatten()
            } else {
                // The first round has no counts to fall back on.
                next.await
            };
            let Some(counted) = next else { break };
            if let Some(bucket) = self.take(counted, &mut found) {
                awaited.remove(&bucket);
            }
        }
        let Found { current, failed } = found;
        self.has_begun = true;
        self.tell(failed.as_ref(), current.len() == self.last.len());
        if let Some(error) = failed.filter(|_| current.is_empty()) {
            return Err(error);
        }
        let mut counted = ActiveCounts::default();
        for (bucket, counts) in buckets.zip(&self.last) {
            counted.add(counts, current.contains(&bucket));
        }
        Ok(counted)
    }

    /// Takes the counts of one bucket. `None`: its task was aborted or panicked.
    fn take(
        &mut self,
        counted: Result<(u16, Result<BucketCounts, StoreError>), JoinError>,
        found: &mut Found,
    ) -> Option<u16> {
        let (bucket, counted) = counted.ok()?;
        self.counting.remove(&bucket);
        match counted {
            Ok(counts) => {
                self.last[usize::from(bucket)] = counts;
                found.current.insert(bucket);
            }
            Err(error) => found.failed = Some(error),
        }
        Some(bucket)
    }

    /// Logs the first failure after complete counts.
    fn tell(&mut self, failed: Option<&StoreError>, is_complete: bool) {
        if is_complete {
            self.is_told = false;
        }
        let Some(error) = failed.filter(|error| !self.is_told && !error.is_told()) else { return };
        self.is_told = true;
        tracing::warn!(
            %error,
            hint = error.hint,
            "the jobs of queues could not be counted, their last counts stand, trying again"
        );
    }
}
