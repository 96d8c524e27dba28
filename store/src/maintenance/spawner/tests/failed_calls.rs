//! Calls that Redis carries out and whose answer or durability is missing.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::Durability;
use crate::store::CallObserver;
use crate::store::error::Class;
use crate::store::scripts::Name;

/// The way to a Redis, which is cut instead of an answer to a script as often as told.
struct Way {
    port: u16,
    cuts: Arc<AtomicUsize>,
}

impl Way {
    async fn to(redis: u16) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, cuts) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let left = cuts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, redis, left.clone()));
            }
        });
        Way { port, cuts }
    }

    async fn store(&self) -> Arc<Store> {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let settings = Redis { buckets: 2, ..Redis::new(url) };
        Arc::new(Store::open(&settings, &[], Arc::new(Unobserved)).await.unwrap())
    }

    fn cut_next(&self, answers: usize) {
        self.cuts.store(answers, Ordering::SeqCst);
    }

    async fn until_cut(&self) {
        let all_are_cut = async {
            while self.cuts.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        };
        assert!(clock::timeout(Duration::from_secs(60), all_are_cut).await.is_some(), "it is cut");
    }
}

async fn forward(client: TcpStream, redis: u16, cuts: Arc<AtomicUsize>) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let server = TcpStream::connect(("127.0.0.1", redis)).await?;
    let (mut from_server, mut to_server) = server.into_split();
    let (mut asked, mut told) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_of_script = false;
    loop {
        tokio::select! {
            read = from_client.read(&mut asked) => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                is_of_script = bytes.windows(7).any(|word| word == b"EVALSHA");
                to_server.write_all(bytes).await?;
            }
            read = from_server.read(&mut told) => {
                let bytes = &told[..read?];
                let one_less = |left: usize| left.checked_sub(1);
                if bytes.is_empty()
                    || is_of_script
                        && cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
                {
                    return Ok(());
                }
                to_client.write_all(bytes).await?;
            }
        }
    }
}

impl Fixture {
    /// A fixture whose store takes the way that can be cut.
    async fn on_a_way() -> (Fixture, Way) {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let way = Way::to(server.port()).await;
        let store = way.store().await;
        (Fixture { server, store, seen: Arc::default() }, way)
    }

    /// All jobs that are there were told of once, and nothing else.
    async fn assert_all_told_once(&self, name: &str) {
        let (mut told, mut jobs) = (self.seen.made_of(name), self.jobs().await);
        told.sort();
        jobs.sort();
        assert_eq!(told, jobs);
    }
}

#[tokio::test]
async fn an_occurrence_whose_answer_is_lost_is_told_once() {
    let (fixture, way) = Fixture::on_a_way().await;
    fixture.put(&each_second("lost", |_| ())).await;
    let (stop, running) = fixture.spawner();
    // Redis knows the script then.
    fixture.seen.until_made("lost", 1).await;
    for _ in 0..2 {
        way.cut_next(1);
        way.until_cut().await;
        let made = fixture.seen.made_of("lost").len();
        fixture.seen.until_made("lost", made + 2).await;
    }
    stop.cancel();
    running.await.unwrap();
    fixture.assert_all_told_once("lost").await;
}

#[tokio::test]
async fn the_last_occurrence_is_told_although_its_answer_is_lost() {
    let (fixture, way) = Fixture::on_a_way().await;
    fixture.put(&each_second("ends", |timing| timing.count = Some(2))).await;
    let (stop, running) = fixture.spawner();
    fixture.seen.until_made("ends", 1).await;
    way.cut_next(1);
    fixture.seen.until_made("ends", 2).await;
    stop.cancel();
    running.await.unwrap();
    fixture.assert_all_told_once("ends").await;
    assert_eq!(way.cuts.load(Ordering::SeqCst), 0, "it was cut");
}

#[tokio::test]
async fn what_another_spawner_made_after_a_lost_answer_is_not_told_twice() {
    let (fixture, way) = Fixture::on_a_way().await;
    fixture.put(&each_second("both", |_| ())).await;
    // As long as the first, so that neither is always the faster one.
    let other_way = Way::to(fixture.server.port()).await;
    let (stop, other) = (CancellationToken::new(), other_way.store().await);
    let running = [fixture.spawner_of(&fixture.store, &stop), fixture.spawner_of(&other, &stop)];
    fixture.seen.until_made("both", 2).await;
    for way in [&way, &other_way, &way, &other_way] {
        way.cut_next(1);
        way.until_cut().await;
        let made = fixture.seen.made_of("both").len();
        fixture.seen.until_made("both", made + 1).await;
    }
    stop.cancel();
    for spawner in running {
        spawner.await.unwrap();
    }
    let told = fixture.seen.made_of("both");
    let (once, jobs) = (told.iter().collect::<BTreeSet<_>>(), fixture.jobs().await);
    assert_eq!(once.len(), told.len(), "{told:?}");
    assert!(told.iter().all(|id| jobs.contains(id)), "{told:?}, {jobs:?}");
}

#[tokio::test]
async fn an_occurrence_that_is_not_durable_in_time_is_told_once() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let options = RedisOptions { replica_of: Some(server.port()), ..RedisOptions::default() };
    let replica = RedisServer::start(options).await.unwrap();
    let durability = Durability::Replica;
    let settings = Redis { buckets: 2, durability, ..Redis::new(server.url()) };
    let store = Arc::new(Store::open(&settings, &[], Arc::new(Unobserved)).await.unwrap());
    let fixture = Fixture { server, store, seen: Arc::default() };
    fixture.put(&each_second("gated", |_| ())).await;
    replica.freeze().unwrap();
    let (stop, running) = fixture.spawner();
    // Two waits fall short.
    fixture.seen.until_made("gated", 2).await;
    replica.thaw().unwrap();
    let made = fixture.seen.made_of("gated").len();
    fixture.seen.until_made("gated", made + 2).await;
    stop.cancel();
    running.await.unwrap();
    fixture.assert_all_told_once("gated").await;
}

/// Counts the calls that a full Redis refused.
#[derive(Default)]
struct Refusals(AtomicUsize);

impl CallObserver for Refusals {
    fn called(&self, _: Name, _: Duration) {}

    fn failed(&self, class: Class) {
        self.0.fetch_add(usize::from(class == Class::Oom), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn the_last_occurrence_that_redis_refused_is_not_told_once_its_schedule_is_ended() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let settings = Redis { buckets: 2, ..Redis::new(server.url()) };
    let refusals = Arc::new(Refusals::default());
    let store = Arc::new(Store::open(&settings, &[], refusals.clone()).await.unwrap());
    let fixture = Fixture { server, store, seen: Arc::default() };
    let limit = async |bytes: &str| {
        fixture.server.order(&["CONFIG", "SET", "maxmemory", bytes]).await.unwrap();
    };
    let end = async |name: &str| {
        let cancel = Act::new(Action::Cancel, id(name));
        assert_eq!(apply(&fixture.store, RequestRef::Act(&cancel)).await, Verdict::Cancelled);
    };
    // A full Redis knows the scripts then.
    fixture.put(&each_second("before", |_| ())).await;
    end("before").await;
    fixture.put(&each_second("ends", |timing| timing.count = Some(1))).await;
    limit("1").await;
    let (stop, running) = fixture.spawner();
    let refused = async {
        while refusals.0.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(clock::timeout(Duration::from_secs(60), refused).await.is_some(), "it is refused");
    end("ends").await;
    limit("0").await;
    // What is not known of a bucket is told before anything is made there.
    let bucket = |name: &str| fixture.store.keys().bucket_of(name);
    let mut names = (0..).map(|number| format!("next-{number}"));
    let next = names.find(|name| bucket(name) == bucket("ends")).unwrap();
    fixture.put(&each_second(&next, |_| ())).await;
    fixture.seen.until_made(&next, 1).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(fixture.seen.made_of("ends"), Vec::<String>::new());
}
