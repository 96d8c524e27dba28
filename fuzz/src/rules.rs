//! The settings that requests are judged by here: a broker of each kind, and an ingest on one of
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use dwell::config::values::Bytes;
use dwell::config::{Format, Ingest, Limits, MissingDelay, QueueRules, Queues};
use dwell::job::Confirm;
use dwell::request::{BrokerRules, FullQueues, RequestRules};
use dwell_connectors::{Allow, BrokerConfig, amqp, kafka, nats};

/// Redis's time: 2026-01-31T12:00:00Z.
pub(crate) const NOW: i64 = 1_769_860_800_000;

/// The kinds of brokers.
pub(crate) const KINDS: [&str; 3] = ["nats", "kafka", "amqp"];

/// A broker of this kind.
pub(crate) fn broker(kind: &str) -> BrokerConfig {
    match kind {
        "nats" => BrokerConfig::Nats(nats::Config::at("nats://127.0.0.1:4222")),
        "kafka" => BrokerConfig::Kafka(kafka::Config::at("127.0.0.1:9092")),
        _ => BrokerConfig::Amqp(amqp::Config::at("amqp://127.0.0.1:5672")),
    }
}

fn known(kind: &str, allow: &[&str], topics: &[&str]) -> (String, BrokerRules) {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let connector = Arc::new(broker(kind));
    let rules = BrokerRules {
        allow: Allow::new(&**connector, &owned(allow)),
        connector,
        ingest_topics: owned(topics),
    };
    (kind.to_owned(), rules)
}

static BROKERS: LazyLock<BTreeMap<String, BrokerRules>> = LazyLock::new(|| {
    BTreeMap::from([
        known(
            "nats",
            &["orders.>", "replies.*", "$JS.>", "_INBOX.>", "*"],
            &["delay.in", "late.>"],
        ),
        known("kafka", &["orders*", "*.replies", "__*"], &["delay-in"]),
        known("amqp", &["/orders*", "shop/close.*", "fan/", "amq.*/*", "*/x"], &["delay.in"]),
    ])
});

static QUEUES: LazyLock<Arc<Queues>> = LazyLock::new(|| {
    let rules = |name: &str| QueueRules {
        name: name.to_owned(),
        retry: Some(vec![1_000].into()),
        ..QueueRules::default()
    };
    Arc::new(Queues::new([rules("emails"), rules("orders.*")]))
});

static INGEST: LazyLock<Ingest> = LazyLock::new(Ingest::default);

static LIMITS: LazyLock<Limits> =
    LazyLock::new(|| Limits { max_body: Bytes::of(1 << 10), max_retries: 3, ..Limits::default() });

/// An ingest on the broker of this kind; on none: requests by HTTP.
pub(crate) fn rules(kind: &str, envelope: bool, immediate: bool) -> RequestRules {
    let direct = kind.is_empty();
    RequestRules {
        name: "main".to_owned(),
        source: (!direct).then(|| broker(kind).capabilities()),
        ingest: Ingest {
            broker: if direct { "nats" } else { kind }.to_owned(),
            format: if envelope { Format::Envelope } else { Format::Headers },
            missing_delay: if immediate { MissingDelay::Immediate } else { MissingDelay::Reject },
            ..INGEST.clone()
        },
        ttr_ms: 30_000,
        confirm: Confirm::Broker,
        limits: LIMITS.clone(),
        brokers: BROKERS.clone(),
        queues: QUEUES.clone(),
        full_queues: FullQueues::default(),
    }
}
