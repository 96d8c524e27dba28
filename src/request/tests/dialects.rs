//! Headers of other schedulers.

use bytes::Bytes;
use dwell_connectors::{Destination, Value};

use super::*;
use crate::job::Due;

#[test]
fn each_dialect_says_when_and_where() {
    let rules = rules(Kind::Kafka);
    let schedule = scheduled(
        &bare(&[("scheduler-epoch", "1769860860"), ("scheduler-target-topic", "orders"), ("scheduler-target-key", "k"), ("Tag", "1")]),
        &rules,
    );
    assert_eq!(
        (schedule.due, schedule.job.to.clone(), schedule.job.key.clone()),
        (Due::At(NOW + 60_000), Destination::new("orders"), Some(Bytes::from("k")))
    );
    assert_eq!(passed(&schedule), [("Tag", "1")]);

    let schedule = scheduled(&bare(&[("X-Timebridge-When", "2026-01-31T12:01:00Z"), ("X-Timebridge-Where", "orders")]), &rules);
    assert_eq!((schedule.due, schedule.job.to.clone()), (Due::At(NOW + 60_000), Destination::new("orders")));
    assert!(schedule.job.headers.is_empty());

    let schedule = scheduled(
        &bare(&[("Nats-Schedule", "@at 2026-01-31T12:01:00Z"), ("Nats-Schedule-Target", "orders"), ("Nats-Schedule-TTL", "5m")]),
        &rules,
    );
    assert_eq!((schedule.due, schedule.job.to.clone()), (Due::At(NOW + 60_000), Destination::new("orders")));
    assert!(schedule.job.headers.is_empty());

    let schedule = scheduled(&with(message(&[]), "X-Delay", Value::I32(5_000)), &super::rules(Kind::Nats));
    assert_eq!(schedule.due, Due::At(NOW + 4_500));
    assert!(schedule.job.headers.is_empty());
}

#[test]
fn control_headers_win_over_dialects() {
    let message = message(&[("delay-for", "1s"), ("x-delay", "nonsense"), ("x-delay", "twice"), ("scheduler-target-topic", "elsewhere")]);
    let schedule = scheduled(&message, &rules(Kind::Nats));
    assert_eq!((schedule.due, schedule.job.to.clone()), (Due::At(NOW + 500), Destination::new("orders.close")));
    assert!(schedule.job.headers.is_empty());
}

#[test]
fn x_delay_is_as_rabbitmqs_plugin_reads_it() {
    let mut rules = rules(Kind::Nats);
    let x_delay = |value: &str| message(&[("x-delay", value)]);
    assert_eq!(scheduled(&x_delay("0"), &rules).due, Due::At(NOW - 500));
    assert_eq!(refused(&x_delay("-1"), &rules), Code::BadDelay);
    assert_eq!(refused(&x_delay("5s"), &rules), Code::BadDelay);
    assert_eq!(refused(&x_delay("9223372036854775807"), &rules), Code::DelayTooLong);
    rules.ingest.missing_delay_immediate = true;
    assert_eq!(scheduled(&x_delay("-5000"), &rules).due, Due::At(NOW - 500));
    assert_eq!(scheduled(&message(&[]), &rules).due, Due::In(0));
}

#[test]
fn what_a_dialect_cannot_say_is_refused() {
    let cases: &[(&[(&str, &str)], Code)] = &[
        (&[("x-delay", "1"), ("x-delay", "1")], Code::BadHeader),
        (&[("x-delay", "1"), ("scheduler-epoch", "1769860860")], Code::AmbiguousDelay),
        (&[("scheduler-epoch", "soon")], Code::BadDelay),
        (&[("scheduler-epoch", "-1")], Code::BadDelay),
        (&[("scheduler-epoch", "1769860860000")], Code::DelayTooLong),
        (&[("scheduler-epoch", "9223372036854775807")], Code::DelayTooLong),
        (&[("x-timebridge-when", "tomorrow")], Code::BadDelay),
        (&[("nats-schedule", "@every 5m")], Code::BadDelay),
        (&[("nats-schedule", "@at tomorrow")], Code::BadDelay),
    ];
    for (headers, code) in cases {
        assert_eq!(refused(&message(headers), &rules(Kind::Nats)), *code, "{headers:?}");
    }
    let two = bare(&[("x-delay", "1"), ("scheduler-target-topic", "orders.a"), ("x-timebridge-where", "orders.b")]);
    assert_eq!(refused(&two, &rules(Kind::Nats)), Code::BadHeader);
    assert_eq!(refused(&bare(&[("x-delay", "1"), ("scheduler-target-topic", "other")]), &rules(Kind::Nats)), Code::TargetNotAllowed);
}
