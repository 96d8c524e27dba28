//! Headers of other schedulers.

use bytes::Bytes;
use dwell_connectors::{Destination, Value};
use dwell_schedule::Expression;

use super::*;
use crate::job::Due;

#[test]
fn each_dialect_says_when_and_where() {
    let rules = rules(Kind::Kafka);
    let schedule = scheduled(
        &bare(&[
            ("scheduler-epoch", "1769860860"),
            ("scheduler-target-topic", "orders"),
            ("scheduler-target-key", "k"),
            ("Tag", "1"),
        ]),
        &rules,
    );
    assert_eq!(
        (schedule.due, destination(&schedule).clone(), schedule.job.key.clone()),
        (Due::At(NOW + 60_000), Destination::new("orders"), Some(Bytes::from("k")))
    );
    assert_eq!(passed(&schedule), [("Tag", "1")]);

    let schedule = scheduled(
        &bare(&[("X-Timebridge-When", "2026-01-31T12:01:00Z"), ("X-Timebridge-Where", "orders")]),
        &rules,
    );
    assert_eq!(
        (schedule.due, destination(&schedule).clone()),
        (Due::At(NOW + 60_000), Destination::new("orders"))
    );
    assert!(schedule.job.headers.is_empty());

    let schedule = scheduled(
        &bare(&[
            ("Nats-Schedule", "@at 2026-01-31T12:01:00Z"),
            ("Nats-Schedule-Target", "orders"),
            ("Nats-Schedule-Next", "purge"),
        ]),
        &rules,
    );
    assert_eq!(
        (schedule.due, destination(&schedule).clone()),
        (Due::At(NOW + 60_000), Destination::new("orders"))
    );
    assert!(schedule.job.headers.is_empty());

    let schedule =
        scheduled(&with(message(&[]), "X-Delay", Value::I32(5_000)), &super::rules(Kind::Nats));
    assert_eq!(schedule.due, Due::At(NOW + 4_500));
    assert!(schedule.job.headers.is_empty());
}

#[test]
fn a_delivery_time_is_read_and_never_passed_on() {
    let rules = rules(Kind::Amqp);
    let to = || bare(&[("delay-target", "orders")]);
    let due = |name: &str, value: Value| {
        let schedule = scheduled(&with(to(), name, value), &rules);
        assert!(schedule.job.headers.is_empty(), "{:?}", schedule.job.headers);
        schedule.due
    };
    for time in [
        Value::I64(NOW + 60_000),
        (NOW + 60_000).to_string().as_str().into(),
        Value::Timestamp((NOW as u64 + 60_000) / 1_000),
    ] {
        assert_eq!(due("x-opt-delivery-time", time), Due::At(NOW + 60_000));
    }
    for delay in [Value::I32(60_000), "60000".into(), Value::F64(60_000.0)] {
        assert_eq!(due("X-Opt-Delivery-Delay", delay), Due::In(60_000));
    }
    assert_eq!(
        refused(&with(to(), "x-opt-delivery-time", Value::I64(NOW / 1_000)), &rules),
        Code::BadDelay,
        "seconds"
    );
    let both = with(
        with(to(), "x-opt-delivery-time", Value::I64(NOW)),
        "x-opt-delivery-delay",
        Value::I64(1),
    );
    assert_eq!(refused(&both, &rules), Code::AmbiguousDelay);
    // It parks a message of another dialect too, so it stays behind there as well.
    let beside = scheduled(
        &with(message(&[("delay-for", "1s")]), "x-opt-delivery-time", Value::I64(NOW + 5)),
        &super::rules(Kind::Nats),
    );
    assert!(beside.job.headers.is_empty());
}

#[test]
fn control_headers_win_over_dialects() {
    let message = message(&[
        ("delay-for", "1s"),
        ("x-delay", "nonsense"),
        ("x-delay", "twice"),
        ("scheduler-target-topic", "elsewhere"),
    ]);
    let schedule = scheduled(&message, &rules(Kind::Nats));
    assert_eq!(
        (schedule.due, destination(&schedule).clone()),
        (Due::At(NOW + 500), Destination::new("orders.close"))
    );
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
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(scheduled(&x_delay("-5000"), &rules).due, Due::At(NOW - 500));
    assert_eq!(scheduled(&message(&[]), &rules).due, Due::In(0));
}

#[test]
fn a_void_header_of_a_dialect_is_absent() {
    let mut rules = rules(Kind::Amqp);
    let void = |name: &str| with(bare(&[("delay-target", "orders")]), name, Value::Null);
    for name in ["x-delay", "x-opt-delivery-time", "x-opt-delivery-delay"] {
        assert_eq!(
            refused(&void(name), &rules),
            refused(&bare(&[("delay-target", "orders")]), &rules)
        );
        let timed = with(void(name), "delay-for", "1s".into());
        assert_eq!(scheduled(&timed, &rules).due, Due::In(1_000), "{name}");
    }
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(scheduled(&void("x-delay"), &rules).due, Due::In(0));
    let target = with(void("x-delay"), "scheduler-target-topic", Value::Null);
    assert_eq!(scheduled(&target, &rules).due, Due::In(0));
}

#[test]
fn the_fraction_of_an_x_delay_is_cut() {
    let mut rules = rules(Kind::Amqp);
    let due = |rules: &RequestRules, value: Value| {
        scheduled(&with(bare(&[("delay-target", "orders")]), "x-delay", value), rules).due
    };
    for value in [
        Value::F64(700.9),
        Value::F32(700.5),
        Value::F64(700.0),
        "700.9".into(),
        "700".into(),
        Value::I16(700),
    ] {
        assert_eq!(due(&rules, value.clone()), Due::In(700), "{value:?}");
    }
    assert_eq!(due(&rules, Value::F64(-0.9)), Due::In(0));
    let code = |rules: &RequestRules, value: Value| {
        refused(&with(bare(&[("delay-target", "orders")]), "x-delay", value), rules)
    };
    assert_eq!(code(&rules, Value::F64(-1.5)), Code::BadDelay);
    assert_eq!(code(&rules, Value::F64(1e12)), Code::DelayTooLong);
    for value in [
        Value::F64(f64::NAN),
        Value::F64(f64::INFINITY),
        "700.".into(),
        ".5".into(),
        "7e2".into(),
        "1.-5".into(),
        "".into(),
    ] {
        assert_eq!(code(&rules, value.clone()), Code::BadDelay, "{value:?}");
    }
    assert_eq!(code(&rules, Value::Bool(true)), Code::BadHeader);
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(due(&rules, Value::F64(-1.5)), Due::In(0));
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
        (&[("nats-schedule", "@at tomorrow")], Code::BadDelay),
        (&[("nats-schedule", "@at")], Code::BadDelay),
        (&[("nats-schedule", "@every 1d"), ("delay-id", "a")], Code::BadSchedule),
        (&[("nats-schedule", "hourly"), ("delay-id", "a")], Code::BadSchedule),
        (&[("nats-schedule", "@daily"), ("x-delay", "1")], Code::AmbiguousDelay),
    ];
    for (headers, code) in cases {
        assert_eq!(refused(&message(headers), &rules(Kind::Nats)), *code, "{headers:?}");
    }
    let two = bare(&[
        ("x-delay", "1"),
        ("scheduler-target-topic", "orders.a"),
        ("x-timebridge-where", "orders.b"),
    ]);
    assert_eq!(refused(&two, &rules(Kind::Nats)), Code::BadHeader);
    assert_eq!(
        refused(
            &bare(&[("x-delay", "1"), ("scheduler-target-topic", "other")]),
            &rules(Kind::Nats)
        ),
        Code::TargetNotAllowed
    );
}

#[test]
fn what_a_schedule_of_nats_asks_besides_is_not_dropped_in_silence() {
    for header in [
        ("Nats-Schedule-Source", "orders.latest"),
        ("nats-schedule-ttl", "5 minutes"),
        ("Nats-Schedule-TTL", "0"),
        ("Nats-Schedule-TTL", "500ms"),
        ("Nats-Schedule-Rollup", "sub"),
        ("Nats-Schedule-Time-Zone", "Europe/Paris"),
        ("Nats-Schedule-Sorce", "x"),
    ] {
        for kind in [Kind::Nats, Kind::Kafka, Kind::Amqp] {
            let at = ("Nats-Schedule", "@at 2026-01-31T12:01:00Z");
            assert_eq!(
                refused(&bare(&[at, ("Nats-Schedule-Target", "orders.a"), header]), &rules(kind)),
                Code::BadHeader,
                "{header:?}"
            );
        }
        // The same if a `delay-*` header sets the time.
        assert_eq!(
            refused(&message(&[("delay-for", "1s"), header]), &rules(Kind::Nats)),
            Code::BadHeader,
            "{header:?}"
        );
    }
}

#[test]
fn a_header_of_the_producers_own_holds_the_due_time() {
    let mut rules = rules(Kind::Amqp);
    rules.ingest.due_header = Some("eta".to_owned()).into();
    rules.ingest.missing_delay = MissingDelay::Immediate;
    let to = || bare(&[("delay-target", "orders")]);
    let due = |value: Value| scheduled(&with(to(), "ETA", value), &rules).due;
    for time in [
        "2026-01-31T12:01:00Z".into(),
        Value::I64(NOW + 60_000),
        Value::Timestamp((NOW as u64 + 60_000) / 1_000),
    ] {
        assert_eq!(due(time), Due::At(NOW + 60_000));
    }
    for none in [Value::Null, "".into(), " ".into()] {
        assert_eq!(due(none), Due::In(0), "no due time by it");
    }
    let passes = scheduled(&with(to(), "eta", "2026-01-31T12:01:00Z".into()), &rules);
    assert_eq!(passed(&passes), [("eta", "2026-01-31T12:01:00Z")]);
    assert_eq!(
        refused(&with(to(), "eta", Value::I64(NOW / 1_000)), &rules),
        Code::BadDelay,
        "seconds"
    );
    assert_eq!(refused(&with(to(), "eta", "tomorrow".into()), &rules), Code::BadDelay);
    assert_eq!(
        refused(&with(with(to(), "eta", Value::I64(NOW)), "x-delay", Value::I32(1)), &rules),
        Code::AmbiguousDelay
    );
    let wins = with(with(to(), "eta", "tomorrow".into()), "delay-for", "1s".into());
    assert_eq!(scheduled(&wins, &rules).due, Due::In(1_000));
    rules.ingest.due_header = Optional::default();
    assert_eq!(scheduled(&with(to(), "eta", "tomorrow".into()), &rules).due, Due::In(0), "unset");
}

#[test]
fn the_due_time_that_a_returned_message_was_delivered_for_is_no_new_delay() {
    let mut rules = rules(Kind::Amqp);
    rules.ingest.due_header = Some("eta".to_owned()).into();
    let back = |eta: i64| {
        let message = bare(&[
            ("delay-target", "orders"),
            ("delayed-attempt", "1"),
            ("delayed-due", &NOW.to_string()),
        ]);
        with(message, "eta", Value::I64(eta))
    };
    for served in [NOW, NOW - 1] {
        assert_eq!(refused(&back(served), &rules), Code::Loop);
    }
    assert_eq!(
        scheduled(&back(NOW + 60_000), &rules).due,
        Due::At(NOW + 60_000),
        "a retry of the consumer's own"
    );
}

/// A recurring schedule in the spelling of NATS, which came with this key or to this address.
fn of_nats(expression: &str, key: Option<&str>, address: &str) -> Message {
    Message {
        key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
        destination: Destination::new(address),
        ..bare(&[("Nats-Schedule", expression), ("Nats-Schedule-Target", "orders")])
    }
}

#[test]
fn a_recurring_schedule_of_nats_is_one_of_ours() {
    let rules = rules(Kind::Kafka);
    for (theirs, text, ours) in [
        ("@every 1h30m0s", None, "@every 90m"),
        ("@every 1.5h", None, "@every 90m"),
        // Ours names no unit twice.
        ("@every 1m1m", Some("@every 120000ms"), "@every 2m"),
        (" 0 9 * * MON-FRI ", Some("0 9 * * MON-FRI"), "0 9 * * 1-5"),
        ("30 0 9 * * *", Some("30 0 9 * * *"), "30 0 9 * * *"),
        ("@hourly", Some("@hourly"), "0 * * * *"),
    ] {
        let new = recurring(&of_nats(theirs, Some("report"), "delay-in"), &rules);
        let expression = Expression::parse(ours).unwrap();
        assert_eq!((new.id.as_str(), &new.timing.expression), ("report", &expression), "{theirs}");
        assert_eq!(Expression::parse(&new.timing.text), Ok(expression), "{theirs}");
        if let Some(text) = text {
            assert_eq!(new.timing.text, text);
        }
        assert_eq!(new.job.destination(), Some(&Destination::new("orders")));
        assert!(new.job.headers.is_empty(), "{:?}", new.job.headers);
    }
    let more =
        [("Nats-Schedule-Time-Zone", "europe/berlin"), ("delay-count", "3"), ("delay-id", "x")];
    let message =
        more.iter().fold(of_nats("0 9 * * *", Some("report"), "delay-in"), |m, header| {
            m.with_header(header.0, header.1)
        });
    let new = recurring(&message, &rules);
    let zone = new.timing.zone.as_ref().map(dwell_schedule::Zone::name);
    assert_eq!((new.id.as_str(), zone, new.timing.count), ("x", Some("Europe/Berlin"), Some(3)));
    let every = message.clone().with_header("delay-schedule", "@every 5m");
    assert_eq!(refused(&every, &rules), Code::BadHeader, "a zone for the schedule that lost");
    let once = of_nats("0 9 * * *", None, "delay-in").with_header("delay-for", "1s");
    assert_eq!(scheduled(&once, &rules).due, Due::At(NOW + 500), "`delay-*` headers win");
    let zoned =
        of_nats("@every 5m", Some("a"), "delay-in").with_header("Nats-Schedule-Time-Zone", "UTC");
    assert_eq!(refused(&zoned, &rules), Code::BadSchedule);
}

#[test]
fn the_id_of_a_schedule_of_nats_is_its_key_or_address() {
    let id =
        |message: &Message, rules: &RequestRules| recurring(message, rules).id.as_str().to_owned();
    let mut kafka = rules(Kind::Kafka);
    kafka.ingest.topic = "delay-in".to_owned();
    assert_eq!(id(&of_nats("@daily", Some("k"), "delay-in"), &kafka), "k");
    assert_eq!(refused(&of_nats("@daily", None, "delay-in"), &kafka), Code::BadId);
    assert_eq!(refused(&of_nats("@daily", Some(""), "delay-in"), &kafka), Code::BadId);
    let mut bytes = of_nats("@daily", None, "delay-in");
    bytes.key = Some(Bytes::from_static(b"\xff"));
    assert_eq!(refused(&bytes, &kafka), Code::BadId);
    let mut amqp = rules(Kind::Amqp);
    amqp.ingest.topic = "delay.in".to_owned();
    amqp.ingest.expired_queue = Some("delay.expired".to_owned()).into();
    assert_eq!(id(&of_nats("@daily", None, "report"), &amqp), "report");
    for own in ["delay.in", "delay.expired"] {
        assert_eq!(refused(&of_nats("@daily", None, own), &amqp), Code::BadId, "{own}");
    }
    let mut nats = rules(Kind::Nats);
    nats.ingest.topic = "late.>".to_owned();
    let subject = |subject: &str| Message {
        destination: Destination::new(subject),
        ..message(&[("Nats-Schedule", "@daily")])
    };
    assert_eq!(id(&subject("late.report"), &nats), "late.report");
    assert_eq!(refused(&subject("late.a@1798762500000"), &nats), Code::BadId);
}

#[test]
fn the_ttl_of_a_schedule_of_nats_goes_to_nats_alone() {
    let ttl = |ttl: &str, to: &[(&str, &str)], rules: &RequestRules| {
        let headers = [("Nats-Schedule", "@daily"), ("Nats-Schedule-TTL", ttl), ("delay-id", "a")];
        let headers = recurring(&bare(&[&headers[..], to].concat()), rules).job.headers;
        headers.iter().map(|h| (h.name.clone(), h.value.clone())).collect::<Vec<_>>()
    };
    let rules = rules(Kind::Kafka);
    let to_nats = [("delay-target", "orders.close"), ("delay-broker", "nats")];
    for text in ["5m", "1h30m0s", "never", "60"] {
        assert_eq!(ttl(text, &to_nats, &rules), [("Nats-TTL".to_owned(), Value::from(text))]);
    }
    for elsewhere in [("delay-target", "orders"), ("delay-queue", "emails")] {
        assert!(ttl("5m", &[elsewhere], &rules).is_empty(), "{elsewhere:?}");
    }
    let single = bare(&[
        ("Nats-Schedule", "@at 2026-01-31T12:01:00Z"),
        ("Nats-Schedule-Target", "orders.close"),
        ("Nats-Schedule-TTL", "5m"),
    ]);
    assert_eq!(passed(&scheduled(&single, &super::rules(Kind::Nats))), [("Nats-TTL", "5m")]);
}
