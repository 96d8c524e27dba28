//! Ends the jobs of queues whose own end has come (`ttl` of lmstfy), whatever their state.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::fleet::Fleet;
use crate::store::Store;
use crate::store::error::StoreError;

/// The interval between looks, which a larger fleet spreads: the delay of an end.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// The most buckets that are worked on at once.
const CONCURRENT_BUCKETS: usize = 16;

/// The agent that ends jobs.
pub struct Expiry {
    store: Arc<Store>,
    fleet: watch::Receiver<Fleet>,
}

impl Expiry {
    /// Makes an agent; [`Expiry::run`] starts it.
    #[must_use]
    pub fn new(store: Arc<Store>, fleet: watch::Receiver<Fleet>) -> Self {
        Expiry { store, fleet }
    }

    /// Ends jobs until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let buckets: Vec<u16> = (0..self.store.keys().buckets()).collect();
        // In a cluster each bucket by itself: a master that hangs must not delay the others.
        let at_once = if self.store.is_cluster() { 1 } else { buckets.len() };
        join_all(buckets.chunks(at_once).map(|some| self.run_on(some, &stop))).await;
    }

    async fn run_on(&self, buckets: &[u16], stop: &CancellationToken) {
        loop {
            if let Err(error) = self.look(buckets).await {
                tracing::debug!(%error, "jobs past their end could not be ended, trying again");
            }
            let pause = self.fleet.borrow().spread(SCAN_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    async fn look(&self, buckets: &[u16]) -> Result<(), StoreError> {
        let queue = &self.store.queue;
        let looks = queue.look_at_ends(buckets).await?;
        let busy = buckets
            .iter()
            .copied()
            .zip(looks)
            .filter(|(_, look)| look.has_ended || look.is_crowded);
        // A bucket that fails, or has many ends, does not stop the others.
        let ends = busy.map(|(bucket, look)| async move {
            if look.has_ended {
                queue.end_jobs(bucket).await?;
            }
            if look.is_crowded { queue.forget_ends(bucket).await } else { Ok(()) }
        });
        let ended: Vec<Result<(), StoreError>> =
            stream::iter(ends).buffer_unordered(CONCURRENT_BUCKETS).collect().await;
        ended.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use dwell_testkit::servers::{RedisCluster, RedisOptions};

    use super::*;
    use crate::config::{Redis, RedisMode};
    use crate::job::{Due, Job, JobId};
    use crate::request::NewJob;
    use crate::store::Unobserved;

    /// The time from a job's receipt to its end, ms. A round of looks begins meanwhile.
    const UNTIL_END_MS: i64 = 1500;

    #[tokio::test]
    async fn jobs_of_other_masters_end_in_time_while_one_hangs() {
        let more =
            [("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")];
        let more = more.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let cluster = RedisCluster::start(RedisOptions { more, ..RedisOptions::default() });
        let cluster = cluster.await.unwrap();
        let redis =
            Redis { mode: RedisMode::Cluster, urls: cluster.urls(), ..Redis::new(String::new()) };
        let store = Arc::new(Store::open(&redis, &[], Arc::new(Unobserved)).await.unwrap());
        let expiry = Expiry::new(store.clone(), watch::channel(Fleet::alone("me ")).1);
        let stop = CancellationToken::new();
        let running = tokio::spawn(expiry.run(stop.clone()));
        let mut on_first = Vec::new();
        for bucket in 0..store.keys().buckets() {
            let slot = cluster.slot_of(store.keys().jobs(bucket)).await.unwrap();
            on_first.push(cluster.master_of(slot).await.unwrap() == 0);
        }
        let ids = (0..64).map(|number| format!("job-{number}").parse::<JobId>().unwrap());
        let (hanging, others): (Vec<JobId>, Vec<JobId>) =
            ids.partition(|id: &JobId| on_first[usize::from(store.keys().bucket_of(id.as_str()))]);
        let ends_ms = store.read_clock().await.unwrap() / 1000 + UNTIL_END_MS;
        let mut jobs = Vec::new();
        for id in hanging.iter().chain(&others) {
            store.queue.note_end(id, ends_ms).await.unwrap();
            let job = Job { ends_ms: Some(ends_ms), ..Job::for_queue("q", "x") };
            jobs.push(NewJob::new(job, Due::In(3_600_000)).id(id.clone()));
        }
        store.queue.schedule(&jobs).await.unwrap();
        cluster.nodes[0].freeze().unwrap();
        let all_ended = async {
            for id in &others {
                while store.reader.find(id).await.unwrap().is_some() {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            () = all_ended => {}
            given_up = store.reader.find(&hanging[0]) => {
                panic!("a call to the master that hangs was given up before: {given_up:?}");
            }
        }
        cluster.nodes[0].thaw().unwrap();
        stop.cancel();
        running.await.unwrap();
    }
}
