//! Rescues of many jobs at once, on a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use dwell_testkit::servers::{RedisOptions, RedisServer};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::*;
use crate::config::Redis;
use crate::job::{Due, Job, OnTimeout};
use crate::request::NewJob;
use crate::store::Unobserved;
use crate::store::jobs::claim::time_out::TIME_OUT_JOBS_PER_CALL;
use crate::store::jobs::pop::PopLimits;

const QUEUE: &str = "q";
const CROWDED_BUCKET: u16 = 5;
const CROWDED_BUCKET_JOBS: usize = 12_000;

/// The buckets whose jobs were sent back, a page each.
#[derive(Default)]
struct Pages(Mutex<Vec<u16>>);

impl WakeReaders for Pages {
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()> {
        self.0.lock().push(head.bucket);
        std::future::ready(()).boxed()
    }
}

fn options(readers: Arc<dyn WakeReaders>) -> RescueOptions {
    RescueOptions {
        lease: Duration::from_secs(20),
        retry_ms: Arc::new([0]),
        observer: Arc::new(()),
        readers,
    }
}

/// Ids of this bucket.
fn ids(store: &Store, bucket: u16, count: usize) -> Vec<String> {
    (0..)
        .map(|number| format!("job-{number}"))
        .filter(|id| store.keys().bucket_of(id) == bucket)
        .take(count)
        .collect()
}

#[tokio::test]
async fn a_bucket_with_many_ended_leases_holds_up_no_other() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let store =
        Arc::new(Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap());
    for bucket in 0..store.keys().buckets() {
        let ids =
            ids(&store, bucket, if bucket == CROWDED_BUCKET { CROWDED_BUCKET_JOBS } else { 1 });
        let job = |id: &String| {
            NewJob::new(Job::for_queue(QUEUE, "x"), Due::In(0)).id(id.parse().unwrap())
        };
        store.jobs.schedule(&ids.iter().map(job).collect::<Vec<_>>()).await.unwrap();
        let limits = PopLimits {
            ttr_ms: Some(1),
            max_ttr_ms: 1,
            most: CALL_JOBS,
            most_bytes: CALL_BYTES,
            room: None,
        };
        while store.jobs.pop(rand::random(), bucket, QUEUE, limits).await.unwrap().more {}
    }
    let pages = Arc::new(Pages::default());
    let (_fleet, follows) = watch::channel(Fleet::alone("me "));
    let stop = CancellationToken::new();
    let rescue = Rescue::new(store.clone(), options(pages.clone()), follows);
    let running = tokio::spawn(rescue.run(stop.clone()));
    let crowded = CROWDED_BUCKET_JOBS.div_ceil(TIME_OUT_JOBS_PER_CALL);
    let all = crowded + usize::from(store.keys().buckets()) - 1;
    let all_sent = async {
        while pages.0.lock().len() < all {
            tokio::task::yield_now().await;
        }
    };
    clock::timeout(Duration::from_secs(60), all_sent).await.expect("all are sent back");
    stop.cancel();
    running.await.unwrap();
    let order = pages.0.lock().clone();
    let last = order.iter().rposition(|bucket| *bucket != CROWDED_BUCKET).unwrap();
    let before = order[..last].iter().filter(|bucket| **bucket == CROWDED_BUCKET).count();
    assert!(before < crowded, "a bucket waited for all {crowded} pages of another: {order:?}");
    let counts = store.reader.queue_counts(&[QUEUE.to_owned()]).await.unwrap().remove(0);
    assert_eq!(
        (counts.ready, counts.reserved),
        (CROWDED_BUCKET_JOBS as u64 + u64::from(store.keys().buckets()) - 1, 0)
    );
}

/// A reader of one bucket whose master hangs: its wake-up never ends.
struct Hangs {
    bucket: u16,
    woken: Mutex<Vec<u16>>,
}

impl WakeReaders for Hangs {
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()> {
        self.woken.lock().push(head.bucket);
        if head.bucket == self.bucket {
            std::future::pending().boxed()
        } else {
            std::future::ready(()).boxed()
        }
    }
}

#[tokio::test]
async fn a_wake_up_that_hangs_holds_up_no_rescue() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let store =
        Arc::new(Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap());
    let observer = Arc::new(Hangs { bucket: 0, woken: Mutex::default() });
    let (_fleet, follows) = watch::channel(Fleet::alone("me "));
    let stop = CancellationToken::new();
    let running = tokio::spawn(
        Rescue::new(store.clone(), options(observer.clone()), follows).run(stop.clone()),
    );
    // The second round comes after a wake-up of each bucket, of which one still hangs.
    for round in 1..=2 {
        for bucket in 0..store.keys().buckets() {
            let id = ids(&store, bucket, round).remove(round - 1);
            let job = NewJob::new(Job::for_queue(QUEUE, "x"), Due::In(0)).id(id.parse().unwrap());
            store.jobs.schedule(&[job]).await.unwrap();
            let limits = PopLimits {
                ttr_ms: Some(1),
                max_ttr_ms: 1,
                most: CALL_JOBS,
                most_bytes: CALL_BYTES,
                room: None,
            };
            while store.jobs.pop(rand::random(), bucket, QUEUE, limits).await.unwrap().more {}
        }
        let all_woken = async {
            let times =
                |bucket| observer.woken.lock().iter().filter(|woken| **woken == bucket).count();
            while (0..store.keys().buckets()).any(|bucket| times(bucket) < round) {
                tokio::task::yield_now().await;
            }
        };
        clock::timeout(Duration::from_secs(60), all_woken).await.expect("each bucket is rescued");
    }
    stop.cancel();
    running.await.unwrap();
}

/// The jobs that the script sends back at once, in all buckets; the others stay held.
async fn time_out(store: &Store, set: &str, waits: usize) -> u64 {
    let mut count = 0;
    for bucket in 0..store.keys().buckets() {
        let learned = store.jobs.time_out(bucket, &[], waits, None, TIMEOUT_ERROR).await.unwrap();
        assert!(learned.ready.is_empty(), "the script changes no key that it was not given");
        let done = store
            .jobs
            .time_out(bucket, &learned.left_out, waits, Some(i64::MAX / 2), TIMEOUT_ERROR)
            .await
            .unwrap();
        assert!(done.ready.iter().all(|(ready, _)| ready == set));
        count += done.ready.iter().map(|(_, count)| count).sum::<u64>();
    }
    count
}

#[tokio::test]
async fn what_times_out_is_ready_at_its_next_step_by_one_script_unless_more_can_follow() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let store =
        Arc::new(Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap());
    let job = || Job::for_queue(QUEUE, "x");
    let far = Some(i64::MAX / 2);
    let jobs = [
        ("array", Job { retry: Some(vec![9, 9]), ..job() }),
        ("default", job()),
        ("tries", Job { tries: Some(2), ..job() }),
        ("for-ever", Job { tries: Some(0), ..job() }),
        ("waits", Job { retry: Some(vec![9, 9]), on_timeout: OnTimeout::Retry, ..job() }),
        ("ends", Job { tries: Some(9), remove_at_ms: far, ..job() }),
        ("dies", Job { tries: Some(1), ..job() }),
        ("none", Job { retry: Some(vec![]), ..job() }),
    ];
    let schedules: Vec<NewJob> = jobs
        .iter()
        .map(|(id, job)| NewJob::new(job.clone(), Due::In(0)).id(id.parse().unwrap()))
        .collect();
    store.jobs.schedule(&schedules).await.unwrap();
    let pop_all = async || {
        let mut popped = Vec::new();
        for bucket in 0..store.keys().buckets() {
            let limits = PopLimits {
                ttr_ms: Some(1),
                max_ttr_ms: 1,
                most: CALL_JOBS,
                most_bytes: CALL_BYTES,
                room: None,
            };
            popped
                .extend(store.jobs.pop(rand::random(), bucket, QUEUE, limits).await.unwrap().jobs);
        }
        popped.sort_by_key(|lease| lease.id.to_string());
        popped
    };
    let all_over = async || {
        let all: Vec<u16> = (0..store.keys().buckets()).collect();
        let over = async {
            while store
                .jobs
                .leases_end(&all)
                .await
                .unwrap()
                .iter()
                .flatten()
                .any(|ahead_us| *ahead_us > -1000)
            {}
        };
        clock::timeout(Duration::from_secs(10), over).await.expect("the leases end");
    };
    assert_eq!(pop_all().await.len(), jobs.len());
    all_over().await;
    assert_eq!(time_out(&store, "=q", 1).await, 4);
    assert_eq!(time_out(&store, "=q", 1).await, 0, "a repeat changes nothing");
    let counts = store.reader.queue_counts(&[QUEUE.to_owned()]).await.unwrap().remove(0);
    assert_eq!((counts.ready, counts.reserved), (4, 4));
    let again = pop_all().await;
    let seen: Vec<_> = again
        .iter()
        .map(|lease| {
            (lease.id.as_str(), lease.state.step, lease.state.attempt, &*lease.state.last_error)
        })
        .collect();
    let want: Vec<_> = ["array", "default", "for-ever", "tries"]
        .into_iter()
        .map(|id| (id, 1, 2, TIMEOUT_ERROR))
        .collect();
    assert_eq!(seen, want);
    all_over().await;
    // "array" has a second wait; the default array has one only.
    assert_eq!(time_out(&store, "=q", 1).await, 2);
    let (_fleet, follows) = watch::channel(Fleet::alone("me "));
    let rescue = Rescue::new(store.clone(), options(Arc::new(Pages::default())), follows);
    for bucket in 0..store.keys().buckets() {
        rescue.run_once(bucket).await.unwrap();
    }
    let counts = store.reader.queue_counts(&[QUEUE.to_owned()]).await.unwrap().remove(0);
    assert_eq!(
        (counts.reserved, counts.dead),
        (0, 4),
        "default and tries have no further attempt, dies and none had one"
    );
}

#[tokio::test]
async fn a_job_whose_record_was_cut_after_a_pop_is_dead_when_its_ttr_ends() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let store =
        Arc::new(Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap());
    let job = Job { tries: Some(0), ..Job::for_queue(QUEUE, "x") };
    store.jobs.schedule(&[NewJob::new(job, Due::In(0)).id("cut".parse().unwrap())]).await.unwrap();
    let mut bucket = 0;
    let limits = || PopLimits {
        ttr_ms: Some(1),
        max_ttr_ms: 1,
        most: CALL_JOBS,
        most_bytes: CALL_BYTES,
        room: None,
    };
    while store.jobs.pop(rand::random(), bucket, QUEUE, limits()).await.unwrap().jobs.is_empty() {
        bucket += 1;
    }
    let mut raw = crate::raw_link::raw_link(server.url()).await;
    let jobs = store.keys().jobs(bucket);
    let record: Vec<u8> =
        redis::cmd("HGET").arg(jobs).arg("cut").query_async(&mut raw).await.unwrap();
    redis::cmd("HSET")
        .arg(jobs)
        .arg("cut")
        .arg(&record[..record.len() - 4])
        .exec_async(&mut raw)
        .await
        .unwrap();
    let (_fleet, follows) = watch::channel(Fleet::alone("me "));
    let rescue = Rescue::new(store.clone(), options(Arc::new(Pages::default())), follows);
    let dead = async {
        loop {
            rescue.run_once(bucket).await.unwrap();
            let counts = store.reader.queue_counts(&[QUEUE.to_owned()]).await.unwrap().remove(0);
            assert_eq!((counts.scheduled, counts.ready), (0, 0), "nobody can read it");
            if counts.dead == 1 {
                return;
            }
        }
    };
    clock::timeout(Duration::from_secs(10), dead).await.expect("it is kept among the dead");
}

#[tokio::test]
async fn leases_without_sense_hold_up_no_other() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let store =
        Arc::new(Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap());
    let id = ids(&store, CROWDED_BUCKET, 1).remove(0);
    let job = NewJob::new(Job::for_queue(QUEUE, "x"), Due::In(0)).id(id.parse().unwrap());
    store.jobs.schedule(&[job]).await.unwrap();
    let limits = PopLimits {
        ttr_ms: Some(1),
        max_ttr_ms: 1,
        most: CALL_JOBS,
        most_bytes: CALL_BYTES,
        room: None,
    };
    assert_eq!(
        store.jobs.pop(rand::random(), CROWDED_BUCKET, QUEUE, limits).await.unwrap().jobs.len(),
        1
    );
    let mut raw = crate::raw_link::raw_link(server.url()).await;
    // Broken claims, more than one call looks at: their bits are too short, or their text has no
    // job.
    let claimed = store.keys().claim_deadlines(CROWDED_BUCKET);
    let key = |name: &str| claimed.replace(":claim_deadlines", name);
    for n in 0..80 {
        let left = if n % 2 == 0 { "short".to_owned() } else { "12345678\u{1}".to_owned() };
        redis::cmd("HSET")
            .arg(key(":claims"))
            .arg(n)
            .arg("no job")
            .exec_async(&mut raw)
            .await
            .unwrap();
        redis::cmd("HSET")
            .arg(key(":settled"))
            .arg(n)
            .arg(left)
            .exec_async(&mut raw)
            .await
            .unwrap();
        redis::cmd("ZADD").arg(claimed).arg(1).arg(n).exec_async(&mut raw).await.unwrap();
    }
    let ready = async {
        while store
            .jobs
            .rescue(CROWDED_BUCKET, Duration::from_secs(20), CALL_JOBS, CALL_BYTES)
            .await
            .unwrap()
            .jobs
            .is_empty()
        {
            tokio::task::yield_now().await;
        }
    };
    clock::timeout(Duration::from_secs(10), ready).await.expect("the job is taken over");
}

#[tokio::test]
async fn a_queue_with_a_damaged_key_keeps_its_own_jobs_and_holds_up_no_other() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let store =
        Arc::new(Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap());
    let ids = ids(&store, CROWDED_BUCKET, 260);
    let limits = || PopLimits {
        ttr_ms: Some(1),
        max_ttr_ms: 1,
        most: CALL_JOBS,
        most_bytes: CALL_BYTES,
        room: None,
    };
    // The damaged queue's leases end first, more of them than one call takes.
    for (queue, ids) in [("damaged", &ids[..200]), ("sound", &ids[200..])] {
        let retry = Some(vec![3_600_000]);
        let job = |id: &String| Job {
            retry: retry.clone(),
            on_timeout: OnTimeout::Retry,
            ..Job::for_queue(queue, id.clone())
        };
        let jobs: Vec<NewJob> =
            ids.iter().map(|id| NewJob::new(job(id), Due::In(0)).id(id.parse().unwrap())).collect();
        store.jobs.schedule(&jobs).await.unwrap();
        while store.jobs.pop(rand::random(), CROWDED_BUCKET, queue, limits()).await.unwrap().more {}
    }
    let mut raw = crate::raw_link::raw_link(server.url()).await;
    redis::cmd("SET")
        .arg(store.keys().due(CROWDED_BUCKET, "=damaged"))
        .arg("x")
        .exec_async(&mut raw)
        .await
        .unwrap();
    let (_fleet, follows) = watch::channel(Fleet::alone("me "));
    let rescue = Rescue::new(store.clone(), options(Arc::new(Pages::default())), follows);
    let over = async {
        while store.jobs.leases_end(&[CROWDED_BUCKET]).await.unwrap()[0]
            .is_some_and(|ahead_us| ahead_us > -1000)
        {}
    };
    clock::timeout(Duration::from_secs(10), over).await.expect("the leases end");
    assert!(rescue.run_once(CROWDED_BUCKET).await.is_err(), "the damage is told");
    let counts = store.reader.queue_counts(&["sound".to_owned()]).await.unwrap().remove(0);
    assert_eq!((counts.scheduled, counts.reserved), (60, 0));
}
