//! Rejected requests and their codes.

use dwell_connectors::{Message, Properties, Value};

use super::*;

#[test]
fn what_is_older_than_max_age_is_refused_where_its_age_is_known() {
    let mut old = rules(Kind::Nats);
    old.ingest.max_age = Some(Millis::of(60_000)).into();
    let sent = |ago: i64, headers: &[(&str, &str)]| Message {
        timestamp_ms: Some(NOW - ago),
        ..message(headers)
    };
    let good = [("delay-for", "1h")];
    for headers in
        [&good[..], &[("delay-action", "cancel"), ("delay-id", "a")], &[("delay-for", "soon")]]
    {
        assert_eq!(refused(&sent(60_001, headers), &old), Code::TooOld, "{headers:?}");
    }
    for ago in [60_000, -60_001] {
        parse(&sent(ago, &good), &old, NOW).unwrap();
    }
    parse(&Message { timestamp_ms: None, ..message(&good) }, &old, NOW).unwrap();
    // Seconds taken for milliseconds are no time.
    parse(&Message { timestamp_ms: Some(NOW / 1_000), ..message(&good) }, &old, NOW).unwrap();
    parse(&sent(60_001, &good), &rules(Kind::Nats), NOW).unwrap();
    let mut amqp = rules(Kind::Amqp);
    amqp.ingest.max_age = Some(Millis::of(60_000)).into();
    let of = |timestamp| {
        let properties = Properties { timestamp, ..Properties::default() };
        let message = bare(&[good[0], ("delay-target", "orders")]);
        Message { timestamp_ms: None, properties: Some(Box::new(properties)), ..message }
    };
    assert_eq!(refused(&of(Some(1_500_000_000)), &amqp), Code::TooOld);
    for timestamp in [None, Some(1), Some(u64::MAX), Some(u64::try_from(NOW / 1000).unwrap())] {
        parse(&of(timestamp), &amqp, NOW).unwrap();
    }
}

#[test]
fn what_was_delivered_before_is_never_too_old_where_the_broker_tells() {
    for kind in [Kind::Nats, Kind::Amqp, Kind::Kafka] {
        let mut rules = rules(kind);
        rules.ingest.max_age = Some(Millis::of(60_000)).into();
        let target = if kind == Kind::Nats { "orders.close" } else { "orders" };
        let message = bare(&[("delay-for", "1h"), ("delay-target", target)]);
        let again = Message { timestamp_ms: Some(NOW - 60_001), redelivered: true, ..message };
        if kind == Kind::Kafka {
            assert_eq!(refused(&again, &rules), Code::TooOld);
        } else {
            scheduled(&again, &rules);
        }
        assert_eq!(refused(&Message { redelivered: false, ..again }, &rules), Code::TooOld);
    }
}

#[test]
fn each_mistake_has_its_code() {
    let rules = rules(Kind::Nats);
    let cases: &[(&[(&str, &str)], Code)] = &[
        (&[], Code::MissingDelay),
        (&[("delayed-attempt", "1")], Code::Loop),
        (&[("delay-for", "soon")], Code::BadDelay),
        (&[("delay-for", "")], Code::BadDelay),
        (&[("delay-for", "-1s")], Code::BadDelay),
        (&[("delay-for", "P1M")], Code::BadDelay),
        (&[("delay-until", "2026-02-01T12:00:00")], Code::BadDelay),
        (&[("delay-until", "1769860800")], Code::BadDelay),
        (&[("delay-until", "-1")], Code::BadDelay),
        (&[("delay-for", "1s"), ("delay-until", "2026-02-01T12:00:00Z")], Code::AmbiguousDelay),
        (&[("delay-for", "366d1ms")], Code::DelayTooLong),
        (&[("delay-for", "9223372036854775807")], Code::DelayTooLong),
        (&[("delay-until", "2027-02-01T12:00:00.001Z")], Code::DelayTooLong),
        (&[("delay-until", "1769860800000000")], Code::DelayTooLong),
        (&[("delay-until", "9223372036854775807")], Code::DelayTooLong),
        (&[("delay-for", "1s"), ("delay-broker", "other")], Code::UnknownBroker),
        (&[("delay-for", "1s"), ("delay-broker", "")], Code::UnknownBroker),
        (&[("delay-for", "1s"), ("delay-broker", "kafka")], Code::TargetNotAllowed),
        (&[("delay-for", "1s"), ("delay-exchange", "shop")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-id", "")], Code::BadId),
        (&[("delay-for", "1s"), ("delay-id", "a\tb")], Code::BadId),
        (&[("delay-for", "1s"), ("delay-retry", "")], Code::BadRetry),
        (&[("delay-for", "1s"), ("delay-retry", "2m,soon")], Code::BadRetry),
        (&[("delay-for", "1s"), ("delay-retry", "1s,1s,1s,1s")], Code::BadRetry),
        (&[("delay-for", "1s"), ("delay-retry", "367d")], Code::BadRetry),
        (&[("delay-for", "1s"), ("delay-ttr", "0")], Code::BadTtr),
        (&[("delay-for", "1s"), ("delay-ttr", "12h1ms")], Code::BadTtr),
        (&[("delay-for", "1s"), ("delay-ttr", "50000000000")], Code::BadTtr),
        (&[("delay-for", "1s"), ("delay-ttr", "long")], Code::BadTtr),
        (&[("delay-for", "1s"), ("delay-fro", "1s")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-", "1s")], Code::BadHeader),
        (&[("delay-for", "1s"), ("DELAY-FOR", "1s")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-target", "orders.x")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-confirm", "me")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-late", "never")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-max-late", "x")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-on-conflict", "fail")], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-action", "requeue")], Code::BadAction),
        (&[("delay-for", "1s"), ("delay-action", "")], Code::BadAction),
        (&[("delay-for", "1s"), ("delay-reply-to", "replies.b")], Code::TargetNotAllowed),
        (&[("delay-for", "1s"), ("delay-reply-to", "orders.*")], Code::TargetNotAllowed),
        (&[("delay-for", "1s"), ("delay-reply-to", "delay.in")], Code::TargetNotAllowed),
        (&[("delay-for", "1s"), ("delay-reply-to", "")], Code::TargetNotAllowed),
    ];
    for (headers, code) in cases {
        assert_eq!(refused(&message(headers), &rules), *code, "{headers:?}");
    }
}

#[test]
fn a_target_must_be_named_allowed_and_no_ingests_own() {
    let rules = rules(Kind::Nats);
    let cases = [
        ("", Code::MissingTarget),
        ("other", Code::TargetNotAllowed),
        ("orders", Code::TargetNotAllowed),
        ("orders.*", Code::TargetNotAllowed),
        ("orders.>", Code::TargetNotAllowed),
        ("$JS.API.INFO", Code::TargetNotAllowed),
        ("delay.in", Code::Loop),
        ("late.a.b", Code::Loop),
    ];
    for (target, code) in cases {
        assert_eq!(
            refused(&bare(&[("delay-for", "1s"), ("delay-target", target)]), &rules),
            code,
            "{target}"
        );
    }
    assert_eq!(refused(&bare(&[("delay-for", "1s")]), &rules), Code::MissingTarget);
}

#[test]
fn a_value_that_is_no_text_has_the_code_of_its_header() {
    let codes = [
        ("delay-for", Code::BadDelay),
        ("delay-until", Code::BadDelay),
        ("delay-broker", Code::UnknownBroker),
        ("delay-id", Code::BadId),
        ("delay-ttr", Code::BadTtr),
        ("delay-retry", Code::BadRetry),
        ("delay-action", Code::BadAction),
        ("delay-confirm", Code::BadHeader),
        ("delay-reply-to", Code::BadHeader),
    ];
    for (name, code) in codes {
        for value in [
            Value::Null,
            Value::Bool(true),
            Value::F64(1.0),
            Value::Bytes(vec![0xff].into()),
            Value::Timestamp(1),
            Value::List(vec![]),
        ] {
            assert_eq!(
                refused(&with(message(&[]), name, value), &rules(Kind::Nats)),
                code,
                "{name}"
            );
        }
    }
}

#[test]
fn a_large_body_is_refused_and_an_ids_length_is_bounded() {
    let rules = rules(Kind::Nats);
    assert_eq!(
        refused(
            &Message { body: vec![0; 1_025].into(), ..message(&[("delay-for", "1s")]) },
            &rules
        ),
        Code::BodyTooLarge
    );
    assert_eq!(
        refused(&message(&[("delay-for", "1s"), ("delay-id", &"x".repeat(257))]), &rules),
        Code::BadId
    );
    assert!(
        parse(&message(&[("delay-for", "1s"), ("delay-id", &"x".repeat(256))]), &rules, NOW)
            .is_ok()
    );
}

#[test]
fn a_header_that_cannot_pass_to_the_target_is_refused() {
    let kafka = rules(Kind::Kafka);
    let base =
        || bare(&[("delay-for", "1s"), ("delay-target", "orders.close"), ("delay-broker", "nats")]);
    let refusals = [
        ("Nats-Msg-Id", Value::Text("x".into())),
        ("a b", Value::Text("x".into())),
        ("a:b", Value::Text("x".into())),
        ("ü", Value::Text("x".into())),
        ("", Value::Text("x".into())),
        ("a", Value::Text("x\r\ny".into())),
        ("a", Value::Bytes(vec![0xff].into())),
    ];
    for (name, value) in refusals {
        assert_eq!(refused(&with(base(), name, value), &kafka), Code::BadHeader, "{name}");
    }
    assert!(parse(&with(base(), "a", Value::I64(5)), &kafka, NOW).is_ok());

    let to_kafka = |value| {
        with(
            bare(&[("delay-for", "1s"), ("delay-target", "orders"), ("delay-broker", "kafka")]),
            "Nats-Msg-Id",
            value,
        )
    };
    for value in [
        Value::Null,
        Value::Bytes(vec![0xff].into()),
        Value::U8(1),
        Value::Timestamp(1),
        Value::Table(vec![]),
        Value::Decimal(1, 1),
    ] {
        assert!(parse(&to_kafka(value), &rules(Kind::Amqp), NOW).is_ok());
    }
}

#[test]
fn what_did_not_come_whole_is_refused_by_its_name() {
    let message = Message {
        unreadable: vec!["the property message_id".to_owned()],
        ..message(&[("delay-for", "1s")])
    };
    let rejection = parse(&message, &rules(Kind::Amqp), NOW).expect_err("not whole");
    assert_eq!(rejection.code, Code::BadHeader);
    assert!(
        rejection.detail.contains("the property message_id: not UTF-8"),
        "{}",
        rejection.detail
    );
}

#[test]
fn the_detail_names_the_mistake_but_not_the_whole_value() {
    let secret = format!("{}\r\nforged: header", "x".repeat(5_000));
    let rejection = parse(&message(&[("delay-for", &secret)]), &rules(Kind::Nats), NOW)
        .expect_err("no duration");
    assert!(
        rejection.detail.starts_with("delay-for: `xxx") && rejection.detail.len() < 200,
        "{}",
        rejection.detail
    );
    assert!(!rejection.to_string().contains("forged"));
}

/// The address of a webhook reaches every kind of broker when the request names no broker.
#[cfg(feature = "http")]
#[test]
fn the_query_of_a_url_is_in_no_detail() {
    use dwell_connectors::http;

    const HUSH: &str = "hushQuery";
    let mut rules = rules(Kind::Nats);
    let http = Arc::new(BrokerConfig::Http(http::Config::default()));
    let urls = BrokerRules {
        allow: Allow::new(&**http, &[]),
        connector: http,
        ingest_topics: vec!["https://app.internal/?sig=hushQuery".to_owned()],
    };
    rules.brokers.insert("http".to_owned(), urls);
    let brokers: Vec<String> = rules.brokers.keys().cloned().collect();
    let urls = [
        "https://app.internal/?sig=hushQuery",
        "https://app.internal/w/1?a=*&sig=hushQuery",
        "https://app.internal/w/1?sig=hushQuery\u{7f}\"",
        "https://app.internal/w/..?a=..&sig=hushQuery",
        "https://app.internal/w/#hushQuery",
        "https:app.internal/w?sig=hushQuery",
        "https://key:hushQuery@app.internal/w",
        "https://app.internal/w?sig=hushQuery hushQuery/hushQuery",
        &format!("https://app.internal/{}?sig=hushQuery", "w".repeat(300)),
    ];
    for url in urls {
        let mut requests: Vec<Vec<(&str, &str)>> = vec![
            vec![("delay-broker", url), ("delay-target", "orders.close")],
            vec![("delay-exchange", url), ("delay-target", "orders.close")],
            vec![("delay-queue", url)],
        ];
        for broker in &brokers {
            requests.push(vec![("delay-broker", broker.as_str()), ("delay-target", url)]);
            requests.push(vec![
                ("delay-broker", broker.as_str()),
                ("delay-exchange", url),
                ("delay-target", url),
            ]);
        }
        for request in requests {
            let headers = [&[("delay-for", "1s")][..], &request[..]].concat();
            let rejection = parse(&bare(&headers), &rules, NOW).expect_err("a URL to a broker");
            assert!(!rejection.detail.contains(HUSH), "{request:?}: {}", rejection.detail);
        }
        for broker in &brokers {
            rules.ingest.broker.clone_from(broker);
            let headers = [("delay-action", "cancel"), ("delay-id", "a"), ("delay-reply-to", url)];
            let rejection = parse(&bare(&headers), &rules, NOW).expect_err("a reply to a URL");
            assert!(!rejection.detail.contains(HUSH), "{broker}: {}", rejection.detail);
        }
        rules.ingest.broker = "nats".to_owned();
    }
}

#[test]
fn settings_without_the_ingest_are_told() {
    let unknown = crate::config::Settings {
        ingest: BTreeMap::from([("main".to_owned(), rules(Kind::Nats).ingest)]),
        ..crate::config::Settings::default()
    };
    assert!(
        RequestRules::new(&unknown, "other")
            .expect_err("no such ingest")
            .contains("[ingest.other]")
    );
    assert!(
        RequestRules::new(&unknown, "main").expect_err("no such broker").contains("[brokers.nats]")
    );
}

/// Headers that on NATS only a producer without a client library can send.
#[test]
fn headers_that_nats_cannot_carry_on_are_refused_at_the_door() {
    let rules = rules(Kind::Nats);
    let bytes = Value::Bytes(b"\xff".as_slice().into());
    for (name, value) in [
        ("x", bytes.clone()),
        ("x", "a\rb".into()),
        ("x y", "a".into()),
        ("\u{e4}", "a".into()),
        ("", "no colon".into()),
        ("", bytes.clone()),
    ] {
        assert_eq!(
            refused(&with(message(&[("delay-for", "1s")]), name, value.clone()), &rules),
            Code::BadHeader,
            "{name} {value:?}"
        );
    }
    // A line that is not a header may be a misspelt control header. Other invalid headers do not
    // matter to an action, and neither do headers that are not passed on.
    let cancel = message(&[("delay-action", "cancel"), ("delay-id", "x")]);
    assert_eq!(refused(&with(cancel.clone(), "", "delay-id y".into()), &rules), Code::BadHeader);
    acted(&with(cancel, "x", bytes.clone()), &rules);
    scheduled(&with(message(&[("delay-for", "1s")]), "Nats-Msg-Id", bytes.clone()), &rules);
    // Kafka accepts bytes.
    let to_kafka =
        bare(&[("delay-for", "1s"), ("delay-broker", "kafka"), ("delay-target", "orders")]);
    assert_eq!(
        scheduled(&with(to_kafka, "x", bytes.clone()), &rules).job.headers.get("x"),
        Some(&bytes)
    );
    assert_eq!(refused(&with(message(&[]), "delay-for", bytes), &rules), Code::BadDelay);
}
