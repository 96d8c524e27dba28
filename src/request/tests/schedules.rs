//! Recurring schedules: when they fire, and what is refused.

use bytes::Bytes;
use dwell_connectors::{Destination, Properties};
use dwell_schedule::{CatchUp, Expression};

use super::*;
use crate::job::{Conflict, Late};
use crate::request::{schedule_from_fields, timing_from_fields};
use crate::schedule::Overlap;

/// A daily schedule with the id `report`.
fn daily(more: &[(&str, &str)]) -> Message {
    let base = [("delay-schedule", "0 9 * * *"), ("delay-id", "report")];
    message(&[&base[..], more].concat())
}

#[test]
fn every_field_of_a_schedule_is_read() {
    let new = recurring(
        &daily(&[
            ("Delay-Time-Zone", "europe/berlin"),
            ("delay-start", "2026-02-01T00:00:00"),
            ("delay-end", "2026-12-31T23:59:59Z"),
            ("delay-count", "1000000000"),
            ("delay-catch-up", "all"),
            ("delay-overlap", "skip"),
            ("delay-spread", "5m"),
            ("delay-retry", "1m"),
            ("delay-late", "drop"),
            ("delay-on-conflict", "keep"),
            ("delay-reply-to", "replies.a"),
            ("tag", "t"),
        ]),
        &rules(Kind::Nats),
    );
    assert_eq!((new.id.as_str(), new.conflict), ("report", Conflict::Keep));
    assert!(!new.is_paused && !new.from_settings && new.own_queues.is_none());
    assert_eq!(new.reply_to, Some(Destination::new("replies.a")));
    let timing = &new.timing;
    assert_eq!(timing.text, "0 9 * * *");
    assert_eq!(Expression::parse(&timing.text).as_ref(), Ok(&timing.expression));
    assert_eq!(timing.zone.as_ref().map(dwell_schedule::Zone::name), Some("Europe/Berlin"));
    assert_eq!(
        (timing.start_ms, timing.end_ms),
        (Some(1_769_900_400_000), Some(1_798_761_599_000)),
        "the start is one of Berlin, the end of UTC"
    );
    assert_eq!((timing.count, timing.spread_ms), (Some(1_000_000_000), 300_000));
    assert_eq!((timing.catch_up, timing.overlap), (CatchUp::All, Overlap::Skip));
    let job = &new.job;
    assert_eq!(job.destination(), Some(&Destination::new("orders.close")));
    assert_eq!(
        (&job.retry, job.late, job.created_ms),
        (&Some(vec![MINUTE]), Some(Late::Drop), NOW)
    );
    let headers: Vec<&str> = job.headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!((headers, &job.body[..]), (vec!["tag"], &b"body"[..]));
}

#[test]
fn what_a_schedule_leaves_out_has_defaults() {
    let new = recurring(&daily(&[]), &rules(Kind::Nats));
    let timing = &new.timing;
    assert_eq!((&timing.zone, timing.start_ms, timing.end_ms), (&None, None, None));
    assert_eq!((timing.count, timing.spread_ms), (None, 0));
    assert_eq!((timing.catch_up, timing.overlap), (CatchUp::One, Overlap::Allow));
    assert_eq!((new.conflict, new.reply_to), (Conflict::Replace, None));
    for text in ["@every 30m", "@hourly", "@midnight", "*/5 * * * * *", " 0 0 1 1 ? "] {
        let message = message(&[("delay-schedule", text), ("delay-id", "a")]);
        assert_eq!(recurring(&message, &rules(Kind::Nats)).timing.text, text.trim());
    }
}

#[test]
fn occurrences_are_made_of_the_whole_message() {
    let mut kafka = daily(&[("delay-target", "orders")]);
    kafka.headers.retain(|header| header.value.as_text() != Some("orders.close"));
    kafka.key = Some(Bytes::from_static(b"k"));
    kafka.has_body = false;
    kafka.body = Bytes::new();
    let new = recurring(&kafka, &rules(Kind::Kafka));
    assert_eq!((new.job.key.as_deref(), new.job.has_body), (Some(&b"k"[..]), false));

    let base = [("delay-schedule", "@daily"), ("delay-id", "a"), ("delay-queue", "emails")];
    let mut amqp = bare(&base);
    amqp.properties =
        Some(Box::new(Properties { message_id: Some("m".to_owned()), ..Properties::default() }));
    let mut rules = rules(Kind::Amqp);
    rules.full_queues.set(["emails".to_owned()].into());
    rules.ingest.missing_delay = MissingDelay::Immediate;
    let job = recurring(&amqp, &rules).job;
    assert_eq!((job.queue(), job.ttr_ms), (Some("emails"), 20_000));
    assert_eq!(job.retry, Some(vec![MINUTE]));
    assert_eq!(job.headers.text("amqp-message-id"), Some("m"));
}

#[test]
fn what_occurrences_carry_never_comes_in() {
    let carried = [
        ("delayed-schedule", "report"),
        ("Delayed-Occurrence", "7"),
        ("delayed-next", "1798762500000"),
        ("delayed-attempt", "1"),
        ("tag", "t"),
    ];
    let queue = [("delay-schedule", "@daily"), ("delay-id", "a"), ("delay-queue", "emails")];
    let to_queue = bare(&[&queue[..], &carried].concat());
    for again in [daily(&carried), to_queue] {
        let job = recurring(&again, &rules(Kind::Nats)).job;
        let names: Vec<&str> = job.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!((names, job.round), (vec!["tag"], 1));
    }
    // An occurrence that comes to an ingest as it was published is no request.
    for missing_delay in [MissingDelay::Reject, MissingDelay::Immediate] {
        let mut rules = rules(Kind::Nats);
        rules.ingest.missing_delay = missing_delay;
        assert_eq!(refused(&message(&carried), &rules), Code::Loop);
    }
}

#[test]
fn a_tombstone_with_a_schedule_deletes_nothing() {
    let mut rules = rules(Kind::Kafka);
    rules.ingest.id_from = IdFrom::Key;
    let tombstone = Message {
        has_body: false,
        body: Bytes::new(),
        key: Some(Bytes::from_static(b"k")),
        ..bare(&[("delay-schedule", "@daily"), ("delay-target", "orders")])
    };
    assert_eq!(recurring(&tombstone, &rules).id.as_str(), "k");
}

#[test]
fn a_schedule_needs_an_id_of_which_those_of_occurrences_can_be_made() {
    let rules = rules(Kind::Nats);
    let with_id = |id: &str| message(&[("delay-schedule", "@daily"), ("delay-id", id)]);
    assert_eq!(refused(&message(&[("delay-schedule", "@daily")]), &rules), Code::BadId);
    for id in ["a@1798762500000", "@0000000000000", &"x".repeat(241)] {
        assert_eq!(refused(&with_id(id), &rules), Code::BadId, "{id}");
    }
    for id in ["a@179876250000", "a@17987625000000", "a@179876250000x", &"x".repeat(240)] {
        assert_eq!(recurring(&with_id(id), &rules).id.as_str(), id);
    }
}

#[test]
fn what_a_schedule_cannot_say_is_refused() {
    let cases: &[(&[(&str, &str)], Code)] = &[
        (&[("delay-for", "1s")], Code::AmbiguousDelay),
        (&[("delay-until", "2026-02-01T12:00:00Z")], Code::AmbiguousDelay),
        (&[("delay-until", "2026-02-01T12:00:00")], Code::AmbiguousDelay),
        (&[("delay-time-zone", "Mars/Olympus")], Code::BadSchedule),
        (&[("delay-time-zone", "+01:00")], Code::BadSchedule),
        (&[("delay-time-zone", "")], Code::BadSchedule),
        (&[("delay-start", "soon")], Code::BadSchedule),
        (&[("delay-start", "2026-02-01T00:00:00")], Code::BadSchedule),
        (&[("delay-end", "1769860800")], Code::BadSchedule),
        (&[("delay-end", "2026-01-31T11:59:59Z")], Code::BadSchedule),
        (
            &[("delay-start", "2027-01-01T00:00:00Z"), ("delay-end", "2026-12-01T00:00:00Z")],
            Code::BadSchedule,
        ),
        (&[("delay-count", "0")], Code::BadSchedule),
        (&[("delay-count", "1000000001")], Code::BadSchedule),
        (&[("delay-count", "+1")], Code::BadSchedule),
        (&[("delay-count", "")], Code::BadSchedule),
        (&[("delay-catch-up", "some")], Code::BadSchedule),
        (&[("delay-overlap", "never")], Code::BadSchedule),
        (&[("delay-spread", "wide")], Code::BadHeader),
        (&[("delay-spread", "9223372036854775807")], Code::BadHeader),
        (&[("delay-schedule", "@hourly")], Code::BadHeader),
        (&[("delay-repeat", "1")], Code::BadHeader),
        (&[("delay-target", "orders.x")], Code::BadHeader),
    ];
    for (headers, code) in cases {
        assert_eq!(refused(&daily(headers), &rules(Kind::Nats)), *code, "{headers:?}");
    }
    for text in
        ["", "often", "0 9 * *", "60 * * * *", "@every 999ms", "@every", "@at x", "0 0 31 2 *"]
    {
        let message = message(&[("delay-schedule", text), ("delay-id", "a")]);
        assert_eq!(refused(&message, &rules(Kind::Nats)), Code::BadSchedule, "{text}");
    }
    let zoned = [("delay-schedule", "@every 1h"), ("delay-id", "a"), ("delay-time-zone", "UTC")];
    assert_eq!(refused(&message(&zoned), &rules(Kind::Nats)), Code::BadSchedule);
    let other = bare(&[("delay-schedule", "@daily"), ("delay-id", "a"), ("delay-target", "x")]);
    assert_eq!(refused(&other, &rules(Kind::Nats)), Code::TargetNotAllowed);
}

#[test]
fn a_schedule_has_a_time_from_now_on() {
    let rules = rules(Kind::Nats);
    // NOW is noon, and an end is included.
    let noon = |end: &str| {
        let fields = [("delay-schedule", "0 12 * * *"), ("delay-id", "a"), ("delay-end", end)];
        message(&fields)
    };
    recurring(&noon("2026-01-31T12:00:00Z"), &rules);
    assert_eq!(refused(&noon("2026-01-31T11:59:59.999Z"), &rules), Code::BadSchedule);
    // What is past counts for the grid alone.
    let past =
        [("delay-schedule", "@every 1h"), ("delay-id", "a"), ("delay-start", "1769856000000")];
    assert_eq!(recurring(&message(&past), &rules).timing.start_ms, Some(1_769_856_000_000));
    let late = daily(&[("delay-start", "2286-11-20T17:46:39.999Z")]);
    assert_eq!(refused(&late, &rules), Code::BadSchedule, "beyond the last time");
    let far = daily(&[("delay-start", "2100-01-01T00:00:00Z")]);
    assert!(recurring(&far, &rules).timing.start_ms.is_some(), "max_delay does not apply");
}

#[test]
fn the_headers_of_a_schedule_need_one() {
    let rules = rules(Kind::Nats);
    let headers = [
        ("delay-start", "2026-02-01T00:00:00Z"),
        ("delay-end", "2026-02-01T00:00:00Z"),
        ("delay-count", "3"),
        ("delay-catch-up", "one"),
        ("delay-overlap", "allow"),
        ("delay-time-zone", "Europe/Berlin"),
    ];
    for header in headers {
        assert_eq!(refused(&message(&[("delay-for", "1s"), header]), &rules), Code::BadHeader);
        assert_eq!(refused(&message(&[header]), &rules), Code::BadHeader, "{header:?}");
    }
    let only_for_schedules = [("delay-schedule", "@daily"), ("delay-spread", "1m")];
    for action in ["cancel", "reschedule", "fire", "finish", "fail"] {
        for header in headers.iter().chain(&only_for_schedules) {
            let act = [("delay-action", action), ("delay-id", "a"), ("delay-for", "1s"), *header];
            assert_eq!(refused(&bare(&act), &rules), Code::BadHeader, "{action} {header:?}");
        }
    }
}

#[test]
fn a_schedule_wins_over_a_dialect_and_an_envelope() {
    let daily = daily(&[("x-delay", "5000"), ("Nats-Schedule", "@hourly")]);
    assert_eq!(recurring(&daily, &rules(Kind::Nats)).timing.text, "0 9 * * *");
    let mut rules = rules(Kind::Nats);
    rules.ingest.format = Format::Envelope;
    let mut envelope = bare(&[("delay-schedule", "@daily")]);
    envelope.body =
        r#"{"command":"add","topic":"orders.close","id":"e","delay":5,"body":"b"}"#.into();
    let new = recurring(&envelope, &rules);
    assert_eq!((new.id.as_str(), &new.job.body[..]), ("e", &b"b"[..]));
}

#[test]
fn a_schedule_is_read_from_fields_too() {
    let owned = |fields: &[(&'static str, &str)]| {
        fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
    };
    let rules = rules(Kind::Direct);
    let ask = |fields: &[(&'static str, &str)]| {
        schedule_from_fields(&owned(fields), &Message::new("body"), &rules, NOW)
    };
    let good = [
        ("id", "report"),
        ("schedule", "0 9 * * *"),
        ("time-zone", "Europe/Berlin"),
        ("catch-up", "none"),
        ("queue", "emails"),
    ];
    let new = ask(&good).unwrap();
    assert_eq!((new.job.queue(), new.timing.catch_up), (Some("emails"), CatchUp::None));
    assert_eq!(ask(&good[..1]).unwrap_err().code, Code::BadSchedule, "without a schedule");
    let refused = ask(&[("id", "a"), ("schedule", "@daily"), ("catch-up", "x")]).unwrap_err();
    assert!(refused.detail.starts_with("catch_up: "), "{refused}");
    let both = [&good[..], &[("for", "1h")]].concat();
    assert_eq!(ask(&both).unwrap_err().code, Code::AmbiguousDelay);
    assert_eq!(timing_from_fields(&owned(&good[1..4]), NOW).unwrap(), new.timing);
    assert_eq!(timing_from_fields(&[], NOW).unwrap_err().code, Code::BadSchedule);
    let job = crate::request::from_fields(&owned(&good), &Message::new("body"), &rules, NOW);
    assert_eq!(job.unwrap_err().code, Code::BadHeader, "a schedule is no job");
}
