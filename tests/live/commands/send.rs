//! `dwell send`: the request, the job and the arrival; and requests that it refuses.

use std::time::Duration;

use dwell_connectors::{BrokerConfig, Destination, Role};
use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::support::wait_until;

/// Epoch ms now.
fn now_ms() -> i64 {
    i64::try_from(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis(),
    )
    .unwrap()
}

/// The value of a header as it stands on the wire.
fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

async fn declare(fixture: &Fixture, subject: &str) {
    let broker: BrokerConfig =
        serde_json::from_value(json!({"type": "nats", "url": fixture.nats.url()})).unwrap();
    broker.declare(&Destination::new(subject), Role::Ingest).await.unwrap();
}

#[tokio::test]
async fn what_is_sent_is_seen_and_arrives_in_time_as_it_was() {
    let fixture = Fixture::new().await;
    let _sidecar = fixture.sidecar().await;
    let body = b"line 1\n\x00\x1b[2J\xff\xfe";
    let sent_ms = now_ms();
    let arguments = [
        "--for",
        "1500ms",
        "--target",
        "orders.close",
        "--id",
        "order-17",
        "--header",
        "trace=a=b",
        "--header",
        "delay-retry=1s",
    ];
    let said = fixture.run_with(&[&["send", "-o", "json"], &arguments[..], &["-"]].concat(), body);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(
        said.object(),
        json!({"id": "order-17", "ingest": "main", "broker": "main", "topic": "delay.in"})
    );

    let job = wait_until("the job", async || {
        let said = fixture.run(&["show", "order-17", "-o", "json"]);
        (said.code == 0).then(|| said.object())
    })
    .await;
    let due_ms = job["due_ms"].as_i64().unwrap();
    assert!((sent_ms + 1500..=now_ms() + 1500).contains(&due_ms), "{job}");
    assert_eq!(
        (&job["target"], &job["retry"], &job["headers"]),
        (&json!("orders.close"), &json!(["1s"]), &json!({"trace": "a=b"}))
    );
    assert_eq!(job["size"], body.len());

    let (headers, arrived) =
        wait_until("its arrival", async || fixture.last("ORDERS", "orders.close")).await;
    let arrived_ms = now_ms();
    assert_eq!(arrived, body);
    assert_eq!(
        (header(&headers, "delayed-id"), header(&headers, "trace")),
        (Some("order-17"), Some("a=b"))
    );
    assert_eq!(header(&headers, "delayed-due"), Some(due_ms.to_string().as_str()));
    assert!(arrived_ms >= due_ms, "never early: due {due_ms}, here at {arrived_ms}");
    assert!(arrived_ms < due_ms + 5_000, "due {due_ms}, here at {arrived_ms}");
    wait_until("the end of the job", async || {
        (fixture.run(&["show", "order-17"]).code == 2).then_some(())
    })
    .await;
    assert_eq!(fixture.messages("ORDERS"), 1);
}

#[tokio::test]
async fn each_way_to_give_time_body_and_ingest() {
    let fixture = Fixture::new().await;
    declare(&fixture, "delay.in").await;
    declare(&fixture, "later").await;
    let until =
        ["send", "--until", "2026-12-01T12:00:00+01:00", "--target", "orders.x", "order 18"];
    let said = fixture.run(&until);
    assert_eq!(said.code, 0, "{}", said.err);
    let id = said.out.strip_prefix("sent ").unwrap().split(' ').next().unwrap();
    assert!(
        id.len() == 32
            && said.out.ends_with(&format!(
                " to delay.in on main (nats://127.0.0.1:{})\n",
                fixture.nats.port()
            )),
        "{}",
        said.out
    );
    let (headers, body) = fixture.last("DWELL_delay_in", "delay.in").unwrap();
    assert_eq!(
        (header(&headers, "delay-id"), header(&headers, "delay-target")),
        (Some(id), Some("orders.x"))
    );
    assert_eq!(
        (header(&headers, "delay-until"), body.as_slice()),
        (Some("2026-12-01T12:00:00+01:00"), &b"order 18"[..])
    );

    // A time of a zone, as any producer may send it.
    let zone = ["--header", "delay-time-zone=Europe/Berlin", "--target", "orders.x"];
    let said = fixture.run(&[&["send", "--until", "2026-12-01T12:00:00"], &zone[..]].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    let (headers, _) = fixture.last("DWELL_delay_in", "delay.in").unwrap();
    assert_eq!(header(&headers, "delay-until"), Some("2026-12-01T12:00:00"));
    assert_eq!(header(&headers, "delay-time-zone"), Some("Europe/Berlin"));

    // Another id each time where none is given; a body may be empty.
    let again =
        fixture.run(&["send", "--for", "PT15M", "--target", "orders.x", "-o", "json"]).object();
    assert_ne!(again["id"], id);
    assert_eq!(fixture.last("DWELL_delay_in", "delay.in").unwrap().1, b"");

    let several = [
        "--set",
        "ingest.more.broker=main",
        "--set",
        "ingest.more.topic=later",
        "--set",
        "ingest.more.target=orders.y",
    ];
    let said = fixture.run(&[&["send", "--for", "5000"], &several[..]].concat());
    assert_eq!((said.code, said.out.as_str()), (64, ""));
    assert!(said.err.contains("choose one with --ingest: main, more"), "{}", said.err);
    let said = fixture.run(
        &[&["send", "--for", "5000", "--ingest", "more", "-o", "json"], &several[..]].concat(),
    );
    assert_eq!(
        (said.code, &said.object()["topic"]),
        (0, &json!("later")),
        "the ingest has a target: {}",
        said.err
    );
    assert_eq!(fixture.messages("DWELL_later"), 1);
}

#[tokio::test]
async fn a_bad_request_is_refused_before_anything_is_sent() {
    let fixture = Fixture::new().await;
    declare(&fixture, "delay.in").await;
    let good = ["--for", "1h", "--target", "orders.x"];
    for (arguments, says) in [
        (&["--target", "orders.x"][..], "--for <DURATION>|--until <TIME>"),
        (
            &["--for", "1h", "--until", "2026-12-01T12:00:00Z", "--target", "orders.x"],
            "cannot be used with",
        ),
        (&["--for", "soon", "--target", "orders.x"], "soon"),
        (&["--for=-5s", "--target", "orders.x"], "-5s"),
        (&["--for", "P1M", "--target", "orders.x"], "P1M"),
        (&["--until", "2026-12-01T12:00:00", "--target", "orders.x"], "offset"),
        (&["--until", "1800000000", "--target", "orders.x"], "1800000000"),
        (&["--for", "400d", "--target", "orders.x"], "delay_too_long: "),
        (&["--for", "1h"], "missing_target: "),
        (&["--for", "1h", "--target", "bills.x"], "target_not_allowed: "),
        (&["--for", "1h", "--target", "orders.*"], "target_not_allowed: "),
        (&["--for", "1h", "--target", "$JS.API.STREAM.DELETE.ORDERS"], "target_not_allowed: "),
        (&[&good[..], &["--id", ""]].concat(), "--id"),
        (&[&good[..], &["--id", &"x".repeat(257)]].concat(), "--id"),
        (&[&good[..], &["--header", "no-value"]].concat(), "write NAME=VALUE"),
        (&[&good[..], &["--header", "delay-rety=1s"]].concat(), "bad_header: "),
        (&[&good[..], &["--header", "delay-for=2h"]].concat(), "bad_header: "),
        (&[&good[..], &["--header", "delay-retry=often"]].concat(), "bad_retry: "),
        (&[&good[..], &["--header", "delay-ttr=13h"]].concat(), "bad_ttr: "),
        (&[&good[..], &["--header", "delay-broker=other"]].concat(), "unknown_broker: "),
        (&[&good[..], &["--set", "limits.max_body=4B", "order"]].concat(), "body_too_large: "),
        (&[&good[..], &["--ingest", "other"]].concat(), "--ingest is one of main"),
        (&[&good[..], &["--set", "ingest.main.format=envelope"]].concat(), "envelope"),
        (&[&good[..], &["a", "b"]].concat(), "unexpected argument"),
    ] {
        let said = fixture.run(&[&["send"], arguments].concat());
        assert_eq!((said.code, said.out.as_str()), (64, ""), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(says), "{arguments:?}: {}", said.err);
    }
    let said = fixture.run_with(
        &[&["send", "--set", "limits.max_body=4B"], &good[..], &["-"]].concat(),
        b"order",
    );
    assert_eq!(said.code, 64);
    assert!(
        said.err.contains("body_too_large: stdin has more than limits.max_body, 4B"),
        "{}",
        said.err
    );
    assert_eq!(fixture.messages("DWELL_delay_in"), 0);
}

#[tokio::test]
async fn what_the_broker_does_not_take_exits_69() {
    let mut fixture = Fixture::new().await;
    let request = ["send", "--for", "1h", "--target", "orders.x", "--id", "x", "body"];
    let said = fixture.run(&request);
    assert_eq!((said.code, said.out.as_str()), (69, ""));
    assert!(
        said.err.contains("no stream has the subject `delay.in`")
            && said.err.contains("declare = true"),
        "{}",
        said.err
    );

    let config = r#"{"name":"IN","subjects":["delay.in"],"max_msgs":1,"discard":"new"}"#;
    fixture.api("STREAM.CREATE.IN", config);
    assert_eq!(fixture.run(&request).code, 0);
    let said = fixture.run(&request);
    assert_eq!((said.code, said.out.as_str()), (69, ""));
    assert!(
        said.err.contains("maximum messages exceeded") && said.err.contains("send it again later"),
        "{}",
        said.err
    );

    fixture.nats.freeze().unwrap();
    let hung = std::time::Instant::now();
    let said = fixture.run(&[&request[..], &["--set", "delivery.publish_timeout=500ms"]].concat());
    assert_eq!((said.code, said.out.as_str()), (69, ""), "{}", said.err);
    assert!(hung.elapsed() < Duration::from_secs(30));
    fixture.nats.kill().unwrap();
    let said = fixture.run(&request);
    assert_eq!((said.code, said.out.as_str()), (69, ""));
    assert!(said.err.contains("is the server running"), "{}", said.err);
    let value: Result<Value, _> = serde_json::from_str(&said.err);
    assert!(value.is_err(), "errors are for people");
}
