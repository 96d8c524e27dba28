//! The pages that lead from other schedulers to Dwell, followed word by word; the tests do the work
//! of such a scheduler meanwhile.

use bytes::Bytes;
use dwell::config::{self, Overrides, Redis, Settings};
use dwell::job::JobId;
use dwell::store::Store;
use dwell_connectors::{Acks, BrokerConfig, Destination, Message, Role, SourceOptions, Start};
use dwell_testkit::environment::traffic::Producer;
use dwell_testkit::servers::{
    KafkaOptions, KafkaServer, NatsOptions, NatsServer, RedisOptions, RedisServer, find,
};

use super::fixture::{now_ms, rfc3339};
use super::guide::Guide;
use crate::routes::environment::{Reading, request, text};
use crate::support::wait_until;

/// The settings of this text.
fn settings(text: &str) -> Settings {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    std::fs::write(&file, text).unwrap();
    config::load_from(Some(&file), &[], &Overrides::default()).unwrap()
}

/// Returns the broker that the tests themselves publish to and read from, and the Redis.
fn hands(redis: &RedisServer, broker: &str) -> (BrokerConfig, Redis) {
    let text =
        format!("[redis]\nurls = [\"{}\"]\n[brokers.b]\n{broker}\nallow = []\n", redis.url());
    let settings = settings(&text);
    (settings.brokers["b"].connector.clone(), settings.redis)
}

/// The store, once an instance has made it.
async fn attached(redis: &Redis) -> Store {
    wait_until("the namespace is there", async || Store::attach(redis).await.ok()).await
}

async fn send(broker: &BrokerConfig, topic: &str, messages: impl IntoIterator<Item = Message>) {
    let mut producer = Producer::open(broker).await.unwrap();
    producer.send(&Destination::new(topic), messages).await.unwrap();
    producer.flush().await.unwrap();
}

async fn until_there(store: &Store, id: &str, there: bool) {
    let key = JobId::new(id).unwrap();
    wait_until(&format!("{id} is there: {there}"), async || {
        (store.reader.find(&key).await.unwrap().is_some() == there).then_some(())
    })
    .await;
}

/// The tools of Kafka as this page calls them: a tool that is not among the server's jars does
/// nothing here, and is waited for otherwise.
fn kafka_tools(guide: &Guide) {
    let (java, libs) = (find::java().unwrap(), find::kafka_libs().unwrap());
    // From 4.4 on in a package of its own (scripts/kafka/pom.xml).
    let is_version = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    let is_tools = |entry: std::fs::DirEntry| {
        entry.file_name().to_string_lossy().strip_prefix("kafka-tools-").is_some_and(is_version)
    };
    let has_tools = std::fs::read_dir(&libs).unwrap().flatten().any(is_tools);
    let class = if has_tools {
        "org.apache.kafka.tools.ConfigCommand"
    } else {
        "kafka.admin.ConfigCommand"
    };
    guide.tool(
        "kafka-configs.sh",
        &format!("exec {} -cp '{}/*' {class} \"$@\"", java.display(), libs.display()),
    );
    guide.tool("kafka-consumer-groups.sh", "exit 0");
    guide.tool("kafka-topics.sh", "exit 0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_from_schedulers_of_kafka_lead_to_dwell() {
    let (kafka, redis) = tokio::join!(
        KafkaServer::start(KafkaOptions::default()),
        RedisServer::start(RedisOptions::default())
    );
    let (kafka, redis) = (kafka.unwrap(), redis.unwrap());
    let (broker, own) =
        hands(&redis, &format!("type = \"kafka\"\nbootstrap = \"{}\"", kafka.bootstrap()));
    for topic in ["schedules", "online-videos", "timebridge", "user-notifications"] {
        broker.declare(&Destination::new(topic), Role::Letters).await.unwrap();
    }
    let addresses =
        [("127.0.0.1:9092", kafka.bootstrap()), ("redis://127.0.0.1:6379", redis.url())];
    from_etf1(&broker, &own, Guide::open("migrate-from-etf1", "etf1", &addresses)).await;
    from_timebridge(
        &broker,
        &own,
        Guide::open("migrate-from-timebridge", "timebridge", &addresses),
    )
    .await;
}

/// A schedule of etf1's scheduler.
fn schedule(id: &str, epoch_ms: i64) -> Message {
    let epoch = (epoch_ms / 1_000).to_string();
    let headers = [
        ("scheduler-epoch", epoch.as_str()),
        ("scheduler-target-topic", "online-videos"),
        ("scheduler-target-key", "vid1"),
    ];
    Message { key: Some(Bytes::copy_from_slice(id.as_bytes())), ..request(id, &headers) }
}

/// Returns the message that the scheduler writes once it has delivered a schedule.
fn delivered(id: &str, epoch_ms: i64) -> Message {
    let message = schedule(id, epoch_ms)
        .with_header("scheduler-key", id)
        .with_header("scheduler-topic", "schedules");
    Message { body: Bytes::new(), has_body: false, ..message }
}

async fn from_etf1(broker: &BrokerConfig, own: &Redis, mut guide: Guide) {
    kafka_tools(&guide);
    let (hour, past) = (3_600_000, now_ms() - 60_000);
    let target = Reading::open(broker, "online-videos").await;
    let before = [
        schedule("delivered", past),
        delivered("delivered", past),
        schedule("during", now_ms() + hour),
        schedule("waits", now_ms() + hour),
    ];
    send(broker, "schedules", before).await;

    guide.follow("dwell check").await;
    let along = guide.start("dwell run -c config/etf1.toml --no-dispatch");
    let store = &attached(own).await;
    until_there(store, "waits", true).await;
    guide.follow("kafka-consumer-groups.sh").await;
    // The scheduler goes on while Dwell reads along; `between` falls due once the scheduler is
    // stopped.
    send(broker, "schedules", [delivered("during", now_ms() + hour), schedule("between", past)])
        .await;
    until_there(store, "during", false).await;
    until_there(store, "between", true).await;
    along.stop().await;

    let dwell = guide.start("dwell run -c config/etf1.toml");
    assert_eq!(target.job("between").await.key, Some(Bytes::from("vid1")));
    send(
        broker,
        "schedules",
        [schedule("vid1-online", now_ms() + 1_000), schedule("waits", now_ms())],
    )
    .await;
    assert_eq!(
        text(&target.job("vid1-online").await, "scheduler-key").as_deref(),
        Some("vid1-online")
    );
    target.job("waits").await;
    assert_eq!(target.now().len(), 3, "{:?}", target.now());
    guide.follow("kafka-configs.sh").await;
    dwell.stop().await;
    guide.end();
}

async fn from_timebridge(broker: &BrokerConfig, own: &Redis, mut guide: Guide) {
    kafka_tools(&guide);
    let make = |body: &str, at_ms: i64| {
        let when = rfc3339(at_ms, 0);
        request(body, &[("X-Timebridge-When", &when), ("X-Timebridge-Where", "user-notifications")])
    };
    let target = Reading::open(broker, "user-notifications").await;
    // Timebridge took the first two messages, by its group; it did not take the third.
    send(
        broker,
        "timebridge",
        [make("taken", now_ms() + 2_000), make("long-ago", now_ms() - 3_600_000)],
    )
    .await;
    take(broker, "timebridge", 2).await;
    send(broker, "timebridge", [make("not-taken", now_ms() + 1_000)]).await;

    guide.follow("dwell check").await;
    guide.follow("kafka-topics.sh").await;
    let dwell = guide.start("dwell run -c config/timebridge.toml");
    let bodies = || target.now().into_iter().map(|(_, message)| message.body).collect::<Vec<_>>();
    wait_until("what Timebridge did not take", async || (!bodies().is_empty()).then_some(())).await;
    assert_eq!(bodies(), ["not-taken"]);
    dwell.stop().await;

    // The memory backend: all that the topic has, but for what is long overdue.
    let dwell = guide.start("dwell run -c config/timebridge.toml --set ingest.main.group=dwell");
    wait_until("what it held", async || bodies().contains(&Bytes::from("taken")).then_some(()))
        .await;
    guide.follow("kafka-consumer-groups.sh").await;
    let store = attached(own).await;
    wait_until("nothing waits", async || {
        (store.reader.counts(&[]).await.unwrap().scheduled.iter().sum::<u64>() == 0).then_some(())
    })
    .await;
    assert!(!bodies().contains(&Bytes::from("long-ago")), "{:?}", bodies());
    dwell.stop().await;
    guide.end();
}

/// By the group of the same name.
fn options(topic: &str, count: usize) -> SourceOptions {
    SourceOptions {
        topic: topic.to_owned(),
        group: topic.to_owned(),
        max_batch: count,
        max_batch_bytes: 1 << 20,
        max_unsettled: count,
        max_unsettled_bytes: 1 << 20,
        acks: Acks::Explicit,
        start: Start::Earliest,
        publishes_to: Vec::new(),
        expired_queue: None,
    }
}

/// Reads this many messages of a topic, and commits.
async fn take(broker: &BrokerConfig, topic: &str, count: usize) {
    let source = broker.source(options(topic, count)).await.unwrap();
    let mut taken = 0;
    while taken < count {
        let batch = source.recv().await.unwrap();
        taken += batch.messages.len();
        source.ack(batch.id).await.unwrap();
    }
    source.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_from_schedules_of_nats_leads_to_dwell() {
    let (nats, redis) = tokio::join!(
        NatsServer::start(NatsOptions::default()),
        RedisServer::start(RedisOptions::default())
    );
    let (nats, redis) = (nats.unwrap(), redis.unwrap());
    let (broker, own) = hands(&redis, &format!("type = \"nats\"\nurl = \"{}\"", nats.url()));
    let addresses =
        [("nats://127.0.0.1:4222", nats.url()), ("redis://127.0.0.1:6379", redis.url())];
    let mut guide = Guide::open("migrate-from-nats-schedules", "nats", &addresses);
    let client = format!("{}/tests/clients/nats_cli.py", env!("CARGO_MANIFEST_DIR"));
    guide.tool("nats", &format!("NATS_URL={} exec python3 {client} \"$@\"", nats.url()));

    guide.follow("nats stream add").await;
    guide.follow("dwell check").await;
    let dwell = guide.start("dwell run");
    wait_until("the stream of delay.in is there", async || {
        broker.inspect(&options("delay.in", 1)).await.ok()
    })
    .await;
    guide.follow("nats pub").await;
    until_there(&attached(&own).await, "schedules.orders.17", true).await;
    let target = Reading::open(&broker, "orders.close").await;
    assert!(guide.follow("dwell ls").await.contains("schedules.orders.17"));
    guide.follow("dwell fire").await;
    target.job("schedules.orders.17").await;
    assert!(guide.follow("nats stream get").await.contains("order 17"));
    dwell.stop().await;
    guide.end();
}
