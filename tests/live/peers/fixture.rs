//! The servers of these cases, and their common operations.

use std::time::{SystemTime, UNIX_EPOCH};

use dwell::config::{self, Overrides, Settings};
use dwell::job::JobId;
use dwell::store::Store;
use dwell_connectors::{BrokerConfig, Destination, Message, Role};
use dwell_testkit::environment::traffic::Producer;
use dwell_testkit::servers::{BrokerKind, BrokerServer, DwellServer, RedisOptions, RedisServer};

use crate::routes::environment::{Reading, program, text};
use crate::support::wait_until;

/// The topics that are read, and how. Each has the dead letters and rejections of its broker.
const INGESTS: &str = r#"
[ingest.etf1]
broker = "kafka"
topic = "schedules"
id_from = "key"
declare = true

[ingest.plain]
broker = "kafka"
topic = "delay.in"
due_header = "eta"
declare = true

[ingest.delay-queue]
broker = "kafka"
topic = "delay.queue"
format = "envelope"
declare = true
"#;

/// The servers and the runtime under test.
pub(super) struct Fixture {
    brokers: [BrokerServer; 2],
    redis: RedisServer,
    dwell: DwellServer,
    settings: Settings,
    pub(super) store: Store,
    /// The messages that Kafka's ingests reject. One reading for all cases, which would share the
    /// topic out otherwise.
    rejected: Reading,
}

impl Fixture {
    pub(super) async fn start() -> Fixture {
        let starting = [BrokerKind::Kafka, BrokerKind::Nats]
            .map(|kind| async move { BrokerServer::start(kind).await.unwrap() });
        let [kafka, nats] = starting;
        let (kafka, nats, redis) =
            tokio::join!(kafka, nats, RedisServer::start(RedisOptions::default()));
        let (brokers, redis) = ([kafka, nats], redis.unwrap());
        let mut all = format!("[redis]\nurls = [\"{}\"]\n\n[delivery]\ndead = \"\"\n", redis.url());
        for (broker, allow) in brokers.iter().zip(["out.*", "out.>"]) {
            all += &format!(
                "\n[brokers.{}]\n{}allow = [\"{allow}\"]\n",
                broker.kind().as_str(),
                broker.settings()
            );
        }
        all += INGESTS;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dwell.toml");
        std::fs::write(&file, &all).unwrap();
        let settings = config::load_from(Some(&file), &[], &Overrides::default()).unwrap();
        let dwell = DwellServer::start(program(), &all).await.unwrap();
        let store = Store::attach(&settings.redis).await.unwrap();
        let rejected = Reading::open(&settings.brokers["kafka"].connector, "delay.rejected").await;
        Fixture { brokers, redis, dwell, settings, store, rejected }
    }

    pub(super) fn broker(&self, kind: BrokerKind) -> &BrokerConfig {
        &self.settings.brokers[kind.as_str()].connector
    }

    /// The port of the NATS server.
    pub(super) fn nats_port(&self) -> u16 {
        self.brokers[1].port()
    }

    /// The version of the NATS server.
    pub(super) async fn nats_version(&self) -> String {
        self.brokers[1].version().await.unwrap()
    }

    /// Makes a destination, and reads it.
    pub(super) async fn read(&self, kind: BrokerKind, destination: &str) -> Reading {
        self.broker(kind).declare(&Destination::new(destination), Role::Letters).await.unwrap();
        Reading::open(self.broker(kind), destination).await
    }

    /// Sends messages to a topic of Kafka, and returns once they are confirmed.
    pub(super) async fn send(&self, topic: &str, messages: impl IntoIterator<Item = Message>) {
        let mut producer = Producer::open(self.broker(BrokerKind::Kafka)).await.unwrap();
        producer.send(&Destination::new(topic), messages).await.unwrap();
        producer.flush().await.unwrap();
    }

    /// Waits until this job is there with this due time (epoch ms), or is not there.
    pub(super) async fn until_due(&self, id: &str, due_ms: Option<i64>) {
        let key = JobId::new(id).unwrap();
        wait_until(&format!("{id} is due at {due_ms:?}"), async || {
            let found = self.store.reader.find(&key).await.unwrap();
            (found.map(|found| found.score_ms) == due_ms).then_some(())
        })
        .await;
    }

    /// Waits until this many messages of this text in their body were rejected; their codes in
    /// order.
    pub(super) async fn rejected(&self, marked: &str, count: usize) -> Vec<String> {
        let code = |message: &Message| text(message, "delayed-error").unwrap_or_default();
        let of = |message: &Message| {
            message.body.windows(marked.len()).any(|part| part == marked.as_bytes())
        };
        wait_until(&format!("{count} rejections of {marked}"), async || {
            let codes: Vec<String> = self
                .rejected
                .now()
                .iter()
                .filter(|(_, message)| of(message))
                .map(|(_, message)| code(message))
                .collect();
            (codes.len() >= count).then_some(codes)
        })
        .await
    }

    pub(super) async fn end(mut self) {
        self.dwell.stop().await.unwrap();
        for broker in &mut self.brokers {
            broker.kill().unwrap();
        }
        self.redis.stop().await.unwrap();
    }
}

/// Epoch ms.
pub(super) fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// RFC 3339, to the millisecond, at the offset of this many hours.
pub(super) fn rfc3339(ms: i64, hours: i8) -> String {
    let at = jiff::Timestamp::from_millisecond(ms)
        .unwrap()
        .to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(hours)));
    at.strftime("%Y-%m-%dT%H:%M:%S.%3f%:z").to_string()
}
