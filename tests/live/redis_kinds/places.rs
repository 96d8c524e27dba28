//! A target with `in_flight` on a Redis Cluster and over failovers: never more attempts are out than
//! there are places, and every job comes.

use std::collections::{BTreeSet, HashSet};

use dwell::clock;
use dwell_connectors::{Message, Outcome};
use dwell_testkit::servers::{RedisCluster, RedisOptions, RedisSentinel, RedisServer};

use super::kind::{env, lines};
use crate::bridge::environment::{Environment, SETTLE, TARGET};
use crate::bridge::load::Producer;
use crate::support::{jetstream, redis_link, wait_within};

/// The places of the target.
const PLACES: usize = 3;
/// A job that its consumer holds keeps its place for longer than this, ms.
const HALF_AN_HOUR_MS: i64 = 30 * 60_000;

/// The settings that lead to a Redis of this kind, with the limit of the target.
fn limited(mode: &str, urls: &[String]) -> String {
    let lines = lines(mode, urls, "replica");
    format!("{lines}\nbrokers.main.limits.\"{TARGET}\".in_flight = {PLACES}")
}

fn to(target: &str, id: &str) -> Message {
    let message = Message::new(id.to_owned()).with_header("delay-id", id);
    message.with_header("delay-for", "0").with_header("delay-target", target)
}

/// A consumer that holds each job until it says so, and the producer of the jobs.
struct Consumer {
    producer: Producer,
    sent: usize,
    finished: HashSet<String>,
}

impl Consumer {
    fn new<R>(env: &Environment<R>) -> Consumer {
        Consumer { producer: env.producer(), sent: 0, finished: HashSet::new() }
    }

    async fn say(&mut self, message: Message) {
        assert_eq!(self.producer.publish(vec![message]).await, [Some(Outcome::Confirmed)]);
    }

    /// Sends so many more jobs, due at once.
    async fn send(&mut self, count: usize) {
        for number in self.sent..self.sent + count {
            let job = to(TARGET, &format!("job-{number}"));
            self.say(job.with_header("delay-confirm", "consumer").with_header("delay-ttr", "1h"))
                .await;
        }
        self.sent += count;
    }

    /// The jobs that came and are not finished.
    fn out<R>(&self, env: &Environment<R>) -> Vec<String> {
        let ledger = env.ledger.lock();
        let came: BTreeSet<&str> = ledger.arrivals().map(|(id, _)| id).collect();
        came.into_iter().filter(|id| !self.finished.contains(*id)).map(str::to_owned).collect()
    }

    /// Waits until all places are taken, or the last jobs are out. No more than these are.
    async fn until_full<R>(&self, env: &Environment<R>) -> Vec<String> {
        let most = PLACES.min(self.sent - self.finished.len());
        let out = wait_within(SETTLE, &format!("{most} jobs are out"), async || {
            Some(self.out(env)).filter(|out| out.len() >= most)
        })
        .await;
        assert_eq!(out.len(), most, "more are out than there are places: {out:?}");
        out
    }

    /// Finishes jobs one after another, each once all places are taken, until so many are finished.
    async fn finish<R>(&mut self, env: &Environment<R>, until: usize) {
        while self.finished.len() < until {
            let id = self.until_full(env).await.remove(0);
            let word = Message::new("").with_header("delay-action", "finish");
            self.say(word.with_header("delay-id", &*id)).await;
            self.finished.insert(id);
        }
    }

    /// Waits until all places are taken, and each as long as its consumer may hold the job.
    async fn until_held<R>(&self, env: &Environment<R>, master: &RedisServer) {
        self.until_full(env).await;
        let key = env.store().await.keys().places(&format!("main {TARGET}"));
        let from_ms = (clock::wall_ms() + HALF_AN_HOUR_MS).to_string();
        wait_within(SETTLE, "the places last as long as the holds", async || {
            let held = master.order(&["ZCOUNT", &key, &from_ms, "+inf"]).await.ok()?;
            (held.concat() == PLACES.to_string()).then_some(())
        })
        .await;
    }

    /// Every job came, and none is left or dead.
    async fn all_came<R>(&mut self, env: &Environment<R>) {
        self.finish(env, self.sent).await;
        let left = env.settled().await;
        assert_eq!(left.dead.iter().sum::<u64>(), 0);
        assert_eq!(env.ledger.lock().distinct(), self.sent);
    }
}

/// A job of a target without a limit is delivered: the instances work.
async fn until_they_work<R>(env: &Environment<R>, consumer: &mut Consumer, id: &str) {
    let port = env.nats.port();
    let before = jetstream::messages(port, "LETTERS").await;
    consumer.say(to("replies", id)).await;
    wait_within(SETTLE, "a job of another target is delivered", async || {
        (jetstream::messages(port, "LETTERS").await > before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_places_of_a_cluster_move_with_their_slot_and_outlive_an_ordered_failover() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let lines = limited("cluster", &cluster.urls());
    let (env, _file) = env("places", cluster, &lines).await;
    let (_one, _two) = tokio::join!(env.dwell(), env.dwell());
    let mut consumer = Consumer::new(&env);
    consumer.send(18).await;
    consumer.finish(&env, 6).await;

    let limits = env.store().await.keys().limits();
    let slot = env.redis.slot_of(&limits).await.unwrap();
    let from = env.redis.master_of(slot).await.unwrap();
    consumer.until_held(&env, &env.redis.nodes[from]).await;
    let to = (from + 1) % 3;
    env.redis.migrate(slot, to).await.unwrap();
    env.redis.whole().await.unwrap();
    until_they_work(&env, &mut consumer, "moved").await;
    consumer.finish(&env, 12).await;

    // The replica has every write of its master.
    consumer.until_held(&env, &env.redis.nodes[to]).await;
    env.redis.fail_over(to).await.unwrap();
    env.redis.whole().await.unwrap();
    until_they_work(&env, &mut consumer, "failed-over").await;
    consumer.all_came(&env).await;
}

#[tokio::test]
async fn places_that_the_replicas_have_outlive_a_master_that_is_killed() {
    let sentinel = RedisSentinel::start(RedisOptions::default()).await.unwrap();
    let lines = limited("sentinel", &sentinel.urls());
    let (mut env, _file) = env("places", sentinel, &lines).await;
    let (_one, _two) = tokio::join!(env.dwell(), env.dwell());
    let mut consumer = Consumer::new(&env);
    consumer.send(9).await;
    consumer.finish(&env, 3).await;

    let dead = env.redis.master().await.unwrap();
    consumer.until_held(&env, &env.redis.servers[dead]).await;
    // Whoever has this write has those before it.
    let mut link = redis_link(env.redis.servers[dead].url()).await;
    redis::cmd("SET").arg("last").arg("x").exec_async(&mut link).await.unwrap();
    let replicas: i64 = redis::cmd("WAIT").arg(2).arg(20_000).query_async(&mut link).await.unwrap();
    assert_eq!(replicas, 2);
    env.redis.servers[dead].kill().unwrap();
    env.redis.failed_over(dead).await.unwrap();
    consumer.send(6).await;
    until_they_work(&env, &mut consumer, "failed-over").await;
    consumer.all_came(&env).await;
}
