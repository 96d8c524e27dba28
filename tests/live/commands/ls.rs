//! `dwell ls`: selection, order and format of jobs; and `--watch`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use dwell::job::{Action, DeadReason, Target};
use dwell::store::jobs::settle::{Bury, SettleResult};
use dwell_connectors::Destination;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixture::{Said, program, run_with};
use crate::store::fixture::{FAR, Fixture, PAST, action, held, job, request};
use crate::support::wait_until;

/// The base of due times in these tests: far ahead.
const T: i64 = 4_000_000_000_000;

/// A namespace with jobs, and settings that lead there.
pub(super) struct Listed {
    pub(super) fixture: Fixture,
    _folder: TempDir,
    pub(super) config: String,
}

impl Listed {
    pub(super) async fn new() -> Listed {
        // Several buckets and brokers: the list is one all the same.
        let (fixture, folder) =
            (Fixture::with(4, &["main", "other"]).await, TempDir::new().unwrap());
        let path = folder.path().join("dwell.toml");
        let redis = format!(
            "[redis]\nurls = [\"{}\"]\nnamespace = \"{}\"\n",
            fixture.settings.urls[0], fixture.settings.namespace
        );
        let broker = "[brokers.main]\ntype = \"nats\"\nurl = \"nats://127.0.0.1:1\"\nallow = [\"orders.>\"]\n";
        std::fs::write(&path, format!("{redis}{broker}")).unwrap();
        Listed { fixture, _folder: folder, config: path.to_str().unwrap().to_owned() }
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Said {
        run_with(&[&["-c", &self.config], arguments].concat(), b"")
    }

    fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let said = self.run(&[&["ls", "-o", "json"], arguments].concat());
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        said.lines().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
    }

    async fn put(&self, id: &str, due_ms: i64, broker: &str, target: &str) {
        let mut schedule = request(
            id,
            due_ms.unsigned_abs() + u64::from(id.as_bytes()[0]),
            dwell::job::Due::At(due_ms),
        );
        schedule.job.target =
            Target::Broker { broker: broker.to_owned(), to: Destination::new(target) };
        self.fixture.put(schedule).await;
    }
}

#[tokio::test]
async fn jobs_are_listed_by_due_time_and_chosen_by_target_time_and_number() {
    let listed = Listed::new().await;
    for (id, after, broker, target) in [
        ("e", 50, "main", "orders.close"),
        ("a", 30, "other", "orders.open"),
        ("d", 10, "main", "orders.open"),
        ("c", 30, "main", "orders.close"),
        ("b", 20, "other", "orders.close"),
    ] {
        listed.put(id, T + after, broker, target).await;
    }
    assert_eq!(listed.ids(&[]), ["d", "b", "a", "c", "e"]);
    assert_eq!(listed.ids(&["--limit", "2"]), ["d", "b"]);
    assert_eq!(listed.ids(&["--limit", "0"]), Vec::<String>::new());
    assert_eq!(listed.ids(&["--target", "orders.close"]), ["b", "c", "e"]);
    assert_eq!(listed.ids(&["--target", "orders.close", "--limit", "1"]), ["b"]);
    assert_eq!(listed.ids(&["--target", "nowhere"]), Vec::<String>::new());
    // `from` is included, `to` is not.
    let (from, to) = ((T + 20).to_string(), (T + 50).to_string());
    assert_eq!(listed.ids(&["--from", &from, "--to", &to]), ["b", "a", "c"]);
    assert_eq!(
        listed.ids(&["--from", "2096-10-02T07:06:40.030Z", "--target", "orders.close"]),
        ["c", "e"]
    );

    let said = listed.run(&["ls", "--limit", "2"]);
    let rows: Vec<Vec<&str>> =
        said.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows[0],
        ["DUE", "WHEN", "ID", "BROKER", "TARGET", "ATTEMPTS", "SIZE", "LAST", "ERROR"]
    );
    assert_eq!((rows[1][0], rows[1][1]), ("2096-10-02", "07:06:40+00:00"));
    assert_eq!(rows[1][rows[1].len() - 5..][..3], ["d", "main", "orders.open"]);
    assert_eq!(said.out.lines().last(), Some("the first 2; more with --limit"));
    assert_eq!(listed.run(&["ls", "--state", "dead"]).out, "no dead jobs\n");
}

#[tokio::test]
async fn a_job_has_the_shape_of_the_contract_in_each_state() {
    let listed = Listed::new().await;
    let mut schedule = request("s", 1, FAR);
    schedule.job.key = Some(vec![0xff].into());
    schedule.job.headers.push("n", "1".into());
    schedule.job.headers.push("n", "2".into());
    listed.fixture.put(schedule).await;
    let scheduled = listed.run(&["ls", "-o", "json"]).object();
    let wanted = json!({
        "id": "s", "state": "scheduled", "due": "2096-10-02T07:06:40.000Z", "due_ms": T, "broker": "main", "exchange": "",
        "target": "orders.close", "queue": null, "key": {"base64": "/w=="}, "headers": {"n": ["1", "2"]}, "attempt": 0,
        "retry": ["2m", "10m", "10m", "1h", "2h", "6h", "15h"], "ttr_ms": 30_000, "confirm": "broker", "awaiting_finish": false,
        "size": 6, "created_ms": 0, "last_error": null, "dead_reason": null, "deadline_ms": null,
    });
    assert_eq!(scheduled, wanted);

    let claim = async |id: &str| {
        listed.fixture.put(request(id, 2, PAST)).await;
        let bucket = listed.fixture.store.keys().bucket_of(id);
        let taken = listed
            .fixture
            .store
            .jobs
            .claim(bucket, "main", crate::store::fixture::LEASE, 1, 1 << 20)
            .await
            .unwrap();
        (bucket, crate::store::fixture::one_of(taken))
    };
    let (bucket, lease) = claim("r").await;
    assert_eq!(
        listed.fixture.store.jobs.hold(bucket, &[(held(&lease), 1_000_000)]).await.unwrap(),
        [SettleResult::Settled]
    );
    let reserved = listed.run(&["ls", "--state", "reserved", "-o", "json"]).object();
    let of = |job: &Value| {
        (
            job["id"].clone(),
            job["state"].clone(),
            job["attempt"].clone(),
            job["awaiting_finish"].clone(),
        )
    };
    assert_eq!(of(&reserved), (json!("r"), json!("reserved"), json!(1), json!(true)));
    assert_eq!(reserved["due_ms"], 1_000_000_000_000_i64, "its due time, not the end of its lease");

    let (bucket, lease) = claim("x").await;
    let bury =
        Bury { job: held(&lease), reason: DeadReason::Invalid, error: "too large".to_owned() };
    assert_eq!(
        listed.fixture.store.jobs.bury(bucket, &[bury]).await.unwrap(),
        [SettleResult::Settled]
    );
    let dead = listed.run(&["ls", "--state", "dead", "-o", "json"]).object();
    assert_eq!(of(&dead), (json!("x"), json!("dead"), json!(1), json!(false)));
    assert_eq!((&dead["dead_reason"], &reserved["dead_reason"]), (&json!("invalid"), &Value::Null));
    assert!(
        dead["died_ms"].as_i64().unwrap() > 1_000_000_000_000 && reserved["died_ms"].is_null(),
        "{dead}"
    );
    assert!(
        dead["deadline_ms"].is_null()
            && reserved["deadline_ms"].as_i64().unwrap() > 1_000_000_000_000,
        "{reserved}"
    );
    assert_eq!(
        (&dead["due_ms"], &dead["last_error"]),
        (&json!(1_000_000_000_000_i64), &json!("too large"))
    );
    let keys = |job: &Value| {
        job.as_object().unwrap().keys().filter(|key| *key != "died_ms").cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        (keys(&reserved), keys(&dead)),
        (keys(&wanted), keys(&wanted)),
        "only a dead job has one key more"
    );
    assert_eq!(listed.ids(&["--state", "dead", "--to", "1000000000000"]), Vec::<String>::new());
    assert_eq!(listed.ids(&["--state", "dead", "--from", "1000000000000"]), ["x"]);

    let stats = listed.run(&["stats", "-o", "json"]).object();
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
        "reserved",
    ];
    assert_eq!(keys, [&all[..], &["scheduled"]].concat());
    assert_eq!(
        (&stats["scheduled"], &stats["reserved"], &stats["dead"], &stats["overdue"]),
        (&json!(1), &json!(1), &json!(1), &json!(0))
    );
    assert_eq!(
        (&stats["next_due_ms"], &stats["buckets"].as_array().unwrap().len()),
        (&json!(T), &4)
    );
    let of_brokers =
        (&stats["brokers"]["main"]["scheduled"], &stats["brokers"]["other"]["scheduled"]);
    assert_eq!((of_brokers, &stats["rates"]), ((&json!(1), &json!(0)), &json!({})));
    let text = listed.run(&["stats"]).out;
    assert!(
        text.contains("\nscheduled   1\n")
            && text.contains("\nnext due    2096-10-02 07:06:40+00:00 (in "),
        "{text}"
    );
}

#[tokio::test]
async fn wrong_questions_exit_64_and_a_redis_that_is_away_69() {
    let listed = Listed::new().await;
    for arguments in [
        &["ls", "--state", "gone"][..],
        &["ls", "--limit", "-1"],
        &["ls", "--limit", "many"],
        &["ls", "--from", "soon"],
        &["ls", "--to", "2026-01-01T00:00:00"],
        &["ls", "x"],
        &["stats", "x"],
    ] {
        let said = listed.run(arguments);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.is_empty()),
            (64, "", false),
            "{arguments:?}"
        );
    }
    for command in [&["ls"][..], &["ls", "--watch", "--state", "dead"], &["stats"], &["show", "x"]]
    {
        let said = listed.run(&[command, &["--set", "redis.urls=redis://127.0.0.1:1"]].concat());
        assert_eq!((said.code, said.out.as_str()), (69, ""), "{command:?}: {}", said.err);
        assert!(said.err.contains("is Redis running there"), "{}", said.err);
    }
}

#[tokio::test]
async fn watch_tells_each_job_when_it_is_new_or_has_changed_until_interrupted() {
    use rustix::process::{Pid, Signal, kill_process};
    let listed = Listed::new().await;
    listed.put("a", T, "main", "orders.close").await;
    let mut child = Command::new(program())
        .args(["-c", &listed.config, "ls", "--watch", "-o", "json"])
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert_eq!(lines.next().unwrap()["id"], "a");
    listed.put("b", T + 10, "main", "orders.close").await;
    assert_eq!(lines.next().unwrap()["id"], "b", "`a` stands still: it is not told again");
    listed.fixture.act(&action(Action::Reschedule, "b", 9)).await;
    let again = lines.next().unwrap();
    assert_eq!((&again["id"], &again["due_ms"]), (&json!("b"), &json!(T)));
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    let status = wait_until("its end", async || child.try_wait().unwrap()).await;
    assert_eq!((status.code(), lines.next()), (Some(0), None));
}

#[tokio::test]
async fn a_body_is_not_fetched_for_a_list_of_large_jobs() {
    let listed = Listed::new().await;
    for id in ["a", "b", "c"] {
        let mut schedule = request(id, u64::from(id.as_bytes()[0]), FAR);
        schedule.job = job(vec![b'x'; 900_000]);
        listed.fixture.put(schedule).await;
    }
    let said = listed.run(&["ls", "-o", "json"]);
    assert!(said.out.len() < 3_000, "{} bytes", said.out.len());
    assert!(
        said.lines().iter().all(|job| job["size"] == 900_000 && job.get("body_base64").is_none())
    );
}
