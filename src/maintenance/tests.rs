//! A cluster for the tests of the tasks, of which one master hangs (SIGSTOP).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use dwell_store::maintenance::expiry::Expiry;
use dwell_testkit::servers::{RedisCluster, RedisOptions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{Redis, RedisMode};
use crate::fleet::Fleet;
use crate::job::{Due, Job, JobId};
use crate::request::NewJob;
use crate::store::{Store, Unobserved};

/// A cluster without failover, and ids of jobs.
pub(super) struct Masters {
    pub(super) cluster: RedisCluster,
    pub(super) store: Arc<Store>,
    /// Ids on the first master.
    pub(super) first: Vec<JobId>,
    /// Ids on the other masters.
    pub(super) others: Vec<JobId>,
}

impl Masters {
    pub(super) async fn new() -> Masters {
        let more =
            [("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")];
        let more = more.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let options = RedisOptions { more, ..RedisOptions::default() };
        let cluster = RedisCluster::start(options).await.unwrap();
        let redis =
            Redis { mode: RedisMode::Cluster, urls: cluster.urls(), ..Redis::new(String::new()) };
        let store = Arc::new(Store::open(&redis, &[], Arc::new(Unobserved)).await.unwrap());
        let mut is_on_first = Vec::new();
        for bucket in 0..store.keys().buckets() {
            let slot = cluster.slot_of(store.keys().jobs(bucket)).await.unwrap();
            is_on_first.push(cluster.master_of(slot).await.unwrap() == 0);
        }
        let ids = (0..256).map(|number| format!("job-{number}").parse::<JobId>().unwrap());
        let (first, others) = ids
            .partition(|id: &JobId| is_on_first[usize::from(store.keys().bucket_of(id.as_str()))]);
        Masters { cluster, store, first, others }
    }

    pub(super) fn freeze_first(&self) {
        self.cluster.nodes[0].freeze().unwrap();
    }

    /// Waits until a call to the first master that begins now is given up.
    pub(super) async fn first_is_given_up(&self) {
        assert!(self.store.reader.find(&self.first[0]).await.is_err(), "the first master answers");
    }
}

/// The time from a job's receipt to its end, ms. A round of looks begins meanwhile.
const UNTIL_END_MS: i64 = 1500;

#[tokio::test]
async fn jobs_of_other_masters_end_in_time_while_one_hangs() {
    let masters = Masters::new().await;
    let Masters { store, first, others, .. } = &masters;
    let expiry = Expiry::new(store.clone(), watch::channel(Fleet::alone("me ")).1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(expiry.run(stop.clone()));
    let ends_ms = store.read_clock().await.unwrap() / 1000 + UNTIL_END_MS;
    let mut jobs = Vec::new();
    for id in first.iter().chain(others) {
        store.queue.note_end(id, ends_ms).await.unwrap();
        let job = Job { ends_ms: Some(ends_ms), ..Job::for_queue("q", "x") };
        jobs.push(NewJob::new(job, Due::In(3_600_000)).id(id.clone()));
    }
    store.queue.schedule(&jobs).await.unwrap();
    masters.freeze_first();
    let all_ended = async {
        for id in others {
            while store.reader.find(id).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::select! {
        () = all_ended => {}
        () = masters.first_is_given_up() => panic!("the ends waited for the first master"),
    }
    masters.cluster.nodes[0].thaw().unwrap();
    stop.cancel();
    running.await.unwrap();
}
