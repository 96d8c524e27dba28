//! Differences between kinds of brokers: keys, absent bodies, properties, header types.

use bytes::Bytes;
use dwell_connectors::stand_ins::{KEY, KEY_BASE64, TOMBSTONE};
use dwell_connectors::{Message, Properties, Value};

use super::*;

const KINDS: [(Kind, &str); 3] =
    [(Kind::Nats, "nats"), (Kind::Kafka, "kafka"), (Kind::Amqp, "amqp")];

/// A request whose job goes to the broker of this name.
fn request(broker: &str) -> Message {
    let target = if broker == "nats" { "orders.a" } else { "orders" };
    Message::new("body")
        .with_header("delay-for", "1s")
        .with_header("delay-broker", broker)
        .with_header("delay-target", target)
}

fn with(mut message: Message, name: &str, value: Value) -> Message {
    message.headers.push(name, value);
    message
}

/// Every type a header can have.
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        Value::Bool(true),
        Value::I8(-1),
        Value::I16(-2),
        Value::I32(-3),
        Value::I64(-4),
        Value::U8(1),
        Value::U16(2),
        Value::U32(3),
        Value::F32(0.5),
        Value::F64(0.25),
        Value::Decimal(2, 314),
        Value::Text("text".to_owned()),
        Value::Bytes(Bytes::from_static(b"\xff\0")),
        Value::Timestamp(1_700_000_000),
        Value::List(vec![Value::I32(1)]),
        Value::Table(vec![("a".to_owned(), Value::Bool(false))]),
    ]
}

#[test]
fn every_header_passes_as_it_is_or_as_text() {
    for (from, _) in KINDS {
        for (to, name) in KINDS {
            for value in values() {
                let message = with(request(name), "tag", value.clone());
                // NATS and Kafka have no such values of their own.
                let is_typed = matches!(
                    value,
                    Value::Null
                        | Value::Bytes(_)
                        | Value::Decimal(..)
                        | Value::List(_)
                        | Value::Table(_)
                );
                let expected = match (&value, to) {
                    _ if from == to && to != Kind::Amqp && is_typed => continue,
                    (_, Kind::Amqp) => Some(value.clone()),
                    (Value::Null, _) => None,
                    (Value::Decimal(..), _) => Some("3.14".into()),
                    (Value::List(_), _) => Some("[1]".into()),
                    (Value::Table(_), _) => Some(r#"{"a":false}"#.into()),
                    (Value::Bytes(_), Kind::Nats) => {
                        assert_eq!(
                            refused(&message, &rules(from)),
                            Code::BadHeader,
                            "{from:?} to {to:?}: {value:?}"
                        );
                        continue;
                    }
                    _ => Some(value.clone()),
                };
                assert_eq!(
                    scheduled(&message, &rules(from)).job.headers.get("tag"),
                    expected.as_ref(),
                    "{from:?} to {to:?}: {value:?}"
                );
            }
        }
    }
}

#[test]
fn what_brokers_and_frameworks_add_passes_as_json_and_what_is_void_is_dropped() {
    let death = Value::Table(vec![
        ("count".to_owned(), Value::I64(1)),
        ("queue".to_owned(), "a\u{7f}\n\"b".into()),
        ("raw".to_owned(), Value::Bytes(Bytes::from_static(b"\xff"))),
        ("time".to_owned(), Value::Timestamp(1_700_000_000)),
        ("part".to_owned(), Value::F64(0.5)),
        ("none".to_owned(), Value::F64(f64::NAN)),
    ]);
    let added = |to| {
        let message = with(request(to), "x-death", Value::List(vec![death.clone()]));
        let message = with(message, "timelimit", Value::List(vec![Value::Null, Value::Null]));
        let message = with(message, "bytes", Value::Bytes(Bytes::from_static(b"text")));
        ["tracestate", "eta", "group"]
            .into_iter()
            .fold(message, |message, name| with(message, name, Value::Null))
    };
    let json = r#"[{"count":1,"none":null,"part":0.5,"queue":"a\u007f\n\"b","raw":{"base64":"/w=="},"time":1700000000}]"#;
    let nats = scheduled(&added("nats"), &rules(Kind::Amqp));
    assert_eq!(passed(&nats), [("x-death", json), ("timelimit", "[null,null]"), ("bytes", "text")]);
    assert_eq!(
        passed(&scheduled(&added("kafka"), &rules(Kind::Amqp)))[..2],
        [("x-death", json), ("timelimit", "[null,null]")]
    );
    // In a queue of Dwell's own, and on the broker that has types, all of them stay as they are.
    let own = scheduled(&added("amqp"), &rules(Kind::Amqp));
    assert_eq!((own.job.headers.get("tracestate"), own.job.headers.len()), (Some(&Value::Null), 6));
    let queue = ["delay-queue"]
        .into_iter()
        .fold(Message::new("").with_header("delay-for", "1s"), |message, name| {
            message.with_header(name, "emails")
        });
    let queued = scheduled(&with(queue, "x-death", Value::List(vec![death])), &rules(Kind::Amqp));
    assert!(matches!(queued.job.headers.get("x-death"), Some(Value::List(_))));
}

#[test]
fn a_key_stays_a_key_or_becomes_a_header() {
    let keyed = |broker, key: &'static [u8]| Message {
        key: Some(Bytes::from_static(key)),
        ..request(broker)
    };
    let job = |broker, key| scheduled(&keyed(broker, key), &rules(Kind::Kafka)).job;
    assert_eq!(job("kafka", b"k\xff").key, Some(Bytes::from_static(b"k\xff")));
    assert!(job("kafka", b"k").headers.is_empty());
    for broker in ["nats", "amqp"] {
        let text = job(broker, b"customer-7");
        assert_eq!((text.key, text.headers.text(KEY)), (None, Some("customer-7")));
    }
    assert_eq!(job("nats", b"k\xff").headers.text(KEY_BASE64), Some("a/8="));
    assert_eq!(job("nats", b"k\r\n").headers.text(KEY_BASE64), Some("aw0K"));
    assert_eq!(
        job("amqp", b"k\xff").headers.get(KEY),
        Some(&Value::Bytes(Bytes::from_static(b"k\xff")))
    );
}

#[test]
fn a_tombstone_is_told_from_an_empty_body() {
    let tombstone = |broker| Message { body: Bytes::new(), has_body: false, ..request(broker) };
    for broker in ["nats", "amqp"] {
        assert_eq!(
            scheduled(&tombstone(broker), &rules(Kind::Kafka)).job.headers.text(TOMBSTONE),
            Some("true")
        );
        assert!(scheduled(&request(broker), &rules(Kind::Kafka)).job.headers.is_empty());
    }
    let job = scheduled(&tombstone("kafka"), &rules(Kind::Kafka)).job;
    assert!(!job.has_body && job.headers.is_empty());
}

#[test]
fn properties_stay_properties_or_become_headers() {
    let properties = Properties {
        content_type: Some("text/plain".to_owned()),
        delivery_mode: Some(2),
        kind: Some("order".to_owned()),
        timestamp: Some(7),
        ..Properties::default()
    };
    let message =
        |broker| Message { properties: Some(Box::new(properties.clone())), ..request(broker) };
    assert_eq!(
        scheduled(&message("amqp"), &rules(Kind::Amqp)).job.properties.as_deref(),
        Some(&properties)
    );
    for broker in ["nats", "kafka"] {
        let schedule = scheduled(&message(broker), &rules(Kind::Amqp));
        assert_eq!(schedule.job.properties, None);
        let expected = [
            ("amqp-content-type", "text/plain"),
            ("amqp-delivery-mode", "2"),
            ("amqp-timestamp", "7"),
            ("amqp-type", "order"),
        ];
        assert_eq!(passed(&schedule), expected);
    }
    let two_lines = Properties { app_id: Some("a\nb".to_owned()), ..Properties::default() };
    let message = Message { properties: Some(Box::new(two_lines)), ..request("nats") };
    assert_eq!(refused(&message, &rules(Kind::Amqp)), Code::BadHeader);
}

#[test]
fn what_would_be_lost_in_a_field_table_is_refused() {
    let twice = request("amqp").with_header("tag", "1").with_header("tag", "2");
    assert_eq!(refused(&twice, &rules(Kind::Kafka)), Code::BadHeader);
    let other_case = request("amqp").with_header("tag", "1").with_header("Tag", "2");
    assert_eq!(scheduled(&other_case, &rules(Kind::Kafka)).job.headers.len(), 2);
    assert_eq!(
        scheduled(
            &request("kafka").with_header("tag", "1").with_header("tag", "2"),
            &rules(Kind::Nats)
        )
        .job
        .headers
        .len(),
        2
    );
}

#[test]
fn headers_that_speak_to_nats_do_not_come_from_elsewhere() {
    for (from, code) in [
        (Kind::Kafka, Some(Code::BadHeader)),
        (Kind::Amqp, Some(Code::BadHeader)),
        (Kind::Nats, None),
    ] {
        let message = request("nats").with_header("Nats-Expected-Stream", "X");
        match code {
            Some(code) => assert_eq!(refused(&message, &rules(from)), code),
            None => assert!(scheduled(&message, &rules(from)).job.headers.is_empty()),
        }
    }
}
