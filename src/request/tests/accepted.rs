//! Accepted requests and their meaning.

use bytes::Bytes;
use dwell_connectors::{Destination, Value};

use super::*;
use crate::job::{Confirm, Conflict, Due, Late};

#[test]
fn a_request_without_more_takes_the_defaults() {
    let message = message(&[("delay-for", "5m")]);
    let schedule = scheduled(&message, &rules(Kind::Nats));
    assert!(schedule.generated && schedule.id.as_str().len() == 32);
    assert_eq!(
        (schedule.due, schedule.conflict, schedule.reply_to),
        (Due::At(NOW - 500 + 300_000), Conflict::Keep, None)
    );
    let job = schedule.job;
    assert_eq!(
        (job.broker(), job.destination()),
        (Some("nats"), Some(&Destination::new("orders.close")))
    );
    assert_eq!(
        (job.ttr_ms, job.confirm, job.retry, job.late, job.max_late_ms),
        (30_000, Confirm::Broker, None, None, None)
    );
    assert_eq!(
        (job.created_ms, job.origin.as_str(), job.has_body, job.body),
        (NOW, "nats", true, Bytes::from("body"))
    );
    assert!(job.headers.is_empty());
}

#[test]
fn every_control_header_is_read_whatever_the_case_of_its_name() {
    let message = bare(&[
        ("DELAY-UNTIL", "2026-02-01T12:00:00+01:00"),
        ("Delay-Target", "orders"),
        ("Delay-Exchange", ""),
        ("Delay-Broker", "kafka"),
        ("Delay-Id", "order-1 ü"),
        ("Delay-Ttr", "90s"),
        ("Delay-Confirm", "consumer"),
        ("Delay-Retry", "2m, 10m,PT1H"),
        ("Delay-Late", "drop"),
        ("Delay-Max-Late", "1h"),
        ("Delay-On-Conflict", "reject"),
        ("Delay-Action", " schedule "),
        ("Delay-Reply-To", "replies.a"),
    ]);
    let schedule = scheduled(&message, &rules(Kind::Nats));
    assert_eq!(
        (schedule.id.as_str(), schedule.generated, schedule.conflict),
        ("order-1 ü", false, Conflict::Reject)
    );
    assert_eq!(schedule.due, Due::At(NOW + 23 * 3_600_000));
    assert_eq!(schedule.reply_to, Some(Destination::new("replies.a")));
    let job = schedule.job;
    assert_eq!(
        (job.broker(), job.destination()),
        (Some("kafka"), Some(&Destination::new("orders")))
    );
    assert_eq!(
        (job.ttr_ms, job.confirm, job.retry),
        (90_000, Confirm::Consumer, Some(vec![2 * MINUTE, 10 * MINUTE, 60 * MINUTE]))
    );
    assert_eq!((job.late, job.max_late_ms), (Some(Late::Drop), Some(3_600_000)));
    assert!(job.headers.is_empty());
}

#[test]
fn words_and_limits_at_their_edges() {
    let rules = rules(Kind::Nats);
    let one = |name, value| {
        scheduled(&message(&[("delay-for", "1s"), ("delay-id", "a"), (name, value)]), &rules)
    };
    assert_eq!(one("delay-retry", "none").job.retry, Some(vec![]));
    assert_eq!(one("delay-retry", "1s,1s,1s").job.retry.map(|waits| waits.len()), Some(3));
    assert_eq!(one("delay-ttr", "1").job.ttr_ms, 1);
    assert_eq!(one("delay-ttr", "12h").job.ttr_ms, 12 * 3_600_000);
    assert_eq!(one("delay-on-conflict", "keep").conflict, Conflict::Keep);
    assert_eq!(one("delay-on-conflict", "replace").conflict, Conflict::Replace);
    assert_eq!(one("unrelated", "x").conflict, Conflict::Replace);
    assert_eq!(one("delay-late", "fire").job.late, Some(Late::Fire));
    assert_eq!(one("delay-late", "dead").job.late, Some(Late::Dead));
    assert_eq!(one("delay-confirm", "broker").job.confirm, Confirm::Broker);
    assert!(
        parse(
            &Message { body: vec![0; 1_024].into(), ..message(&[("delay-for", "1s")]) },
            &rules,
            NOW
        )
        .is_ok()
    );
}

#[test]
fn due_is_never_earlier_than_asked() {
    let mut rules = rules(Kind::Nats);
    let due = |rules: &RequestRules, timestamp_ms, name: &str, value: &str| {
        scheduled(&Message { timestamp_ms, ..message(&[(name, value)]) }, rules).due
    };
    let old = Some(NOW - 3_600_000);
    assert_eq!(
        due(&rules, old, "delay-for", "1m"),
        Due::At(NOW - 3_540_000),
        "a backlog does not stretch it"
    );
    assert_eq!(due(&rules, Some(NOW), "delay-for", "0"), Due::At(NOW));
    let ahead = Due::Earlier { at_ms: NOW + 1 + MINUTE as i64, in_ms: MINUTE };
    assert_eq!(
        due(&rules, Some(NOW + 1), "delay-for", "1m"),
        ahead,
        "ahead of now counts as now, and Redis knows what is now"
    );
    assert_eq!(due(&rules, None, "delay-for", "1m"), Due::In(MINUTE));
    assert_eq!(
        due(&rules, Some(-1), "delay-for", "1m"),
        Due::In(MINUTE),
        "Kafka's word for no timestamp"
    );
    assert_eq!(
        due(&rules, Some(NOW / 1_000), "delay-for", "1m"),
        Due::In(MINUTE),
        "seconds taken for milliseconds"
    );
    assert_eq!(due(&rules, Some(99_999_999_999), "delay-for", "1m"), Due::In(MINUTE));
    assert_eq!(due(&rules, Some(100_000_000_000), "delay-for", "1m"), Due::At(100_000_060_000));
    assert_eq!(due(&rules, old, "delay-for", "366d"), Due::At(NOW - 3_600_000 + 366 * DAY as i64));
    let cut =
        Message { timestamp_ms: old, timestamp_is_cut: true, ..message(&[("delay-for", "1m")]) };
    assert_eq!(
        scheduled(&cut, &rules).due,
        Due::At(NOW - 3_539_999),
        "a part of a millisecond counts as one"
    );
    assert_eq!(
        due(&rules, old, "delay-until", "2020-01-01T00:00:00Z"),
        Due::At(1_577_836_800_000),
        "the past fires now"
    );
    assert_eq!(due(&rules, old, "delay-until", "1960-01-01T00:00:00Z"), Due::At(0));
    assert_eq!(
        due(&rules, old, "delay-until", &(NOW + 366 * DAY as i64).to_string()),
        Due::At(NOW + 366 * DAY as i64)
    );
    rules.ingest.delay_from = DelayFrom::Receipt;
    assert_eq!(due(&rules, old, "delay-for", "1m"), Due::In(MINUTE));
}

#[test]
fn a_delay_may_be_missing_where_the_ingest_says_so() {
    let mut rules = rules(Kind::Nats);
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(scheduled(&message(&[]), &rules).due, Due::In(0));
    assert_eq!(refused(&message(&[("delayed-attempt", "1")]), &rules), Code::Loop);
    assert_eq!(
        scheduled(&message(&[("delayed-attempt", "1"), ("delay-for", "5s")]), &rules).due,
        Due::At(NOW + 4_500)
    );
}

#[test]
fn the_target_falls_back_to_the_ingests_own_which_needs_no_entry() {
    let mut rules = rules(Kind::Nats);
    rules.ingest.target = "elsewhere".to_owned();
    let own = scheduled(&bare(&[("delay-for", "1s")]), &rules);
    assert_eq!(*destination(&own), Destination::new("elsewhere"));
    let named = bare(&[("delay-for", "1s"), ("delay-target", "elsewhere")]);
    assert_eq!(*destination(&scheduled(&named, &rules)), Destination::new("elsewhere"));
    assert_eq!(
        *destination(&scheduled(&message(&[("delay-for", "1s")]), &rules)),
        Destination::new("orders.close")
    );
    // On another broker no pattern allows it.
    assert_eq!(
        refused(&bare(&[("delay-for", "1s"), ("delay-broker", "kafka")]), &rules),
        Code::TargetNotAllowed
    );
}

#[test]
fn values_may_be_bytes_or_integers() {
    let rules = rules(Kind::Kafka);
    let message = with(
        bare(&[("delay-target", "orders")]),
        "delay-for",
        Value::Bytes(Bytes::from_static(b"1s")),
    );
    assert_eq!(scheduled(&message, &rules).due, Due::At(NOW + 500));
    let integers = [
        Value::I8(100),
        Value::I16(100),
        Value::I32(100),
        Value::I64(100),
        Value::U8(100),
        Value::U16(100),
        Value::U32(100),
        Value::Text("100".into()),
    ];
    for value in integers {
        let message =
            with(bare(&[("delay-target", "orders"), ("delay-id", "1")]), "delay-for", value);
        assert_eq!(scheduled(&message, &rules).due, Due::At(NOW - 400));
    }
}

#[test]
fn everything_else_passes_in_order() {
    let message = message(&[
        ("traceparent", "00-a"),
        ("delay-for", "1s"),
        ("Tag", "1"),
        ("delayed-id", "old"),
        ("Delayed-Attempt", "3"),
        ("tag", "2"),
        ("Tag", "1"),
        ("delay", "passes"),
        ("delayed", "passes"),
        ("Nats-Stream", "passes"),
        ("Nats-Msg-Id", "x"),
        ("Nats-Expected-Last-Sequence", "x"),
        ("Nats-Rollup", "all"),
        ("NATS-TTL", "1s"),
        ("Nats-Schedule-Next", "purge"),
        ("x-delay", "5"),
    ]);
    let schedule = scheduled(&message, &rules(Kind::Nats));
    assert_eq!(
        passed(&schedule),
        [
            ("traceparent", "00-a"),
            ("Tag", "1"),
            ("tag", "2"),
            ("Tag", "1"),
            ("delay", "passes"),
            ("delayed", "passes"),
            ("Nats-Stream", "passes")
        ]
    );
}

#[test]
fn key_and_missing_body_are_kept() {
    let message = Message {
        key: Some(Bytes::from_static(b"\xff")),
        has_body: false,
        body: Bytes::new(),
        ..bare(&[("delay-for", "1s"), ("delay-target", "orders")])
    };
    let job = scheduled(&message, &rules(Kind::Kafka)).job;
    assert_eq!(
        (job.key, job.has_body, job.body),
        (Some(Bytes::from_static(b"\xff")), false, Bytes::new())
    );
}
