//! Requests for a queue of Dwell instead of a target.

use bytes::Bytes;
use dwell_connectors::stand_ins::{KEY, TOMBSTONE};
use dwell_connectors::{Destination, Message, Properties, Value};

use super::*;
use crate::job::{Due, Late, Target};
use crate::request::from_fields;

/// A request for this queue from a broker of any kind.
fn request(queue: &str) -> Message {
    bare(&[("delay-for", "1m"), ("delay-queue", queue)])
}

/// The rules of HTTP where there are queues alone.
fn queues_alone() -> RequestRules {
    RequestRules { brokers: BTreeMap::new(), ..rules(Kind::Direct) }
}

fn ask(fields: &[(&str, &str)], rules: &RequestRules) -> Result<NewJob, Rejection> {
    let fields: Vec<(&str, String)> =
        fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    from_fields(&fields, &Message::new("body"), rules, NOW)
}

#[test]
fn a_job_of_a_queue_takes_the_rules_of_the_queue() {
    for kind in [Kind::Nats, Kind::Kafka, Kind::Amqp] {
        let job = scheduled(&request(" emails "), &rules(kind)).job;
        assert_eq!(job.target, Target::Queue { queue: "emails".to_owned() });
        assert_eq!(
            (job.ttr_ms, job.retry, job.on_timeout),
            (20_000, Some(vec![MINUTE]), OnTimeout::Retry)
        );
        assert_eq!(
            (job.confirm, job.tries, job.remove_at_ms, job.body),
            (Confirm::Broker, None, None, Bytes::from("body"))
        );
    }
    let own = [
        ("delay-ttr", "90s"),
        ("delay-retry", "none"),
        ("delay-confirm", "consumer"),
        ("delay-late", "drop"),
        ("delay-id", "a"),
    ];
    let message = own
        .iter()
        .fold(request("orders.eu"), |message, (name, value)| message.with_header(*name, *value));
    let new_job = scheduled(&message, &rules(Kind::Nats));
    let job = new_job.job;
    assert_eq!((new_job.id.as_str(), job.queue(), job.ttr_ms), ("a", Some("orders.eu"), 90_000));
    assert_eq!(
        (job.retry, job.confirm, job.late),
        (Some(vec![]), Confirm::Broker, Some(Late::Drop))
    );
    let job = scheduled(&message_for_target(), &rules(Kind::Nats)).job;
    assert_eq!((job.queue(), &job.retry, job.on_timeout), (None, &None, OnTimeout::Ready));
}

fn message_for_target() -> Message {
    message(&[("delay-for", "1m")])
}

#[test]
fn each_mistake_about_a_queue_has_its_code() {
    let long = "x".repeat(256);
    for (queue, code) in [
        ("email", Code::UnknownQueue),
        ("orders", Code::UnknownQueue),
        ("EMAILS", Code::UnknownQueue),
        ("", Code::BadQueue),
        ("orders.*", Code::BadQueue),
        ("orders/a", Code::BadQueue),
        ("orders.ü", Code::BadQueue),
        (long.as_str(), Code::BadQueue),
    ] {
        assert_eq!(refused(&request(queue), &rules(Kind::Nats)), code, "{queue}");
    }
    for other in ["delay-target", "delay-exchange", "delay-broker"] {
        let refusal =
            parse(&request("emails").with_header(other, ""), &rules(Kind::Amqp), NOW).unwrap_err();
        assert!(
            refusal.code == Code::BadHeader && refusal.detail.contains(&format!("has {other} too")),
            "{refusal}"
        );
    }
    assert_eq!(
        refused(&request("emails").with_header("delay-queue", "emails"), &rules(Kind::Nats)),
        Code::BadHeader
    );
    assert_eq!(
        refused(
            &with(bare(&[("delay-for", "1m")]), "delay-queue", Value::Bytes(vec![0xff].into())),
            &rules(Kind::Kafka)
        ),
        Code::BadQueue
    );
    for (name, value, code) in [
        ("delay-ttr", "13h", Code::BadTtr),
        ("delay-retry", "1,1,1,1", Code::BadRetry),
        ("delayed-attempt", "1", Code::BadDelay),
    ] {
        let message = bare(&[
            ("delay-queue", "emails"),
            ("delay-for", if name == "delayed-attempt" { "soon" } else { "1m" }),
        ]);
        assert_eq!(refused(&message.with_header(name, value), &rules(Kind::Nats)), code, "{name}");
    }
    let returned = bare(&[("delay-queue", "emails"), ("delayed-attempt", "1")]);
    assert_eq!(refused(&returned, &rules(Kind::Nats)), Code::Loop);
}

#[test]
fn a_message_that_returned_may_go_to_a_queue_with_a_delay() {
    let message =
        request("emails").with_header("delayed-attempt", "1").with_header("delayed-round", "4");
    assert_eq!(scheduled(&message, &rules(Kind::Nats)).job.round, 5);
    assert_eq!(
        refused(
            &request("emails")
                .with_header("delayed-attempt", "1")
                .with_header("delayed-round", "64"),
            &rules(Kind::Nats)
        ),
        Code::Loop
    );
}

#[test]
fn a_queue_wins_over_the_targets_of_an_ingest_and_of_dialects() {
    let mut rules = rules(Kind::Nats);
    rules.ingest.target = "elsewhere".to_owned();
    let message = request("emails").with_header("x-timebridge-where", "orders.close");
    assert_eq!(scheduled(&message, &rules).job.queue(), Some("emails"));
    assert_eq!(
        *destination(&scheduled(&bare(&[("delay-for", "1m")]), &rules)),
        Destination::new("elsewhere")
    );
}

#[test]
fn a_queue_takes_all_headers_as_they_are() {
    let values = [
        Value::Null,
        Value::Bool(true),
        Value::I64(-4),
        Value::F64(0.25),
        Value::Decimal(2, 314),
        Value::Text("two\nlines".to_owned()),
        Value::Bytes(Bytes::from_static(b"\xff\0")),
        Value::List(vec![Value::I32(1)]),
        Value::Table(vec![("a".to_owned(), Value::Bool(false))]),
    ];
    for kind in [Kind::Kafka, Kind::Amqp] {
        for value in &values {
            assert_eq!(
                scheduled(&with(request("emails"), "tag", value.clone()), &rules(kind))
                    .job
                    .headers
                    .get("tag"),
                Some(value)
            );
        }
        let named = [
            ("Nats-Msg-Id", "1"),
            ("CC", "x"),
            ("tag", "1"),
            ("tag", "2"),
            ("a b:ü", "3"),
            ("traceparent", "00-a"),
        ];
        let message = named
            .iter()
            .fold(request("emails"), |message, (name, value)| message.with_header(*name, *value));
        let message = message.with_header("delayed-id", "old").with_header("x-delay", "5");
        assert_eq!(passed(&scheduled(&message, &rules(kind))), named);
    }
}

#[test]
fn key_tombstone_and_properties_become_headers() {
    let properties = Properties {
        content_type: Some("text/plain".to_owned()),
        kind: Some("a\nb".to_owned()),
        ..Properties::default()
    };
    let job = scheduled(
        &Message { properties: Some(Box::new(properties)), ..request("emails") },
        &rules(Kind::Amqp),
    )
    .job;
    assert_eq!(
        (job.properties, job.headers.text("amqp-content-type"), job.headers.text("amqp-type")),
        (None, Some("text/plain"), Some("a\nb"))
    );
    let key = Some(Bytes::from_static(b"k\xff"));
    let job = scheduled(
        &Message { key, has_body: false, body: Bytes::new(), ..request("emails") },
        &rules(Kind::Kafka),
    )
    .job;
    assert_eq!(
        (job.key, job.headers.get(KEY)),
        (None, Some(&Value::Bytes(Bytes::from_static(b"k\xff"))))
    );
    assert_eq!(job.headers.text(TOMBSTONE), Some("true"));
}

#[test]
fn a_request_says_whether_its_queue_is_full() {
    let (rules, full_queues) = (rules(Kind::Nats), FullQueues::default());
    let rules = RequestRules { full_queues: full_queues.clone(), ..rules };
    full_queues.set(["orders.eu".to_owned()].into());
    assert!(
        scheduled(&request("orders.eu"), &rules).queue_full
            && !scheduled(&request("orders.us"), &rules).queue_full
    );
    full_queues.set(std::collections::HashSet::new());
    assert!(!scheduled(&request("orders.eu"), &rules).queue_full);
    let refusal = rules.queue_full("orders.eu");
    assert_eq!(
        refusal.to_string(),
        "queue_full: the queue `orders.eu` has max_jobs of queues.\"orders.*\", 5: send it again later"
    );
}

#[test]
fn over_http_a_queue_needs_no_broker() {
    let rules = queues_alone();
    let new_job = ask(&[("queue", "emails"), ("for", "1m")], &rules).unwrap();
    assert_eq!(
        (new_job.job.queue(), new_job.due, new_job.job.origin.as_str()),
        (Some("emails"), Due::In(MINUTE), "")
    );
    let refused = |fields: &[(&str, &str)]| ask(fields, &rules).unwrap_err().to_string();
    assert_eq!(
        refused(&[("for", "1m")]),
        "missing_target: the request names no queue: add `queue`"
    );
    assert_eq!(
        refused(&[("for", "1m"), ("target", "a")]),
        "unknown_broker: the settings have no broker: name a queue instead"
    );
    assert_eq!(
        refused(&[("for", "1m"), ("queue", "emails"), ("target", "a")]),
        "bad_header: the request names the queue `emails` and has target too: send one"
    );
    assert!(refused(&[("for", "1m"), ("queue", "a b")]).starts_with("bad_queue: queue: "));
    assert!(
        ask(&[("queue", "emails"), ("for", "1m")], &super::rules(Kind::Direct)).is_ok(),
        "of several brokers none is asked"
    );
}

#[test]
fn the_topic_of_an_envelope_may_be_a_queue() {
    let mut rules = rules(Kind::Nats);
    rules.ingest.format = Format::Envelope;
    rules.ingest.deliver_to = DeliverTo::Queue;
    let json = |text: &str| Message { body: text.to_owned().into(), ..bare(&[]) };
    let add =
        json(r#"{"command":"add","topic":"emails","id":"a","delay":60,"TTR":5,"body":{"a": 1}}"#);
    let job = scheduled(&add, &rules).job;
    assert_eq!(
        (job.queue(), job.ttr_ms, &job.body),
        (Some("emails"), 5_000, &Bytes::from(r#"{"a":1}"#))
    );
    assert_eq!(
        acted(&json(r#"{"command":"delete","topic":"emails","id":"a"}"#), &rules).id.as_str(),
        "a"
    );
    assert_eq!(acted(&json(r#"{"command":"finish","id":"a"}"#), &rules).id.as_str(), "a");
    let named = scheduled(&add.clone().with_header("delay-queue", "orders.x"), &rules);
    assert_eq!(named.job.queue(), Some("orders.x"), "the header wins");
    let target = scheduled(&add.clone().with_header("delay-target", "orders.close"), &rules);
    assert_eq!(*destination(&target), Destination::new("orders.close"));
    assert_eq!(refused(&add.clone().with_header("delay-broker", "kafka"), &rules), Code::BadHeader);
    for (text, code) in [
        (r#"{"command":"add","id":"a","delay":60,"body":""}"#, Code::MissingTarget),
        (r#"{"command":"add","topic":5,"delay":60,"body":""}"#, Code::MissingTarget),
        (r#"{"command":"add","topic":"","delay":60,"body":""}"#, Code::BadQueue),
        (r#"{"command":"add","topic":"a b","delay":60,"body":""}"#, Code::BadQueue),
        (r#"{"command":"add","topic":"bills","delay":60,"body":""}"#, Code::UnknownQueue),
    ] {
        assert_eq!(refused(&json(text), &rules), code, "{text}");
    }
    rules.ingest.deliver_to = DeliverTo::Target;
    assert_eq!(refused(&add, &rules), Code::TargetNotAllowed);
    assert_eq!(
        scheduled(&add.with_header("delay-queue", "emails"), &rules).job.queue(),
        Some("emails")
    );
}
