//! The memory of an instance that reads while Redis is full.

use std::time::Duration;

use dwell::clock;
use dwell::config::{self, Overrides};
use dwell_connectors::{BrokerConfig, Destination, Message, Outcome, Publication, Role};
use dwell_testkit::servers::{BrokerKind, BrokerServer, DwellServer, RedisOptions, RedisServer};
use dwell_testkit::usage::Usage;

use super::environment::scraped;
use crate::support::{namespace, redis_link, wait_within};

const TIMEOUT: Duration = Duration::from_secs(240);
/// With the settings as they are by default.
const MAX_RESIDENT_BYTES: u64 = 256 << 20;
/// So long the memory has to stay as it is, until all is read that is going to be.
const STEADY_DURATION: Duration = Duration::from_secs(3);

/// Sends these while Redis is full, and says how much memory the instance took at most. Then there
/// is room, and all of it has to be stored.
async fn peak(kind: BrokerKind, messages: Vec<Message>) -> u64 {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let server = BrokerServer::start(kind).await.unwrap();
    let text = format!(
        "redis.urls = [\"{}\"]\nredis.namespace = \"{}\"\n[brokers.main]\n{}allow = [\"{}\"]\n[ingest.main]\nbroker = \"main\"\ndeclare = true\n\
         target = \"{}\"\n",
        redis.url(),
        namespace("inbound"),
        server.settings(),
        kind.pattern("orders"),
        "orders"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let settings = config::load_from(Some(file.path()), &[], &Overrides::default()).unwrap();
    let broker = settings.brokers["main"].connector.clone();
    broker.declare(&Destination::new("orders"), Role::Letters).await.unwrap();
    let dwell = DwellServer::start(env!("CARGO_BIN_EXE_dwell").into(), &text).await.unwrap();
    let mut link = redis_link(&redis.url()).await;
    let mut most = async |memory: &str| {
        let set = redis::cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg(memory)
            .query_async::<()>(&mut link)
            .await;
        set.unwrap();
    };
    most("1mb").await;
    let count = messages.len() as u64;
    send(&broker, messages).await;
    let full = "dwell_ingest_paused{reason=\"redis_full\"}";
    wait_within(TIMEOUT, "the ingest waits", async || {
        (scraped(&dwell, full).await == 1).then_some(())
    })
    .await;
    let (mut peak, mut since) = (0, clock::now());
    let usage = wait_within(TIMEOUT, "no more is read", async || {
        let usage = Usage::of(dwell.pid())?;
        if usage.peak_rss > peak {
            (peak, since) = (usage.peak_rss, clock::now());
        }
        (since.elapsed() >= STEADY_DURATION).then_some(usage)
    })
    .await;
    most("0").await;
    let scheduled = "dwell_ingest_total{ingest=\"main\",result=\"scheduled\"}";
    wait_within(TIMEOUT, "all is stored", async || {
        (scraped(&dwell, scheduled).await >= count).then_some(())
    })
    .await;
    usage.peak_rss
}

/// Publishes to the ingest, a few at once.
async fn send(broker: &BrokerConfig, messages: Vec<Message>) {
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(60)).await.unwrap();
    let mut messages =
        (0..).zip(messages.into_iter().map(|message| message.with_header("delay-for", "1h")));
    loop {
        let publication = |(token, message)| {
            let to = Destination::new("delay.in");
            Publication { token, to, message, dedupe_id: String::new(), deadline: None }
        };
        let batch: Vec<_> = messages.by_ref().take(8).map(publication).collect();
        let mut open = batch.len();
        if open == 0 {
            return;
        }
        sink.publish(batch).await;
        while open > 0 {
            let batch = tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap().unwrap();
            assert!(batch.iter().all(|(_, outcome)| *outcome == Outcome::Confirmed), "{batch:?}");
            open -= batch.len();
        }
    }
}

fn within(peak: u64) {
    println!("{} MiB", peak >> 20);
    assert!(peak <= MAX_RESIDENT_BYTES, "{} MiB", peak >> 20);
}

#[tokio::test]
async fn large_bodies_of_rabbitmq_are_read_as_far_as_there_is_room() {
    within(peak(BrokerKind::Amqp, vec![Message::new(vec![b'x'; 1 << 20]); 400]).await);
}

#[tokio::test]
async fn many_small_headers_of_nats_are_read_as_far_as_there_is_room() {
    // Distinct names of five letters: nine bytes each on the wire, and less than the 64 KiB of
    // headers that JetStream takes in a message.
    let letter = |number: u32| char::from(b'a' + u8::try_from(number % 26).unwrap());
    let name = |number: u32| {
        [17_576, 676, 26, 1].map(|place| letter(number / place)).iter().collect::<String>()
    };
    let message = (0..6500)
        .map(name)
        .fold(Message::new("x"), |message, name| message.with_header(format!("x{name}"), ""));
    within(peak(BrokerKind::Nats, vec![message; 600]).await);
}

#[tokio::test]
async fn large_bodies_of_kafka_are_read_as_far_as_there_is_room() {
    within(peak(BrokerKind::Kafka, vec![Message::new(vec![b'x'; 900_000]); 400]).await);
}
