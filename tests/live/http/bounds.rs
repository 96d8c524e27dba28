//! `max_jobs`: a full queue refuses new jobs over HTTP and from a broker, and nothing else.

use serde_json::{Value, json};

use super::sidecar::Sidecar;
use crate::commands::fixture::{Fixture, run_with};
use crate::support::wait_until;

fn job(id: &str, body: &str) -> Value {
    json!({"id": id, "queue": "emails", "for": "1h", "body": body})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_new_jobs_and_takes_the_rest() {
    let fixture = Fixture::new().await;
    let settings = format!(
        "{}\n[queues.emails]\nmax_jobs = 2\nretry = [\"1h\"]\n[queues.bills]\n",
        fixture.settings(true)
    );
    let sidecar = Sidecar::run(&settings, "", &[]).await;
    for id in ["a", "b"] {
        assert_eq!(sidecar.post("/v1/jobs", &job(id, "x")).status, 201);
    }
    let mut tried = 0;
    let refused = wait_until("the count", async || {
        // Each has its own id: jobs that come before the count are stored.
        tried += 1;
        Some(sidecar.post("/v1/jobs", &job(&format!("c{tried}"), "x")))
            .filter(|answer| answer.status != 201)
    });
    let refused = refused.await;
    assert!(refused.head.contains("\r\nretry-after: 1\r\n"), "{refused:?}");
    let problem = refused.problem(429);
    assert_eq!(problem["code"], "queue_full", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("queues.\"emails\", 2"), "{problem}");
    let many = sidecar.post("/v1/jobs", &json!([job("a", "y"), job("d", "x"), {"id": "e", "queue": "bills", "for": "1h"}, job("b", "x")]));
    let told: Vec<Value> = many
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| json!([one["id"], one["status"], one["code"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["a", null, null]),
            json!([null, 429, "queue_full"]),
            json!(["e", null, null]),
            json!(["b", null, null])
        ]
    );
    assert_eq!(
        sidecar.post("/v1/jobs", &job("a", "z")).status,
        201,
        "a replaced job takes no room"
    );

    let send = |id: &str, body: &str| {
        let header = ["--header", "delay-queue=emails", "--header"];
        let config = sidecar.config();
        let said = run_with(
            &[
                &["-c", config.to_str().unwrap(), "send", "--for", "2h", "--id", id],
                &header[..],
                &["h=1", body],
            ]
            .concat(),
            b"",
        );
        assert_eq!(said.code, 0, "{said:?}");
    };
    send("f", "lost");
    send("b", "replaced");
    let streams = fixture.api("STREAM.NAMES", r#"{"subject": "delay.rejected"}"#);
    let stream = streams["streams"][0].as_str().unwrap();
    let (head, body) =
        wait_until("the rejected request", async || fixture.last(stream, "delay.rejected")).await;
    assert!(
        head.contains("delayed-error: queue_full\r\n")
            && head.contains("delay-id: f\r\n")
            && body == b"lost",
        "{head}"
    );
    wait_until("the replaced job", async || {
        (sidecar.get("/v1/jobs/b").json()["size"] == 8).then_some(())
    })
    .await;
    sidecar.get("/v1/jobs/f").problem(404);

    // With room again.
    assert_eq!(sidecar.post("/v1/queues/emails/purge", &json!({"state": "scheduled"})).status, 200);
    wait_until("room", async || {
        (sidecar.post("/v1/jobs", &job("g", "x")).status == 201).then_some(())
    })
    .await;
}
