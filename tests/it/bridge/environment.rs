//! The environment of these tests: a Redis, a broker in memory and a runtime between them.

use std::time::Duration;

use dwell::config::{self, Overrides, Settings};
use dwell::job::JobId;
use dwell::readiness::Readiness;
use dwell::runtime::{Failure, Roles, Runtime, StartError};
use dwell::store::Store;
use dwell::store::reader::lookup::{JobState, StoredJob};
use dwell::telemetry::Metrics;
use dwell_connectors::memory::{self, Broker};
use dwell_connectors::{BrokerConfig, Message};
use dwell_testkit::servers::{RedisOptions, RedisServer};

use crate::support::{DEADLINE, metric, wait_until};

/// The roles of an instance where a test says nothing else.
pub(super) const ALL: Roles = Roles { ingest: true, dispatch: true };

/// Redis, broker and runtime. The broker has every topic that the settings name, and `orders.a`,
/// `orders.b` and `replies`.
pub(super) struct Environment {
    pub(super) redis: RedisServer,
    pub(super) broker: Broker,
    pub(super) settings: Settings,
    pub(super) metrics: Metrics,
    runtime: Option<Runtime>,
}

impl Environment {
    /// Everything runs, with these settings over short ones.
    pub(super) async fn start(set: &[(&str, &str)]) -> Environment {
        let mut env = Environment::idle(RedisOptions::default(), set).await;
        env.run(ALL).await;
        env
    }

    /// Redis and the broker run, the runtime does not yet.
    pub(super) async fn idle(redis: RedisOptions, set: &[(&str, &str)]) -> Environment {
        let redis = RedisServer::start(redis).await.unwrap();
        let broker = Broker::with_topics([
            "delay.in",
            "delay.rejected",
            "delay.dead",
            "orders.a",
            "orders.b",
            "replies",
        ]);
        let settings = settings(&redis.url(), &broker, set);
        Environment { metrics: counters(&settings), redis, broker, settings, runtime: None }
    }

    /// Starts an instance, with counters of its own.
    pub(super) async fn run(&mut self, roles: Roles) {
        let (runtime, metrics) = instance(&self.settings, roles).await;
        (self.runtime, self.metrics) = (Some(runtime), metrics);
    }

    /// Starts an instance that waits for servers that are away, for this long at most where a time
    /// is given. Returns the list of things that it waits for, once Redis is there.
    pub(super) async fn begin(
        &mut self,
        patience: Option<Duration>,
    ) -> Result<Readiness, StartError> {
        self.metrics = counters(&self.settings);
        let readiness = Readiness::new(self.settings.ingest.keys().map(String::as_str));
        let traces = Default::default();
        let begun =
            Runtime::begin(&self.settings, ALL, patience, &self.metrics, &traces, &readiness);
        self.runtime = Some(begun.await?);
        Ok(readiness)
    }

    /// Waits until the instance cannot go on: why.
    pub(super) async fn failed(&mut self) -> Failure {
        let failed = self.runtime.as_mut().unwrap().failed();
        tokio::time::timeout(DEADLINE, failed).await.expect("the instance ends by itself")
    }

    /// As SIGTERM does: true where all was settled.
    pub(super) async fn stop(&mut self, drain: Duration) -> bool {
        self.runtime.take().unwrap().stop(drain).await
    }

    /// As SIGKILL does: nothing is settled or given back.
    pub(super) fn crash(&mut self) {
        self.runtime = None;
    }

    /// A producer sends this.
    pub(super) fn send(&self, message: Message) {
        self.broker.publish("delay.in", message);
    }

    /// Waits until the ingest has acknowledged all that was sent.
    pub(super) async fn taken(&self) {
        wait_until("every request is acknowledged", async || {
            (self.broker.unacked("delay.in", "dwell") == 0).then_some(())
        })
        .await;
    }

    /// Waits for at least this many messages on a topic.
    pub(super) async fn arrived(&self, topic: &str, count: usize) -> Vec<Message> {
        self.broker.wait_published(topic, count, DEADLINE).await
    }

    /// One metric's value now: `dwell_dead_total{reason="late"}`.
    pub(super) fn metric(&self, series: &str) -> f64 {
        metric(&self.metrics.encode(), series)
    }

    /// Waits until a metric has this value.
    pub(super) async fn until_metric(&self, series: &str, value: f64) {
        wait_until(&format!("{series} is {value}"), async || {
            (self.metric(series) == value).then_some(())
        })
        .await;
    }

    /// A link to the store beside the runtime's.
    pub(super) async fn store(&self) -> Store {
        Store::attach(&self.settings.redis).await.unwrap()
    }

    /// Waits until this job has this state.
    pub(super) async fn until_state(&self, id: &str, state: JobState) -> StoredJob {
        let store = self.store().await;
        let id = JobId::new(id).unwrap();
        wait_until(&format!("`{id}` is {}", state.as_str()), async || {
            store.reader.find(&id).await.unwrap().filter(|found| found.state == state)
        })
        .await
    }

    /// Waits until no trace of this job is left.
    pub(super) async fn until_over(&self, id: &str) {
        let store = self.store().await;
        let id = JobId::new(id).unwrap();
        wait_until(&format!("`{id}` is over"), async || {
            store.reader.find(&id).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Waits until the namespace holds nothing that waits or is out, and says how many are dead.
    pub(super) async fn until_empty(&self) -> u64 {
        let store = self.store().await;
        let counts = wait_until("no job waits or is out", async || {
            let counts = store.reader.counts(&[]).await.unwrap();
            (counts.scheduled.iter().chain(&counts.reserved).sum::<u64>() == 0).then_some(counts)
        });
        counts.await.dead.iter().sum()
    }
}

/// Starts an instance with these settings, and gives its counters.
pub(super) async fn instance(settings: &Settings, roles: Roles) -> (Runtime, Metrics) {
    let metrics = counters(settings);
    let readiness =
        Readiness::new(settings.ingest.keys().map(String::as_str).filter(|_| roles.ingest));
    let runtime =
        Runtime::start(settings, roles, &metrics, &Default::default(), &readiness).await.unwrap();
    wait_until("the runtime is ready", async || readiness.is_ready().then_some(())).await;
    (runtime, metrics)
}

fn counters(settings: &Settings) -> Metrics {
    Metrics::new(
        settings.brokers.keys().map(String::as_str),
        settings.ingest.keys().map(String::as_str),
    )
}

/// Settings as from a file, but for the broker, which no file can name.
fn settings(redis: &str, broker: &Broker, set: &[(&str, &str)]) -> Settings {
    let short = [
        ("redis.urls", redis),
        ("brokers.main.type", "nats"),
        ("brokers.main.url", "nats://127.0.0.1:4222"),
        ("brokers.main.allow", "orders.>,replies"),
        ("ingest.main.broker", "main"),
        ("delivery.retry", "60ms,90ms"),
        ("delivery.publish_timeout", "2s"),
    ];
    let set = short
        .iter()
        .chain(set)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let mut settings = config::load_from(None, &[], &Overrides { set }).unwrap();
    for named in settings.brokers.values_mut() {
        named.connector = BrokerConfig::Memory(memory::Config::from(broker));
        // This broker's own patterns.
        named.allow = vec!["orders.*".to_owned(), "replies".to_owned()];
    }
    settings
}

/// A request to publish the body `id` on `orders.a`.
pub(super) fn request(id: &str, delay: &str) -> Message {
    to("orders.a", id, delay)
}

/// A request to publish the body `id` on this topic.
pub(super) fn to(topic: &str, id: &str, delay: &str) -> Message {
    Message::new(id.to_owned())
        .with_header("delay-id", id)
        .with_header("delay-for", delay)
        .with_header("delay-target", topic)
}

/// An action on a job.
pub(super) fn action(word: &str, id: &str) -> Message {
    Message::new("").with_header("delay-action", word).with_header("delay-id", id)
}

/// The same request, whose verdict goes to `replies`.
pub(super) fn asking(message: Message) -> Message {
    message.with_header("delay-reply-to", "replies")
}

/// `delayed-attempt`.
pub(super) fn attempt(message: &Message) -> u32 {
    message.headers.text("delayed-attempt").unwrap().parse().unwrap()
}

/// `delayed-attempt` of each.
pub(super) fn attempts(messages: &[Message]) -> Vec<u32> {
    messages.iter().map(attempt).collect()
}

/// Returns the time from the due time of a job to its publication, ms.
pub(super) fn late_ms(message: &Message) -> i64 {
    message.timestamp_ms.unwrap()
        - message.headers.text("delayed-due").unwrap().parse::<i64>().unwrap()
}

/// Panics where messages of a limit of one turn each so many ms came before their turns. A turn may be
/// used late, so the first due time counts, and not the first arrival.
pub(super) fn assert_no_turn_is_early(came: &[Message], turn_ms: i64) {
    /// The clock of Redis and that of the broker, each cut to ms, and a claim ahead of the due time.
    const TOLERANCE_MS: i64 = 20;
    let mut times: Vec<i64> = came.iter().map(|message| message.timestamp_ms.unwrap()).collect();
    times.sort_unstable();
    let first_due_ms = came.iter().map(|message| message.timestamp_ms.unwrap() - late_ms(message));
    let mut turn_at_ms = first_due_ms.min().unwrap();
    for (number, time_ms) in times.into_iter().enumerate() {
        let early_ms = turn_at_ms - time_ms;
        assert!(early_ms <= TOLERANCE_MS, "message {number} came {early_ms} ms before its turn");
        turn_at_ms += turn_ms;
    }
}

/// The verdicts in these replies.
pub(super) fn verdicts(replies: &[Message]) -> Vec<String> {
    let json = |reply: &Message| serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap();
    replies.iter().map(|reply| json(reply)["verdict"].as_str().unwrap().to_owned()).collect()
}
