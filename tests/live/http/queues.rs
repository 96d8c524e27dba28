//! Queues over HTTP: pops and leases, each with its verdicts; pops that wait; and the queues
//! themselves.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::support::{metric, wait_until};

/// Settings with queues alone.
pub(super) fn settings(fixture: &Fixture) -> String {
    format!(
        "[redis]\nurls = [\"{}\"]\n[queues.emails]\nretry = [\"1h\"]\n[queues.\"orders.*\"]\n",
        fixture.redis.url()
    )
}

pub(super) async fn sidecar(fixture: &Fixture) -> Sidecar {
    Sidecar::run(&settings(fixture), "", &[]).await
}

pub(super) fn add(sidecar: &Sidecar, id: &str, queue: &str, span: &str) {
    let job = json!({"id": id, "queue": queue, "for": span, "headers": {"h": "1"}, "body": format!("body of {id}")});
    let answer = sidecar.post("/v1/jobs", &job);
    assert_eq!(answer.status, 201, "{answer:?}");
}

pub(super) fn pop(sidecar: &Sidecar, queue: &str, body: Value) -> Vec<Value> {
    let answer = sidecar.post(&format!("/v1/queues/{queue}/pop"), &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["jobs"].as_array().unwrap().clone()
}

pub(super) fn counts(sidecar: &Sidecar) -> [u64; 4] {
    let queue = sidecar.get("/v1/queues/emails").json();
    ["scheduled", "ready", "reserved", "dead"].map(|state| queue[state].as_u64().unwrap())
}

/// A pop on a connection of its own, sent and not answered.
pub(super) fn waiting_pop(sidecar: &Sidecar, wait: &str) -> TcpStream {
    send_pop(sidecar, "emails", &json!({"wait": wait}))
}

/// A pop of this queue with this body, on a connection of its own, sent and not answered.
pub(super) fn send_pop(sidecar: &Sidecar, queue: &str, body: &Value) -> TcpStream {
    send(sidecar, &format!("/v1/queues/{queue}/pop"), body)
}

/// A call with this body, on a connection of its own, sent and not answered.
pub(super) fn send(sidecar: &Sidecar, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut link = sidecar.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    );
    link.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .unwrap();
    link
}

/// The status, the head and the body that come on this connection.
pub(super) fn answer(mut link: TcpStream) -> (u16, String, Value) {
    let mut text = String::new();
    link.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        head.to_lowercase(),
        serde_json::from_str(body).unwrap(),
    )
}

pub(super) async fn until_waiting(sidecar: &Sidecar, count: u64) {
    wait_until("the waiting pops", async || {
        (sidecar.get("/v1/queues/emails").json()["waiting"] == count).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_word_on_a_lease_has_its_verdict_and_status() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for id in ["a", "b", "c", "d"] {
        add(&sidecar, id, "emails", "0s");
    }
    assert_eq!(
        (sidecar.post("/v1/jobs/a/finish", &json!({})).status, counts(&sidecar)),
        (404, [0, 4, 0, 0]),
        "never handed out"
    );
    let mut jobs = pop(&sidecar, "emails", json!({"max": 4, "ttr": "1m"}));
    jobs.sort_by_key(|job| job["id"].to_string());
    let job = &jobs[0];
    assert_eq!(
        (&job["body"], &job["headers"], &job["attempt"], &job["queue"]),
        (&json!("body of a"), &json!({"h": "1"}), &json!(1), &json!("emails"))
    );
    assert_eq!((jobs.len(), counts(&sidecar)), (4, [0, 0, 4, 0]));
    let lease = |at: usize| json!({"id": jobs[at]["id"], "lease": jobs[at]["lease"]});
    let with = |mut lease: Value, name: &str, value: &str| {
        lease[name] = json!(value);
        lease
    };
    let words = json!({
        "finish": [lease(0), lease(0), {"id": "nobody", "lease": jobs[0]["lease"]}, {"id": "a", "lease": "?"}],
        "fail": [with(lease(1), "error", "no stamp")],
        "release": [with(lease(2), "for", "1h")],
        "touch": [with(lease(3), "ttr", "5m"), lease(2)],
    });
    let told = sidecar.post("/v1/leases", &words);
    let results = told.json()["results"].as_array().unwrap().clone();
    let verdicts: Vec<Value> = results
        .iter()
        .map(|result| json!([result["id"], result["action"], result["verdict"]]))
        .collect();
    let wanted = json!([
        ["a", "finish", "finished"],
        ["a", "finish", "fired"],
        ["nobody", "finish", "not_found"],
        ["a", "finish", "stale"],
        ["b", "fail", "failed"],
        ["c", "release", "released"],
        ["d", "touch", "touched"],
        ["c", "touch", "stale"]
    ]);
    assert_eq!((told.status, json!(verdicts)), (200, wanted));
    let ahead = |result: &Value, name: &str| {
        result[name].as_i64().unwrap() - jobs[0]["due_ms"].as_i64().unwrap()
    };
    assert!(
        ahead(&results[4], "due_ms") >= 3_600_000
            && ahead(&results[5], "due_ms") >= 3_600_000
            && ahead(&results[6], "deadline_ms") >= 300_000
    );
    assert_eq!(
        (counts(&sidecar), sidecar.get("/v1/jobs/b").json()["last_error"].clone()),
        ([2, 0, 1, 0], json!("no stamp"))
    );

    // One lease in a call of its own, to the end of the array.
    let one = |id: &str, word: &str, body: &Value| {
        let answer = sidecar.post(&format!("/v1/jobs/{id}/{word}"), body);
        (answer.status, answer.json()["verdict"].clone())
    };
    let of = |job: &Value| json!({"lease": job["lease"]});
    assert_eq!(one("d", "fail", &with(of(&jobs[3]), "for", "0s")), (200, json!("failed")));
    let again = pop(&sidecar, "emails", json!({"wait": "20s"})).remove(0);
    assert_eq!(
        (&again["id"], &again["attempt"], &again["due_ms"]),
        (&json!("d"), &json!(2), &jobs[3]["due_ms"])
    );
    assert_eq!(one("d", "fail", &of(&jobs[3])), (409, json!("stale")));
    assert_eq!(one("d", "fail", &of(&again)), (200, json!("dead")));
    assert_eq!(
        (one("nobody", "finish", &of(&again)), counts(&sidecar)),
        ((404, json!("not_found")), [2, 0, 0, 1])
    );
    assert_eq!(one("d", "requeue", &json!({})), (200, json!("requeued")));
    assert_eq!(pop(&sidecar, "emails", json!({"wait": "20s"}))[0]["attempt"], 1);
    assert_eq!(
        one("d", "finish", &json!({})),
        (200, json!("finished")),
        "without a lease: whoever holds it"
    );
    let last = json!({"id": "e", "queue": "emails", "for": 0, "retry": [], "body": ""});
    assert_eq!(sidecar.post("/v1/jobs", &last).status, 201);
    assert_eq!(pop(&sidecar, "emails", json!({"wait": "20s"}))[0]["id"], "e");
    assert_eq!(one("e", "fail", &json!({})), (200, json!("dead")));
    assert_eq!(one("e", "fail", &json!({})), (409, json!("dead")), "it was dead before");
    assert_eq!(
        metric(&sidecar.metrics(), "dwell_dead_total{reason=\"failed\"}"),
        2.0,
        "with a lease, and without"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_call_changes_nothing() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    add(&sidecar, "a", "emails", "0s");
    for body in [
        json!({"max": 0}),
        json!({"max": 1001}),
        json!({"wait": "61s"}),
        json!({"wait": "soon"}),
        json!({"ttr": 0}),
        json!({"until": 5}),
        json!([]),
    ] {
        sidecar.post("/v1/queues/emails/pop", &body).problem(400);
    }
    sidecar
        .post(&format!("/v1/queues/{}/pop", vec!["emails"; 101].join(",")), &json!({}))
        .problem(400);
    for (line, code) in [
        ("POST /v1/queues/bills/pop", "unknown_queue"),
        ("POST /v1/queues/emails,bills/pop", "unknown_queue"),
        ("POST /v1/queues/a%20b/pop", "bad_queue"),
        ("POST /v1/queues/emails,/pop", "bad_queue"),
        ("GET /v1/queues/bills", "unknown_queue"),
        ("GET /v1/queues/bills/peek", "unknown_queue"),
        ("POST /v1/queues/bills/pause", "unknown_queue"),
    ] {
        assert_eq!(sidecar.call(line, None).problem(404)["code"], code, "{line}");
    }
    let held = pop(&sidecar, "emails", Value::Null).remove(0);
    let lease = json!({"id": "a", "lease": held["lease"]});
    for body in [
        json!({"finish": [lease], "fail": [{"id": "a"}]}),
        json!({"finish": [lease], "touch": [{"id": "a", "lease": "x", "ttr": 0}]}),
        json!({"finish": [lease], "release": [{"id": "", "lease": "x"}]}),
        json!({"finish": vec![lease.clone(); 1001]}),
        json!({"finish": [lease], "end": []}),
    ] {
        sidecar.post("/v1/leases", &body).problem(400);
    }
    for body in [
        json!({"lease": held["lease"], "attempt": 1}),
        json!({"for": "1s"}),
        json!({"lease": held["lease"], "for": "soon"}),
    ] {
        sidecar.post("/v1/jobs/a/fail", &body).problem(400);
    }
    assert_eq!(counts(&sidecar), [0, 0, 1, 0]);
    assert_eq!(sidecar.post("/v1/leases", &json!({})).json()["results"], json!([]));
    assert_eq!(
        sidecar.post("/v1/leases", &json!({"finish": [lease]})).json()["results"][0]["verdict"],
        "finished"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_paused_looked_into_and_purged() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for id in ["a", "b", "c"] {
        add(&sidecar, id, "emails", "0s");
    }
    add(&sidecar, "later", "emails", "1h");
    let paused = sidecar.call("POST /v1/queues/emails/pause", None).json();
    assert_eq!(
        (&paused["paused"], &paused["ready"], &paused["waiting"]),
        (&json!(true), &json!(3), &json!(0))
    );
    assert_eq!(pop(&sidecar, "emails", json!({"max": 5, "wait": 20})), [] as [Value; 0]);
    let link = waiting_pop(&sidecar, "60s");
    until_waiting(&sidecar, 1).await;
    let peeked =
        sidecar.get("/v1/queues/emails/peek?max=2").json()["jobs"].as_array().unwrap().clone();
    assert!(
        peeked.len() == 2
            && peeked[0]["lease"].is_null()
            && peeked[0]["body"].as_str().unwrap().starts_with("body of "),
        "{peeked:?}"
    );
    for max in ["0", "1001", "x"] {
        sidecar.get(&format!("/v1/queues/emails/peek?max={max}")).problem(400);
    }
    assert_eq!(sidecar.call("POST /v1/queues/emails/resume", None).json()["paused"], false);
    let (status, _, jobs) = answer(link);
    assert_eq!((status, jobs["jobs"].as_array().unwrap().len()), (200, 1), "who waits gets a job");
    let purge = |state: &str| sidecar.post("/v1/queues/emails/purge", &json!({"state": state}));
    assert_eq!(
        (purge("ready").json(), purge("scheduled").json(), purge("dead").json()),
        (json!({"removed": 2}), json!({"removed": 1}), json!({"removed": 0}))
    );
    purge("reserved").problem(400);
    assert_eq!(counts(&sidecar), [0, 0, 1, 0]);
    let listed = || {
        let listed = sidecar.get("/v1/queues").json();
        listed["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|queue| queue["queue"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(), ["emails"], "a pattern has no queue until a job comes");
    add(&sidecar, "o", "orders.eu", "1h");
    assert_eq!(listed(), ["emails", "orders.eu"]);
    assert_eq!(sidecar.post("/v1/queues/orders.eu/pause", &json!({})).status, 200);
    assert_eq!(sidecar.call("DELETE /v1/jobs/o", None).status, 200);
    assert_eq!(listed(), ["emails", "orders.eu"], "what is paused can be seen");
    assert_eq!(sidecar.post("/v1/queues/orders.eu/resume", &json!({})).status, 200);
    assert_eq!(listed(), ["emails"], "and no queue after its last job");
    let unused = sidecar.get("/v1/queues/orders.eu").json();
    assert_eq!((&unused["ready"], &unused["oldest_ready_ms"]), (&json!(0), &Value::Null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_large_jobs_ends_with_the_one_that_fills_the_answer() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let (large, before_ms) = ("x".repeat(1 << 20), dwell::clock::wall_ms() - 1000);
    for number in 0..10 {
        let job = json!({"id": format!("j{number}"), "queue": "emails", "until": before_ms + number, "body": large});
        let answer = sidecar.post("/v1/jobs", &job);
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let ids = |path: &str| -> Vec<String> {
        let jobs = sidecar.get(path).json()["jobs"].clone();
        jobs.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
    };
    let wanted: Vec<String> = (0..8).map(|number| format!("j{number}")).collect();
    assert_eq!(ids("/v1/queues/emails/peek?max=1000"), wanted, "of 1 MiB each");
    assert_eq!(ids("/v1/queues/emails/peek?max=2"), wanted[..2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_programs_write_for_nothing_is_taken_as_nothing() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for (id, headers) in [("null", json!(null)), ("list", json!([])), ("object", json!({}))] {
        let answer =
            sidecar.post("/v1/jobs", &json!({"id": id, "queue": "emails", "for": 0, "headers": headers, "key": null, "retry": null}));
        assert_eq!((answer.status, &answer.json()["headers"]), (201, &json!({})), "{answer:?}");
    }
    let wrong =
        sidecar.post("/v1/jobs", &json!({"queue": "emails", "for": 0, "headers": [["a", "1"]]}));
    assert!(
        wrong.problem(400)["detail"].as_str().unwrap().contains("headers must be an object"),
        "{wrong:?}"
    );
    let popped = [json!({}), json!(null), json!({"max": null, "wait": null, "ttr": null})]
        .map(|asked| pop(&sidecar, "emails", asked));
    let leases: Vec<Value> =
        popped.iter().map(|jobs| json!({"id": jobs[0]["id"], "lease": jobs[0]["lease"]})).collect();
    let words = json!({"finish": leases, "fail": null, "release": null, "touch": null});
    let results = sidecar.post("/v1/leases", &words).json()["results"].clone();
    // Each verdict tells a due time, also where there is none.
    assert!(results.as_array().unwrap().iter().all(
        |result| result["verdict"] == "finished" && result.get("due_ms") == Some(&Value::Null)
    ));
    assert_eq!(results.as_array().unwrap().len(), 3);
    assert_eq!(sidecar.post("/v1/leases", &json!({"finish": null})).json(), json!({"results": []}));
    let gone =
        sidecar.call("POST /v1/jobs/nobody/finish", Some(&json!({"lease": leases[0]["lease"]})));
    assert_eq!(gone.json().get("due_ms"), Some(&Value::Null), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_queue_in_json_is_taken_as_it_is() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for name in [" emails", "emails ", "emails\n", "\temails", ""] {
        let answer = sidecar.post("/v1/jobs", &json!({"queue": name, "for": 0}));
        assert_eq!(answer.problem(400)["code"], "bad_queue", "{name:?}");
    }
    let answer =
        sidecar.post("/v1/jobs", &json!({"target": "orders.x", "broker": " main", "for": 0}));
    assert_eq!(answer.problem(400)["code"], "unknown_broker");
}
