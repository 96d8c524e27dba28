//! A broker behind a long wire: as many jobs are out as the window holds, so that none comes late
//! or twice by it.
//!
//! `DWELL_WIRE_MS=300 DWELL_WIRE_RATE=300 DWELL_WIRE_TTR=30s DWELL_WIRE_SECONDS=10` make it another
//! trial, `DWELL_WIRE_PROGRAM` that of another program; the figures are printed (`--nocapture`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::{self, Overrides};
use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_connectors::{Acks, BrokerConfig, Destination, Message, Role};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::servers::{
    BrokerKind, BrokerServer, DwellServer, KafkaOptions, KafkaServer, RedisOptions, RedisServer,
};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use crate::support::{metric, wait_within};

/// Longer than any of this takes.
const TIMEOUT: Duration = Duration::from_secs(180);
const TARGET: &str = "orders";
/// From the request to the due time: so that the way in makes nothing late.
const DELAY_MS: i64 = 4000;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Of each job: when it was due (epoch ms), and when each copy arrived (epoch µs).
type Arrivals = Arc<Mutex<HashMap<String, (i64, Vec<i64>)>>>;

/// A broker, and a proxy to it.
async fn behind_a_wire(kind: BrokerKind) -> (BrokerServer, Proxy) {
    if kind == BrokerKind::Kafka {
        let proxy = Proxy::start("127.0.0.1:1").await.unwrap();
        let options =
            KafkaOptions { proxy: Some(proxy.address().port()), ..KafkaOptions::default() };
        let server = KafkaServer::start(options).await.unwrap();
        proxy.lead_to(format!("127.0.0.1:{}", server.link_port().unwrap()));
        return (BrokerServer::Kafka(server), proxy);
    }
    let server = BrokerServer::start(kind).await.unwrap();
    let proxy = Proxy::start(format!("127.0.0.1:{}", server.port())).await.unwrap();
    (server, proxy)
}

async fn over_a_slow_network(kind: BrokerKind) {
    let (one_way, rate) =
        (Duration::from_millis(number("DWELL_WIRE_MS", 300)), number("DWELL_WIRE_RATE", 200));
    let (seconds, ttr) = (
        number("DWELL_WIRE_SECONDS", 5),
        std::env::var("DWELL_WIRE_TTR").unwrap_or_else(|_| "5s".to_owned()),
    );
    let program = std::env::var_os("DWELL_WIRE_PROGRAM")
        .map_or_else(|| env!("CARGO_BIN_EXE_dwell").into(), PathBuf::from);
    let (redis, (server, wire)) =
        tokio::join!(RedisServer::start(RedisOptions::default()), behind_a_wire(kind));
    let redis = redis.unwrap();
    let far = server
        .settings()
        .replace(&format!(":{}", server.port()), &format!(":{}", wire.address().port()));
    let text = |broker: &str| {
        format!(
            "[redis]\nurls = [\"{}\"]\n[brokers.main]\n{broker}allow = [\"{}\"]\n[ingest.main]\nbroker = \"main\"\ndeclare = true\n\
             [delivery]\nretry = [\"500ms\", \"500ms\", \"500ms\", \"500ms\"]\n",
            redis.url(),
            kind.pattern(TARGET)
        )
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text(&server.settings())).unwrap();
    let near: BrokerConfig =
        config::load_from(Some(file.path()), &[], &Overrides::default()).unwrap().brokers["main"]
            .connector
            .clone();
    near.declare(&Destination::new(TARGET), Role::Letters).await.unwrap();
    let mut dwell = DwellServer::start(program, &text(&far)).await.unwrap();

    let arrivals = Arrivals::default();
    let of_reader = arrivals.clone();
    let enter = move |at_us: i64, messages: Vec<Message>| {
        let mut arrivals = of_reader.lock();
        for message in messages {
            let id = message.headers.get("delayed-id").unwrap().written().unwrap().into_owned();
            arrivals.get_mut(&id).unwrap().1.push(at_us);
        }
    };
    let _reader = Consumer::open(&near, TARGET, Acks::Explicit, enter).await.unwrap();
    let mut producer = Producer::open(&near).await.unwrap();
    for direction in [Direction::Up, Direction::Down] {
        wire.set(direction, Flow::Delay(one_way));
    }
    let mut ticks = interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for tick in 0..seconds * 10 {
        ticks.tick().await;
        let due_ms = clock::wall_ms() + DELAY_MS;
        let messages: Vec<Message> = (0..rate / 10)
            .map(|n| {
                let id = format!("job-{}", tick * rate + n);
                arrivals.lock().insert(id.clone(), (due_ms, Vec::new()));
                let message = Message::new(vec![b'x'; 200])
                    .with_header("delay-id", id)
                    .with_header("delay-target", TARGET);
                message
                    .with_header("delay-until", due_ms.to_string())
                    .with_header("delay-ttr", &*ttr)
            })
            .collect();
        producer.send(&Destination::new("delay.in"), messages).await.unwrap();
    }
    producer.flush().await.unwrap();
    wait_within(TIMEOUT, "every job arrives", async || {
        arrivals.lock().values().all(|(_, came)| !came.is_empty()).then_some(())
    })
    .await;
    // Second copies that are still out come over the same wire before this job.
    let last = Message::new(b"last".to_vec())
        .with_header("delay-id", "last")
        .with_header("delay-target", TARGET);
    arrivals.lock().insert("last".to_owned(), (clock::wall_ms(), Vec::new()));
    producer
        .send(&Destination::new("delay.in"), vec![last.with_header("delay-for", "0")])
        .await
        .unwrap();
    producer.flush().await.unwrap();
    wait_within(TIMEOUT, "the last job arrives", async || {
        (!arrivals.lock()["last"].1.is_empty()).then_some(())
    })
    .await;
    arrivals.lock().remove("last");
    let unknown = metric(
        &dwell.metrics().await.unwrap(),
        r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#,
    );
    let (copies, mut late): (usize, Vec<i64>) = {
        let arrivals = arrivals.lock();
        let copies = arrivals.values().map(|(_, came)| came.len() - 1).sum();
        (copies, arrivals.values().map(|(due_ms, came)| came[0] / 1000 - due_ms).collect())
    };
    late.sort_unstable();
    let (middle, most) = (late[late.len() / 2], late[late.len() - 1]);
    println!(
        "{}: {one_way:?} each way, {rate} jobs/s for {seconds} s, ttr {ttr}: {} jobs, {copies} copies, {unknown} unknown; late by {middle} ms, at most {most} ms",
        kind.as_str(),
        late.len()
    );
    dwell.stop().await.unwrap();
    assert_eq!(copies, 0, "{}", kind.as_str());
    assert!(most < 8000, "{}: {most} ms late", kind.as_str());
}

#[tokio::test]
async fn a_slow_network_to_kafka_makes_nothing_late_and_no_copies() {
    over_a_slow_network(BrokerKind::Kafka).await;
}

#[tokio::test]
async fn a_slow_network_to_nats_makes_nothing_late_and_no_copies() {
    over_a_slow_network(BrokerKind::Nats).await;
}

#[tokio::test]
async fn a_slow_network_to_rabbitmq_makes_nothing_late_and_no_copies() {
    over_a_slow_network(BrokerKind::Amqp).await;
}
