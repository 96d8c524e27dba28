//! The parts that only AMQP has: exchanges, routing keys, CC and BCC, and messages without a
//! reliable time.

use dwell_connectors::{Destination, Message, Properties, Value};

use super::*;
use crate::job::Due;

fn amqp(key: &str, headers: &[(&str, &str)]) -> Message {
    let message = Message {
        destination: Destination { exchange: "in".to_owned(), address: key.to_owned() },
        timestamp_ms: Some(NOW - 500),
        ..Message::new("body")
    };
    headers.iter().fold(message, |m, (name, value)| m.with_header(*name, *value))
}

fn at(exchange: &str, key: &str) -> Destination {
    Destination { exchange: exchange.to_owned(), address: key.to_owned() }
}

#[test]
fn targets_are_keys_on_the_named_exchange_or_the_ingests_own() {
    let mut rules = rules(Kind::Amqp);
    let to = |rules: &RequestRules, key, headers: &[(&str, &str)]| {
        let message = amqp(key, &[&[("delay-for", "1s")], headers].concat());
        destination(&scheduled(&message, rules)).clone()
    };
    assert_eq!(to(&rules, "x", &[("delay-target", "orders")]), at("", "orders"));
    assert_eq!(to(&rules, "orders", &[]), at("", "orders"), "the key that it came with");
    assert_eq!(
        to(&rules, "x", &[("delay-target", "close.a"), ("delay-exchange", "shop")]),
        at("shop", "close.a")
    );
    assert_eq!(to(&rules, "close.b", &[("delay-exchange", "shop")]), at("shop", "close.b"));
    assert_eq!(
        to(&rules, "x", &[("delay-target", ""), ("delay-exchange", "fan")]),
        at("fan", ""),
        "a fanout needs no key"
    );
    rules.ingest.exchange = "shop".to_owned();
    assert_eq!(to(&rules, "close.c", &[]), at("shop", "close.c"));
    assert_eq!(to(&rules, "x", &[("delay-target", "close.d")]), at("shop", "close.d"));
    assert_eq!(
        to(&rules, "x", &[("delay-target", "orders"), ("delay-exchange", "")]),
        at("", "orders")
    );
    rules.ingest.target = "other/key".to_owned();
    assert_eq!(to(&rules, "close.c", &[]), at("other", "key"));
    assert_eq!(
        refused(&amqp("close.c", &[("delay-for", "1s"), ("delay-exchange", "shop")]), &rules),
        Code::MissingTarget
    );
    rules.ingest.target = "queue".to_owned();
    assert_eq!(to(&rules, "close.c", &[]), at("", "queue"));
}

#[test]
fn the_routing_key_is_no_subject_elsewhere() {
    assert_eq!(
        refused(
            &amqp("orders.close", &[("delay-for", "1s"), ("delay-broker", "nats")]),
            &rules(Kind::Amqp)
        ),
        Code::MissingTarget
    );
    assert_eq!(refused(&amqp("delay.in", &[("delay-for", "1s")]), &rules(Kind::Amqp)), Code::Loop);
    assert_eq!(
        refused(&amqp("delay.in.expired", &[("delay-for", "1s")]), &rules(Kind::Amqp)),
        Code::TargetNotAllowed,
        "not ours"
    );
    assert_eq!(refused(&amqp("", &[("delay-for", "1s")]), &rules(Kind::Amqp)), Code::MissingTarget);
}

#[test]
fn a_reason_stays_on_one_line() {
    for name in ["delay-target", "delay-reply-to"] {
        let message = amqp("orders", &[("delay-for", "1s"), (name, "amq.\r\nforged")]);
        assert_eq!(refused(&message, &rules(Kind::Amqp)), Code::TargetNotAllowed);
    }
}

#[test]
fn delays_count_from_receipt() {
    assert_eq!(
        scheduled(&amqp("orders", &[("delay-for", "1s")]), &rules(Kind::Amqp)).due,
        Due::In(1_000)
    );
}

#[test]
fn replies_go_to_a_queue_or_an_exchange_with_its_key() {
    let reply = |text| amqp("orders", &[("delay-for", "1s"), ("delay-reply-to", text)]);
    assert_eq!(scheduled(&reply("replies"), &rules(Kind::Amqp)).reply_to, Some(at("", "replies")));
    assert_eq!(
        scheduled(&reply("shop/close.r"), &rules(Kind::Amqp)).reply_to,
        Some(at("shop", "close.r"))
    );
    assert_eq!(refused(&reply("shop/open"), &rules(Kind::Amqp)), Code::TargetNotAllowed);
}

#[test]
fn copies_must_be_allowed_one_by_one() {
    let copies = |name: &str, keys: &[&str]| {
        let keys = Value::List(keys.iter().map(|key| Value::Text((*key).to_owned())).collect());
        with(amqp("close.a", &[("delay-for", "1s"), ("delay-exchange", "shop")]), name, keys)
    };
    let rules = rules(Kind::Amqp);
    assert!(
        scheduled(&copies("CC", &["close.b", "close.c"]), &rules).job.headers.get("CC").is_some()
    );
    assert_eq!(refused(&copies("CC", &["close.b", "open"]), &rules), Code::TargetNotAllowed);
    assert_eq!(refused(&copies("BCC", &["open"]), &rules), Code::TargetNotAllowed);
    assert_eq!(
        refused(&amqp("orders", &[("delay-for", "1s"), ("CC", "orders")]), &rules),
        Code::BadHeader
    );
    assert_eq!(
        refused(
            &with(amqp("orders", &[("delay-for", "1s")]), "CC", Value::List(vec![Value::I8(1)])),
            &rules
        ),
        Code::BadHeader
    );
    assert_eq!(
        refused(
            &with(
                amqp("orders", &[("delay-for", "1s")]),
                "CC",
                Value::List(vec!["delay.in".into()])
            ),
            &rules
        ),
        Code::Loop
    );
    assert_eq!(
        refused(
            &with(amqp("orders", &[("delay-for", "1s")]), &"n".repeat(256), Value::Null),
            &rules
        ),
        Code::BadHeader
    );
}

#[test]
fn a_message_of_ours_is_a_new_request_for_so_many_rounds() {
    let mut rules = rules(Kind::Amqp);
    rules.limits.max_rounds = 3;
    let ours = |round: Option<Value>, headers: &[(&str, &str)]| {
        let message = with(amqp("orders", headers), "delayed-attempt", Value::I64(1));
        round.map_or(message.clone(), |round| with(message, "delayed-round", round))
    };
    let round = |message: &Message, rules: &RequestRules| scheduled(message, rules).job.round;
    assert_eq!(round(&amqp("orders", &[("x-delay", "5")]), &rules), 0);
    assert_eq!(
        round(&with(amqp("orders", &[("x-delay", "5")]), "delayed-round", Value::I64(9)), &rules),
        0,
        "not of ours"
    );
    assert_eq!(round(&ours(None, &[("x-delay", "5")]), &rules), 1);
    assert_eq!(round(&ours(Some(Value::I64(2)), &[("x-delay", "5")]), &rules), 3);
    assert_eq!(round(&ours(Some("2".into()), &[("x-delay", "5")]), &rules), 3);
    assert_eq!(refused(&ours(Some(Value::I64(3)), &[("x-delay", "5")]), &rules), Code::Loop);
    assert_eq!(refused(&ours(None, &[]), &rules), Code::Loop, "without a delay");
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(round(&ours(None, &[]), &rules), 1, "as the plugin passes it");
    assert_eq!(scheduled(&ours(None, &[]), &rules).due, Due::In(0));
    assert_eq!(refused(&ours(Some(Value::I64(3)), &[]), &rules), Code::Loop);
    assert_eq!(
        refused(&with(ours(None, &[]), "delayed-dead-reason", "failed".into()), &rules),
        Code::Loop,
        "a dead letter"
    );
    rules.limits.max_rounds = 0;
    assert_eq!(refused(&ours(None, &[("x-delay", "5")]), &rules), Code::Loop);
}

#[test]
fn a_message_of_ours_that_would_go_where_it_came_from_is_a_loop() {
    let mut rules = rules(Kind::Amqp);
    rules.ingest.missing_delay = MissingDelay::Immediate;
    rules.ingest.exchange = "shop".to_owned();
    let came = |exchange: &str, key: &str, headers: &[(&str, &str)]| {
        let message = with(amqp(key, headers), "delayed-attempt", Value::I64(1));
        Message { destination: at(exchange, key), ..message }
    };
    assert_eq!(refused(&came("shop", "close.a", &[]), &rules), Code::Loop);
    for message in [
        came("other", "close.a", &[]),
        came("shop", "close.a", &[("x-delay", "0")]),
        came("shop", "close.a", &[("delay-target", "close.b")]),
        Message { destination: at("shop", "close.a"), ..amqp("close.a", &[]) },
    ] {
        assert_eq!(destination(&scheduled(&message, &rules)).exchange, "shop", "{message:?}");
    }
    // On another broker the exchange of that name is another one.
    rules.brokers.insert("elsewhere".to_owned(), rules.brokers["amqp"].clone());
    assert_eq!(
        *destination(&scheduled(
            &came("shop", "close.a", &[("delay-broker", "elsewhere")]),
            &rules
        )),
        at("shop", "close.a")
    );
}

#[test]
fn properties_and_typed_headers_are_kept() {
    let properties =
        Properties { priority: Some(9), message_id: Some("m".to_owned()), ..Properties::default() };
    let message = Message {
        properties: Some(Box::new(properties.clone())),
        ..with(
            amqp("orders", &[("delay-for", "1s")]),
            "table",
            Value::Table(vec![("a".to_owned(), Value::Null)]),
        )
    };
    let job = scheduled(&message, &rules(Kind::Amqp)).job;
    assert_eq!(job.properties.as_deref(), Some(&properties));
    assert_eq!(job.headers.get("table"), Some(&Value::Table(vec![("a".to_owned(), Value::Null)])));
}
