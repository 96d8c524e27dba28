//! Schedules of etf1/kafka-message-scheduler: the message's key is the schedule's id, the target's
//! key a header of its own, and a tombstone deletes.

use bytes::Bytes;
use dwell_connectors::{Message, Value};

use super::*;
use crate::job::{Action, Conflict, Due};

fn by_key() -> RequestRules {
    let mut rules = rules(Kind::Kafka);
    rules.ingest.id_from = IdFrom::Key;
    rules
}

/// A schedule for a minute from now.
fn scheduling(key: &str) -> Message {
    let message = bare(&[("scheduler-epoch", "1769860860"), ("scheduler-target-topic", "orders")]);
    Message { key: Some(Bytes::copy_from_slice(key.as_bytes())), ..message }
}

fn tombstone(message: Message) -> Message {
    Message { body: Bytes::new(), has_body: false, ..message }
}

#[test]
fn the_targets_key_is_that_of_the_header_alone() {
    for rules in [rules(Kind::Kafka), by_key()] {
        let key = |message| scheduled(&message, &rules).job.key;
        assert_eq!(key(scheduling("id")), None, "absent");
        assert_eq!(key(with(scheduling("id"), "scheduler-target-key", Value::Null)), None, "null");
        assert_eq!(
            key(scheduling("id").with_header("scheduler-target-key", "")),
            Some(Bytes::new()),
            "empty"
        );
        assert_eq!(
            key(scheduling("id").with_header("Scheduler-Target-Key", "vid1")),
            Some(Bytes::from("vid1"))
        );
        let binary = Bytes::from_static(b"\xff\0");
        assert_eq!(
            key(with(scheduling("id"), "scheduler-target-key", Value::Bytes(binary.clone()))),
            Some(binary)
        );
        let twice = scheduling("id")
            .with_header("scheduler-target-key", "a")
            .with_header("scheduler-target-key", "b");
        assert_eq!(refused(&twice, &rules), Code::BadHeader);
        assert_eq!(
            refused(
                &with(scheduling("id"), "scheduler-target-key", Value::List(Vec::new())),
                &rules
            ),
            Code::BadHeader
        );
    }
    let own = Message {
        key: Some(Bytes::from("k")),
        ..bare(&[("delay-for", "1s"), ("delay-target", "orders")])
    };
    assert_eq!(
        scheduled(&own, &rules(Kind::Kafka)).job.key,
        Some(Bytes::from("k")),
        "no header of that dialect stands"
    );
}

#[test]
fn the_key_is_the_id() {
    let schedule = scheduled(&scheduling("vid1-online"), &by_key());
    assert_eq!(
        (schedule.id.as_str(), schedule.generated, schedule.conflict),
        ("vid1-online", false, Conflict::Replace)
    );
    let named = scheduled(&scheduling("vid1-online").with_header("delay-id", "mine"), &by_key());
    assert_eq!(named.id.as_str(), "mine");
    assert!(
        scheduled(&scheduling("vid1-online"), &rules(Kind::Kafka)).generated,
        "not without the setting"
    );

    let own = Message {
        key: Some(Bytes::from("k")),
        ..bare(&[("delay-for", "1s"), ("delay-target", "orders")])
    };
    let own = scheduled(&own, &by_key());
    assert_eq!(
        (own.id.as_str(), own.job.key, own.job.headers.len()),
        ("k", Some(Bytes::from("k")), 0)
    );
    let act = acted(&scheduling("vid1-online").with_header("delay-action", "fire"), &by_key());
    assert_eq!((act.action, act.id.as_str()), (Action::Fire, "vid1-online"));
    let envelope = Message { body: r#"{"command":"delete","id":"b"}"#.into(), ..scheduling("a") };
    let mut rules = by_key();
    rules.ingest.format = Format::Envelope;
    assert_eq!(acted(&envelope, &rules).id.as_str(), "b");

    for key in
        [None, Some(&b""[..]), Some(b"  "), Some(b"a\xff"), Some(b"a\nb"), Some(&[b'a'; 257])]
    {
        let message = Message { key: key.map(Bytes::copy_from_slice), ..scheduling("") };
        assert_eq!(refused(&message, &by_key()), Code::BadId, "{key:?}");
    }
}

#[test]
fn a_tombstone_cancels_whatever_headers_it_has() {
    let without = Message { key: Some(Bytes::from("vid1")), ..bare(&[]) };
    for message in
        [without, scheduling("vid1"), scheduling("vid1").with_header("scheduler-key", "vid1")]
    {
        let act = acted(&tombstone(message), &by_key());
        assert_eq!((act.action, act.id.as_str()), (Action::Cancel, "vid1"));
    }
    let mut envelope = by_key();
    envelope.ingest.format = Format::Envelope;
    assert_eq!(acted(&tombstone(scheduling("vid1")), &envelope).action, Action::Cancel);
    assert_eq!(refused(&tombstone(bare(&[])), &by_key()), Code::BadId);

    // With a `delay-*` header a tombstone is delivered without a body.
    let own = tombstone(scheduling("vid1")).with_header("delay-for", "1s");
    assert!(!scheduled(&own, &by_key()).job.has_body);
    let both = parse(
        &tombstone(scheduling("vid1")).with_header("delay-action", "schedule"),
        &by_key(),
        NOW,
    )
    .unwrap_err();
    let said = "a message without a body deletes the schedule of its key, and delay-action is schedule: leave it out, or send delay-for";
    assert_eq!((both.code, both.detail.as_str()), (Code::BadAction, said));
    let empty = Message { body: Bytes::new(), ..scheduling("vid1") };
    assert!(scheduled(&empty, &by_key()).job.has_body, "an empty body is not a tombstone");
}

#[test]
fn a_tombstone_is_no_schedule_where_keys_are_no_ids() {
    let mut rules = rules(Kind::Kafka);
    for immediate in [false, true] {
        rules.ingest.missing_delay =
            if immediate { MissingDelay::Immediate } else { MissingDelay::Reject };
        assert_eq!(refused(&tombstone(scheduling("vid1")), &rules), Code::BadAction);
        assert_eq!(
            refused(&tombstone(bare(&[("scheduler-target-topic", "orders")])), &rules),
            Code::BadAction
        );
    }
    assert_eq!(
        scheduled(&tombstone(scheduling("vid1")).with_header("delay-for", "1s"), &rules).due,
        Due::At(NOW + 500)
    );
}

#[test]
fn what_is_delivered_says_which_schedule_it_was() {
    let message = scheduling("vid1")
        .with_header("scheduler-key", "of the last time")
        .with_header("customer", "dummy");
    let schedule = scheduled(&message, &by_key());
    let seconds = ((NOW - 500) / 1_000).to_string();
    let expected = [
        ("customer", "dummy"),
        ("scheduler-timestamp", seconds.as_str()),
        ("scheduler-key", "vid1"),
        ("scheduler-topic", "delay.in"),
    ];
    assert_eq!(passed(&schedule), expected);
    let elsewhere = Message {
        timestamp_ms: None,
        ..scheduling("vid1")
            .with_header("delay-broker", "amqp")
            .with_header("delay-target", "orders")
    };
    assert_eq!(
        passed(&scheduled(&elsewhere, &by_key())),
        [("scheduler-key", "vid1"), ("scheduler-topic", "delay.in")]
    );
    assert_eq!(
        passed(&scheduled(&message, &rules(Kind::Kafka))),
        [("scheduler-key", "of the last time"), ("customer", "dummy")]
    );
}
