//! ouqiang/delay-queue: the jobs that its clients push, sent as an envelope. It has no tests of its
//! own; the rules are those of its README and of routers/routers.go. The calls of consumers
//! (`/pop`) do not apply.

use dwell::job::JobId;
use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;
use serde_json::json;

use super::fixture::Fixture;

/// `/push`, `/delete` and `/finish`: the body of its README, with the command that stood in its
/// URL.
pub(super) async fn pushed_jobs(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.order").await;
    let body = "{\"uid\": 10829378,\"created\": 1498657365 }";
    let push = |id: &str, delay: i64| {
        Message::new(json!({"command": "add", "topic": "out.order", "id": id, "delay": delay, "ttr": 120, "body": body}).to_string())
    };
    let word =
        |command: &str, id: &str| Message::new(json!({"command": command, "id": id}).to_string());
    fixture
        .send(
            "delay.queue",
            [
                push("15702398321", 1),
                push("pushed-deleted", 5),
                word("delete", "pushed-deleted"),
                push("pushed-waiting", 3600),
            ],
        )
        .await;
    let message = target.job("15702398321").await;
    assert_eq!(message.body, body);
    let waiting =
        fixture.store.reader.find(&JobId::new("pushed-waiting").unwrap()).await.unwrap().unwrap();
    assert_eq!(waiting.record.job.ttr_ms, 120_000);
    fixture.until_due("pushed-deleted", None).await;
    assert_eq!(target.count("pushed-deleted"), 0);
}

/// The refusals of `/push`: no topic, a delay or TTR out of range. An id is made where there is
/// none, and a delay of 0 is now.
pub(super) async fn what_push_refuses(fixture: &Fixture) {
    let push = |more: serde_json::Value| {
        let mut job = json!({"command": "add", "topic": "out.order", "id": "pushed-bad", "delay": 1, "ttr": 120, "body": "dq-bad"});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Message::new(job.to_string())
    };
    let cases = [
        (json!({"topic": ""}), "missing_target"),
        (json!({"id": ""}), "bad_id"),
        (json!({"delay": -1}), "bad_delay"),
        (json!({"delay": (1_i64 << 31) + 1}), "delay_too_long"),
        (json!({"ttr": 0}), "bad_ttr"),
        (json!({"ttr": 86_401}), "bad_ttr"),
    ];
    fixture.send("delay.queue", cases.iter().map(|(more, _)| push(more.clone()))).await;
    let codes: Vec<&str> = cases.iter().map(|(_, code)| *code).collect();
    assert_eq!(fixture.rejected("dq-bad", cases.len()).await, codes);
}
