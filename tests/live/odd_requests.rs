//! Requests that only a hand-written client can send, and requests that are too large to be
//! returned unchanged: a bridge on NATS and Redis.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::config::{self, Overrides, Settings};
use dwell::readiness::Readiness;
use dwell::runtime::{Roles, Runtime};
use dwell::telemetry::Metrics;
use dwell_connectors::{
    Acks, BrokerConfig, Destination, Message, Role, Source, SourceOptions, Start,
};
use dwell_testkit::servers::{NatsOptions, NatsServer, RedisOptions, RedisServer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{DEADLINE, metric};

/// NATS, Redis and settings; a broker for the test's own reading.
struct Environment {
    nats: NatsServer,
    _redis: RedisServer,
    settings: Settings,
    metrics: Metrics,
    broker: BrokerConfig,
}

impl Environment {
    async fn start(nats: &str) -> Environment {
        let nats = NatsServer::start(NatsOptions { config: nats.to_owned(), credentials: None })
            .await
            .unwrap();
        let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
        let set = [
            ("redis.urls", redis.url()),
            ("brokers.main.type", "nats".to_owned()),
            ("brokers.main.url", nats.url()),
            ("brokers.main.allow", "orders.>".to_owned()),
            ("ingest.main.broker", "main".to_owned()),
            ("ingest.main.declare", "true".to_owned()),
            // And with it the lease of what a bridge that was dropped had claimed.
            ("delivery.publish_timeout", "1s".to_owned()),
        ];
        let set = set.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut settings = config::load_from(None, &[], &Overrides { set }).unwrap();
        let BrokerConfig::Nats(connector) =
            &mut settings.brokers.get_mut("main").unwrap().connector
        else {
            panic!("not nats")
        };
        connector.ack_wait = Some(Duration::from_secs(1));
        let broker = settings.brokers["main"].connector.clone();
        broker.declare(&Destination::new("orders.a"), Role::Letters).await.unwrap();
        let metrics = Metrics::new(["main"], ["main"]);
        Environment { nats, _redis: redis, settings, metrics, broker }
    }

    async fn run(&self) -> Runtime {
        let roles = Roles { ingest: true, dispatch: true };
        Runtime::start(
            &self.settings,
            roles,
            &self.metrics,
            &Default::default(),
            &Readiness::new(["main"]),
        )
        .await
        .unwrap()
    }

    /// Reads this many messages of a subject, by body.
    async fn arrived(&self, subject: &str, count: usize) -> BTreeMap<Vec<u8>, Message> {
        let options = SourceOptions {
            topic: subject.to_owned(),
            group: "test".to_owned(),
            max_batch: 100,
            max_batch_bytes: 1 << 20,
            max_unsettled: 1000,
            max_unsettled_bytes: 64 << 20,
            acks: Acks::Explicit,
            start: Start::Earliest,
            publishes_to: Vec::new(),
            expired_queue: None,
        };
        let source: Box<dyn Source> = self.broker.source(options).await.unwrap();
        let mut seen = BTreeMap::new();
        while seen.len() < count {
            let batch = tokio::time::timeout(DEADLINE, source.recv()).await;
            let batch = batch
                .unwrap_or_else(|_| {
                    panic!("{} of {count} arrived on {subject}: {:?}", seen.len(), seen.keys())
                })
                .unwrap();
            seen.extend(batch.messages.into_iter().map(|message| (message.body.to_vec(), message)));
            source.ack(batch.id).await.unwrap();
        }
        source.close().await.unwrap();
        seen
    }
}

/// A producer that writes the protocol by itself.
struct Producer(BufReader<TcpStream>);

impl Producer {
    async fn connect(nats: &NatsServer) -> Self {
        let mut producer =
            Producer(BufReader::new(TcpStream::connect(("127.0.0.1", nats.port())).await.unwrap()));
        producer.line().await;
        producer
            .0
            .write_all(b"CONNECT {\"headers\":true,\"verbose\":false}\r\nSUB _INBOX.me 1\r\n")
            .await
            .unwrap();
        producer
    }

    /// Publishes to `delay.in`, with these bytes as lines of headers, and waits until it is stored.
    async fn send(&mut self, headers: &[u8], body: &[u8]) {
        let headers = [b"NATS/1.0\r\n", headers, b"\r\n"].concat();
        let line =
            format!("HPUB delay.in _INBOX.me {} {}\r\n", headers.len(), headers.len() + body.len());
        self.0.write_all(&[line.as_bytes(), &headers, body, b"\r\n"].concat()).await.unwrap();
        let mut line = self.line().await;
        while line == "PING\r\n" {
            self.0.write_all(b"PONG\r\n").await.unwrap();
            line = self.line().await;
        }
        let size: usize = line
            .trim()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|_| panic!("the server said {line}"));
        let mut answer = vec![0; size + 2];
        self.0.read_exact(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"{\"stream\""), "{}", answer.escape_ascii());
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        tokio::time::timeout(DEADLINE, self.0.read_line(&mut line)).await.unwrap().unwrap();
        line
    }
}

const GOOD: &[u8] = b"delay-for: 0\r\ndelay-target: orders.a\r\n";

/// First, last and between, and the bridge is started anew in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_no_client_can_read_are_rejected_and_hold_nothing_up() {
    let env = Environment::start("").await;
    const REQUEST_COUNT: usize = 300;
    let odd: [(&[u8], &str); 4] = [
        (b"x: \xff\xfe\r\n", "bad_header"),
        (b"no colon\r\n", "bad_header"),
        (b"x: a\rb\r\n", "bad_header"),
        (b"delay-id: \xff\r\n", "bad_id"),
    ];
    let is_odd = |number: usize| number.is_multiple_of(37) || number == REQUEST_COUNT - 1;
    let mut producer = Producer::connect(&env.nats).await;
    let mut bridge = env.run().await;
    for number in 0..REQUEST_COUNT {
        if number == REQUEST_COUNT / 2 {
            // In the middle of it, and without a word.
            drop(bridge);
            bridge = env.run().await;
        }
        let odd = if is_odd(number) { odd[number % odd.len()].0 } else { b"" };
        producer.send(&[GOOD, odd].concat(), number.to_string().as_bytes()).await;
    }
    let codes = (0..REQUEST_COUNT)
        .filter(|number| is_odd(*number))
        .map(|number| (number.to_string().into_bytes(), odd[number % odd.len()].1));
    let codes: BTreeMap<Vec<u8>, &str> = codes.collect();
    let rejected = env.arrived("delay.rejected", codes.len()).await;
    for (body, message) in &rejected {
        assert_eq!(
            message.headers.text("delayed-error"),
            codes.get(body).copied(),
            "{}",
            body.escape_ascii()
        );
        assert_eq!(
            message.headers.text("delay-target"),
            Some("orders.a"),
            "what can pass is as it came"
        );
        assert!(
            message.headers.text("delayed-error-detail").unwrap().contains("left out"),
            "{:?}",
            message.headers
        );
    }
    let arrived = env.arrived("orders.a", REQUEST_COUNT - codes.len()).await;
    assert!(
        arrived.keys().all(|body| !codes.contains_key(body))
            && arrived.len() + rejected.len() == REQUEST_COUNT
    );
    assert!(bridge.stop(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_too_large_to_be_rejected_as_it_came_is_cut() {
    let env = Environment::start("max_payload: 4096\n").await;
    let mut producer = Producer::connect(&env.nats).await;
    let _bridge = env.run().await;
    // The two headers of ours make it too large; what it needs is in its own.
    let soon = b"delay-for: soon\r\n";
    let full = vec![b'x'; 4096 - b"NATS/1.0\r\n\r\n".len() - soon.len()];
    producer.send(soon, &full).await;
    let long = [&soon[..], b"x: ", &[b'y'; 4000], b"\r\n"].concat();
    producer.send(&long, b"long headers").await;
    producer.send(GOOD, b"good").await;
    env.arrived("orders.a", 1).await;
    let rejected = env.arrived("delay.rejected", 2).await;
    let cut = &rejected[&full[..full.len() / 2]];
    let detail = cut.headers.text("delayed-error-detail").unwrap();
    assert!(
        detail.contains(&format!(
            "all 1 headers, the body from byte {} of {} on",
            full.len() / 2,
            full.len()
        )),
        "{detail}"
    );
    let bare = &rejected[&b"long headers"[..]];
    assert_eq!((bare.headers.len(), bare.headers.text("delayed-error")), (2, Some("bad_delay")));
    assert_eq!(metric(&env.metrics.encode(), r#"dwell_ingest_paused{reason="rejected"}"#), 0.0);
}
