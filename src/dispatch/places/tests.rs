//! The places of two agents, on a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use dwell_connectors::memory;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::calls::{MAX_CHANGES, first_of};
use super::*;
use crate::config::{Redis, TargetLimit};
use crate::job::{Due, Job};
use crate::request::NewJob;
use crate::store::Unobserved;
use crate::store::call::CALL_JOBS;
use crate::store::error::StoreError;

const LEASE: Duration = Duration::from_secs(20);

/// What one test has: a Redis with jobs that are due, and where they go.
struct Bench {
    server: RedisServer,
    store: Arc<Store>,
    to: Destination,
}

impl Bench {
    async fn new(jobs: usize) -> Bench {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let settings = Redis { buckets: 1, ..Redis::new(server.url()) };
        let brokers = ["main".to_owned()];
        let store = Store::open(&settings, &brokers, Arc::new(Unobserved)).await.unwrap();
        let bench = Bench { server, store: Arc::new(store), to: Destination::new("a") };
        let new_job = |number: usize| {
            let job = Job::new("main", bench.to.clone(), "x");
            NewJob::new(job, Due::In(0)).id(format!("job-{number}").parse().unwrap())
        };
        let new_jobs: Vec<NewJob> = (0..jobs).map(new_job).collect();
        bench.store.jobs.schedule(&new_jobs).await.unwrap();
        bench
    }

    /// An agent with a limit of so many places.
    fn agent(&self, in_flight: u32) -> Places {
        let connector = BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()));
        let limit = TargetLimit { rate: None, burst: None, in_flight: Some(in_flight) };
        let limits = BTreeMap::from([("a".to_owned(), limit)]);
        let settings = Broker { connector, allow: vec!["*".to_owned()], limits };
        Places::new(&self.store, &"main".into(), &settings, LEASE).unwrap()
    }

    async fn claim(&self, count: usize) -> Vec<Box<ClaimedJob>> {
        let mut jobs = Vec::new();
        while jobs.len() < count {
            let most = CALL_JOBS.min(count - jobs.len());
            let claim = self.store.jobs.claim(0, "main", LEASE, most, 1 << 20).await.unwrap();
            assert!(!claim.jobs.is_empty());
            jobs.extend(claim.jobs.into_iter().map(Box::new));
        }
        jobs
    }

    /// The places that Redis has.
    async fn taken(&self) -> usize {
        let key = self.store.keys().places("main a");
        self.server.order(&["ZCARD", &key]).await.unwrap()[0].parse().unwrap()
    }

    /// Makes the calls of this agent that are due now. The number of jobs that got places.
    async fn calls(&self, agent: &mut Places, now: Instant) -> usize {
        let mut granted = 0;
        while let Some(call) = agent.next_call(now) {
            granted += agent.answered(call.await, now).granted.len();
        }
        granted
    }

    /// Has these jobs take places: the numbers of those that got one without a call, and with one.
    async fn take(&self, agent: &mut Places, jobs: &[Box<ClaimedJob>]) -> (usize, usize) {
        let now = clock::now();
        let mut without = 0;
        for job in jobs {
            let limit = agent.needed(&self.to, job).unwrap();
            if agent.take_spare(limit, job, now) {
                without += 1;
            } else {
                assert!(agent.ask(limit, now, None, job.clone(), now).is_none());
            }
            assert!(agent.needed(&self.to, job).is_none() || !agent.asking.is_empty());
        }
        (without, self.calls(agent, now).await)
    }
}

fn end(agent: &mut Places, jobs: &[Box<ClaimedJob>]) {
    jobs.iter().for_each(|job| agent.ended(key_of(&job.token)));
}

#[test]
fn a_call_makes_a_bounded_number_of_changes_the_first_ones_first() {
    let mut changes: Vec<usize> = (0..MAX_CHANGES + 5).collect();
    assert!(first_of(&mut changes).into_iter().eq(0..MAX_CHANGES));
    assert!(first_of(&mut changes).into_iter().eq(MAX_CHANGES..MAX_CHANGES + 5));
    assert!(first_of(&mut changes).is_empty());
}

#[tokio::test]
async fn a_limit_that_is_far_from_full_needs_no_call_a_job() {
    let bench = Bench::new(400).await;
    let (mut agent, jobs) = (bench.agent(1000), bench.claim(400).await);
    // The agent does not know yet how many places are free.
    assert_eq!(bench.take(&mut agent, &jobs[..100]).await, (0, 100));
    assert_eq!(bench.taken().await, 100);
    assert_eq!(bench.take(&mut agent, &jobs[100..200]).await, (0, 100));
    assert_eq!(bench.taken().await, 300, "a hundred in advance");
    end(&mut agent, &jobs[..200]);
    assert_eq!(bench.take(&mut agent, &jobs[200..300]).await, (100, 0));
    assert_eq!(bench.taken().await, 100, "the others went back");
    // A place serves the next job at once.
    end(&mut agent, &jobs[200..300]);
    assert_eq!(bench.take(&mut agent, &jobs[300..]).await, (100, 0));
    end(&mut agent, &jobs[300..]);
    // Nobody needs them any more.
    let mut now = clock::now();
    for _ in 0..3 {
        now += Duration::from_millis(500);
        assert_eq!(bench.calls(&mut agent, now).await, 0);
    }
    assert_eq!(bench.taken().await, 0);
    assert!(agent.is_idle() && agent.next_at(now).is_none(), "no call is to come");
}

#[tokio::test]
async fn an_agent_gives_spare_places_back_when_another_one_fills_the_limit() {
    let bench = Bench::new(500).await;
    let (mut one, mut other) = (bench.agent(200), bench.agent(200));
    let jobs = bench.claim(500).await;
    assert_eq!(bench.take(&mut one, &jobs[..20]).await, (0, 20));
    assert_eq!(bench.take(&mut one, &jobs[20..50]).await, (0, 30));
    assert_eq!(bench.taken().await, 80, "thirty in advance");
    assert_eq!(bench.take(&mut one, &jobs[50..60]).await, (10, 0));
    // What is out and what is held in advance never exceeds the limit.
    assert_eq!(bench.take(&mut other, &jobs[60..260]).await, (0, 120));
    assert_eq!(bench.taken().await, 200);
    let now = clock::now() + Duration::from_millis(500);
    bench.calls(&mut one, now).await;
    assert_eq!(bench.taken().await, 180, "those without a job");
    assert_eq!(bench.take(&mut one, &jobs[260..261]).await, (0, 1));
    // The place of a job goes back with its end.
    end(&mut one, &jobs[..60]);
    bench.calls(&mut one, now).await;
    assert_eq!(bench.taken().await, 121);
}

#[tokio::test]
async fn a_late_answer_leaves_spare_places_of_use() {
    let bench = Bench::new(80).await;
    let (mut agent, jobs) = (bench.agent(1000), bench.claim(80).await);
    bench.take(&mut agent, &jobs[..20]).await;
    bench.take(&mut agent, &jobs[20..40]).await;
    end(&mut agent, &jobs[..40]);
    // Forty places go back by a call that takes one for a job and is late.
    let (now, limit) = (clock::now(), agent.needed(&bench.to, &jobs[40]).unwrap());
    assert!(agent.ask(limit, now, None, jobs[40].clone(), now).is_none());
    let call = agent.next_call(now).unwrap();
    let later = now + MAX_CALL_WAIT;
    assert_eq!(agent.take_late(later).len(), 1);
    assert!(agent.take_spare(limit, &jobs[41], later), "they last");
    assert_eq!(agent.answered(call.await, later).granted.len(), 0);
    assert!(agent.take_spare(limit, &jobs[42], later));
    bench.calls(&mut agent, later).await;
    assert_eq!(bench.taken().await, 20, "that of the late job is back");
}

#[tokio::test]
async fn a_job_that_its_consumer_will_hold_has_its_own_place() {
    let bench = Bench::new(60).await;
    let (mut agent, mut jobs) = (bench.agent(1000), bench.claim(60).await);
    bench.take(&mut agent, &jobs[..20]).await;
    bench.take(&mut agent, &jobs[20..40]).await;
    jobs[40].record.job.confirm = Confirm::Consumer;
    assert_eq!(bench.take(&mut agent, &jobs[40..42]).await, (1, 1));
    agent.held(key_of(&jobs[40].token), 60_000, clock::now());
    end(&mut agent, &jobs[..40]);
    end(&mut agent, &jobs[41..42]);
    assert_eq!(agent.drain().count(), 0);
    bench.calls(&mut agent, clock::now()).await;
    assert_eq!(bench.taken().await, 1);
}

#[tokio::test]
async fn spare_places_go_back_when_calls_fail_and_at_the_end() {
    let bench = Bench::new(200).await;
    let (mut agent, jobs) = (bench.agent(1000), bench.claim(200).await);
    bench.take(&mut agent, &jobs[..20]).await;
    bench.take(&mut agent, &jobs[20..40]).await;
    assert_eq!(bench.take(&mut agent, &jobs[40..41]).await, (1, 0));
    assert_eq!(bench.taken().await, 60);
    // The call was carried out, but its answer is lost.
    let limit = agent.needed(&bench.to, &jobs[41]).unwrap();
    let now = clock::now();
    for job in &jobs[41..80] {
        assert!(agent.ask(limit, now, None, job.clone(), now).is_none());
    }
    let PlaceWork::Changed(calls, Ok(_)) = agent.next_call(now).unwrap().await else {
        panic!("another answer than that of a call for places")
    };
    assert_eq!(bench.taken().await, 60 + 39 + 20, "besides 19 that are idle");
    let lost = PlaceWork::Changed(calls, Err(StoreError::rejected("no answer")));
    agent.answered(lost, now);
    assert!(!agent.take_spare(limit, &jobs[80], now));
    end(&mut agent, &jobs[..41]);
    bench.calls(&mut agent, now + Duration::from_secs(1)).await;
    assert_eq!(bench.taken().await, 0, "nothing is left behind");

    assert_eq!(bench.take(&mut agent, &jobs[100..120]).await, (0, 20));
    assert_eq!(bench.take(&mut agent, &jobs[120..140]).await, (20, 0));
    end(&mut agent, &jobs[100..140]);
    assert_eq!(bench.take(&mut agent, &jobs[140..145]).await, (5, 0));
    assert_eq!(agent.drain().count(), 0);
    bench.calls(&mut agent, clock::now()).await;
    assert_eq!(bench.taken().await, 5, "those of jobs");
    end(&mut agent, &jobs[140..145]);
    assert_eq!(agent.drain().count(), 0);
    bench.calls(&mut agent, clock::now()).await;
    assert!(agent.is_idle());
    assert_eq!(bench.taken().await, 0);
}
