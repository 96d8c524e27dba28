//! Other processes, and masters of a cluster that do not answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_testkit::servers::RedisCluster;

use super::*;
use crate::config::RedisMode;
use crate::fleet;
use crate::store::CallObserver;
use crate::store::error::Class;
use crate::store::scripts::Name;

/// The number of calls that timed out.
#[derive(Default)]
struct Timeouts(AtomicUsize);

impl CallObserver for Timeouts {
    fn called(&self, _: Name, _: Duration) {}

    fn failed(&self, class: Class) {
        self.0.fetch_add(usize::from(class == Class::Timeout), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn other_processes_hear_of_a_resume() {
    let fixture = Fixture::new().await;
    fixture.add("due", Due::In(0)).await;
    fixture.add("later", FAR).await;
    fixture.store.admin.pause(QUEUE, 1).await.unwrap();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let (began, begins) = tokio::sync::mpsc::unbounded_channel();
    let (settings, channel, stop) =
        (Redis::new(fixture.server.url()), fixture.store.keys().wake(), CancellationToken::new());
    let listening = fleet::follow(
        settings,
        channel,
        move || began.send(()).unwrap(),
        move |head| heard.send(head).unwrap(),
        stop,
    );
    let listening = tokio::spawn(listening);
    soon(async { { begins }.recv().await }).await.unwrap();
    fixture.consumers.resume(QUEUE).await.unwrap();
    let mut buckets = Vec::new();
    for _ in 0..2 {
        let head = soon(hears.recv()).await.unwrap();
        assert_eq!(head.broker, DueSet::Queue(QUEUE).to_string());
        buckets.push(head.bucket);
    }
    buckets.sort_unstable();
    let mut wanted = ["due", "later"].map(|id| fixture.store.keys().bucket_of(id));
    wanted.sort_unstable();
    assert_eq!(buckets, wanted);
    listening.abort();
}

/// The output of a future that must end within a minute.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    clock::timeout(Duration::from_secs(60), future).await.expect("in time")
}

/// A cluster without failover, a job due now in each bucket, and which buckets are on its first
/// master.
async fn cluster(
    observer: Arc<dyn CallObserver>,
) -> (RedisCluster, Arc<Store>, Consumers, Vec<bool>) {
    let more = [("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")];
    let more = more.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let cluster =
        RedisCluster::start(RedisOptions { more, ..RedisOptions::default() }).await.unwrap();
    let settings =
        Redis { mode: RedisMode::Cluster, urls: cluster.urls(), ..Redis::new(String::new()) };
    let store = Arc::new(Store::open(&settings, &["main".to_owned()], observer).await.unwrap());
    let consumers =
        Consumers::new(store.clone(), LateRules::default(), Arc::new(()), CancellationToken::new());
    let mut is_first = Vec::new();
    for bucket in 0..store.keys().buckets() {
        let slot = cluster.slot_of(store.keys().jobs(bucket)).await.unwrap();
        is_first.push(cluster.master_of(slot).await.unwrap() == 0);
        add(&store, bucket, Due::In(0)).await;
    }
    (cluster, store, consumers, is_first)
}

/// Stores a job in this bucket.
async fn add(store: &Store, bucket: u16, due: Due) -> Vec<WakeUp> {
    let id = (0..).map(|_| JobId::new(format!("{:016x}", rand::random::<u64>())).unwrap());
    let id = id.into_iter().find(|id| store.keys().bucket_of(id.as_str()) == bucket).unwrap();
    let new_job = NewJob::new(Job::for_queue(QUEUE, "x"), due).id(id);
    store.jobs.schedule(&[new_job]).await.unwrap().wake_ups
}

#[tokio::test]
async fn pops_go_on_with_the_masters_that_answer() {
    let (cluster, store, consumers, is_first) = cluster(Arc::new(Unobserved)).await;
    let living = is_first.iter().filter(|is_first| !**is_first).count();
    let bucket_of = |job: &Popped| usize::from(store.keys().bucket_of(job.id.as_str()));
    cluster.nodes[0].freeze().unwrap();
    let pop = async |wait| consumers.pop(&request(1, wait)).await.unwrap().sent();
    for _ in 0..living {
        let jobs = pop(Duration::ZERO).await;
        assert!(jobs.len() == 1 && !is_first[bucket_of(&jobs[0])]);
    }
    assert!(pop(Duration::ZERO).await.is_empty(), "the others have none");
    // A waiting pop gets a job that another master has meanwhile.
    let waiting = tokio::spawn({
        let consumers = consumers.clone();
        async move { consumers.pop(&request(1, Duration::from_secs(60))).await.unwrap().sent() }
    });
    while consumers.waiting(QUEUE) == 0 {
        tokio::task::yield_now().await;
    }
    let bucket = u16::try_from(is_first.iter().position(|is_first| !is_first).unwrap()).unwrap();
    consumers.wake_all(add(&store, bucket, Due::In(0)).await).await;
    assert_eq!(waiting.await.unwrap().len(), 1);
    // The master is asked again beside the pops.
    cluster.nodes[0].thaw().unwrap();
    let mut rest = 0;
    while rest < is_first.len() - living {
        rest += pop(Duration::from_secs(20)).await.len();
    }
    assert!(pop(Duration::ZERO).await.is_empty());
}

#[tokio::test]
async fn pops_that_share_calls_go_on_with_the_masters_that_answer() {
    let timeouts = Arc::new(Timeouts::default());
    let (cluster, store, consumers, is_first) = cluster(timeouts.clone()).await;
    let hangs = |job: &Popped| is_first[usize::from(store.keys().bucket_of(job.id.as_str()))];
    // The first jobs of all buckets are known from now on.
    let mut jobs = consumers.pop(&request(1, Duration::ZERO)).await.unwrap().sent();
    let living = is_first.iter().filter(|is_first| !**is_first).count()
        - jobs.iter().filter(|job| !hangs(job)).count();
    cluster.nodes[0].freeze().unwrap();
    let asked = request(1, Duration::ZERO);
    let pops = (0..living).map(|_| consumers.pop(&asked));
    for popped in soon(futures_util::future::join_all(pops)).await {
        let popped = popped.unwrap().sent();
        assert!(popped.len() == 1 && !hangs(&popped[0]), "{popped:?}");
        jobs.extend(popped);
    }
    let ended = timeouts.0.load(Ordering::SeqCst);
    assert_eq!(ended, 0, "all are answered before a call of the master that hangs ends");
    cluster.nodes[0].thaw().unwrap();
    while jobs.len() < is_first.len() {
        let popped = consumers.pop(&request(1, Duration::from_secs(60))).await.unwrap().sent();
        assert_eq!(popped.len(), 1, "{} of {} jobs", jobs.len(), is_first.len());
        jobs.extend(popped);
    }
    let ids: std::collections::HashSet<_> = jobs.iter().map(|job| &job.id).collect();
    assert_eq!(ids.len(), jobs.len(), "each job is handed out once");
}

#[tokio::test]
async fn a_pop_fails_where_no_master_answers() {
    let (cluster, _, consumers, _) = cluster(Arc::new(Unobserved)).await;
    cluster.nodes.iter().for_each(|node| node.freeze().unwrap());
    let error =
        consumers.pop(&request(1, Duration::from_secs(1))).await.err().map(|error| error.class);
    assert_eq!(error, Some(Class::Timeout));
    cluster.nodes.iter().for_each(|node| node.thaw().unwrap());
}

#[tokio::test]
async fn a_pop_that_is_given_up_leaves_no_look_behind_that_nobody_waits_for() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    fixture.server.freeze().unwrap();
    // The client of the pop goes away during the look.
    let first = fixture.consumers.clone();
    let given_up = clock::timeout(Duration::from_millis(50), async move {
        first.pop(&request(1, Duration::ZERO)).await.map(drop)
    })
    .await;
    assert!(given_up.is_none());
    let second = tokio::spawn({
        let consumers = fixture.consumers.clone();
        async move { consumers.pop(&request(1, Duration::ZERO)).await.map(|jobs| jobs.sent().len()) }
    });
    clock::timeout(Duration::from_millis(300), async {
        while !second.is_finished() {
            tokio::task::yield_now().await
        }
    })
    .await;
    fixture.server.thaw().unwrap();
    assert_eq!(soon(second).await.unwrap().unwrap(), 1, "Redis was asked");
}

#[tokio::test]
async fn a_damaged_bucket_hides_the_jobs_of_no_other() {
    let fixture = Fixture::new().await;
    let mut raw = crate::raw_link::raw_link(fixture.server.url()).await;
    let damaged = fixture.store.keys().bucket_of("x");
    let set = DueSet::Queue(QUEUE).to_string();
    redis::cmd("SET")
        .arg(fixture.store.keys().due(damaged, &set))
        .arg("x")
        .exec_async(&mut raw)
        .await
        .unwrap();
    let others: Vec<u16> =
        (0..fixture.store.keys().buckets()).filter(|bucket| *bucket != damaged).collect();
    for bucket in &others {
        // A look finds the job without a wake-up.
        add(&fixture.store, *bucket, Due::In(0)).await;
    }
    for _ in &others {
        assert_eq!(fixture.pop(1, Duration::from_secs(60)).await.sent().len(), 1);
    }
    assert!(fixture.pop(1, Duration::ZERO).await.is_empty());
}
