//! A job arrives once, not early, byte for byte, with its headers.

use std::io::Write;
use std::process::{Command, Stdio};

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_connectors::{Destination, Message};
use dwell_testkit::environment::traffic::Producer;
use dwell_testkit::servers::{NatsOptions, NatsServer};
use serde_json::json;

use super::fixture::{Fixture, SECRET};
use super::receiver::{Receiver, Seen};
use crate::support::python_libraries;

/// Returns the verdict of the Standard Webhooks library on a request.
fn verdict(seen: &Seen) -> String {
    let headers: serde_json::Map<_, _> = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .map(|name| (name.to_owned(), seen.text(name).into()))
        .into_iter()
        .collect();
    let request =
        json!({"headers": headers, "body": STANDARD.encode(&seen.body), "secret": SECRET});
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/webhook.py");
    let mut python = Command::new("python3");
    python
        .arg(script)
        .env("PYTHONPATH", python_libraries())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_arrives_once_not_early_byte_for_byte_and_signed() {
    let receiver = Receiver::always(204).await;
    let fixture = Fixture::start(&[&receiver], "").await;
    let body: Vec<u8> = (0..=255).collect();
    let job = fixture
        .schedule(json!({"id": "order/ü.1", "for": "300ms", "target": receiver.url("/hooks/close?shop=1&a=%20b"), "body_base64": STANDARD.encode(&body),
            "headers": {"X-Tag": "kept", "twice": ["1", "2"], "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "host": "evil", "content-length": "3", "connection": "x-hop", "x-hop": "gone", "webhook-signature": "v1,forged", "authorization": "Bearer app"}}))
        .await;
    assert_eq!(
        (&job["broker"], &job["target"]),
        (&json!("hook"), &json!(receiver.url("/hooks/close?shop=1&a=%20b")))
    );
    fixture.until_over("order%2F%C3%BC.1").await;
    let seen = receiver.seen();
    let [seen] = &seen[..] else { panic!("once: {seen:?}") };
    let due_ms = job["due_ms"].as_i64().unwrap();
    assert!(seen.at_ms >= due_ms, "{} ms early", due_ms - seen.at_ms);
    assert_eq!(
        (&seen.method, seen.uri.to_string().as_str()),
        (&Method::POST, "/hooks/close?shop=1&a=%20b")
    );
    assert_eq!(seen.body, body);
    for (name, value) in [
        ("delayed-id", "order/%C3%BC.1"),
        ("delayed-attempt", "1"),
        ("delayed-due", &due_ms.to_string()),
        ("x-tag", "kept"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("authorization", "Bearer app"),
        ("content-type", "application/octet-stream"),
        ("content-length", "256"),
        ("connection", ""),
        ("x-hop", ""),
    ] {
        assert_eq!(seen.text(name), value, "{name}: {seen:?}");
    }
    assert!(
        receiver.url("").ends_with(seen.text("host"))
            && seen.text("user-agent").starts_with("Dwell/"),
        "{seen:?}"
    );
    assert_eq!(seen.headers.get_all("twice").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert!(
        !seen.text("webhook-id").is_empty() && !seen.text("webhook-id").contains('.'),
        "{seen:?}"
    );
    assert!(
        seen.text("webhook-timestamp").parse::<i64>().unwrap() >= due_ms / 1000,
        "of the attempt: {seen:?}"
    );

    // The library reads bodies as text.
    fixture
        .schedule(json!({"for": "0s", "target": receiver.url("/"), "body": "{\"shop\": 1}"}))
        .await;
    let signed = receiver.until(2).await.remove(1);
    assert_eq!(verdict(&signed), "ok");
    let forged = Seen { body: "{\"shop\": 2}".into(), ..signed };
    assert!(verdict(&forged).starts_with("bad: "), "{}", verdict(&forged));
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_another_broker_becomes_a_request_of_http() {
    let (receiver, nats) =
        tokio::join!(Receiver::always(200), NatsServer::start(NatsOptions::default()));
    let nats = nats.unwrap();
    let bridge = format!(
        "\n[brokers.main]\ntype = \"nats\"\nurl = \"{}\"\nallow = [\"orders.>\"]\n[ingest.main]\nbroker = \"main\"\ndeclare = true\n",
        nats.url()
    );
    let fixture = Fixture::start(&[&receiver], &bridge).await;
    let request = |id: &str| {
        Message::new("order 17")
            .with_header("delay-for", "50ms")
            .with_header("delay-id", id)
            .with_header("delay-broker", "hook")
            .with_header("delay-target", receiver.url("/hooks"))
            .with_header("Content-Type", "text/plain")
            .with_header("X-Shop", "7")
            .with_header("X-Shop", "8")
    };
    let broker = serde_json::from_value(json!({"type": "nats", "url": nats.url()})).unwrap();
    let mut producer = Producer::open(&broker).await.unwrap();
    let requests = [
        request("from-nats"),
        request("no-header").with_header("x(y)", "1"),
        Message::new("")
            .with_header("delay-for", "0")
            .with_header("delay-broker", "hook")
            .with_header("delay-target", "http://10.0.0.1/"),
    ];
    producer.send(&Destination::new("delay.in"), requests).await.unwrap();
    producer.flush().await.unwrap();
    let seen = receiver.until(1).await;
    let seen = &seen[0];
    assert_eq!(
        (&seen.body[..], seen.text("delayed-id"), seen.text("content-type")),
        (&b"order 17"[..], "from-nats", "text/plain")
    );
    assert_eq!(seen.headers.get_all("x-shop").iter().collect::<Vec<_>>(), ["7", "8"]);
    let mut names = seen.headers.keys().map(|name| name.as_str());
    assert!(!names.any(|name| name.starts_with("delay-") || name.starts_with("nats-")), "{seen:?}");
    // A header that HTTP cannot carry, and an address that may not be called.
    fixture.until_metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#, 2.0).await;
    fixture.until_over("from-nats").await;
    assert_eq!(receiver.seen().len(), 1);
}
