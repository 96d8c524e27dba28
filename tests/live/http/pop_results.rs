//! Pops that carry the acknowledgements of the jobs before: their results, whatever becomes of the
//! pop.

use dwell::config::Redis;
use dwell::store::Store;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::queues::{add, answer, counts, pop, send_pop, sidecar, until_waiting};
use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::support::{metric, redis_link, wait_until};

/// The lease of a popped job, as a word on it takes it.
fn lease(job: &Value) -> Value {
    json!({"id": job["id"], "lease": job["lease"]})
}

/// Id, action and verdict of each result.
fn verdicts(answer: &Value) -> Value {
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("no results: {answer}"));
    results
        .iter()
        .map(|result| json!([result["id"], result["action"], result["verdict"]]))
        .collect()
}

/// Stores jobs of the queue `emails` and pops them. Returns them by id.
fn held(sidecar: &Sidecar, ids: &[&str]) -> Vec<Value> {
    ids.iter().for_each(|id| add(sidecar, id, "emails", "0s"));
    let mut jobs = pop(sidecar, "emails", json!({"max": ids.len(), "ttr": "10m"}));
    jobs.sort_by_key(|job| job["id"].to_string());
    assert_eq!(jobs.len(), ids.len(), "{jobs:?}");
    jobs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_acknowledges_first_and_a_bad_lease_stops_nothing() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let jobs = held(&sidecar, &["a", "b", "c", "d"]);
    add(&sidecar, "next", "emails", "0s");
    let mut failed = lease(&jobs[1]);
    failed["error"] = json!("no stamp");
    let mut released = lease(&jobs[2]);
    released["for"] = json!("1h");
    let call = json!({
        "max": 5,
        "touch": [lease(&jobs[3])],
        "release": [released],
        "fail": [failed],
        "finish": [lease(&jobs[0]), {"id": "b", "lease": "?"}, {"id": "nobody", "lease": jobs[0]["lease"]}],
    });
    let told = sidecar.post("/v1/queues/emails/pop", &call).json();
    let of_others = [
        json!(["b", "finish", "stale"]),
        json!(["nobody", "finish", "not_found"]),
        json!(["b", "fail", "failed"]),
        json!(["c", "release", "released"]),
        json!(["d", "touch", "touched"]),
    ];
    let wanted = |first: &str| {
        let first = json!(["a", "finish", first]);
        Value::from_iter([&[first][..], &of_others].concat())
    };
    assert_eq!((verdicts(&told), &told["jobs"][0]["id"]), (wanted("finished"), &json!("next")));
    assert!(told["results"][5]["deadline_ms"].is_i64(), "{told}");
    assert_eq!(
        (counts(&sidecar), sidecar.get("/v1/jobs/b").json()["last_error"].clone()),
        ([2, 0, 2, 0], json!("no stamp"))
    );
    // Its answer may have been lost: a repeat of the words is recognised.
    let told = sidecar.post("/v1/queues/emails/pop", &call).json();
    assert_eq!((verdicts(&told), &told["jobs"]), (wanted("fired"), &json!([])));

    // A job that is due again at once may come back.
    let back = json!({"wait": "20s", "release": [lease(&jobs[3])]});
    let told = sidecar.post("/v1/queues/emails/pop", &back).json();
    assert_eq!(verdicts(&told), json!([["d", "release", "released"]]));
    assert_eq!(
        (&told["jobs"][0]["id"], &told["jobs"][0]["attempt"]),
        (&json!("d"), &json!(2)),
        "{told}"
    );
    // No words, no results.
    for call in [json!({}), json!({"finish": [], "fail": null})] {
        let told = sidecar.post("/v1/queues/emails/pop", &call).json();
        assert_eq!(told, json!({"jobs": []}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_words_of_a_pop_are_carried_out_before_it_waits() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let jobs = held(&sidecar, &["a", "b"]);
    let call = json!({"wait": "60s", "finish": [lease(&jobs[0])]});
    let link = send_pop(&sidecar, "emails", &call);
    until_waiting(&sidecar, 1).await;
    assert_eq!(counts(&sidecar), [0, 0, 1, 0], "seen while the pop waits");

    // The pop of one consumer waits, and another one gets what it gave back.
    let release = json!({"wait": "60s", "release": [lease(&jobs[1])]});
    let other = send_pop(&sidecar, "orders.eu", &release);
    let (status, _, told) = answer(link);
    assert_eq!((status, &told["jobs"][0]["id"]), (200, &json!("b")), "{told}");
    assert_eq!(verdicts(&told), json!([["a", "finish", "finished"]]));
    add(&sidecar, "o", "orders.eu", "0s");
    let (status, _, other) = answer(other);
    assert_eq!((status, &other["jobs"][0]["id"]), (200, &json!("o")), "{other}");
    assert_eq!(verdicts(&other), json!([["b", "release", "released"]]));

    // After a wait for nothing, and after a client that went away while it waited.
    let job = &told["jobs"][0];
    let touched =
        sidecar.post("/v1/queues/emails/pop", &json!({"wait": 20, "touch": [lease(job)]})).json();
    assert_eq!(
        (verdicts(&touched), &touched["jobs"]),
        (json!([["b", "touch", "touched"]]), &json!([]))
    );
    let finish = json!({"wait": "60s", "finish": [lease(job)]});
    let gone = send_pop(&sidecar, "emails", &finish);
    until_waiting(&sidecar, 1).await;
    drop(gone);
    until_waiting(&sidecar, 0).await;
    assert_eq!(counts(&sidecar), [0; 4]);
    let again = sidecar.post("/v1/queues/emails/pop", &json!({"finish": [lease(job)]})).json();
    assert_eq!(verdicts(&again), json!([["b", "finish", "fired"]]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_words_of_a_client_that_hangs_up_are_carried_out() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let job = held(&sidecar, &["a"]).remove(0);
    let pops = || metric(&sidecar.metrics(), r#"dwell_pop_total{queue="emails"}"#);
    let gone = || sidecar.log().matches("a connection ended early").count();
    fixture.redis.freeze().unwrap();
    // The second word waits behind the first one: it is not sent before its client goes away.
    let mut links = Vec::new();
    for word in ["touch", "finish"] {
        let before = pops();
        links.push(send_pop(&sidecar, "emails", &json!({word: [lease(&job)]})));
        wait_until("the pop", async || (pops() > before).then_some(())).await;
    }
    let before = gone();
    drop(links.pop());
    wait_until("the end of its call", async || (gone() > before).then_some(())).await;
    fixture.redis.thaw().unwrap();
    wait_until("the end of the job", async || {
        let queue = sidecar.get("/v1/queues/emails");
        (queue.status == 200 && queue.json()["reserved"] == 0).then_some(())
    })
    .await;
    assert_eq!(counts(&sidecar), [0; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_that_a_stop_ends_has_its_results() {
    let fixture = Fixture::new().await;
    let mut sidecar = sidecar(&fixture).await;
    let job = held(&sidecar, &["a"]).remove(0);
    let link = send_pop(&sidecar, "emails", &json!({"wait": "60s", "finish": [lease(&job)]}));
    until_waiting(&sidecar, 1).await;
    kill_process(Pid::from_raw(i32::try_from(sidecar.pid()).unwrap()).unwrap(), Signal::TERM)
        .unwrap();
    let (status, _, told) = answer(link);
    assert_eq!((status, &told["jobs"]), (200, &json!([])), "{told}");
    assert_eq!(verdicts(&told), json!([["a", "finish", "finished"]]));
    let ended = wait_until("its end", async || sidecar.ended()).await;
    assert!(ended.success(), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_pop_acknowledges_nothing() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let job = held(&sidecar, &["a"]).remove(0);
    add(&sidecar, "next", "emails", "0s");
    let lease = lease(&job);
    for body in [
        json!({"finish": [lease], "max": 0}),
        json!({"finish": [lease], "wait": "61s"}),
        json!({"finish": [lease], "end": []}),
        json!({"finish": [lease], "fail": [{"id": "a"}]}),
        json!({"finish": [lease], "fail": [{"id": "a", "lease": "x", "for": "soon"}]}),
        json!({"finish": [lease], "release": [{"id": "", "lease": "x"}]}),
        json!({"finish": [lease], "touch": [{"id": "a", "lease": "x", "ttr": 0}]}),
        json!({"finish": vec![lease.clone(); 1001]}),
    ] {
        let problem = sidecar.post("/v1/queues/emails/pop", &body).problem(400);
        assert_eq!(problem.get("results"), None, "{problem}");
    }
    sidecar.post("/v1/queues/bills/pop", &json!({"finish": [lease]})).problem(404);
    assert_eq!(counts(&sidecar), [0, 1, 1, 0]);
    let told = sidecar.post("/v1/queues/emails/pop", &json!({"finish": [lease]})).json();
    assert_eq!(verdicts(&told), json!([["a", "finish", "finished"]]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_that_redis_leaves_has_the_results_of_what_was_carried_out() {
    let mut fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let job = held(&sidecar, &["a"]).remove(0);
    let call = json!({"wait": "60s", "finish": [lease(&job)]});
    let link = send_pop(&sidecar, "emails", &call);
    until_waiting(&sidecar, 1).await;
    fixture.redis.kill().unwrap();
    let (status, head, problem) = answer(link);
    assert_eq!((status, &problem["code"]), (503, &json!("redis")), "{problem}");
    assert!(head.contains("\r\nretry-after: "), "{head}");
    assert_eq!(verdicts(&problem), json!([["a", "finish", "finished"]]));
    let problem = sidecar.post("/v1/queues/emails/pop", &call).problem(503);
    assert_eq!((&problem["code"], problem.get("results")), (&json!("redis"), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_has_the_results_beside_a_job_that_cannot_be_read() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let done = held(&sidecar, &["a"]).remove(0);
    add(&sidecar, "next", "emails", "0s");
    add(&sidecar, "o", "orders.eu", "0s");
    let damaged = pop(&sidecar, "orders.eu", json!({"ttr": "10m"})).remove(0);
    let store = Store::attach(&Redis::new(fixture.redis.url())).await.unwrap();
    let due = store.keys().due(store.keys().bucket_of("o"), "=orders.eu");
    let mut raw = redis_link(&fixture.redis.url()).await;
    redis::cmd("SET").arg(due).arg("x").exec_async(&mut raw).await.unwrap();
    let call = json!({"finish": [lease(&done)], "fail": [lease(&damaged)]});
    let problem = sidecar.post("/v1/queues/emails/pop", &call).problem(409);
    assert_eq!(problem["code"], "unreadable_job", "{problem}");
    assert_eq!(verdicts(&problem), json!([["a", "finish", "finished"]]));
    assert_eq!(counts(&sidecar), [0, 1, 0, 0], "no job is handed out");
}
