//! Requests that arrive as fields, over HTTP.

use super::*;
use crate::job::{Conflict, Due};
use crate::request::{due_within, from_fields};

/// The rules of HTTP with this default broker.
fn direct(broker: &str) -> RequestRules {
    let own = rules(Kind::Nats);
    let ingest = Ingest {
        broker: broker.to_owned(),
        topic: String::new(),
        delay_from: DelayFrom::Receipt,
        ..own.ingest.clone()
    };
    RequestRules { name: String::new(), source: None, ingest, ..own }
}

fn ask(fields: &[(&str, &str)], message: &Message, broker: &str) -> Result<NewJob, Rejection> {
    let fields: Vec<(&str, String)> =
        fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    from_fields(&fields, message, &direct(broker), NOW)
}

#[test]
fn fields_are_read_as_headers_are() {
    let fields = [
        ("id", "x"),
        ("for", "90s"),
        ("target", "orders.close"),
        ("retry", "none"),
        ("on-conflict", "keep"),
        ("max-late", "1m"),
    ];
    let new_job = ask(&fields, &Message::new("body").with_header("tag", "t"), "nats").unwrap();
    assert_eq!(
        (new_job.id.as_str(), new_job.generated, new_job.due),
        ("x", false, Due::In(90_000)),
        "from receipt"
    );
    assert_eq!(
        (new_job.conflict, new_job.job.retry, new_job.job.max_late_ms),
        (Conflict::Keep, Some(vec![]), Some(MINUTE))
    );
    assert_eq!(
        (new_job.job.origin.as_str(), &new_job.job.body[..], new_job.job.headers.text("tag")),
        ("", &b"body"[..], Some("t"))
    );
    let other = ask(&fields, &Message::new("body"), "nats").unwrap();
    assert!(
        other.origin.maybe_redelivered && other.origin.fingerprint != new_job.origin.fingerprint,
        "each call is a request of its own"
    );
    let nameless = ask(&fields[1..3], &Message::new("body"), "nats").unwrap();
    assert!(
        nameless.generated
            && nameless.conflict == Conflict::Keep
            && nameless.id != ask(&fields[1..3], &Message::new(""), "nats").unwrap().id
    );
}

#[test]
fn what_is_wrong_is_told_by_the_name_of_the_field() {
    let code = |fields: &[(&str, &str)], message: &Message, broker: &str| {
        ask(fields, message, broker).unwrap_err()
    };
    let empty = Message::new("");
    let refused =
        code(&[("for", "1h"), ("target", "orders.a"), ("max-late", "soon")], &empty, "nats");
    assert!(
        refused.code == Code::BadHeader && refused.detail.starts_with("max_late: "),
        "{refused}"
    );
    let refused = code(&[("for", "1h")], &empty, "amqp");
    assert_eq!(
        refused.to_string(),
        "missing_target: the request names no target: add `target` or `queue`"
    );
    let refused = code(&[("for", "1h"), ("target", "orders.a")], &empty, "");
    assert_eq!(
        refused.to_string(),
        "unknown_broker: the settings have several brokers: name one of these in `broker`: amqp, kafka, memory, nats"
    );
    let refused = code(
        &[("for", "1h"), ("target", "orders.a")],
        &empty.clone().with_header("Delay-Ttr", "1s"),
        "nats",
    );
    assert!(refused.code == Code::BadHeader && refused.detail.contains("Delay-Ttr"), "{refused}");
    let refused = code(
        &[("for", "1h"), ("target", "orders.a")],
        &empty.clone().with_header("Nats-Msg-Id", "1"),
        "nats",
    );
    assert_eq!(refused.code, Code::BadHeader, "no NATS server sent it");
    assert_eq!(
        code(&[("target", "orders.a")], &empty.with_header("delayed-attempt", "1"), "nats").code,
        Code::Loop
    );
}

#[test]
fn a_new_time_is_bound_by_the_same_limit_from_every_door() {
    let within = |delay_for, until| due_within(delay_for, until, None, DAY, NOW);
    assert_eq!(within(Some(DAY), None), Ok(Some(Due::In(DAY))));
    assert_eq!(within(None, Some(NOW + 86_400_000)), Ok(Some(Due::At(NOW + 86_400_000))));
    assert_eq!((within(None, None), within(None, Some(-5))), (Ok(None), Ok(Some(Due::At(0)))));
    assert_eq!(within(Some(DAY + 1), None).unwrap_err().code, Code::DelayTooLong);
    assert_eq!(within(None, Some(NOW + 86_400_001)).unwrap_err().code, Code::DelayTooLong);
    assert_eq!(within(Some(1), Some(1)).unwrap_err().code, Code::AmbiguousDelay);
}
