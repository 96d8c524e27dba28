//! The pages of queues, on a real sidecar without a broker.

use serde_json::{Value, json};

use super::browser::{plain_story, story};
use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::support::wait_until;

/// A sidecar with two queues and no broker.
async fn sidecar(fixture: &Fixture) -> Sidecar {
    let settings = format!(
        "[redis]\nurls = [\"{}\"]\n[queues.emails]\n[queues.\"orders.*\"]\n",
        fixture.redis.url()
    );
    Sidecar::run(&settings, "", &[]).await
}

/// Schedules a job of a queue.
fn schedule(sidecar: &Sidecar, queue: &str, id: &str, mut job: Value) {
    (job["queue"], job["id"]) = (queue.into(), id.into());
    let answer = sidecar.post("/v1/jobs", &job);
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Fetches a job for an hour.
fn fetch(sidecar: &Sidecar, queue: &str) -> Option<Value> {
    let answer = sidecar.post(&format!("/v1/queues/{queue}/pop"), &json!({"ttr": "1h"}));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["jobs"].get(0).cloned()
}

/// Schedules a job and fails its only attempt.
async fn dies(sidecar: &Sidecar, queue: &str, id: &str) {
    schedule(sidecar, queue, id, json!({"for": "0", "retry": [], "body": "x"}));
    let job = wait_until("a job", async || fetch(sidecar, queue)).await;
    let said = sidecar
        .post("/v1/leases", &json!({"fail": [{"id": job["id"], "lease": job["lease"]}]}))
        .json();
    assert_eq!(
        (&job["id"], &said["results"][0]["verdict"]),
        (&json!(id), &json!("dead")),
        "{said}"
    );
}

#[tokio::test]
async fn a_queue_is_seen_paused_and_purged() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    dies(&sidecar, "emails", "dead").await;
    schedule(&sidecar, "emails", "held", json!({"for": "0", "body": "x"}));
    assert_eq!(fetch(&sidecar, "emails").unwrap()["id"], "held");
    for (second, body) in [
        (1, json!({"body": "</b><script>alert(1)</script>"})),
        (2, json!({"body_base64": "AP+A"})),
        (3, json!({"body": "x".repeat(9000)})),
    ] {
        let mut job = body;
        job["until"] = format!("2024-01-01T00:00:0{second}Z").into();
        schedule(&sidecar, "emails", &format!("ready-{second}"), job);
    }
    for number in 1..=2 {
        schedule(&sidecar, "emails", &format!("later-{number}"), json!({"for": "1h", "body": "x"}));
    }
    schedule(&sidecar, "orders.close", "later", json!({"for": "1h", "body": "x"}));
    story(&sidecar, "queues", &["emails", "orders.close"], async |word: &str| match word {
        "fetch nothing" => assert_eq!(fetch(&sidecar, "emails"), None),
        "fetch one" => assert!(fetch(&sidecar, "emails").is_some()),
        other => panic!("{other}"),
    })
    .await;
    let counts = sidecar.get("/v1/queues/emails").json();
    let states =
        ["scheduled", "ready", "reserved", "dead"].map(|state| counts[state].as_u64().unwrap());
    assert_eq!((states, &counts["paused"]), ([0, 0, 2, 1], &json!(false)), "{counts}");
}

#[tokio::test]
async fn the_jobs_of_a_queue_are_listed_and_ended() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    dies(&sidecar, "emails", "dead").await;
    dies(&sidecar, "orders.close", "another").await;
    schedule(&sidecar, "emails", "held", json!({"for": "0", "body": "x"}));
    assert_eq!(fetch(&sidecar, "emails").unwrap()["id"], "held");
    schedule(&sidecar, "emails", "ready", json!({"for": "0", "body": "x"}));
    plain_story(&sidecar, "queue_of_jobs", &["emails", "ready", "held", "dead"]).await;
    for id in ["ready", "held"] {
        assert_eq!(sidecar.get(&format!("/v1/jobs/{id}")).status, 404, "{id}");
    }
    assert_eq!(sidecar.get("/v1/jobs/dead").json()["state"], "ready");
}
