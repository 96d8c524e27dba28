//! `dwell pop`, the words on leases, and `dwell queues`: without a running sidecar.

use std::sync::Arc;

use dwell::config::Redis;
use dwell::job::{Due, Job};
use dwell::request::NewJob;
use dwell::store::{Store, Unobserved};
use dwell_connectors::Value as HeaderValue;
use serde_json::{Value, json};

use super::fixture::{Fixture, Said, run_with};
use crate::support::wait_until;

/// A namespace with queues alone.
struct Queues {
    _fixture: Fixture,
    config: String,
    store: Store,
}

impl Queues {
    async fn new() -> Queues {
        let fixture = Fixture::new().await;
        let url = fixture.redis.url();
        let text = format!(
            "[redis]\nurls = [\"{url}\"]\n[queues.\"emails.*\"]\n[queues.bills]\nttr = \"1m\"\n[http]\nlisten = \"127.0.0.1:0\"\n"
        );
        let config = fixture.file("queues.toml", &text);
        let store = Store::open(&Redis::new(url), &[], Arc::new(Unobserved)).await.unwrap();
        Queues { _fixture: fixture, config, store }
    }

    async fn add(&self, id: &str, queue: &str, body: &'static [u8], due: Due) {
        let mut job = Job { retry: Some(vec![60_000]), ..Job::for_queue(queue, body) };
        job.headers.push("tag", HeaderValue::from("t"));
        self.store.jobs.schedule(&[NewJob::new(job, due).id(id.parse().unwrap())]).await.unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Said {
        run_with(&[&["-c", self.config.as_str()], arguments].concat(), b"")
    }

    /// Runs a command that prints one object.
    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let said = self.run(&[arguments, &["-o", "json"]].concat());
        (said.code, said.object())
    }
}

#[tokio::test]
async fn a_job_is_popped_and_its_lease_ended_by_commands() {
    let queues = Queues::new().await;
    queues.add("a", "emails.eu", b"hello", Due::In(0)).await;
    queues.add("b", "bills", b"\x00\xff", Due::In(0)).await;
    queues.add("later", "bills", b"x", Due::In(3_600_000)).await;

    let listed: Vec<Value> = queues.run(&["queues", "-o", "json"]).lines();
    let counts = |queue: &str, scheduled: u64, ready: u64, oldest: &Value| {
        json!({"queue": queue, "scheduled": scheduled, "ready": ready, "reserved": 0, "dead": 0, "oldest_ready_ms": oldest,
            "waiting": null, "paused": false})
    };
    assert_eq!(
        listed,
        [
            counts("bills", 1, 1, &listed[0]["oldest_ready_ms"]),
            counts("emails.eu", 0, 1, &listed[1]["oldest_ready_ms"])
        ]
    );
    let table = queues.run(&["queues"]);
    assert!(
        table.code == 0
            && table
                .out
                .starts_with("QUEUE      SCHEDULED  READY  RESERVED  DEAD  OLDEST READY  PAUSED\n"),
        "{table:?}"
    );
    let stats = queues.run(&["stats"]);
    assert!(stats.out.contains("\nready       2\n"), "{stats:?}");
    assert_eq!(queues.json(&["stats"]).1["ready"], 2);

    let said = queues.run(&["pop", "emails.eu,bills", "--max", "5", "-o", "json"]);
    let [first, second] = &said.lines()[..] else { panic!("{said:?}") };
    assert_eq!(
        (said.code, &first["id"], &first["queue"], &first["attempt"]),
        (0, &json!("a"), &json!("emails.eu"), &json!(1))
    );
    assert_eq!(
        (&first["body"], &first["headers"], &second["body_base64"]),
        (&json!("hello"), &json!({"tag": "t"}), &json!("AP8="))
    );
    let keys = |job: &Value| job.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(first),
        ["attempt", "body", "deadline_ms", "due_ms", "headers", "id", "lease", "queue"]
    );
    let (of_a, of_b) = (first["lease"].as_str().unwrap(), second["lease"].as_str().unwrap());
    let shown = queues.run(&["show", "a"]).out;
    assert!(
        shown.contains("\nqueue       emails.eu\n") && shown.contains("\nconfirm     consumer\n"),
        "{shown}"
    );

    let (code, touched) = queues.json(&["touch", "a", "--lease", of_a, "--ttr", "5m"]);
    assert_eq!((code, &touched["verdict"]), (0, &json!("touched")));
    assert!(
        touched["deadline_ms"].as_i64().unwrap() > first["deadline_ms"].as_i64().unwrap() + 200_000,
        "{touched}"
    );
    let (code, released) = queues.json(&["release", "a", "--lease", of_a, "--for", "1h"]);
    assert_eq!(
        (code, &released["action"], &released["verdict"], released["due_ms"].is_i64()),
        (0, &json!("release"), &json!("released"), true)
    );
    let (code, stale) = queues.json(&["finish", "a", "--lease", of_a]);
    assert_eq!(
        (code, stale),
        (2, json!({"id": "a", "action": "finish", "verdict": "stale", "due_ms": null}))
    );
    let (code, failed) =
        queues.json(&["fail", "b", "--lease", of_b, "--for", "0s", "--error", "no stamp"]);
    assert_eq!((code, &failed["verdict"]), (0, &json!("failed")));
    let (code, again) = queues.json(&["pop", "bills", "--wait", "20s", "--ttr", "10s"]);
    assert_eq!((code, &again["id"], &again["attempt"]), (0, &json!("b"), &json!(2)));
    let of_b = again["lease"].as_str().unwrap();
    let dead = queues.run(&["fail", "b", "--lease", of_b]);
    assert_eq!(
        (dead.code, dead.out.as_str()),
        (0, "b: dead: its last attempt failed: the job is dead\n")
    );
    assert_eq!(queues.run(&["ls", "--queue", "bills", "--state", "dead"]).out.lines().count(), 2);
    assert_eq!(queues.run(&["requeue", "b"]).code, 0);
    let third = queues.json(&["pop", "bills"]).1;
    let finished = queues.run(&["finish", "b", "--lease", third["lease"].as_str().unwrap()]);
    assert_eq!((finished.code, finished.out.as_str()), (0, "b: finished: the job is done\n"));
    assert_eq!(
        queues.json(&["finish", "b", "--lease", third["lease"].as_str().unwrap()]).1["verdict"],
        "fired"
    );
}

#[tokio::test]
async fn an_empty_pop_exits_with_2_and_a_wrong_line_with_64() {
    let queues = Queues::new().await;
    for line in [&["pop", "bills"][..], &["pop", "bills", "--wait", "50ms", "-o", "json"]] {
        let said = queues.run(line);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (2, "", ""), "{line:?}");
    }
    for line in [
        &["pop"][..],
        &["pop", "unknown"],
        &["pop", "bills", "--max", "0"],
        &["pop", "bills", "--max", "1001"],
        &["pop", "bills", "--wait", "61s"],
        &["pop", "bills", "--ttr", "0s"],
        &["release", "a"],
        &["touch", "a"],
        &["finish", "a", "--lease", "x", "--attempt", "1"],
        &["fail", "a", "--for", "1s"],
        &["send", "--for", "1s", "--queue", "bills", "--target", "orders.x"],
    ] {
        assert_eq!(queues.run(line).code, 64, "{line:?}");
    }
    assert!(queues.run(&["pop", "unknown"]).err.starts_with("error: unknown_queue: "));
    assert_eq!(
        queues.json(&["finish", "a", "--lease", "-x"]),
        (2, json!({"id": "a", "action": "finish", "verdict": "stale", "due_ms": null}))
    );
    // A due job of text, as people see it.
    queues.add("a", "bills", b"line 1\nline 2", Due::In(0)).await;
    let said = queues.run(&["pop", "bills"]);
    assert!(
        said.code == 0 && said.out.starts_with("id          a\nqueue       bills\nlease       "),
        "{said:?}"
    );
    assert!(said.out.ends_with("header      tag: t\n\nline 1\nline 2\n"), "{said:?}");
}

#[tokio::test]
async fn a_message_for_a_queue_is_sent_through_the_broker() {
    let fixture = Fixture::new().await;
    let config = fixture.file("both.toml", &format!("{}[queues.emails]\n", fixture.settings(true)));
    let _sidecar = dwell_testkit::servers::DwellServer::start(
        super::fixture::program(),
        &std::fs::read_to_string(&config).unwrap(),
    )
    .await
    .unwrap();
    let run = |arguments: &[&str]| run_with(&[&["-c", config.as_str()], arguments].concat(), b"");
    assert_eq!(run(&["send", "--for", "0s", "--queue", "nobody", "x"]).code, 64);
    assert_eq!(run(&["send", "--for", "0s", "--queue", "emails", "--id", "m", "hello"]).code, 0);
    let said = run(&["pop", "emails", "--wait", "30s", "-o", "json"]);
    assert_eq!(
        (said.code, &said.object()["id"], &said.object()["body"]),
        (0, &json!("m"), &json!("hello"))
    );
    wait_until("its state", async || {
        (run(&["ls", "--state", "reserved", "--queue", "emails"]).out.lines().count() == 2)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn queues_alone_pass_the_checks_and_jobs_of_others_are_told_of() {
    let queues = Queues::new().await;
    queues.add("a", "gone.eu", b"x", Due::In(0)).await;
    queues.add("b", "emails.eu", b"x", Due::In(0)).await;
    let said = queues.run(&["check", "-o", "json"]);
    let names: Vec<Value> = said.lines().iter().map(|line| line["check"].clone()).collect();
    let of_redis =
        ["permissions", "namespace", "rules", "durability", "maxmemory-policy", "memory"]
            .map(|name| format!("redis.{name}"));
    let (before, after) = (["settings", "redis"], ["time_zones", "redis.stranded"]);
    let all = [&before.map(str::to_owned)[..], &of_redis, &after.map(str::to_owned)].concat();
    assert_eq!((said.code, json!(names)), (0, json!(all)), "{said:?}");
    let detail = "1 jobs wait in the queue `gone.eu`, which these settings do not declare";
    assert_eq!(said.lines().last().unwrap()["detail"], detail);
    assert!(
        said.lines()[0]["detail"]
            .as_str()
            .unwrap()
            .ends_with("; brokers: none; ingests: none; queues: bills, emails.*"),
        "{said:?}"
    );
}
