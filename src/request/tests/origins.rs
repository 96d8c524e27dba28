//! The identity of inbound messages.

use dwell_connectors::{Message, Position, Properties, Value};

use super::*;

fn changed(change: impl FnOnce(&mut Message)) -> Message {
    let mut message = message(&[("delay-for", "1s")]);
    change(&mut message);
    message
}

fn named(redelivered: bool, id: Option<&str>) -> Message {
    let mut message = bare(&[("delay-for", "1s"), ("delay-target", "orders")]);
    message.position = None;
    message.redelivered = redelivered;
    message.properties =
        Some(Box::new(Properties { message_id: id.map(str::to_owned), ..Properties::default() }));
    message
}

#[test]
fn a_position_tells_a_message_from_every_other() {
    let rules = rules(Kind::Nats);
    let first = scheduled(&changed(|_| {}), &rules);
    let again = scheduled(&changed(|message| message.redelivered = true), &rules);
    assert_eq!((first.origin, &first.id), (again.origin, &again.id));
    assert!(first.origin.maybe_redelivered);
    let others = [
        changed(|message| {
            message.position = Some(Position { log: "DELAY".into(), partition: 0, offset: 8 })
        }),
        changed(|message| {
            message.position = Some(Position { log: "DELAY".into(), partition: 1, offset: 7 })
        }),
        changed(|message| {
            message.position = Some(Position { log: "OTHER".into(), partition: 0, offset: 7 })
        }),
        changed(|message| message.timestamp_ms = Some(NOW - 501)),
        changed(|message| message.timestamp_ms = None),
    ];
    for other in others {
        let other = scheduled(&other, &rules);
        assert_ne!(first.origin.fingerprint, other.origin.fingerprint);
        assert_ne!(first.id, other.id);
    }
    let mut elsewhere = rules.clone();
    elsewhere.brokers.insert("other".to_owned(), broker(Kind::Nats, &["orders.>"], &[]));
    elsewhere.ingest.broker = "other".to_owned();
    assert_ne!(
        first.origin.fingerprint,
        scheduled(&changed(|_| {}), &elsewhere).origin.fingerprint
    );
}

#[test]
fn a_generated_id_depends_on_the_content_too() {
    let rules = rules(Kind::Nats);
    let first = scheduled(&changed(|_| {}), &rules);
    for other in [
        changed(|message| message.body = "other".into()),
        changed(|message| message.headers.push("a", "".into())),
    ] {
        let other = scheduled(&other, &rules);
        assert_eq!(first.origin.fingerprint, other.origin.fingerprint);
        assert_ne!(first.id, other.id);
    }
    let named =
        scheduled(&changed(|message| message.headers.push("delay-id", "mine".into())), &rules);
    assert_eq!((named.id.as_str(), named.generated), ("mine", false));
}

#[test]
fn on_amqp_only_a_redelivery_with_a_message_id_is_looked_up() {
    let rules = rules(Kind::Amqp);
    let first = scheduled(&named(false, Some("m")), &rules);
    let again = scheduled(&named(true, Some("m")), &rules);
    assert_eq!((first.origin.fingerprint, &first.id), (again.origin.fingerprint, &again.id));
    assert_eq!((first.origin.maybe_redelivered, again.origin.maybe_redelivered), (false, true));
    assert_ne!(
        first.origin.fingerprint,
        scheduled(&named(true, Some("n")), &rules).origin.fingerprint
    );
    for id in [None, Some("")] {
        let (one, two) = (scheduled(&named(true, id), &rules), scheduled(&named(true, id), &rules));
        assert_ne!(one.origin.fingerprint, two.origin.fingerprint);
        assert_ne!(one.id, two.id);
        assert!(
            one.generated && one.origin.maybe_redelivered && one.call_id.is_none(),
            "told by its fingerprint, which is random"
        );
    }
}

#[test]
fn on_amqp_what_lost_its_mark_is_looked_up_too() {
    let rules = rules(Kind::Amqp);
    let expired = |id| Message { mark_lost: true, ..named(false, id) };
    let first = scheduled(&named(false, Some("m")), &rules);
    let again = scheduled(&expired(Some("m")), &rules);
    assert_eq!(
        (first.origin.fingerprint, again.origin.maybe_redelivered),
        (again.origin.fingerprint, true)
    );
    // Without an id from the producer, equal messages are separate jobs.
    assert!(again.is_new_message);
}

#[test]
fn on_amqp_a_delivery_without_the_mark_is_another_message_than_any_before() {
    let rules = rules(Kind::Amqp);
    let mut one = Request::NewJob(Box::new(scheduled(&named(false, Some("m")), &rules)));
    let before = one.clone();
    assert!(one.take_another_id());
    let (Request::NewJob(one), Request::NewJob(before)) = (&one, before) else {
        panic!("not schedules")
    };
    assert!(
        one.id != before.id
            && one.origin.fingerprint != before.origin.fingerprint
            && one.call_id != before.call_id
            && !one.is_new_message
    );
    // If the broker does not identify the message, the generation of the job identifies the call.
    let told =
        |message: &Message, rules: &RequestRules| scheduled(message, rules).call_id.is_some();
    assert!(told(&named(false, Some("m")).with_header("delay-id", "mine"), &rules));
    assert!(
        !told(&named(true, Some("m")), &rules)
            && !told(&named(false, None), &rules)
            && !told(&changed(|message| message.redelivered = false), &super::rules(Kind::Nats))
    );
    let stays = |message: &Message, rules: &RequestRules| {
        !Request::NewJob(Box::new(scheduled(message, rules))).take_another_id()
    };
    assert!(stays(&named(true, Some("m")), &rules), "a redelivery");
    assert!(stays(&named(false, None), &rules), "an id like no other");
    assert!(
        stays(&named(false, Some("m")).with_header("delay-id", "mine"), &rules),
        "an id of the producer's"
    );
    assert!(
        stays(&changed(|message| message.redelivered = false), &super::rules(Kind::Nats)),
        "a position"
    );
}

#[test]
fn the_delivery_count_of_a_quorum_queue_does_not_make_another_message() {
    let rules = rules(Kind::Amqp);
    let first = scheduled(&named(false, Some("m")), &rules);
    let again = scheduled(&with(named(true, Some("m")), "x-delivery-count", Value::I64(1)), &rules);
    assert_eq!((first.origin.fingerprint, &first.id), (again.origin.fingerprint, &again.id));
    let other = scheduled(&with(named(true, Some("m")), "x-other", Value::I64(1)), &rules);
    assert_ne!(first.origin.fingerprint, other.origin.fingerprint);
}
