//! Jobs of queues without any broker, alone and as arrays.

use serde_json::{Value, json};

use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_alone_take_jobs_each_with_its_own_answer() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings(true);
    let (redis, _) = settings.split_once("[brokers").unwrap();
    let sidecar = Sidecar::run(
        &format!("{redis}\n[queues.\"emails.*\"]\nttr = \"1m\"\nretry = [\"5s\"]\n"),
        "",
        &[],
    )
    .await;
    let answer =
        sidecar.post("/v1/jobs", &json!({"id": "one", "queue": "emails.eu", "for": "1h", "headers": {"n": ["1", "2"]}, "body": "b"}));
    let job = answer.json();
    assert_eq!(answer.status, 201, "{job}");
    assert_eq!(
        (&job["queue"], &job["ttr_ms"], &job["retry"], &job["headers"]),
        (&json!("emails.eu"), &json!(60_000), &json!(["5s"]), &json!({"n": ["1", "2"]}))
    );
    assert!(["broker", "exchange", "target"].iter().all(|name| job[*name].is_null()), "{job}");
    assert_eq!(
        sidecar.post("/v1/jobs", &json!({"queue": "bills", "for": "1h"})).problem(400)["code"],
        "unknown_queue"
    );
    assert_eq!(
        sidecar.post("/v1/jobs", &json!({"for": "1h"})).problem(400)["code"],
        "missing_target"
    );

    let one = |id: &str| json!({"id": id, "queue": "emails.eu", "for": "1h"});
    let asked = [
        one("a"),
        json!({"queue": "a b", "for": "1h"}),
        json!({"queue": "emails.eu", "for": "1h", "que": 1}),
        json!(5),
        json!({"id": "one", "queue": "emails.us", "for": "2h", "on_conflict": "reject"}),
        json!({"id": "one", "queue": "emails.us", "for": "2h", "on_conflict": "keep"}),
        one("a"),
        one("b"),
    ];
    let answer = sidecar.post("/v1/jobs", &json!(asked));
    assert_eq!(answer.status, 200, "{answer:?}");
    let answers = answer.json();
    let told = |element: &Value| {
        if element["id"].is_null() {
            json!([element["status"], element["code"]])
        } else {
            element["id"].clone()
        }
    };
    let told: Vec<Value> = answers.as_array().unwrap().iter().map(told).collect();
    let wanted = json!([
        "a",
        [400, "bad_queue"],
        [400, null],
        [400, null],
        [409, "conflict"],
        "one",
        "a",
        "b"
    ]);
    assert_eq!(json!(told), wanted, "{answers}");
    assert_eq!(
        (&answers[4]["job"]["queue"], &answers[5]["queue"]),
        (&json!("emails.eu"), &json!("emails.eu"))
    );

    assert_eq!(sidecar.post("/v1/jobs", &json!([])).json(), json!([]));
    let many: Vec<Value> = (0..1000).map(|number| one(&format!("n{number}"))).collect();
    let answers = sidecar.post("/v1/jobs", &json!(many)).json();
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert!(
        ids.len() == 1000
            && ids.iter().enumerate().all(|(number, id)| **id == json!(format!("n{number}"))),
        "{answers}"
    );
    sidecar.post("/v1/jobs", &json!(vec![one("x"); 1001])).problem(400);
    assert_eq!(sidecar.get("/v1/stats").json()["scheduled"], 1003);
    assert_eq!(sidecar.get("/v1/jobs/one").json()["queue"], "emails.eu");
    assert_eq!(sidecar.call("DELETE /v1/jobs/one", None).json()["verdict"], "cancelled");
}
