//! Each call of the API, and each of its statuses.

use dwell_testkit::servers::{AppendFsync, NatsOptions, RedisOptions, find};
use serde_json::{Value, json};

use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_from_http_to_its_target_byte_for_byte() {
    let fixture = Fixture::new().await;
    // It needs no ingest.
    let settings = fixture.settings(true);
    let (settings, _) = settings.split_once("[ingest").unwrap();
    fixture.stream("DEAD", &["delay.dead"]);
    let sidecar = Sidecar::run(settings, "", &["--no-ingest"]).await;
    let bytes = [0_u8, 159, 146, 150, 255];
    let job = json!({"id": "a/b c", "for": 200, "target": "orders.x", "headers": {"tag": "t", "n": 7, "twice": ["1", "2"]},
        "key": {"base64": "/w=="}, "retry": ["1s", 2000], "ttr": "10s", "body_base64": base64(&bytes)});
    let answer = sidecar.post("/v1/jobs", &job);
    let added = answer.json();
    assert_eq!(answer.status, 201, "{added}");
    assert!(answer.head.contains("\r\nlocation: /v1/jobs/a%2fb%20c\r\n"), "{}", answer.head);
    assert_eq!(
        (&added["id"], &added["broker"], &added["retry"]),
        (&json!("a/b c"), &json!("main"), &json!(["1s", "2s"]))
    );
    assert_eq!(
        (&added["size"], &added["ttr_ms"], &added["attempt"]),
        (&json!(5), &json!(10_000), &json!(0))
    );
    let (head, body) =
        wait_until("the message on its target", async || fixture.last("ORDERS", "orders.x")).await;
    assert_eq!(body, bytes);
    for line in [
        "delayed-id: a/b c\r\n",
        "delayed-attempt: 1\r\n",
        "tag: t\r\n",
        "n: 7\r\n",
        "twice: 1\r\n",
        "twice: 2\r\n",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert!(
        head.contains("kafka-key-base64: /w=="),
        "what NATS has no place for stands in a header: {head}"
    );
    wait_until("it is gone", async || {
        (sidecar.get("/v1/jobs/a%2Fb%20c").status == 404).then_some(())
    })
    .await;
    let fired = sidecar.call("DELETE /v1/jobs/a%2Fb%20c", None);
    assert_eq!((fired.status, &fired.json()["verdict"]), (409, &json!("fired")));

    // Due now: it may be gone before it is looked at, and is answered all the same.
    for number in 0..20 {
        let answer = sidecar.post(
            "/v1/jobs",
            &json!({"for": "0s", "target": "orders.now", "body": number.to_string()}),
        );
        let job = answer.json();
        assert!(
            answer.status == 201
                && job["id"].as_str().unwrap().len() == 32
                && job["size"].as_u64().unwrap() <= 2,
            "{answer:?}"
        );
    }
    wait_until("all of them", async || (fixture.messages("ORDERS") == 21).then_some(())).await;
    let lateness = wait_until("lateness", async || {
        // The last ones count once their confirms are here.
        Some(sidecar.get("/v1/stats").json()["lateness"].clone()).filter(|seen| seen["count"] == 21)
    });
    let lateness = lateness.await;
    assert!(
        lateness["p99_ms"].as_f64().unwrap() >= lateness["p50_ms"].as_f64().unwrap(),
        "{lateness}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_broken_rule_has_its_code() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let with = |more: Value| {
        let mut job = json!({"for": "1h", "target": "orders.x"});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let cases = [
        (json!({"target": "orders.x"}), "missing_delay"),
        (with(json!({"for": "soon"})), "bad_delay"),
        (with(json!({"for": -5})), "bad_delay"),
        (with(json!({"for": null, "until": 1_700_000_000})), "bad_delay"),
        (with(json!({"until": "2090-01-01T00:00:00Z"})), "ambiguous_delay"),
        (with(json!({"for": "367d"})), "delay_too_long"),
        (json!({"for": "1h"}), "missing_target"),
        (with(json!({"target": ""})), "missing_target"),
        (with(json!({"target": "secret.x"})), "target_not_allowed"),
        (with(json!({"target": "orders.*"})), "target_not_allowed"),
        (with(json!({"target": "$SYS.x"})), "target_not_allowed"),
        (with(json!({"target": "delay.in"})), "loop"),
        (json!({"target": "orders.x", "headers": {"delayed-attempt": "1"}}), "loop"),
        (with(json!({"broker": "other"})), "unknown_broker"),
        (with(json!({"id": ""})), "bad_id"),
        (with(json!({"id": "x".repeat(257)})), "bad_id"),
        (with(json!({"retry": ["soon"]})), "bad_retry"),
        (with(json!({"retry": vec!["1s"; 65]})), "bad_retry"),
        (with(json!({"ttr": "13h"})), "bad_ttr"),
        (with(json!({"confirm": "nobody"})), "bad_header"),
        (with(json!({"late": "maybe"})), "bad_header"),
        (with(json!({"max_late": "maybe"})), "bad_header"),
        (with(json!({"on_conflict": "ask"})), "bad_header"),
        (with(json!({"exchange": "e"})), "bad_header"),
        (with(json!({"headers": {"delay-for": "1s"}})), "bad_header"),
        (with(json!({"headers": {"Nats-Rollup": "all"}})), "bad_header"),
        (with(json!({"headers": {"a": [[1]]}})), "bad_header"),
        (with(json!({"headers": {"a": {"b": 1}}})), "bad_header"),
    ];
    for (body, code) in cases {
        let problem = sidecar.post("/v1/jobs", &body).problem(400);
        assert_eq!(problem["code"], code, "{body}: {problem}");
    }
    let large = "x".repeat((1 << 20) + 1);
    let problem = sidecar.post("/v1/jobs", &with(json!({"body": large}))).problem(413);
    assert_eq!(problem["code"], "body_too_large", "{problem}");
    let enough = sidecar
        .post("/v1/jobs", &with(json!({"id": "whole", "body_base64": base64(&vec![7; 1 << 20])})));
    assert_eq!(enough.status, 201, "{enough:?}");
    let problem =
        sidecar.post("/v1/jobs", &with(json!({"body": "x".repeat(2 << 20)}))).problem(413);
    assert_eq!(problem["code"], "body_too_large", "{problem}");
    let listed = sidecar.get("/v1/jobs").json();
    let [job] = &listed["jobs"].as_array().unwrap()[..] else {
        panic!("nothing else was stored: {listed}")
    };
    assert_eq!((&job["id"], &job["size"]), (&json!("whole"), &json!(1 << 20)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_a_problem_that_says_why() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    for (line, says) in [
        ("GET /v1/jobs?state=lost", "state: `lost` is not one of scheduled, ready, reserved, dead"),
        ("GET /v1/jobs?limit=0", "limit: 0 is not from 1 to 1000"),
        ("GET /v1/jobs?limit=1001", "limit"),
        ("GET /v1/jobs?limit=many", "limit"),
        ("GET /v1/jobs?from=yesterday", "from: `yesterday` is not a time"),
        ("GET /v1/jobs?to=1700000000", "to: "),
        ("GET /v1/jobs?cursor=x", "cursor: "),
        ("GET /v1/jobs?stat=dead", "stat"),
        ("GET /v1/jobs/x?body=yes", "body: `yes` is neither 1 nor 0"),
        ("GET /v1/jobs/%ff", "UTF-8"),
        ("GET /v1/jobs/%00", "control characters"),
        ("GET /v1/horizon?step=0", "step: "),
        ("GET /v1/horizon?step=1s&to=1h", "3600 steps, and at most 500"),
        ("GET /v1/horizon?step=soon", "step: `soon` is not a duration"),
    ] {
        let problem = sidecar.call(line, None).problem(400);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{line}: {problem}");
    }
    for (body, says) in [
        ("", "EOF"),
        ("{", "line 1"),
        ("[{}", "EOF"),
        ("null", "a JSON object"),
        (r#"{"delay":"1h"}"#, "unknown field `delay`"),
        (r#"{"for":"1h","for":"2h"}"#, "duplicate field `for`"),
        (r#"{"for":true}"#, "`true` is neither text nor an integer"),
        (r#"{"for":"1h","body":5}"#, "string"),
        (r#"{"for":"1h","body":"a","body_base64":"YQ=="}"#, "both"),
        (r#"{"for":"1h","body_base64":"YQ"}"#, "base64"),
        (r#"{"for":"1h","key":5}"#, "base64"),
    ] {
        let problem = sidecar
            .send("POST /v1/jobs", "content-type: application/json\r\n", body.as_bytes())
            .problem(400);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{body}: {problem}");
    }
    let problem =
        sidecar.send("PATCH /v1/jobs/x", "content-type: application/json\r\n", b"{}").problem(400);
    assert_eq!(problem["code"], "missing_delay");
    let problem = sidecar
        .send("PATCH /v1/jobs/x", "content-type: application/json\r\n", br#"{"for":"999999d"}"#)
        .problem(400);
    assert_eq!(problem["code"], "delay_too_long");
    for (line, kind) in [
        ("POST /v1/jobs", ""),
        ("POST /v1/jobs", "content-type: text/plain\r\n"),
        ("PATCH /v1/jobs/x", "content-type: a\r\n"),
    ] {
        sidecar.send(line, kind, b"{}").problem(415);
    }
    sidecar.send("POST /v1/jobs/x/finish", "content-type: text/plain\r\n", b"x").problem(415);
    sidecar.post("/v1/jobs/x/finish", &json!([null, null])).problem(400);
    for body in ["", "null", "{}", " "] {
        let answer = sidecar.send(
            "POST /v1/jobs/x/finish",
            "content-type: application/json\r\n",
            body.as_bytes(),
        );
        assert_eq!(answer.status, if body == " " { 400 } else { 404 }, "{body:?}: {answer:?}");
    }
    for (line, allow) in [
        ("DELETE /v1/stats", "get,head"),
        ("PUT /v1/jobs/x", "get,head,delete,patch"),
        ("GET /v1/jobs/x/fire", "post"),
    ] {
        let answer = sidecar.call(line, None);
        answer.problem(405);
        assert!(answer.head.contains(&format!("\r\nallow: {allow}\r\n")), "{answer:?}");
    }
    for line in ["GET /v1/nothing", "GET /v1/stats/", "POST /v1/jobs/x/lose", "GET /v1/jobs/x"] {
        sidecar.call(line, None).problem(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_listed_shown_and_counted_ahead() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    for (id, delay, target) in
        [("a", "10m", "orders.x"), ("b", "20m", "orders.y"), ("c", "3h", "orders.x")]
    {
        let added = sidecar
            .post("/v1/jobs", &json!({"id": id, "for": delay, "target": target, "body": "text"}));
        assert_eq!(added.status, 201, "{added:?}");
    }
    let ids = |query: &str| -> Vec<String> {
        let page = sidecar.get(&format!("/v1/jobs{query}")).json();
        page["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(""), ["a", "b", "c"]);
    assert_eq!(ids("?target=orders.x"), ["a", "c"]);
    assert_eq!((ids("?state=dead"), ids("?state=reserved")), (Vec::<String>::new(), Vec::new()));
    let due = |id: &str| sidecar.get(&format!("/v1/jobs/{id}")).json()["due_ms"].as_i64().unwrap();
    assert_eq!(
        ids(&format!("?from={}&to={}", due("a"), due("c"))),
        ["a", "b"],
        "`from` included, `to` not"
    );
    let first = sidecar.get("/v1/jobs?limit=2").json();
    let next = first["next"].as_str().unwrap();
    assert_eq!(ids(&format!("?limit=2&cursor={next}")), ["c"]);
    sidecar.get(&format!("/v1/jobs?state=dead&cursor={next}")).problem(400);

    let job = sidecar.get("/v1/jobs/a").json();
    assert!(
        job.get("body_base64").is_none() && job == sidecar.get("/v1/jobs/a?body=0").json(),
        "{job}"
    );
    assert_eq!(sidecar.get("/v1/jobs/a?body=1").json()["body_base64"], base64(b"text"));
    let command = fixture.run(&["show", "a", "-o", "json"]).object();
    assert_eq!(command, job, "one shape");

    let horizon = sidecar.get("/v1/horizon?step=15m&to=1h").json();
    let steps = horizon["steps"].as_array().unwrap();
    let counts: Vec<u64> = steps.iter().map(|step| step["count"].as_u64().unwrap()).collect();
    assert_eq!((&counts[..], &horizon["limited"]), (&[1, 1, 0, 0][..], &json!([])));
    assert!(
        steps.windows(2).all(|pair| pair[1]["from_ms"].as_i64().unwrap()
            - pair[0]["from_ms"].as_i64().unwrap()
            == 900_000)
    );
    assert_eq!(sidecar.get("/v1/horizon").json()["steps"].as_array().unwrap().len(), 60);
    assert_eq!(
        sidecar.get("/v1/horizon?step=1d&to=500d").json()["steps"].as_array().unwrap().len(),
        500
    );
    assert_eq!(
        sidecar.get("/v1/horizon?step=200000000000d&to=400000000000000d").json()["status"],
        400
    );
    assert_eq!(sidecar.get("/v1/horizon?step=9000000000000000000").status, 200, "no overflow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_brokers_want_one_named() {
    let fixture = Fixture::new().await;
    let one = fixture.settings(true);
    let other = format!(
        "[brokers.other]\ntype = \"nats\"\nurl = \"{}\"\nallow = [\"orders.other\"]\n",
        fixture.nats.url()
    );
    let job = |more: Value| {
        let mut job = json!({"for": "1h", "target": "orders.other"});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    // With one ingest it is that one's broker.
    let sidecar = Sidecar::run(&format!("{one}{other}"), "", &[]).await;
    assert_eq!(sidecar.post("/v1/jobs", &job(json!({}))).json()["broker"], "main");
    assert_eq!(
        sidecar.post("/v1/jobs", &job(json!({"broker": "other"}))).json()["broker"],
        "other"
    );
    drop(sidecar);
    let second = "[ingest.second]\nbroker = \"other\"\ntopic = \"delay.second\"\ndeclare = true\n";
    let sidecar = Sidecar::run(&format!("{one}{other}{second}"), "", &[]).await;
    let problem = sidecar.post("/v1/jobs", &job(json!({}))).problem(400);
    assert_eq!(problem["code"], "unknown_broker");
    assert!(problem["detail"].as_str().unwrap().contains("main, other"), "{problem}");
    assert_eq!(sidecar.post("/v1/jobs", &job(json!({"broker": "other"}))).status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_tell_stats_to_all_who_listen_and_say_when_redis_is_away() {
    let mut fixture = Fixture::new().await;
    let mut sidecar = Sidecar::start(&fixture, "").await;
    let (mut one, mut other) = (sidecar.events(), sidecar.events());
    let (name, stats) = one.next().unwrap();
    assert_eq!((name.as_str(), &stats["scheduled"]), ("stats", &json!(0)));
    assert_eq!(other.next().unwrap().1["scheduled"], 0);
    sidecar.post("/v1/jobs", &json!({"for": "1h", "target": "orders.x"}));
    assert!(
        one.by_ref().take(5).any(|(_, stats)| stats["scheduled"] == 1)
            && other.by_ref().take(5).any(|(_, stats)| stats["scheduled"] == 1)
    );
    fixture.redis.kill().unwrap();
    assert!(
        one.by_ref().take(5).any(|(name, problem)| name == "problem" && problem["status"] == 503)
    );
    fixture.redis.restart().await.unwrap();
    assert!(one.by_ref().take(20).any(|(name, _)| name == "stats"));
    // Listeners of the streams do not hold up the end.
    let pid = rustix::process::Pid::from_raw(i32::try_from(sidecar.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let begun = std::time::Instant::now();
    let told = one.count() + other.count();
    assert!(
        begun.elapsed() < crate::support::DEADLINE / 3,
        "the streams end after {told} more, and no time-out of ours ends them"
    );
    let ended = wait_until("its end", async || sidecar.ended()).await;
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_is_not_called_a_failure_because_it_could_not_be_looked_at() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::run(&fixture.settings(true), "", &["--no-dispatch"]).await;
    let mut raw = crate::support::redis_link(&fixture.redis.url()).await;
    // A look at a job needs it, and a new job does not.
    let _: () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg("default")
        .arg("-zscore")
        .query_async(&mut raw)
        .await
        .unwrap();
    assert!(sidecar.get("/v1/jobs/x").status >= 500);
    let answer = sidecar
        .post("/v1/jobs", &json!({"id": "x", "for": "1h", "target": "orders.x", "body": "hello"}));
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!((&answer.json()["id"], &answer.json()["size"]), (&json!("x"), &json!(5)));
    let _: () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg("default")
        .arg("+zscore")
        .query_async(&mut raw)
        .await
        .unwrap();
    assert_eq!(sidecar.get("/v1/jobs/x").json()["due_ms"], answer.json()["due_ms"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_a_later_version_is_a_problem_with_a_code() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::run(&fixture.settings(true), "", &["--no-dispatch"]).await;
    let job = json!({"id": "later", "for": "1h", "target": "orders.x", "body": "hello"});
    wait_until("it is stored", async || {
        (sidecar.post("/v1/jobs", &job).status < 300).then_some(())
    })
    .await;
    let mut raw = crate::support::redis_link(&fixture.redis.url()).await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:jobs").query_async(&mut raw).await.unwrap();
    let _: () = redis::cmd("HSET")
        .arg(&keys[0])
        .arg("later")
        .arg("\x02 of a later version")
        .query_async(&mut raw)
        .await
        .unwrap();
    let cancelled = sidecar.call("DELETE /v1/jobs/later", None).problem(409);
    assert_eq!(cancelled["code"], "unreadable_job", "{cancelled}");
    assert_eq!(sidecar.post("/v1/jobs", &job).problem(409)["code"], "unreadable_job");
    assert_eq!(sidecar.get("/v1/jobs/later").problem(409)["code"], "unreadable_job");
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_arrive_together_share_a_wait() {
    let program = Some(find::redis_server_waitaof().unwrap());
    let redis = RedisOptions {
        program,
        appendonly: Some(AppendFsync::EverySec),
        ..RedisOptions::default()
    };
    let fixture = Fixture::with(redis, NatsOptions::default()).await;
    fixture.stream("ORDERS", &["orders.>"]);
    let settings = fixture.settings(true).replace("[redis]", "[redis]\ndurability = \"fsync\"");
    let sidecar = Sidecar::run(&settings, "", &[]).await;
    // Each waits for the next fsync, up to a second away; four at a time.
    let statuses = |line: fn(usize) -> (String, Option<Value>)| {
        std::thread::scope(|scope| {
            let sidecar = &sidecar;
            let calls: Vec<_> = (0..40)
                .map(|n| {
                    scope.spawn(move || {
                        let (line, body) = line(n);
                        sidecar.call(&line, body.as_ref()).status
                    })
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let added = statuses(|n| {
        (
            "POST /v1/jobs".to_owned(),
            Some(json!({"id": format!("job-{n}"), "for": "1h", "target": "orders.x"})),
        )
    });
    assert_eq!(added, [201; 40]);
    assert_eq!(statuses(|n| (format!("DELETE /v1/jobs/job-{n}"), None)), [200; 40]);
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut crate::support::redis_link(&fixture.redis.url()).await)
        .await
        .unwrap();
    let waits = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_waitaof:calls="))
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    let waits: u64 = waits.parse().unwrap();
    assert!(waits <= 40, "80 calls waited {waits} times");
}
