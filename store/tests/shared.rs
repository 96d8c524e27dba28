//! Calls for several buckets that share a command, on private Redis servers.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use dwell_store::clock;
use dwell_store::config::{Durability, Redis};
use dwell_store::job::{Action, Due, Job, JobId, Verdict};
use dwell_store::request::{Act, NewJob, Request};
use dwell_store::store::error::{Class, StoreError};
use dwell_store::store::jobs::batch::{Answer, RequestRef};
use dwell_store::store::{Store, Unobserved};
use dwell_testkit::servers::{Port, RedisOptions, RedisServer};

/// A due time outside the life of a test.
const FAR: Due = Due::At(4_000_000_000_000);
const BUCKETS: u16 = 16;

struct Fixture {
    server: RedisServer,
    store: Store,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        Fixture::on(server, Durability::Memory).await
    }

    /// The scripts of schedules are loaded.
    async fn on(server: RedisServer, durability: Durability) -> Fixture {
        let settings = Redis { buckets: BUCKETS, durability, ..Redis::new(server.url()) };
        let store =
            Store::open(&settings, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap();
        let fixture = Fixture { server, store };
        let loads = fixture.ids("load");
        assert_eq!(fixture.schedule(&loads, "q").await, vec![Ok(Verdict::Added); loads.len()]);
        fixture
    }

    /// An id of each bucket, in the order of the buckets.
    fn ids(&self, name: &str) -> Vec<JobId> {
        let in_bucket = |bucket| {
            let ids = (0..).map(|n| format!("{name}-{n}"));
            let mut fitting = ids.filter(|id| self.store.keys().bucket_of(id) == bucket);
            fitting.next().unwrap().parse::<JobId>().unwrap()
        };
        (0..BUCKETS).map(in_bucket).collect()
    }

    async fn apply(&self, asked: &[RequestRef<'_>]) -> Vec<Result<Verdict, Class>> {
        let answers = self.store.jobs.apply(asked, &[]).await.answers;
        let told = |answer: Result<Answer, StoreError>| {
            answer.map(|answer| answer.verdict).map_err(|error| error.class)
        };
        answers.into_iter().map(told).collect()
    }

    async fn schedule(&self, ids: &[JobId], queue: &str) -> Vec<Result<Verdict, Class>> {
        let jobs: Vec<NewJob> = ids.iter().map(|id| job(id, queue)).collect();
        self.apply(&jobs.iter().map(RequestRef::NewJob).collect::<Vec<_>>()).await
    }

    async fn cancel(&self, ids: &[JobId]) -> Vec<Result<Verdict, Class>> {
        let acts: Vec<Act> = ids.iter().map(|id| Act::new(Action::Cancel, id.clone())).collect();
        self.apply(&acts.iter().map(RequestRef::Act).collect::<Vec<_>>()).await
    }

    /// Script calls that Redis has received.
    async fn script_calls(&self) -> u64 {
        let stats = self.server.order(&["INFO", "commandstats"]).await.unwrap();
        let calls = stats.iter().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    }
}

fn job(id: &JobId, queue: &str) -> NewJob {
    NewJob::new(Job::for_queue(queue, "x"), FAR).id(id.clone())
}

#[tokio::test]
async fn schedules_and_actions_for_all_buckets_are_a_command_each() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.ids("one"), fixture.ids("other"));
    let before = fixture.script_calls().await;
    assert_eq!(fixture.schedule(&one, "q").await, vec![Ok(Verdict::Added); 16]);
    assert_eq!(fixture.schedule(&other, "r").await, vec![Ok(Verdict::Added); 16]);
    assert_eq!(fixture.script_calls().await - before, 2);
    // Redis has to be told the script of cancels.
    assert_eq!(fixture.cancel(&one).await, vec![Ok(Verdict::Cancelled); 16]);
    let before = fixture.script_calls().await;
    let mut answers = vec![Ok(Verdict::NotFound); 16];
    answers.extend(vec![Ok(Verdict::Cancelled); 16]);
    assert_eq!(fixture.cancel(&[one, other].concat()).await, answers, "each has its own answer");
    assert_eq!(fixture.script_calls().await - before, 2, "the second names the queues of the jobs");
}

#[tokio::test]
async fn a_damaged_bucket_fails_its_own_call_alone() {
    let fixture = Fixture::new().await;
    let ids = fixture.ids("job");
    let damaged = fixture.store.keys().due(7, "=q");
    fixture.server.order(&["DEL", &damaged]).await.unwrap();
    fixture.server.order(&["SET", &damaged, "x"]).await.unwrap();
    let before = fixture.script_calls().await;
    let mut answers = vec![Ok(Verdict::Added); 16];
    answers[7] = Err(Class::Script);
    assert_eq!(fixture.schedule(&ids, "q").await, answers);
    assert_eq!(fixture.script_calls().await - before, 1);
    // A cancel of a job that is not there names no queue.
    answers.fill(Ok(Verdict::Cancelled));
    answers[7] = Ok(Verdict::NotFound);
    assert_eq!(fixture.cancel(&ids).await, answers);
}

#[tokio::test]
async fn an_owner_that_a_bucket_does_not_expect_is_named_by_the_next_call() {
    let fixture = Fixture::new().await;
    let ids = fixture.ids("job");
    assert_eq!(fixture.schedule(&ids[..8], "a").await, vec![Ok(Verdict::Added); 8]);
    // The jobs of the first eight buckets leave their queue, which the first call does not name.
    let before = fixture.script_calls().await;
    let mut answers = vec![Ok(Verdict::Replaced); 8];
    answers.extend(vec![Ok(Verdict::Added); 8]);
    assert_eq!(fixture.schedule(&ids, "b").await, answers);
    assert_eq!(fixture.script_calls().await - before, 2, "of all, and of those that were refused");
}

#[tokio::test]
async fn scripts_that_redis_lost_are_loaded_again() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.ids("one"), fixture.ids("other"));
    fixture.server.order(&["SCRIPT", "FLUSH"]).await.unwrap();
    assert_eq!(fixture.schedule(&one, "q").await, vec![Ok(Verdict::Added); 16]);
    // Both texts are there: that of many calls, and that of one.
    let before = fixture.script_calls().await;
    assert_eq!(fixture.schedule(&other, "q").await, vec![Ok(Verdict::Added); 16]);
    let last = fixture.ids("last");
    assert_eq!(fixture.schedule(&last[..1], "q").await, [Ok(Verdict::Added)]);
    assert_eq!(fixture.script_calls().await - before, 2);
}

#[tokio::test]
async fn requests_for_one_id_keep_their_order_among_those_of_other_buckets() {
    let fixture = Fixture::new().await;
    let ids = fixture.ids("job");
    let mut requests: Vec<Request> = Vec::new();
    for id in &ids {
        let put = || Request::NewJob(Box::new(job(id, "q")));
        let act = |action| Request::Act(Act::new(action, id.clone()));
        requests.extend([act(Action::Fire), put(), act(Action::Cancel)]);
        requests.extend([put(), act(Action::Fire), act(Action::Cancel)]);
    }
    let asked: Vec<RequestRef<'_>> = requests.iter().map(RequestRef::from).collect();
    let each = [
        Verdict::NotFound,
        Verdict::Added,
        Verdict::Cancelled,
        Verdict::Added,
        Verdict::Firing,
        Verdict::Cancelled,
    ];
    assert_eq!(fixture.apply(&asked).await, each.map(Ok).repeat(ids.len()));
}

/// The first write of a call that repeats another frees memory, so that a full Redis accepts the call.
#[tokio::test]
async fn a_full_redis_refuses_new_jobs_beside_repeats() {
    let fixture = Fixture::new().await;
    let ids = fixture.ids("job");
    let jobs: Vec<NewJob> = ids.iter().map(|id| job(id, "q")).collect();
    let asked: Vec<RequestRef<'_>> = jobs.iter().map(RequestRef::NewJob).collect();
    assert_eq!(fixture.apply(&asked[..8]).await, vec![Ok(Verdict::Added); 8]);
    fixture.server.order(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let mut answers = vec![Ok(Verdict::Added); 8];
    answers.extend(vec![Err(Class::Oom); 8]);
    assert_eq!(fixture.apply(&asked).await, answers);
    assert_eq!(fixture.apply(&asked).await, answers, "each by itself, for a while");
    fixture.server.order(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(fixture.apply(&asked).await, vec![Ok(Verdict::Added); 16]);
}

#[tokio::test]
async fn a_command_waits_once_for_the_durability_of_its_calls() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let replica_of = Some(server.port());
    let _replica =
        RedisServer::start(RedisOptions { replica_of, ..RedisOptions::default() }).await.unwrap();
    let fixture = Fixture::on(server, Durability::Replica).await;
    let before = fixture.script_calls().await;
    assert_eq!(fixture.schedule(&fixture.ids("job"), "q").await, vec![Ok(Verdict::Added); 16]);
    assert_eq!(fixture.script_calls().await - before, 1);
}

/// One server with all slots of a cluster refuses keys of several slots, as a proxy may.
#[tokio::test]
async fn a_server_that_refuses_the_keys_of_several_buckets_gets_each_call_by_itself() {
    let bus = Port::reserve().unwrap();
    let own = [("cluster-enabled", "yes".to_owned()), ("cluster-port", bus.number().to_string())];
    let more = own.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let server =
        RedisServer::start(RedisOptions { more, ..RedisOptions::default() }).await.unwrap();
    server.order(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    let is_up = async {
        while !server.order(&["SET", "up", "1"]).await.is_ok_and(|told| told.concat() == "OK") {
            clock::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(clock::timeout(Duration::from_secs(60), is_up).await.is_some(), "it takes no writes");
    // Opens the store, and schedules in all buckets.
    let fixture = Fixture::on(server, Durability::Memory).await;
    let before = fixture.script_calls().await;
    assert_eq!(fixture.schedule(&fixture.ids("job"), "q").await, vec![Ok(Verdict::Added); 16]);
    assert_eq!(fixture.script_calls().await - before, 16, "no more such commands are tried");
}
