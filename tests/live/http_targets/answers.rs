//! The fate of a job by the answer of its target.

use serde_json::json;

use super::fixture::Fixture;
use super::receiver::{Receiver, answer};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_retried_on_the_array_and_counted() {
    let receiver = Receiver::start(|number, _| {
        if number == 1 { answer(500, &[], "the ledger is locked") } else { answer(200, &[], "") }
    })
    .await;
    let fixture = Fixture::start(&[&receiver], "").await;
    let job = fixture.schedule(json!({"id": "retried", "for": "10ms", "target": receiver.url("/"), "retry": ["5s"], "body": "x"})).await;
    receiver.until(1).await;
    let failed = fixture.until_state("retried", "scheduled").await;
    assert_eq!(failed["attempt"], 1, "{failed}");
    assert_eq!(
        failed["last_error"],
        "the target answered 500 Internal Server Error: the ledger is locked"
    );
    fixture.until_over("retried").await;
    let seen = receiver.seen();
    let told: Vec<_> =
        seen.iter().map(|seen| (seen.text("delayed-attempt"), seen.text("delayed-due"))).collect();
    let due = job["due_ms"].to_string();
    assert_eq!(told, [("1", due.as_str()), ("2", due.as_str())]);
    assert!(seen[1].at_ms >= seen[0].at_ms + 5000, "the wait of the array is waited for");
    assert_eq!(seen[0].text("webhook-id"), seen[1].text("webhook-id"), "the same over the retries");
    for (outcome, count) in
        [("failed", 1.0), ("confirmed", 1.0), ("unknown", 0.0), ("refused", 0.0)]
    {
        fixture
            .until_metric(
                &format!("dwell_publish_total{{broker=\"hook\",outcome=\"{outcome}\"}}"),
                count,
            )
            .await;
    }
    let (_, stats) = fixture.call("GET /v1/stats", &json!({})).await;
    let error = &stats["brokers"]["hook"]["last_error"];
    // The answer of a stranger is in the last error of its job alone.
    assert!(error.to_string().contains("500") && !error.to_string().contains("ledger"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gone_is_dead_at_once_and_a_redirect_is_not_followed() {
    let elsewhere = Receiver::always(200).await;
    let place = elsewhere.url("/new?token=hush");
    let receiver = Receiver::start(move |_, seen| match seen.uri.path() {
        "/gone" => answer(410, &[], "unsubscribed"),
        "/moved" => answer(308, &[("location", &place)], ""),
        _ => answer(404, &[], ""),
    })
    .await;
    let fixture = Fixture::start(&[&receiver, &elsewhere], "").await;
    for id in ["gone", "moved", "lost"] {
        let retry = if id == "gone" { json!(["1h"]) } else { json!([]) };
        fixture.schedule(json!({"id": id, "for": "0s", "target": receiver.url(&format!("/{id}")), "retry": retry})).await;
    }
    for (id, reason, error) in [
        ("gone", "invalid", "the target answered 410 Gone: unsubscribed"),
        (
            "moved",
            "retries_exhausted",
            "the target answered 308 Permanent Redirect (redirects are not followed: name the new URL)",
        ),
        ("lost", "retries_exhausted", "the target answered 404 Not Found"),
    ] {
        let dead = fixture.until_state(id, "dead").await;
        assert_eq!(
            (&dead["dead_reason"], &dead["last_error"], &dead["attempt"]),
            (&json!(reason), &json!(error), &json!(1))
        );
        assert_eq!(receiver.of(id).len(), 1);
    }
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_finishes_by_its_answer_or_later() {
    let receiver = Receiver::start(|_, seen| {
        if seen.uri.path() == "/done" { answer(200, &[], "") } else { answer(202, &[], "") }
    })
    .await;
    let fixture = Fixture::start(&[&receiver], "").await;
    let job = |id: &str, path: &str, ttr: &str| json!({"id": id, "for": "0s", "target": receiver.url(path), "confirm": "consumer", "ttr": ttr, "retry": ["100ms", "1h"]});
    fixture.schedule(job("done", "/done", "1h")).await;
    fixture.until_over("done").await;
    let (status, verdict) = fixture.call("POST /v1/jobs/done/finish", &json!({})).await;
    assert_eq!((status, &verdict["verdict"]), (409, &json!("fired")));

    fixture.schedule(job("later", "/later", "1h")).await;
    let held = wait_until("it awaits its finish", async || {
        fixture.job("later").await.filter(|job| job["awaiting_finish"] == true)
    })
    .await;
    assert_eq!(held["state"], "reserved", "{held}");
    assert_eq!(held["attempt"], 1, "{held}");
    let of = receiver.of("later").remove(0);
    let word = json!({"due_ms": of.text("delayed-due").parse::<i64>().unwrap(), "attempt": 1});
    let (status, verdict) = fixture.call("POST /v1/jobs/later/finish", &word).await;
    assert_eq!((status, &verdict["verdict"]), (200, &json!("finished")));
    assert!(fixture.job("later").await.is_none());

    // Nobody finishes within the TTR.
    fixture.schedule(job("silent", "/silent", "200ms")).await;
    let attempts = wait_until("a second attempt", async || {
        let attempts = receiver.of("silent");
        (attempts.len() >= 2).then_some(attempts)
    })
    .await;
    assert_eq!(
        (attempts[0].text("delayed-attempt"), attempts[1].text("delayed-attempt")),
        ("1", "2")
    );
    assert_ne!(
        attempts[0].text("webhook-id"),
        attempts[1].text("webhook-id"),
        "each attempt asks anew"
    );
    assert_eq!((receiver.of("done").len(), receiver.of("later").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_broker_confirm_202_is_done_too() {
    let receiver = Receiver::always(202).await;
    let fixture = Fixture::start(&[&receiver], "").await;
    fixture.schedule(json!({"id": "taken", "for": "0s", "target": receiver.url("/")})).await;
    fixture.until_over("taken").await;
    assert_eq!(receiver.seen().len(), 1);
}
