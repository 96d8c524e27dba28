//! `format = "envelope"`.

use bytes::Bytes;
use dwell_connectors::{Destination, Message};

use super::*;
use crate::job::{Action, Due};

fn envelope_rules() -> RequestRules {
    let mut rules = rules(Kind::Nats);
    rules.ingest.format = Format::Envelope;
    rules
}

fn json(text: impl Into<Bytes>) -> Message {
    Message { body: text.into(), ..bare(&[]) }
}

#[test]
fn an_add_is_a_schedule() {
    let message = json(
        r#"{"command":"add","topic":"orders.close","id":"a","delay":1800,"TTR":60,"body":"gr\u00fcn"}"#,
    );
    let schedule = scheduled(&message, &envelope_rules());
    assert_eq!((schedule.id.as_str(), schedule.due), ("a", Due::At(NOW - 500 + 1_800_000)));
    assert_eq!(
        (destination(&schedule), schedule.job.ttr_ms),
        (&Destination::new("orders.close"), 60_000)
    );
    assert_eq!((schedule.job.body, schedule.job.has_body), (Bytes::from("grün"), true));
    let message = json(
        r#"{"command":"add","topic":"orders.close","id":7,"delayTime":1769860860000,"TTR":"1.5","body":null}"#,
    );
    let schedule = scheduled(&message, &envelope_rules());
    assert_eq!(
        (schedule.id.as_str(), schedule.due, schedule.job.ttr_ms),
        ("7", Due::At(NOW + 60_000), 1_500)
    );
    assert_eq!(schedule.job.body, Bytes::from("null"));
}

#[test]
fn ttr_is_read_in_any_case_and_once() {
    for name in ["ttr", "Ttr", "tTr", "ttR", "TTr", "TtR", "tTR", "TTR"] {
        let message = json(format!(
            r#"{{"command":"add","topic":"orders.close","delay":1,"{name}":60,"body":""}}"#
        ));
        assert_eq!(scheduled(&message, &envelope_rules()).job.ttr_ms, 60_000, "{name}");
    }
    let twice =
        json(r#"{"command":"add","topic":"orders.close","delay":1,"ttr":60,"TTR":60,"body":""}"#);
    assert_eq!(refused(&twice, &envelope_rules()), Code::BadEnvelope);
}

#[test]
fn a_body_that_is_no_string_is_compact_json_to_the_digit() {
    let message = json(
        "{\"command\":\"add\",\"topic\":\"orders.close\",\"delay\":0,\"body\": { \"z\" : [1.00, 123456789012345678901234567890 ],\n \"a\\\" b\": \" x \\\\\" } }",
    );
    let body = scheduled(&message, &envelope_rules()).job.body;
    assert_eq!(body, Bytes::from(r#"{"z":[1.00,123456789012345678901234567890],"a\" b":" x \\"}"#));
}

#[test]
fn delete_and_finish_are_actions() {
    let act = acted(&json(r#"{"command":"delete","id":"a"}"#), &envelope_rules());
    assert_eq!((act.action, act.id.as_str()), (Action::Cancel, "a"));
    let act = acted(
        &json(r#"{"command":"finish","id":"a","body":"ignored"}"#)
            .with_header("delayed-attempt", "1"),
        &envelope_rules(),
    );
    assert_eq!((act.action, act.seen_attempt), (Action::Finish, Some(1)));
    let act = acted(
        &json("not read").with_header("delay-action", "cancel").with_header("delay-id", "b"),
        &envelope_rules(),
    );
    assert_eq!((act.action, act.id.as_str()), (Action::Cancel, "b"));
}

#[test]
fn control_headers_win_over_the_envelope() {
    let message = json(r#"{"command":"add","topic":"other","id":"a","delay":1800,"body":""}"#);
    let message = message
        .with_header("delay-for", "1s")
        .with_header("delay-target", "orders.x")
        .with_header("delay-id", "b");
    let schedule = scheduled(&message, &envelope_rules());
    assert_eq!(
        (schedule.id.as_str(), schedule.due, destination(&schedule)),
        ("b", Due::At(NOW + 500), &Destination::new("orders.x"))
    );
}

#[test]
fn each_mistake_in_an_envelope_has_its_code() {
    let cases = [
        ("", Code::BadEnvelope),
        ("[]", Code::BadEnvelope),
        ("{", Code::BadEnvelope),
        (r#"{"command":"add","topic":"orders.a","delay":1}"#, Code::BadEnvelope),
        (r#"{"command":"add","topic":"orders.a","delay":1,"body":"\ud800"}"#, Code::BadEnvelope),
        (
            r#"{"command":"add","topic":"orders.a","delay":1,"dealy":2,"body":""}"#,
            Code::BadEnvelope,
        ),
        (
            r#"{"command":"add","topic":"orders.a","delay":1,"delay":2,"body":""}"#,
            Code::BadEnvelope,
        ),
        (r#"{"topic":"orders.a","delay":1,"body":""}"#, Code::BadAction),
        (r#"{"command":"push","delay":1,"body":""}"#, Code::BadAction),
        (r#"{"command":"delete"}"#, Code::BadAction),
        (r#"{"command":"finish"}"#, Code::BadAction),
        (r#"{"command":"add","topic":"orders.a","body":""}"#, Code::MissingDelay),
        (r#"{"command":"add","topic":"orders.a","delay":-1,"body":""}"#, Code::BadDelay),
        (r#"{"command":"add","topic":"orders.a","delay":"5m","body":""}"#, Code::BadDelay),
        (r#"{"command":"add","topic":"orders.a","delay":true,"body":""}"#, Code::BadDelay),
        (
            r#"{"command":"add","topic":"orders.a","delayTime":1769860860,"body":""}"#,
            Code::BadDelay,
        ),
        (
            r#"{"command":"add","topic":"orders.a","delay":1,"delayTime":1769860860000,"body":""}"#,
            Code::AmbiguousDelay,
        ),
        (
            r#"{"command":"add","topic":"orders.a","delay":99999999999,"body":""}"#,
            Code::DelayTooLong,
        ),
        (r#"{"command":"add","delay":1,"body":""}"#, Code::MissingTarget),
        (r#"{"command":"add","topic":5,"delay":1,"body":""}"#, Code::MissingTarget),
        (r#"{"command":"add","topic":"other","delay":1,"body":""}"#, Code::TargetNotAllowed),
        (r#"{"command":"add","topic":"orders.a","id":"","delay":1,"body":""}"#, Code::BadId),
        (r#"{"command":"add","topic":"orders.a","id":1.5,"delay":1,"body":""}"#, Code::BadId),
        (r#"{"command":"add","topic":"orders.a","id":[],"delay":1,"body":""}"#, Code::BadId),
        (r#"{"command":"add","topic":"orders.a","delay":1,"TTR":0,"body":""}"#, Code::BadTtr),
        (r#"{"command":"add","topic":"orders.a","delay":1,"TTR":{},"body":""}"#, Code::BadTtr),
    ];
    for (text, code) in cases {
        assert_eq!(refused(&json(text), &envelope_rules()), code, "{text}");
    }
    assert_eq!(refused(&json(vec![0xff]), &envelope_rules()), Code::BadEnvelope);
    assert_eq!(refused(&json("[".repeat(100_000)), &envelope_rules()), Code::BadEnvelope);
    let detail =
        |text: &'static str| parse(&json(text), &envelope_rules(), NOW).expect_err(text).detail;
    assert_eq!(detail(r#"{"command":"push"}"#), "command `push` is not one of add, delete, finish");
    assert_eq!(
        detail(r#"{"command":{"a":"b"}}"#),
        r#"command `{"a":"b"}` is not one of add, delete, finish"#
    );
    let secret = parse(&json(r#"{"command":"add","password":"hunter2"}"#), &envelope_rules(), NOW)
        .expect_err("an unknown key");
    assert!(!secret.detail.contains("hunter2") && !secret.detail.contains("password"));
}
