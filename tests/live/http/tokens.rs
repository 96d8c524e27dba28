//! Tokens of applications: what each may do, and which jobs it sees.

use serde_json::{Value, json};

use super::sidecar::{Answer, Sidecar};
use crate::commands::fixture::Fixture;
use crate::support::wait_until;

const TOKENS: &str = r#"
[http.tokens.shop]
token = "token-of-shop"
may = ["schedule", "consume", "read"]
queues = ["orders.*"]
[http.tokens.till]
token = "token-of-till"
may = ["schedule", "consume", "read", "act"]
queues = ["bills"]
[http.tokens.ops]
token = "token-of-ops"
may = ["schedule", "read", "act"]
"#;

async fn sidecar(fixture: &Fixture) -> Sidecar {
    Sidecar::run(&format!("{}\n[queues.\"*\"]\nretry = [\"1h\"]\n", fixture.settings(true)), TOKENS, &[]).await
}

fn call(sidecar: &Sidecar, name: &str, line: &str, body: &Value) -> Answer {
    let headers = format!("authorization: Bearer token-of-{name}\r\ncontent-type: application/json\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    sidecar.send(line, &headers, body.as_bytes())
}

fn job(id: &str, queue: &str) -> Value {
    json!({"id": id, "queue": queue, "for": 0, "body": "x"})
}

/// Pops one job and returns it.
fn pop(sidecar: &Sidecar, name: &str, queue: &str) -> Value {
    let answer = call(sidecar, name, &format!("POST /v1/queues/{queue}/pop"), &json!({"wait": "20s"}));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["jobs"][0].clone()
}

#[track_caller]
fn forbidden(answer: &Answer) {
    assert_eq!(answer.problem(403)["code"], "forbidden", "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_what_its_scopes_say_and_its_name_is_logged() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    sidecar.get("/v1/stats").problem(401);
    call(&sidecar, "nobody", "GET /v1/stats", &Value::Null).problem(401);
    for line in ["DELETE /v1/jobs/x", "PATCH /v1/jobs/x", "POST /v1/jobs/x/fire", "POST /v1/jobs/x/requeue"] {
        forbidden(&call(&sidecar, "shop", line, &json!({})));
    }
    for line in ["pause", "resume", "purge"].map(|word| format!("POST /v1/queues/orders.eu/{word}")) {
        forbidden(&call(&sidecar, "shop", &line, &json!({})));
    }
    let consume = ["POST /v1/queues/orders.eu/pop", "POST /v1/leases", "POST /v1/jobs/x/finish", "POST /v1/jobs/x/fail"];
    for line in consume {
        forbidden(&call(&sidecar, "ops", line, &json!({})));
    }
    for line in ["GET /v1/stats", "GET /v1/horizon", "GET /openapi.json", "GET /v1/queues/orders.eu"] {
        assert_eq!(call(&sidecar, "shop", line, &Value::Null).status, 200, "{line}");
    }
    call(&sidecar, "shop", "POST /v1/nothing", &json!({})).problem(404);
    assert_eq!(call(&sidecar, "ops", "DELETE /v1/jobs/x", &Value::Null).status, 404);
    assert_eq!(call(&sidecar, "ops", "POST /v1/queues/orders.eu/pause", &Value::Null).json()["paused"], true);

    let is_named = |line: &Value| line["message"] == "request" && line["span"]["token"] == "shop" && line["status"] == 403;
    wait_until("the name in the log", async || sidecar.log_lines().iter().any(is_named).then_some(())).await;
    assert!(!sidecar.log().contains("token-of-"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_others_is_forbidden_and_so_are_brokers() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for line in ["POST /v1/queues/bills/pop", "POST /v1/queues/orders.eu,bills/pop", "GET /v1/queues/bills", "GET /v1/queues/bills/peek"] {
        forbidden(&call(&sidecar, "shop", line, &Value::Null));
    }
    let of_broker = json!({"id": "b", "target": "orders.x", "for": "1h"});
    forbidden(&call(&sidecar, "shop", "POST /v1/jobs", &job("x", "bills")));
    forbidden(&call(&sidecar, "shop", "POST /v1/jobs", &of_broker));
    assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &of_broker).status, 201);
    assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &job("of-bills", "bills")).status, 201);
    let many = call(
        &sidecar,
        "shop",
        "POST /v1/jobs",
        &json!([job("a", "orders.eu"), job("c", "bills"), of_broker, job("of-bills", "orders.eu")]),
    );
    let told: Vec<Value> = many.json().as_array().unwrap().iter().map(|one| json!([one["id"], one["code"], one["job"]])).collect();
    let refused = |code: &str| json!([null, code, null]);
    assert_eq!(told, [json!(["a", null, null]), refused("forbidden"), refused("forbidden"), refused("conflict")]);
    // Neither replaced nor shown.
    let taken = call(&sidecar, "shop", "POST /v1/jobs", &json!({"id": "b", "queue": "orders.eu", "for": "1h", "on_conflict": "keep"}));
    let problem = taken.problem(409);
    assert_eq!((&problem["code"], &problem["job"]), (&json!("conflict"), &Value::Null));
    assert_eq!(call(&sidecar, "ops", "GET /v1/jobs/of-bills", &Value::Null).json()["queue"], "bills");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_others_is_not_there() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for body in [job("a", "orders.eu"), job("b", "orders.us"), job("c", "bills"), json!({"id": "d", "target": "orders.x", "for": "1h"})] {
        assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &body).status, 201);
    }
    assert_eq!(call(&sidecar, "till", "POST /v1/jobs", &json!({"id": "e", "queue": "bills", "for": "1h"})).status, 201);
    let ids = |name: &str, state: &str| {
        let listed = call(&sidecar, name, &format!("GET /v1/jobs?limit=1&state={state}"), &Value::Null).json();
        let mut ids = vec![listed["jobs"][0]["id"].clone()];
        let mut next = listed["next"].clone();
        while let Some(cursor) = next.as_str() {
            let page = call(&sidecar, name, &format!("GET /v1/jobs?limit=1&state={state}&cursor={cursor}"), &Value::Null).json();
            ids.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].clone()));
            next = page["next"].clone();
        }
        ids.sort_by_key(Value::to_string);
        json!(ids)
    };
    assert_eq!(
        (ids("shop", "ready"), ids("till", "ready"), ids("ops", "ready")),
        (json!(["a", "b"]), json!(["c"]), json!(["a", "b", "c"]))
    );
    assert_eq!(
        (ids("shop", "scheduled"), ids("till", "scheduled"), ids("ops", "scheduled")),
        (json!([null]), json!(["e"]), json!(["d", "e"]))
    );
    assert_eq!(call(&sidecar, "shop", "GET /v1/jobs?queue=bills&state=ready", &Value::Null).json()["jobs"], json!([]));
    let queues = |name: &str| {
        let listed = call(&sidecar, name, "GET /v1/queues", &Value::Null).json();
        json!(listed["queues"].as_array().unwrap().iter().map(|queue| queue["queue"].clone()).collect::<Vec<_>>())
    };
    assert_eq!((queues("shop"), queues("till")), (json!(["orders.eu", "orders.us"]), json!(["bills"])));

    let held = pop(&sidecar, "shop", "orders.eu");
    assert_eq!(held["id"], "a", "{held}");
    assert_eq!(ids("till", "reserved"), json!([null]));
    assert_eq!(ids("shop", "reserved"), json!(["a"]));
    call(&sidecar, "till", "GET /v1/jobs/a", &Value::Null).problem(404);
    for line in ["DELETE /v1/jobs/a", "POST /v1/jobs/a/finish", "POST /v1/jobs/a/fail", "POST /v1/jobs/d/fire", "DELETE /v1/jobs/gone"] {
        let answer = call(&sidecar, "till", line, &Value::Null);
        assert_eq!((answer.status, &answer.json()["verdict"]), (404, &json!("not_found")), "{line}: {answer:?}");
    }
    let lease = json!({"id": "a", "lease": held["lease"]});
    let words = json!({"finish": [lease], "fail": [lease], "release": [lease], "touch": [lease, {"id": "a", "lease": "?"}]});
    let results = call(&sidecar, "till", "POST /v1/leases", &words).json();
    let verdicts: Vec<&Value> = results["results"].as_array().unwrap().iter().map(|result| &result["verdict"]).collect();
    assert_eq!(verdicts, ["not_found", "not_found", "not_found", "not_found", "stale"]);
    let finish = json!({"lease": held["lease"]});
    assert_eq!(call(&sidecar, "till", "POST /v1/jobs/a/finish", &finish).status, 404);
    assert_eq!(call(&sidecar, "shop", "POST /v1/jobs/a/finish", &finish).json()["verdict"], "finished");
    assert_eq!(call(&sidecar, "till", "DELETE /v1/jobs/c", &Value::Null).json()["verdict"], "cancelled");
    assert_eq!(call(&sidecar, "shop", "POST /v1/jobs/b/finish", &Value::Null).json()["verdict"], "not_found", "never handed out");
}
