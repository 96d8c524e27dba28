//! Very many or very large headers: refused with a code, delivered, or dead with a reason. The
//! sidecar survives.

use serde_json::{Value, json};

use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::support::wait_until;

fn job(id: &str, headers: Value, body: &str) -> Value {
    json!({"id": id, "for": "0", "target": "orders.x", "headers": headers, "body": body, "retry": []})
}

#[tokio::test]
async fn many_headers_and_large_ones_pass_are_refused_or_end_among_the_dead() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let many = |count: usize| {
        (0..count)
            .map(|n| (format!("h-{n}"), json!("v")))
            .collect::<serde_json::Map<String, Value>>()
    };
    let answer = sidecar.post("/v1/jobs", &job("many", many(4000).into(), "many"));
    assert_eq!(answer.status, 201, "{}", answer.text);
    wait_until("it is delivered", async || (fixture.messages("ORDERS") == 1).then_some(())).await;
    let (headers, body) = fixture.last("ORDERS", "orders.x").unwrap();
    assert!(
        body == b"many" && (0..4000).all(|n| headers.contains(&format!("\r\nh-{n}: v\r\n"))),
        "{}",
        headers.len()
    );

    // Taken, because their bodies are small; and more than JetStream takes: 64 KiB of headers, and
    // `max_payload` in all.
    for (id, headers) in
        [("more", many(10_000).into()), ("large", json!({"h": "x".repeat(1 << 20)}))]
    {
        let answer = sidecar.post("/v1/jobs", &job(id, headers, id));
        assert_eq!(answer.status, 201, "{}", answer.text);
        let dead = wait_until("it is dead", async || {
            let job = sidecar.get(&format!("/v1/jobs/{id}")).json();
            (job["state"] == "dead").then_some(job)
        })
        .await;
        assert!(dead["last_error"].as_str().is_some_and(|why| !why.is_empty()), "{dead}");
    }

    let answer = sidecar.post("/v1/jobs", &job("huge", json!({"h": "x".repeat(20 << 20)}), "huge"));
    assert_eq!(answer.problem(413)["code"], "body_too_large");
    let name = "n".repeat(70_000);
    let answer = sidecar.post("/v1/jobs", &job("name", json!({name: "x", "a b": "x"}), "name"));
    assert_eq!(answer.problem(400)["code"], "bad_header");
    assert_eq!(
        (fixture.messages("ORDERS"), sidecar.get("/v1/stats").json()["dead"].clone()),
        (1, json!(2))
    );
}
