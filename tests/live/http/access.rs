//! Access control: tokens, addresses, other origins; and its log.

use serde_json::{Value, json};

use super::sidecar::Sidecar;
use crate::commands::fixture::{Fixture, SECRET, run_with};
use crate::support::wait_until;

#[tokio::test]
async fn stats_are_counts_and_the_rates_of_this_instance() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    wait_until("its ingest reads", async || {
        (sidecar.get("/v1/stats").json()["instance"]["ready"] == true).then_some(())
    })
    .await;
    let answer = sidecar.get("/v1/stats");
    let stats = answer.json();
    assert_eq!(
        (answer.status, answer.head.contains("content-type: application/json")),
        (200, true),
        "{answer:?}"
    );
    let keys: Vec<&String> = stats.as_object().unwrap().keys().collect();
    let all = [
        "brokers",
        "buckets",
        "dead",
        "died",
        "ingests",
        "instance",
        "lateness",
        "limited",
        "next_due_ms",
        "now_ms",
        "oldest_ready_ms",
        "overdue",
        "paused_queues",
        "rates",
        "ready",
    ];
    assert_eq!(keys, [&all[..], &["reserved", "scheduled"]].concat());
    let instance = &stats["instance"];
    assert_eq!(
        (&instance["ready"], &instance["namespace"]),
        (&json!(true), &json!("dwell")),
        "{instance}"
    );
    let main = json!({"broker": "main", "topic": "delay.in", "reads": true, "paused": null, "last_error": null});
    assert_eq!((&stats["ingests"], &stats["lateness"]), (&json!({"main": main}), &Value::Null));
    let idle = json!({"confirmed": 0.0, "dead": 0.0, "rejected": 0.0, "scheduled": 0.0});
    assert_eq!(
        (&stats["next_due_ms"], &stats["scheduled"], &stats["rates"]),
        (&Value::Null, &json!(0), &idle)
    );

    assert_eq!(fixture.run(&["send", "--for", "1h", "--target", "orders.x", "--id", "x"]).code, 0);
    let counted = wait_until("the job in the counts and in the rates", async || {
        let stats = sidecar.get("/v1/stats").json();
        (stats["scheduled"] == 1 && stats["rates"]["scheduled"].as_f64()? > 0.0).then_some(stats)
    })
    .await;
    let job = fixture.run(&["show", "x", "-o", "json"]).object();
    let main = json!({"main": {"scheduled": 1, "kind": "nats", "connected": true, "paused": 0, "last_error": null, "stranded": false}});
    assert_eq!((&counted["next_due_ms"], &counted["brokers"]), (&job["due_ms"], &main));
    let command = fixture.run(&["stats", "-o", "json"]).object();
    let shape = |stats: &Value| stats.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        shape(&command),
        shape(&counted),
        "one shape; the command alone knows nothing of an instance"
    );
    let main = json!({"scheduled": 1, "kind": null, "connected": null, "paused": null, "last_error": null, "stranded": null});
    assert_eq!(
        (&command["brokers"]["main"], &command["instance"], &command["rates"]),
        (&main, &Value::Null, &json!({}))
    );
}

#[tokio::test]
async fn with_a_token_only_who_bears_it_is_answered() {
    let fixture = Fixture::new().await;
    let token_file = fixture.file("token", &format!("{SECRET}\n"));
    let mut sidecar = Sidecar::start(&fixture, &format!("token_file = \"{token_file}\"\n")).await;
    let refused = [
        String::new(),
        "authorization: Bearer wrong\r\n".to_owned(),
        "authorization: Bearer\r\n".to_owned(),
        format!("authorization: Basic {SECRET}\r\n"),
        format!("authorization: Bearer {SECRET}x\r\n"),
        format!("authorization: {SECRET}\r\n"),
        format!("x-token: {SECRET}\r\n"),
    ];
    for headers in &refused {
        for line in [
            "GET /v1/stats",
            "GET /v1/nothing",
            "POST /v1/stats",
            "POST /v1/jobs",
            "GET /openapi.json",
            "GET /v1/events",
        ] {
            let answer = sidecar.send(line, headers, b"");
            assert!(
                answer.head.contains("\r\nwww-authenticate: bearer\r\n"),
                "{line} {headers}: {answer:?}"
            );
            let detail = "send `Authorization: Bearer` with a token of [http]";
            assert_eq!(
                answer.problem(401),
                json!({"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": detail})
            );
        }
    }
    for scheme in ["Bearer", "bearer"] {
        // By any name of the host, from any page: a browser never sends the token by itself.
        let headers = format!(
            "host: dwell.example\r\norigin: https://dwell.example\r\nauthorization: {scheme} {SECRET}\r\n"
        );
        assert_eq!(sidecar.send("GET /v1/stats", &headers, b"").status, 200);
        assert_eq!(sidecar.send("DELETE /v1/jobs/x", &headers, b"").status, 404);
    }
    sidecar.token = Some(SECRET.to_owned());
    let body = json!({"id": "named", "for": "1h", "target": "orders.x", "headers": {"h": format!("{SECRET}-h")}, "body": format!("{SECRET}-b")});
    assert_eq!(sidecar.post("/v1/jobs", &body).status, 201);
    assert_eq!(sidecar.get(&format!("/v1/jobs?target={SECRET}")).status, 200);
    let posted = |line: &Value| {
        line["message"] == "request" && line["path"] == "/v1/jobs" && line["method"] == "POST"
    };
    wait_until("its line in the log", async || {
        sidecar.log_lines().iter().any(posted).then_some(())
    })
    .await;
    assert!(
        !sidecar.log().contains(SECRET),
        "neither tokens, headers, bodies nor queries are logged"
    );
}

#[tokio::test]
async fn without_a_token_a_foreign_page_gets_nowhere() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    for host in ["evil.example", "evil.example:7464", "0.0.0.0", ""] {
        sidecar.send("GET /v1/jobs", &format!("host: {host}\r\n"), b"").problem(421);
        sidecar.send("GET /openapi.json", &format!("host: {host}\r\n"), b"").problem(421);
        sidecar.send("GET /", &format!("host: {host}\r\n"), b"").problem(421);
    }
    let own = sidecar.address.clone();
    let origins = [
        "origin: http://evil.example\r\n",
        "origin: null\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
    ];
    for origin in origins {
        for line in
            ["POST /v1/jobs", "DELETE /v1/jobs/x", "PATCH /v1/jobs/x", "POST /v1/jobs/x/fire"]
        {
            sidecar.send(line, origin, b"{}").problem(403);
        }
        for line in ["GET /v1/stats", "GET /v1/events", "GET /openapi.json", "GET /"] {
            let answer = sidecar.send(line, origin, b"");
            assert!(
                answer.problem(403)["detail"].is_string()
                    && !answer.head.contains("access-control"),
                "{answer:?}"
            );
        }
    }
    let link = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n";
    assert_eq!(sidecar.send("GET /", link, b"").status, 200);
    let same = format!("host: {own}\r\norigin: http://{own}\r\nsec-fetch-site: same-origin\r\n");
    assert_eq!(sidecar.send("DELETE /v1/jobs/x", &same, b"").status, 404);
}

#[tokio::test]
async fn a_request_has_an_id_and_headers_for_browsers() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let answer = sidecar.send("DELETE /v1/jobs/nobody", "x-request-id: mine-1\r\n", b"");
    for line in
        ["x-request-id: mine-1", "x-content-type-options: nosniff", "cache-control: no-store"]
    {
        assert!(answer.head.contains(&format!("\r\n{line}\r\n")), "{line}: {answer:?}");
    }
    let logged = wait_until("its line in the log", async || {
        sidecar
            .log_lines()
            .into_iter()
            .find(|line| line["message"] == "request" && line["span"]["request_id"] == "mine-1")
    });
    let logged = logged.await;
    assert_eq!(
        (&logged["status"], &logged["path"], &logged["level"]),
        (&json!(404), &json!("/v1/jobs/nobody"), &json!("INFO")),
        "{logged}"
    );
    for unfit in [String::new(), "a b".to_owned(), "x".repeat(129)] {
        let answer = sidecar.send("GET /v1/stats", &format!("x-request-id: {unfit}\r\n"), b"");
        let id =
            answer.head.split_once("x-request-id: ").unwrap().1.lines().next().unwrap().to_owned();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{answer:?}");
    }
}

#[tokio::test]
async fn a_redis_that_is_away_is_503() {
    let mut fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    fixture.redis.kill().unwrap();
    for line in [
        "GET /v1/stats",
        "GET /v1/jobs",
        "GET /v1/jobs/x",
        "GET /v1/horizon",
        "DELETE /v1/jobs/x",
        "POST /v1/jobs/x/fire",
    ] {
        let problem = sidecar.call(line, None).problem(503);
        assert!(problem["detail"].as_str().unwrap().starts_with("redis: "), "{line}: {problem}");
    }
    fixture.redis.restart().await.unwrap();
    wait_until("an answer again", async || (sidecar.get("/v1/stats").status == 200).then_some(()))
        .await;
}

#[tokio::test]
async fn without_a_token_only_loopback_may_be_bound() {
    let fixture = Fixture::new().await;
    let config = fixture.config();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        for command in ["run", "check"] {
            let said =
                run_with(&["-c", &config, command, "--set", &format!("http.listen={listen}")], b"");
            assert_eq!(said.code, 78, "{command} {listen}: {said:?}");
            let text = format!("{}{}", said.out, said.err);
            assert!(text.contains("http.listen") && text.contains("there is no token"), "{text}");
        }
    }
    let empty = fixture.file("empty", " \n");
    let nowhere = "/nowhere/token".to_owned();
    for file in [empty, nowhere] {
        for command in ["run", "check"] {
            let said = run_with(
                &["-c", &config, command, "--set", &format!("http.token_file={file}")],
                b"",
            );
            assert_eq!(said.code, 78, "{command} {file}: {said:?}");
            assert!(format!("{}{}", said.out, said.err).contains("http.token_file"), "{said:?}");
        }
    }
}
