//! The client with an outdated list of brokers, with a namespace that Redis lost, and with a call
//! that comes too late. On a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use dwell_core::Destination;
use dwell_store::job::Job;
use dwell_store::store::CallObserver;
use dwell_store::store::client::RedisClient;
use dwell_store::store::reader::lookup::JobState;
use dwell_store::store::scripts::Name;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::*;
use crate::ErrorKind;

/// A due time outside the life of a test.
const FAR: Due = Due::At(4_000_000_000_000);

/// The calls that Redis carried out, and the classes of the failed calls.
#[derive(Default)]
struct Calls(Mutex<(Vec<Name>, Vec<Class>)>);

impl CallObserver for Calls {
    fn called(&self, script: Name, _: Duration) {
        self.0.lock().0.push(script);
    }
    fn failed(&self, class: Class) {
        self.0.lock().1.push(class);
    }
}

struct Fixture {
    _server: RedisServer,
    config: Redis,
    client: Client,
    calls: Arc<Calls>,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let config = Redis::new(server.url());
        let calls = Arc::new(Calls::default());
        let store = Store::open(&config, &["main".to_owned()], calls.clone()).await.unwrap();
        let client = Client::over(store, &config);
        Fixture { _server: server, config, client, calls }
    }

    /// Makes the list of brokers as old as [`BROKERS_TTL`].
    fn age_brokers(&self) {
        *self.client.brokers_read.lock() = clock::now().checked_sub(BROKERS_TTL).unwrap();
    }

    async fn redis(&self, command: &str) -> redis::Value {
        RedisClient::new(&self.config).command(command, &redis::cmd(command)).await.unwrap()
    }
}

fn schedule(broker: &str) -> NewJob {
    NewJob::new(Job::new(broker, Destination::new("orders.close"), "17"), FAR)
}

#[tokio::test]
async fn a_read_of_a_lost_namespace_is_an_error_and_creates_nothing() {
    let fixture = Fixture::new().await;
    let client = &fixture.client;
    let lost = schedule("main");
    client.schedule(&lost).await.unwrap();
    fixture.redis("FLUSHALL").await;
    fixture.age_brokers();
    let errors = [
        client.get(&lost.id).await.err(),
        client.list(&Query::new(JobState::Scheduled)).await.err(),
        client.stats().await.err(),
    ];
    for error in errors.map(Option::unwrap) {
        assert!(error.class == Class::Settings && !error.hint.is_empty(), "{error}");
    }
    assert_eq!(fixture.redis("DBSIZE").await, redis::Value::Int(0));

    // A call that stores a job creates the namespace again, so that the job can be read.
    let next = schedule("main");
    client.schedule(&next).await.unwrap();
    fixture.age_brokers();
    assert!(client.get(&next.id).await.unwrap().is_some());
    assert!(client.get(&lost.id).await.unwrap().is_none());
    Store::attach(&fixture.config).await.unwrap();
}

#[tokio::test]
async fn a_namespace_with_another_number_of_buckets_is_not_read() {
    let fixture = Fixture::new().await;
    fixture.redis("FLUSHALL").await;
    let mut other = fixture.config.clone();
    other.buckets *= 2;
    Client::connect(&other, &["main"]).await.unwrap();
    fixture.age_brokers();
    let error = fixture.client.stats().await.unwrap_err();
    assert!(error.class == Class::Settings && error.message.contains("buckets"), "{error}");
}

#[tokio::test]
async fn an_older_namespace_is_refused_with_its_place_and_left_as_it_is() {
    let fixture = Fixture::new().await;
    let redis = RedisClient::new(&fixture.config);
    let older = redis::cmd("HSET").arg("dwell:meta").arg("schema").arg("2").to_owned();
    redis.command("HSET", &older).await.unwrap();
    let error = Client::connect(&fixture.config, &["later"]).await.err().unwrap();
    assert_eq!((error.class, error.kind()), (Class::Settings, ErrorKind::Incompatible));
    for part in ["`dwell:meta` has schema 2", "(redis://127.0.0.1:"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert!(error.hint.contains("before 0.1.0"), "{}", error.hint);
    let fields = redis::cmd("HGETALL").arg("dwell:meta").to_owned();
    let stored = format!("{:?}", redis.command("HGETALL", &fields).await.unwrap());
    assert!(!stored.contains("later"), "{stored}");
}

#[tokio::test]
async fn an_upgrade_needs_a_namespace_and_a_step_from_its_schema() {
    let fixture = Fixture::new().await;
    let redis = RedisClient::new(&fixture.config);
    let fields = redis::cmd("HGETALL").arg("dwell:meta").to_owned();
    let stored = async || redis.command("HGETALL", &fields).await.unwrap();
    let before = stored().await;
    let done = Client::upgrade(&fixture.config).await.unwrap();
    assert_eq!((done.from, done.to), (3, 3));
    assert_eq!(stored().await, before);
    for (schema, hint) in [("2", "before 0.1.0"), ("4", "the version of Dwell that wrote it")] {
        let other = redis::cmd("HSET").arg("dwell:meta").arg("schema").arg(schema).to_owned();
        redis.command("HSET", &other).await.unwrap();
        let before = stored().await;
        let error = Client::upgrade(&fixture.config).await.unwrap_err();
        assert_eq!((error.class, error.kind()), (Class::Settings, ErrorKind::Incompatible));
        let has = format!("`dwell:meta` has schema {schema}, ");
        for part in [has.as_str(), "(redis://127.0.0.1:"] {
            assert!(error.message.contains(part), "{error}");
        }
        assert!(error.hint.contains(hint), "{}", error.hint);
        assert_eq!(stored().await, before);
    }
    fixture.redis("FLUSHALL").await;
    let error = Client::upgrade(&fixture.config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
    assert_eq!(fixture.redis("DBSIZE").await, redis::Value::Int(0));
}

#[tokio::test]
async fn brokers_that_another_added_are_read_once_the_known_ones_are_old() {
    let fixture = Fixture::new().await;
    let client = &fixture.client;
    let other = Client::connect(&fixture.config, &["other"]).await.unwrap();
    other.schedule(&schedule("other")).await.unwrap();
    assert_eq!(
        client.stats().await.unwrap().brokers,
        [("main".to_owned(), 0)],
        "what it read at the start"
    );
    fixture.age_brokers();
    assert_eq!(
        client.stats().await.unwrap().brokers,
        [("main".to_owned(), 0), ("other".to_owned(), 1)]
    );
    fixture.age_brokers();
    assert_eq!(client.list(&Query::new(JobState::Scheduled)).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn a_call_that_came_too_late_by_an_old_clock_is_sent_once_more() {
    let fixture = Fixture::new().await;
    let client = &fixture.client;
    let job = schedule("main");
    client.schedule(&job).await.unwrap();
    *fixture.calls.0.lock() = <(Vec<Name>, Vec<Class>)>::default();
    // The state after a machine has slept: its monotonic clock stood still.
    let stands_still = || client.store.saw_clock(client.store.now_us() - 60_000_000);
    stands_still();
    assert_eq!(
        client.reschedule(&job.id, Due::At(4_000_000_000_001)).await.unwrap(),
        Verdict::Rescheduled
    );
    stands_still();
    let next = schedule("main");
    assert_eq!(client.schedule(&next).await.unwrap().verdict, Verdict::Added);
    let calls = fixture.calls.0.lock();
    assert_eq!(
        *calls,
        (vec![Name::Reschedule, Name::Schedule], vec![Class::Unserved, Class::Unserved]),
        "each twice"
    );
}
