//! Tests of requests. Here: the rules that they share, without a connector.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_connectors::{
    Allow, BrokerConfig, Destination, Message, Position, Value, amqp, kafka, memory, nats,
};

use super::*;
use crate::config::values::{Bytes, Millis, Optional};
use crate::config::{
    DelayFrom, DeliverTo, Format, IdFrom, Ingest, Limits, MissingDelay, QueueRules, Queues,
};
use crate::job::{Confirm, OnTimeout};
use crate::request::NewSchedule;

mod accepted;
mod actions;
mod clients;
mod debounce;
mod dialects;
mod envelopes;
mod etf1;
mod exchanges;
mod expire;
mod fields;
mod foreign;
mod local_times;
mod moved;
mod origins;
mod props;
mod queues;
mod refused;
mod schedules;
mod spread;

/// Redis's time in every test: 2026-01-31T12:00:00Z.
const NOW: i64 = 1_769_860_800_000;
const MINUTE: u64 = 60_000;
const DAY: u64 = 86_400_000;

/// The brokers of the rules. `Direct` stands for requests over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nats,
    Kafka,
    Amqp,
    Memory,
    Direct,
}

fn connector(kind: Kind) -> BrokerConfig {
    match kind {
        Kind::Nats => BrokerConfig::Nats(nats::Config::at("nats://127.0.0.1:4222")),
        Kind::Kafka => BrokerConfig::Kafka(kafka::Config::at("127.0.0.1:9092")),
        Kind::Amqp => BrokerConfig::Amqp(amqp::Config::at("amqp://127.0.0.1:5672")),
        Kind::Memory | Kind::Direct => {
            BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()))
        }
    }
}

fn broker(kind: Kind, allow: &[&str], topics: &[&str]) -> BrokerRules {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let connector = Arc::new(connector(kind));
    BrokerRules {
        allow: Allow::new(&**connector, &owned(allow)),
        connector,
        ingest_topics: owned(topics),
    }
}

/// The rules of a queue, or of queues: one retry, and `on_timeout = "retry"`.
fn queue(name: &str) -> QueueRules {
    QueueRules {
        name: name.to_owned(),
        ttr: Millis::of(20_000),
        retry: Some(vec![MINUTE].into()),
        on_timeout: OnTimeout::Retry,
        max_jobs: 5,
        ..QueueRules::default()
    }
}

/// An ingest `main` on the broker of this kind, and one broker of each kind beside it.
fn rules(kind: Kind) -> RequestRules {
    let brokers = BTreeMap::from([
        (
            "nats".to_owned(),
            broker(Kind::Nats, &["orders.>", "replies.a"], &["delay.in", "late.>"]),
        ),
        ("kafka".to_owned(), broker(Kind::Kafka, &["orders", "replies"], &["delay-in"])),
        (
            "amqp".to_owned(),
            broker(Kind::Amqp, &["/orders", "shop/close.*", "fan/", "/replies"], &["delay.in"]),
        ),
        ("memory".to_owned(), broker(Kind::Memory, &["orders.*"], &["delay.in"])),
    ]);
    RequestRules {
        name: "main".to_owned(),
        source: (kind != Kind::Direct).then(|| connector(kind).capabilities()),
        ingest: Ingest {
            broker: if kind == Kind::Direct { "" } else { connector(kind).kind() }.to_owned(),
            ..Ingest::default()
        },
        ttr_ms: 30_000,
        confirm: Confirm::Broker,
        limits: Limits { max_body: Bytes::of(1 << 10), max_retries: 3, ..Limits::default() },
        brokers,
        queues: Arc::new(Queues::new([queue("emails"), queue("orders.*")])),
        full_queues: FullQueues::default(),
    }
}

/// A message read from a stream half a second ago.
fn message(headers: &[(&str, &str)]) -> Message {
    bare(&[&[("delay-target", "orders.close")], headers].concat())
}

/// The same without a target.
fn bare(headers: &[(&str, &str)]) -> Message {
    let message = Message {
        destination: Destination::new("delay.in"),
        position: Some(Position { log: "DELAY".to_owned(), partition: 0, offset: 7 }),
        timestamp_ms: Some(NOW - 500),
        ..Message::new("body")
    };
    headers.iter().fold(message, |m, (name, value)| m.with_header(*name, *value))
}

fn with(mut message: Message, name: &str, value: Value) -> Message {
    message.headers.push(name, value);
    message
}

#[track_caller]
fn scheduled(message: &Message, rules: &RequestRules) -> NewJob {
    match parse(message, rules, NOW) {
        Ok(Request::NewJob(new_job)) => *new_job,
        other => panic!("not scheduled: {other:?}"),
    }
}

#[track_caller]
fn recurring(message: &Message, rules: &RequestRules) -> NewSchedule {
    match parse(message, rules, NOW) {
        Ok(Request::NewSchedule(new)) => *new,
        other => panic!("no recurring schedule: {other:?}"),
    }
}

#[track_caller]
fn acted(message: &Message, rules: &RequestRules) -> Act {
    match parse(message, rules, NOW) {
        Ok(Request::Act(act)) => act,
        other => panic!("no action: {other:?}"),
    }
}

#[track_caller]
fn refused(message: &Message, rules: &RequestRules) -> Code {
    let rejection = parse(message, rules, NOW).expect_err("not refused");
    assert!(
        !rejection.detail.chars().any(char::is_control),
        "more than one line: {:?}",
        rejection.detail
    );
    rejection.code
}

/// The destination of a job of a broker.
#[track_caller]
fn destination(new_job: &NewJob) -> &Destination {
    new_job.job.destination().expect("a job of a broker")
}

/// Returns the headers that pass on, as text.
fn passed(new_job: &NewJob) -> Vec<(&str, &str)> {
    new_job
        .job
        .headers
        .iter()
        .map(|header| (header.name.as_str(), header.value.as_text().unwrap_or("?")))
        .collect()
}

#[test]
fn every_code_has_its_own_word() {
    let words: std::collections::BTreeSet<&str> =
        Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(words.len(), Code::ALL.len());
    let id = crate::job::JobId::new("a\u{fffd}").expect("an id");
    assert_eq!(Rejection::conflict(&id).to_string().split(':').next(), Some("conflict"));
}
