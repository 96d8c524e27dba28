//! What tells one message from every other.

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
    message.properties = Some(Box::new(Properties { message_id: id.map(str::to_owned), ..Properties::default() }));
    message
}

#[test]
fn a_position_tells_a_message_from_every_other() {
    let rules = rules(Kind::Nats);
    let first = scheduled(&changed(|_| {}), &rules);
    let again = scheduled(&changed(|message| message.redelivered = true), &rules);
    assert_eq!((first.origin, &first.id), (again.origin, &again.id));
    assert!(first.origin.check);
    let others = [
        changed(|message| message.position = Some(Position { log: "DELAY".into(), partition: 0, offset: 8 })),
        changed(|message| message.position = Some(Position { log: "DELAY".into(), partition: 1, offset: 7 })),
        changed(|message| message.position = Some(Position { log: "OTHER".into(), partition: 0, offset: 7 })),
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
    assert_ne!(first.origin.fingerprint, scheduled(&changed(|_| {}), &elsewhere).origin.fingerprint);
}

#[test]
fn a_generated_id_depends_on_the_content_too() {
    let rules = rules(Kind::Nats);
    let first = scheduled(&changed(|_| {}), &rules);
    for other in [changed(|message| message.body = "other".into()), changed(|message| message.headers.push("a", "".into()))] {
        let other = scheduled(&other, &rules);
        assert_eq!(first.origin.fingerprint, other.origin.fingerprint);
        assert_ne!(first.id, other.id);
    }
    let named = scheduled(&changed(|message| message.headers.push("delay-id", "mine".into())), &rules);
    assert_eq!((named.id.as_str(), named.generated), ("mine", false));
}

#[test]
fn on_amqp_only_a_redelivery_with_a_message_id_is_looked_up() {
    let rules = rules(Kind::Amqp);
    let first = scheduled(&named(false, Some("m")), &rules);
    let again = scheduled(&named(true, Some("m")), &rules);
    assert_eq!((first.origin.fingerprint, &first.id), (again.origin.fingerprint, &again.id));
    assert_eq!((first.origin.check, again.origin.check), (false, true));
    assert_ne!(first.origin.fingerprint, scheduled(&named(true, Some("n")), &rules).origin.fingerprint);
    for id in [None, Some("")] {
        let (one, two) = (scheduled(&named(true, id), &rules), scheduled(&named(true, id), &rules));
        assert_ne!(one.origin.fingerprint, two.origin.fingerprint);
        assert_ne!(one.id, two.id);
        assert!(one.generated && !one.origin.check);
    }
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
