//! Tokens of applications: the rights of each, and the jobs that it sees.

use std::io::{BufRead, BufReader, Write};

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
    Sidecar::run(
        &format!("{}\n[queues.\"*\"]\nretry = [\"1h\"]\n", fixture.settings(true)),
        TOKENS,
        &[],
    )
    .await
}

fn call(sidecar: &Sidecar, name: &str, line: &str, body: &Value) -> Answer {
    let headers =
        format!("authorization: Bearer token-of-{name}\r\ncontent-type: application/json\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    sidecar.send(line, &headers, body.as_bytes())
}

fn job(id: &str, queue: &str) -> Value {
    json!({"id": id, "queue": queue, "for": 0, "body": "x"})
}

/// Pops one job and returns it.
fn pop(sidecar: &Sidecar, name: &str, queue: &str) -> Value {
    let answer =
        call(sidecar, name, &format!("POST /v1/queues/{queue}/pop"), &json!({"wait": "20s"}));
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
    for line in
        ["DELETE /v1/jobs/x", "PATCH /v1/jobs/x", "POST /v1/jobs/x/fire", "POST /v1/jobs/x/requeue"]
    {
        forbidden(&call(&sidecar, "shop", line, &json!({})));
    }
    for line in ["pause", "resume", "purge"].map(|word| format!("POST /v1/queues/orders.eu/{word}"))
    {
        forbidden(&call(&sidecar, "shop", &line, &json!({})));
    }
    let consume = [
        "POST /v1/queues/orders.eu/pop",
        "POST /v1/leases",
        "POST /v1/jobs/x/finish",
        "POST /v1/jobs/x/fail",
    ];
    for line in consume {
        forbidden(&call(&sidecar, "ops", line, &json!({})));
    }
    for line in
        ["GET /v1/stats", "GET /v1/horizon", "GET /openapi.json", "GET /v1/queues/orders.eu"]
    {
        assert_eq!(call(&sidecar, "shop", line, &Value::Null).status, 200, "{line}");
    }
    call(&sidecar, "shop", "POST /v1/nothing", &json!({})).problem(404);
    assert_eq!(call(&sidecar, "ops", "DELETE /v1/jobs/x", &Value::Null).status, 404);
    assert_eq!(
        call(&sidecar, "ops", "POST /v1/queues/orders.eu/pause", &Value::Null).json()["paused"],
        true
    );

    let is_named = |line: &Value| {
        line["message"] == "request" && line["span"]["token"] == "shop" && line["status"] == 403
    };
    wait_until("the name in the log", async || {
        sidecar.log_lines().iter().any(is_named).then_some(())
    })
    .await;
    assert!(!sidecar.log().contains("token-of-"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_others_is_forbidden_and_so_are_brokers() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for line in [
        "POST /v1/queues/bills/pop",
        "POST /v1/queues/orders.eu,bills/pop",
        "GET /v1/queues/bills",
        "GET /v1/queues/bills/peek",
    ] {
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
    let told: Vec<Value> = many
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| json!([one["id"], one["code"], one["job"]]))
        .collect();
    let refused = |code: &str| json!([null, code, null]);
    assert_eq!(
        told,
        [json!(["a", null, null]), refused("forbidden"), refused("forbidden"), refused("conflict")]
    );
    // Neither replaced nor shown.
    let taken = call(
        &sidecar,
        "shop",
        "POST /v1/jobs",
        &json!({"id": "b", "queue": "orders.eu", "for": "1h", "on_conflict": "keep"}),
    );
    let problem = taken.problem(409);
    assert_eq!((&problem["code"], &problem["job"]), (&json!("conflict"), &Value::Null));
    assert_eq!(
        call(&sidecar, "ops", "GET /v1/jobs/of-bills", &Value::Null).json()["queue"],
        "bills"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_others_is_not_there() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for body in [
        job("a", "orders.eu"),
        job("b", "orders.us"),
        job("c", "bills"),
        json!({"id": "d", "target": "orders.x", "for": "1h"}),
    ] {
        assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &body).status, 201);
    }
    assert_eq!(
        call(&sidecar, "till", "POST /v1/jobs", &json!({"id": "e", "queue": "bills", "for": "1h"}))
            .status,
        201
    );
    let ids = |name: &str, state: &str| {
        let listed =
            call(&sidecar, name, &format!("GET /v1/jobs?limit=1&state={state}"), &Value::Null)
                .json();
        let mut ids = vec![listed["jobs"][0]["id"].clone()];
        let mut next = listed["next"].clone();
        while let Some(cursor) = next.as_str() {
            let page = call(
                &sidecar,
                name,
                &format!("GET /v1/jobs?limit=1&state={state}&cursor={cursor}"),
                &Value::Null,
            )
            .json();
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
    assert_eq!(
        call(&sidecar, "shop", "GET /v1/jobs?queue=bills&state=ready", &Value::Null).json()["jobs"],
        json!([])
    );
    let queues = |name: &str| {
        let listed = call(&sidecar, name, "GET /v1/queues", &Value::Null).json();
        json!(
            listed["queues"]
                .as_array()
                .unwrap()
                .iter()
                .map(|queue| queue["queue"].clone())
                .collect::<Vec<_>>()
        )
    };
    assert_eq!(
        (queues("shop"), queues("till")),
        (json!(["orders.eu", "orders.us"]), json!(["bills"]))
    );

    let held = pop(&sidecar, "shop", "orders.eu");
    assert_eq!(held["id"], "a", "{held}");
    assert_eq!(ids("till", "reserved"), json!([null]));
    assert_eq!(ids("shop", "reserved"), json!(["a"]));
    call(&sidecar, "till", "GET /v1/jobs/a", &Value::Null).problem(404);
    for line in [
        "DELETE /v1/jobs/a",
        "POST /v1/jobs/a/finish",
        "POST /v1/jobs/a/fail",
        "POST /v1/jobs/d/fire",
        "DELETE /v1/jobs/gone",
    ] {
        let answer = call(&sidecar, "till", line, &Value::Null);
        assert_eq!(
            (answer.status, &answer.json()["verdict"]),
            (404, &json!("not_found")),
            "{line}: {answer:?}"
        );
    }
    let lease = json!({"id": "a", "lease": held["lease"]});
    let words = json!({"finish": [lease], "fail": [lease], "release": [lease], "touch": [lease, {"id": "a", "lease": "?"}]});
    let results = call(&sidecar, "till", "POST /v1/leases", &words).json();
    let verdicts: Vec<&Value> =
        results["results"].as_array().unwrap().iter().map(|result| &result["verdict"]).collect();
    assert_eq!(verdicts, ["not_found", "not_found", "not_found", "not_found", "stale"]);
    let finish = json!({"lease": held["lease"]});
    assert_eq!(call(&sidecar, "till", "POST /v1/jobs/a/finish", &finish).status, 404);
    assert_eq!(
        call(&sidecar, "shop", "POST /v1/jobs/a/finish", &finish).json()["verdict"],
        "finished"
    );
    assert_eq!(
        call(&sidecar, "till", "DELETE /v1/jobs/c", &Value::Null).json()["verdict"],
        "cancelled"
    );
    assert_eq!(
        call(&sidecar, "shop", "POST /v1/jobs/b/finish", &Value::Null).json()["verdict"],
        "not_found",
        "never handed out"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_tokens_that_take_an_id_at_once_one_has_it() {
    const IDS: usize = 200;
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let put = |name: &str, queue: &str| -> Vec<u16> {
        let put = |n| {
            call(
                &sidecar,
                name,
                "POST /v1/jobs",
                &json!({"id": format!("race-{n}"), "queue": queue, "for": "1h"}),
            )
            .status
        };
        (0..IDS).map(put).collect()
    };
    let (shop, till) = std::thread::scope(|threads| {
        let (shop, till) =
            (threads.spawn(|| put("shop", "orders.eu")), threads.spawn(|| put("till", "bills")));
        (shop.join().unwrap(), till.join().unwrap())
    });
    for n in 0..IDS {
        assert!(
            [(201, 409), (409, 201)].contains(&(shop[n], till[n])),
            "race-{n}: {} and {}",
            shop[n],
            till[n]
        );
        let stands = call(&sidecar, "ops", &format!("GET /v1/jobs/race-{n}"), &Value::Null).json();
        assert_eq!(stands["queue"], if shop[n] == 201 { "orders.eu" } else { "bills" }, "race-{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_acknowledges_the_jobs_of_its_bearer_alone() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for (id, queue) in [("own", "orders.eu"), ("of-others", "bills"), ("next", "orders.eu")] {
        assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &job(id, queue)).status, 201);
    }
    let mut own = [(); 2].map(|()| pop(&sidecar, "shop", "orders.eu"));
    own.sort_by_key(|job| job["id"].to_string());
    let of_others = pop(&sidecar, "till", "bills");
    let lease = |job: &Value| json!({"id": job["id"], "lease": job["lease"]});
    let finish =
        json!({"finish": [lease(&own[1]), lease(&of_others)], "release": [lease(&own[0])]});
    // A refused pop acknowledges nothing.
    forbidden(&call(&sidecar, "ops", "POST /v1/queues/bills/pop", &finish));
    forbidden(&call(&sidecar, "shop", "POST /v1/queues/orders.eu,bills/pop", &finish));
    let told = call(&sidecar, "shop", "POST /v1/queues/orders.eu/pop", &finish).json();
    let results = told["results"].as_array().unwrap();
    let verdicts: Value = results.iter().map(|result| result["verdict"].clone()).collect();
    assert_eq!(verdicts, json!(["finished", "not_found", "released"]));
    assert_eq!(told["jobs"][0]["id"], "next", "what was given back");
    let told = call(&sidecar, "till", "POST /v1/leases", &json!({"finish": [lease(&of_others)]}));
    assert_eq!(told.json()["results"][0]["verdict"], "finished");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_finish_of_a_bearer_is_fired() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    assert_eq!(call(&sidecar, "shop", "POST /v1/jobs", &job("a", "orders.eu")).status, 201);
    assert_eq!(pop(&sidecar, "shop", "orders.eu")["id"], "a");
    let finish = |name: &str| {
        call(&sidecar, name, "POST /v1/jobs/a/finish", &Value::Null).json()["verdict"].clone()
    };
    assert_eq!(
        ["till", "shop", "shop", "till"].map(finish),
        ["not_found", "finished", "fired", "not_found"]
    );
}

/// The first event of a stream for this token.
fn first_event(sidecar: &Sidecar, name: &str) -> Value {
    let mut link = sidecar.connect();
    write!(link, "GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer token-of-{name}\r\n\r\n").unwrap();
    let data = BufReader::new(link)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    serde_json::from_str(&data.expect("an event")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_with_some_queues_leaves_pauses_for_the_others() {
    let fixture = Fixture::new().await;
    let settings = format!("{}\n[queues.bills]\n[queues.\"*\"]\n", fixture.settings(true));
    let app =
        "[http.tokens.app]\ntoken = \"token-of-app\"\nmay = [\"act\"]\nqueues = [\"mine.*\"]\n";
    let sidecar = Sidecar::run(&settings, &format!("{TOKENS}{app}"), &[]).await;
    let pause = |name: &str, queue: &str| {
        call(&sidecar, name, &format!("POST /v1/queues/{queue}/pause"), &Value::Null)
    };
    assert_eq!(pause("app", "mine.0").status, 200);
    let mut raw = crate::support::redis_link(&fixture.redis.url()).await;
    let buckets: Vec<String> =
        redis::cmd("KEYS").arg("*:queues").query_async(&mut raw).await.unwrap();
    assert!(!buckets.is_empty());
    // As pauses of these queues leave every bucket.
    let mut paused = async |numbers: std::ops::Range<usize>| {
        for bucket in &buckets {
            let mut fields = redis::cmd("HSET");
            fields.arg(bucket);
            numbers.clone().for_each(|number| {
                fields.arg(format!("!=mine.{number}")).arg(1);
            });
            fields.exec_async(&mut raw).await.unwrap();
        }
    };
    paused(1..750).await;
    assert_eq!(pause("app", "mine.more").problem(409)["code"], "conflict");
    assert_eq!(pause("app", "mine.0").status, 200, "a repeat takes no place");
    assert_eq!(pause("ops", "orders.eu").status, 200);
    paused(750..999).await;
    assert_eq!(pause("ops", "orders.us").problem(409)["code"], "conflict");
    assert_eq!(pause("till", "bills").json()["paused"], true, "the settings name it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counts_of_others_are_not_told() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for number in 0..3 {
        let later = json!({"id": format!("b{number}"), "queue": "bills", "for": "90s"});
        assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &later).status, 201);
        let on_broker = json!({"id": format!("o{number}"), "target": "orders.x", "for": "90s"});
        assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &on_broker).status, 201);
    }
    assert_eq!(call(&sidecar, "ops", "POST /v1/jobs", &job("mine", "orders.eu")).status, 201);
    let later = json!({"id": "later", "queue": "orders.us", "for": "10m"});
    let due_ms = call(&sidecar, "ops", "POST /v1/jobs", &later).json()["due_ms"].clone();
    let told = |stats: &Value| {
        json!([
            stats["scheduled"],
            stats["ready"],
            stats["reserved"],
            stats["dead"],
            stats["overdue"]
        ])
    };
    let stats = call(&sidecar, "shop", "GET /v1/stats", &Value::Null).json();
    for stats in [stats, first_event(&sidecar, "shop")] {
        assert_eq!(
            (told(&stats), &stats["next_due_ms"]),
            (json!([1, 1, 0, 0, 0]), &due_ms),
            "{stats}"
        );
        assert!(
            stats["oldest_ready_ms"]
                .as_i64()
                .is_some_and(|ms| ms <= stats["now_ms"].as_i64().unwrap()),
            "{stats}"
        );
        assert_eq!((&stats["died"], &stats["paused_queues"]), (&json!(0), &json!([])), "{stats}");
        let of_others =
            ["buckets", "brokers", "ingests", "rates", "lateness"].map(|name| stats[name].clone());
        assert_eq!(of_others, [json!([]), json!({}), json!({}), json!({}), Value::Null], "{stats}");
        assert_eq!(stats["instance"]["waiting_for"], json!([]), "{stats}");
    }
    for stats in
        [call(&sidecar, "ops", "GET /v1/stats", &Value::Null).json(), first_event(&sidecar, "ops")]
    {
        assert_eq!(
            (told(&stats), stats["brokers"]["main"]["scheduled"].clone()),
            (json!([7, 1, 0, 0, 0]), json!(3)),
            "{stats}"
        );
    }
    // Its own pause and its own dead are told; those of others are not.
    for verdict in ["failed", "dead"] {
        let held = pop(&sidecar, "shop", "orders.eu");
        let fail = json!({"fail": [{"id": "mine", "lease": held["lease"], "for": 0}]});
        assert_eq!(
            call(&sidecar, "shop", "POST /v1/leases", &fail).json()["results"][0]["verdict"],
            verdict
        );
    }
    for queue in ["orders.eu", "bills"] {
        assert_eq!(
            call(&sidecar, "ops", &format!("POST /v1/queues/{queue}/pause"), &Value::Null).status,
            200
        );
    }
    for (name, died, paused) in [
        ("shop", 1, json!(["orders.eu"])),
        ("till", 0, json!(["bills"])),
        ("ops", 1, json!(["bills", "orders.eu"])),
    ] {
        let stats = call(&sidecar, name, "GET /v1/stats", &Value::Null).json();
        assert_eq!(
            (&stats["died"], &stats["dead"], &stats["paused_queues"]),
            (&json!(died), &json!(died), &paused),
            "{name}: {stats}"
        );
    }
    let steps = |name: &str| {
        let horizon = call(&sidecar, name, "GET /v1/horizon?step=1m&to=20m", &Value::Null).json();
        horizon["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["count"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!((steps("shop"), steps("till"), steps("ops")), (1, 3, 7));
}
