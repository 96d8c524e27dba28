//! A cluster for the tests of the tasks, of which one master hangs (SIGSTOP).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::sync::Arc;

use dwell_schedule::{CatchUp, Expression};
use dwell_store::maintenance::expiry::{ENDS_INTERVAL, Expiry, ExpiryOptions};
use dwell_store::maintenance::spawner::{SpawnOptions, Spawner};
use dwell_testkit::servers::{RedisCluster, RedisOptions};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{Redis, RedisMode};
use crate::events::{JobEvent, Observer};
use crate::fleet::Fleet;
use crate::job::{Conflict, Due, Job, JobId, Verdict};
use crate::policy::late::LateRules;
use crate::request::{KeptParts, NewJob, NewSchedule, Origin};
use crate::schedule::{Overlap, Timing};
use crate::store::due_set::DueSet;
use crate::store::jobs::batch::RequestRef;
use crate::store::wake_up::WakeUp;
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
    let options = ExpiryOptions {
        interval: ENDS_INTERVAL,
        late: LateRules::default(),
        observer: Arc::new(()),
    };
    let expiry = Expiry::new(store.clone(), options, watch::channel(Fleet::alone("me ")).1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(expiry.run(stop.clone()));
    let remove_at_ms = store.read_clock().await.unwrap() / 1000 + UNTIL_END_MS;
    let mut jobs = Vec::new();
    for id in first.iter().chain(others) {
        store.jobs.note_end(id, remove_at_ms).await.unwrap();
        let job = Job { remove_at_ms: Some(remove_at_ms), ..Job::for_queue("q", "x") };
        jobs.push(NewJob::new(job, Due::In(3_600_000)).id(id.clone()));
    }
    store.jobs.schedule(&jobs).await.unwrap();
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

/// The schedules of which an occurrence was made.
#[derive(Default)]
struct OccurrenceObserver(Mutex<HashSet<JobId>>);

impl Observer for OccurrenceObserver {
    fn observe(&self, event: &JobEvent<'_>) {
        if let JobEvent::OccurrenceMade { schedule, .. } = event {
            self.0.lock().insert((*schedule).clone());
        }
    }
}

fn each_second(id: &JobId) -> NewSchedule {
    NewSchedule {
        id: id.clone(),
        conflict: Conflict::Replace,
        own_queues: None,
        is_paused: false,
        from_settings: false,
        timing: Timing {
            text: "@every 1s".to_owned(),
            expression: Expression::parse("@every 1s").unwrap(),
            zone: None,
            start_ms: None,
            end_ms: None,
            count: None,
            catch_up: CatchUp::One,
            overlap: Overlap::Allow,
            spread_ms: 0,
        },
        job: Job::for_queue("q", "x"),
        keep: KeptParts::default(),
        origin: Origin::of_call(),
        reply_to: None,
    }
}

#[tokio::test]
async fn schedules_of_other_masters_fire_in_time_while_one_hangs() {
    let masters = Masters::new().await;
    let Masters { store, first, others, .. } = &masters;
    let schedules: Vec<NewSchedule> = first.iter().chain(others).map(each_second).collect();
    let asked: Vec<RequestRef<'_>> = schedules.iter().map(RequestRef::NewSchedule).collect();
    for answer in store.jobs.apply(&asked, &[]).await.answers {
        assert_eq!(answer.unwrap().verdict, Verdict::Added);
    }
    let made = Arc::new(OccurrenceObserver::default());
    let options = SpawnOptions {
        serves: Arc::new(|_: DueSet<'_>| true),
        is_full: Arc::new(|_: &str| false),
        wake: Arc::new(|_: Vec<WakeUp>| ()),
        observer: made.clone(),
    };
    let fleet = watch::channel(Fleet::alone("me ")).1;
    let stop = CancellationToken::new();
    let spawner = Spawner::new(store.clone(), options, fleet);
    let running = tokio::spawn(spawner.run(stop.clone()));
    let all_are_made = async |ids: &[JobId]| {
        while !ids.iter().all(|id| made.0.lock().contains(id)) {
            tokio::task::yield_now().await;
        }
    };
    // The spawner is at work on every master.
    all_are_made(&others[..]).await;
    masters.freeze_first();
    made.0.lock().clear();
    tokio::select! {
        () = all_are_made(&others[..]) => {}
        () = masters.first_is_given_up() => panic!("the schedules waited for the first master"),
    }
    masters.cluster.nodes[0].thaw().unwrap();
    stop.cancel();
    running.await.unwrap();
}
