//! Recurring schedules by their calls: stored, shown, listed, paused, fired, ended, and previewed.
//! The instance delivers nothing, so that no occurrence is made but by hand.

use bytes::Bytes;
use dwell::config::Redis;
use dwell::job::{Conflict, Job, JobId, Verdict};
use dwell::request::{KeptParts, NewSchedule, Origin};
use dwell::schedule::StoredSchedule;
use dwell::store::Store;
use dwell::store::jobs::batch::RequestRef;
use dwell_connectors::{Headers, Properties};
use serde_json::{Value, json};

use super::sidecar::{Answer, Sidecar};
use crate::commands::fixture::Fixture;

/// 2090-03-25T00:00:00Z, the day before Berlin's clocks change.
const BEFORE_CHANGE: i64 = 3_794_083_200_000;
/// 09:00 in Berlin, from that day on.
const NINES: [i64; 3] = [3_794_112_000_000, 3_794_194_800_000, 3_794_281_200_000];

async fn sidecar(fixture: &Fixture, http: &str) -> Sidecar {
    let more = "[limits]\nmax_delay = \"36500d\"\n[queues.\"*\"]\nretry = [\"1h\"]\n";
    let settings = format!("{}\n{more}", fixture.settings(true));
    Sidecar::run(&settings, http, &["--no-dispatch"]).await
}

fn put(sidecar: &Sidecar, id: &str, body: &Value) -> Answer {
    sidecar.call(&format!("PUT /v1/schedules/{id}"), Some(body))
}

fn yearly(more: Value) -> Value {
    let mut body = json!({"schedule": "@yearly", "queue": "emails"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Stores a schedule that is new.
#[track_caller]
fn added(sidecar: &Sidecar, id: &str, body: &Value) -> Value {
    let answer = put(sidecar, id, body);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

fn ids(page: &Value) -> Vec<&str> {
    let schedules = page["schedules"].as_array().unwrap();
    schedules.iter().map(|schedule| schedule["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_stored_and_shown_as_it_was_requested() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    let body = json!({
        "schedule": "0 9 * * *", "time_zone": "europe/berlin", "start": "2090-03-01T00:00:00",
        "end": "2090-03-31T00:00:00Z", "count": 3, "catch_up": "all", "overlap": "skip",
        "target": "orders.report", "headers": {"tag": "t"}, "retry": ["1s", 2000], "ttr": "10s",
        "spread": "10m", "late": "drop", "max_late": "1h", "expire": "2h",
        "body": "text",
    });
    let answer = put(&sidecar, "a%2Fb", &body);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(answer.head.contains("\r\nlocation: /v1/schedules/a%2fb\r\n"), "{}", answer.head);
    let mut shown = answer.json();
    let created = shown["created_ms"].take();
    assert!(created.as_i64().unwrap() > 1_700_000_000_000, "{created}");
    // By default five, and no more than the count.
    assert_eq!(shown["next"].as_array().unwrap().len(), 3, "{shown}");
    shown["next"].take();
    assert_eq!(
        shown,
        json!({
            "id": "a/b", "schedule": "0 9 * * *", "time_zone": "Europe/Berlin",
            "start": "2090-02-28T23:00:00.000Z", "end": "2090-03-31T00:00:00.000Z", "count": 3,
            "catch_up": "all", "overlap": "skip", "spread_ms": 600_000, "paused": false,
            "reason": null,
            "occurrence": 0, "next": null, "missed": 0, "last_ms": null, "last_missed_ms": null,
            "broker": "main", "exchange": "", "target": "orders.report", "queue": null,
            "key": null, "headers": {"tag": "t"}, "retry": ["1s", "2s"],
            "retry_is_default": false, "ttr_ms": 10_000, "confirm": "broker", "late": "drop",
            "max_late_ms": 3_600_000, "expire_ms": 7_200_000, "size": 4, "created_ms": null,
        })
    );
    assert_eq!(sidecar.get("/v1/schedules/a%2Fb").json()["created_ms"], created);
    assert_eq!(sidecar.get("/v1/schedules/a%2Fb?body=1").json()["body_base64"], "dGV4dA==");
    assert!(sidecar.get("/v1/schedules/a%2Fb").json().get("body_base64").is_none());
    sidecar.get("/v1/jobs/a%2Fb").problem(404);

    let shown = added(&sidecar, "plain", &json!({"schedule": "@every 1h", "queue": "emails"}));
    let none = [
        "time_zone",
        "start",
        "end",
        "count",
        "spread_ms",
        "reason",
        "broker",
        "exchange",
        "target",
        "late",
        "max_late_ms",
        "expire_ms",
    ];
    assert!(none.iter().all(|name| shown[name].is_null()), "{shown}");
    assert_eq!((&shown["catch_up"], &shown["overlap"]), (&json!("one"), &json!("allow")));
    // An id that is a word of another path.
    added(&sidecar, "%70ause", &yearly(json!({"paused": true})));
    assert_eq!(sidecar.get("/v1/schedules/%70ause").json()["paused"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_times_are_later_than_from_and_within_end_and_count() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    let nine = json!({"schedule": "0 9 * * *", "time_zone": "Europe/Berlin", "queue": "emails"});
    added(&sidecar, "nine", &nine);
    let next = |query: &str| {
        let answer = sidecar.get(&format!("/v1/schedules/nine?{query}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["next"].clone()
    };
    assert_eq!(next(&format!("next=3&from={BEFORE_CHANGE}")), json!(NINES));
    assert_eq!(next("next=1&from=2090-03-25T08:00:00Z"), json!([NINES[1]]), "strictly later");
    assert_eq!(next("next=0"), json!([]));
    assert_eq!(next("").as_array().unwrap().len(), 5);
    assert_eq!(next("next=1000").as_array().unwrap().len(), 1000);
    let mut two = nine;
    two["count"] = 2.into();
    two["start"] = BEFORE_CHANGE.into();
    added(&sidecar, "two", &two);
    let after =
        |ms: i64| sidecar.get(&format!("/v1/schedules/two?from={ms}")).json()["next"].clone();
    assert_eq!(after(NINES[0]), json!([NINES[1]]), "the first of two is over by then");
    assert_eq!(after(NINES[1]), json!([]));

    let preview = |more: Value| {
        let mut body = json!({"schedule": "0 9 * * *", "time_zone": "Europe/Berlin"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = sidecar.post("/v1/schedules/preview", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    assert_eq!(preview(json!({"from": BEFORE_CHANGE, "next": 3})), json!({"next": NINES}));
    // What comes before uses up the count.
    assert_eq!(preview(json!({"from": BEFORE_CHANGE, "count": 2}))["next"], json!([]));
    let two = json!({"start": BEFORE_CHANGE, "from": BEFORE_CHANGE, "count": 2});
    assert_eq!(preview(two)["next"], json!(NINES[..2]));
    let local = json!({"from": "2090-03-25T01:00:00", "next": 1});
    assert_eq!(preview(local)["next"], json!([NINES[0]]), "in the zone of the schedule");
    let until_noon = json!({"from": BEFORE_CHANGE, "end": "2090-03-26T12:00:00"});
    assert_eq!(preview(until_noon)["next"], json!(NINES[..2]));
    let hourly = json!({"schedule": "@every 1h", "time_zone": null, "start": BEFORE_CHANGE, "from": BEFORE_CHANGE, "next": 2});
    let hours = json!([BEFORE_CHANGE + 3_600_000, BEFORE_CHANGE + 7_200_000]);
    assert_eq!(preview(hourly)["next"], hours);
    assert_eq!(ids(&sidecar.get("/v1/schedules").json()), ["nine", "two"], "nothing was stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_again_replaces_unless_it_is_the_same() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    added(&sidecar, "s", &yearly(json!({})));
    let again = put(&sidecar, "s", &yearly(json!({"id": "s"})));
    assert_eq!(again.status, 200, "duplicate: {again:?}");
    assert!(!again.head.contains("\r\nlocation:"), "{}", again.head);
    let kept = put(&sidecar, "s", &yearly(json!({"body": "new", "on_conflict": "keep"})));
    assert_eq!((kept.status, &kept.json()["size"]), (200, &json!(0)), "{kept:?}");
    let reject = yearly(json!({"body": "new", "on_conflict": "reject"}));
    let problem = put(&sidecar, "s", &reject).problem(409);
    assert_eq!((&problem["code"], &problem["schedule"]["id"]), (&json!("conflict"), &json!("s")));
    assert_eq!(sidecar.post("/v1/schedules/s/pause", &json!({"reason": "r"})).status, 200);
    let replaced = put(&sidecar, "s", &yearly(json!({"body": "new"})));
    assert_eq!((replaced.status, &replaced.json()["size"]), (201, &json!(3)), "{replaced:?}");
    assert_eq!(replaced.json()["paused"], true, "a paused one stays paused");

    // One id is never a job and a schedule.
    let job = json!({"id": "s", "queue": "emails", "for": "1h"});
    let problem = sidecar.post("/v1/jobs", &job).problem(409);
    assert_eq!((&problem["code"], &problem["schedule"]["id"]), (&json!("conflict"), &json!("s")));
    assert!(problem.get("job").is_none(), "{problem}");
    let many = sidecar.post("/v1/jobs", &json!([job])).json();
    assert_eq!((&many[0]["status"], &many[0]["schedule"]["id"]), (&json!(409), &json!("s")));
    let other = json!({"id": "j", "queue": "emails", "for": "1h"});
    assert_eq!(sidecar.post("/v1/jobs", &other).status, 201);
    let problem = put(&sidecar, "j", &yearly(json!({}))).problem(409);
    assert_eq!((&problem["code"], &problem["job"]["id"]), (&json!("conflict"), &json!("j")));
    assert!(problem.get("schedule").is_none(), "{problem}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_part_has_what_json_cannot_say() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    let target = json!({"schedule": "@yearly", "target": "orders.report", "body": "b"});
    added(&sidecar, "s", &target);
    let store = Store::attach(&Redis::new(fixture.redis.url())).await.unwrap();
    let id = JobId::new("s").unwrap();
    let found = async || store.schedules.find(&id).await.unwrap().unwrap();
    // As a message brings it.
    let StoredSchedule { timing, job, .. } = found().await;
    let mut headers = Headers::default();
    headers.push("n", dwell_connectors::Value::I16(5));
    let properties = Some(Box::new(Properties { priority: Some(3), ..Properties::default() }));
    let job = Job { headers, properties, has_body: false, body: Bytes::new(), ..job };
    let brought = NewSchedule {
        id: id.clone(),
        conflict: Conflict::Replace,
        own_queues: None,
        is_paused: false,
        from_settings: false,
        timing,
        job: job.clone(),
        keep: KeptParts::default(),
        origin: Origin::of_call(),
        reply_to: None,
    };
    let applied = store.jobs.apply(&[RequestRef::NewSchedule(&brought)], &[]).await;
    assert_eq!(applied.answers[0].as_ref().unwrap().verdict, Verdict::Replaced);

    let kept =
        json!({"schedule": "@daily", "target": "orders.report", "keep": ["headers", "body"]});
    added(&sidecar, "s", &kept);
    let after = found().await;
    assert_eq!(after.timing.text, "@daily");
    assert_eq!(
        (&after.job.headers, &after.job.properties, after.job.has_body),
        (&job.headers, &job.properties, false)
    );
    assert_eq!(put(&sidecar, "s", &kept).status, 200, "duplicate");
    for (id, more, status) in [
        ("s", json!({"target": "orders.other"}), 400),
        ("s", json!({"headers": {"n": 5}}), 400),
        ("s", json!({"keep": ["target"]}), 400),
        ("other", json!({}), 404),
    ] {
        let mut body = kept.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        put(&sidecar, id, &body).problem(status);
    }
    assert_eq!(found().await.job.headers, job.headers, "nothing changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_paused_resumed_fired_and_ended() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    let stored = added(&sidecar, "s", &yearly(json!({"body": "text"})));
    let paused = sidecar.post("/v1/schedules/s/pause", &json!({"reason": "holiday"})).json();
    assert_eq!((&paused["paused"], &paused["reason"]), (&json!(true), &json!("holiday")));
    assert_eq!(paused["next"], stored["next"], "also of a paused one");
    assert_eq!(sidecar.call("POST /v1/schedules/s/pause", None).json()["paused"], true);

    let fired = sidecar.call("POST /v1/schedules/s/fire", None);
    let verdict = fired.json();
    assert_eq!((fired.status, &verdict["verdict"]), (200, &json!("firing")), "also while paused");
    let id = format!("s@{:013}", verdict["due_ms"].as_i64().unwrap());
    let job = sidecar.get(&format!("/v1/jobs/{id}?body=1")).json();
    assert_eq!((&job["queue"], &job["body_base64"]), (&json!("emails"), &json!("dGV4dA==")));
    assert_eq!(job["headers"]["delayed-schedule"], "s", "{job}");
    let shown = sidecar.get("/v1/schedules/s").json();
    assert_eq!((&shown["occurrence"], &shown["next"]), (&json!(1), &stored["next"]), "{shown}");

    for _ in 0..2 {
        let resumed = sidecar.call("POST /v1/schedules/s/resume", None).json();
        assert_eq!((&resumed["paused"], &resumed["reason"]), (&json!(false), &Value::Null));
    }
    let waiting = sidecar.call("PATCH /v1/jobs/s", Some(&json!({"for": "1h"})));
    assert_eq!((waiting.status, &waiting.json()["verdict"]), (409, &json!("waiting")));
    let ended = sidecar.call("DELETE /v1/schedules/s", None);
    let verdict = json!({"id": "s", "action": "cancel", "verdict": "cancelled"});
    let told = ended.json();
    let told = json!({"id": told["id"], "action": told["action"], "verdict": told["verdict"]});
    assert_eq!((ended.status, told), (200, verdict));
    sidecar.get(&format!("/v1/jobs/{id}")).problem(404);
    sidecar.get("/v1/schedules/s").problem(404);
    for line in ["DELETE /v1/schedules/s", "POST /v1/schedules/s/fire"] {
        let answer = sidecar.call(line, None);
        assert_eq!((answer.status, &answer.json()["verdict"]), (404, &json!("not_found")));
    }
    for line in ["POST /v1/schedules/s/pause", "POST /v1/schedules/s/resume"] {
        sidecar.call(line, None).problem(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_left_alone_by_the_calls_of_schedules() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    let job = json!({"id": "j", "queue": "emails", "for": "1h"});
    assert_eq!(sidecar.post("/v1/jobs", &job).status, 201);
    let before = sidecar.get("/v1/jobs/j").json();
    for line in ["DELETE /v1/schedules/j", "POST /v1/schedules/j/fire"] {
        let answer = sidecar.call(line, None);
        assert_eq!(
            (answer.status, &answer.json()["verdict"]),
            (404, &json!("not_found")),
            "{line}"
        );
    }
    sidecar.get("/v1/schedules/j").problem(404);
    sidecar.call("POST /v1/schedules/j/pause", None).problem(404);
    assert_eq!(sidecar.get("/v1/jobs/j").json(), before);
    // By the door of jobs, an action is for whichever has the id.
    added(&sidecar, "s", &yearly(json!({})));
    assert_eq!(sidecar.call("DELETE /v1/jobs/s", None).json()["verdict"], "cancelled");
    sidecar.get("/v1/schedules/s").problem(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_are_listed_by_id_in_pages_and_changed_together() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    for id in ["report-b", "report-a", "sweep-c"] {
        added(&sidecar, id, &yearly(json!({"queue": format!("q.{id}")})));
    }
    added(&sidecar, "topic", &json!({"schedule": "@yearly", "target": "orders.report"}));
    let list = |query: &str| sidecar.get(&format!("/v1/schedules{query}")).json();
    let all = list("");
    assert_eq!(ids(&all), ["report-a", "report-b", "sweep-c", "topic"]);
    assert_eq!((&all["next"], &all["schedules"][0]["next"][4].is_i64()), (&Value::Null, &true));
    let mut listed = Vec::new();
    let mut query = "?limit=1".to_owned();
    loop {
        let page = list(&query);
        assert!(ids(&page).len() <= 1, "{page}");
        listed.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["next"].as_str() else { break };
        query = format!("?limit=1&cursor={cursor}");
    }
    assert_eq!(listed, ids(&all));
    for (query, wanted) in [
        ("?q=report", &["report-a", "report-b"][..]),
        ("?queue=q.report-a", &["report-a"]),
        ("?queue=q.report-*", &["report-a", "report-b"]),
        ("?target=orders.report", &["topic"]),
        ("?paused=true", &[]),
        ("?missed_since=2020-01-01T00:00:00Z", &[]),
    ] {
        assert_eq!(ids(&list(query)), wanted, "{query}");
    }
    let change = |what: &str, body: Value| {
        sidecar.post(&format!("/v1/schedules/{what}"), &body).json()["changed"].clone()
    };
    assert_eq!(change("pause", json!({"q": "report", "reason": "holiday"})), 2);
    assert_eq!(change("pause", json!({"queue": "q.*"})), 1, "those that were not paused");
    assert_eq!(ids(&list("?paused=1")), ["report-a", "report-b", "sweep-c"]);
    assert_eq!(ids(&list("?paused=false")), ["topic"]);
    assert_eq!(sidecar.get("/v1/schedules/report-a").json()["reason"], "holiday");
    assert_eq!(change("resume", json!({"q": "sweep"})), 1);
    assert_eq!(change("resume", json!({})), 2);
    assert_eq!(change("pause", json!({"target": "orders.report"})), 1);
    assert_eq!(ids(&list("?paused=1")), ["topic"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_a_schedule_is_refused_with_its_code() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    for (body, code) in [
        (json!({"queue": "emails"}), "bad_schedule"),
        (yearly(json!({"schedule": "* * *"})), "bad_schedule"),
        (yearly(json!({"schedule": "@every 1ms"})), "bad_schedule"),
        (yearly(json!({"time_zone": "Mars/Olympus"})), "bad_schedule"),
        (yearly(json!({"schedule": "@every 1h", "time_zone": "UTC"})), "bad_schedule"),
        (yearly(json!({"start": "soon"})), "bad_schedule"),
        (yearly(json!({"end": "2020-01-01T00:00:00Z"})), "bad_schedule"),
        (yearly(json!({"count": 0})), "bad_schedule"),
        (yearly(json!({"catch_up": "some"})), "bad_schedule"),
        (yearly(json!({"overlap": "maybe"})), "bad_schedule"),
        (yearly(json!({"for": "1h"})), "ambiguous_delay"),
        (yearly(json!({"until": "2090-01-01T00:00:00Z"})), "ambiguous_delay"),
        (yearly(json!({"id": "other"})), "bad_id"),
        (json!({"schedule": "@yearly"}), "missing_target"),
        (json!({"schedule": "@yearly", "target": "secret.x"}), "target_not_allowed"),
        (yearly(json!({"headers": {"delay-for": "1s"}})), "bad_header"),
    ] {
        let problem = put(&sidecar, "s", &body).problem(400);
        assert_eq!(problem["code"], code, "{body}: {problem}");
    }
    let long = "x".repeat(241);
    for id in [long.as_str(), "x@1234567890123"] {
        assert_eq!(put(&sidecar, id, &yearly(json!({}))).problem(400)["code"], "bad_id", "{id}");
    }
    for (body, says) in [
        (yearly(json!({"cron": "@daily"})), "unknown field `cron`"),
        (yearly(json!({"paused": "yes"})), "expected a boolean"),
        (json!([]), "a JSON object"),
    ] {
        let problem = put(&sidecar, "s", &body).problem(400);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{body}: {problem}");
    }
    for body in [
        json!({}),
        json!({"schedule": "nonsense"}),
        json!({"schedule": "@daily", "end": "2020-01-01T00:00:00Z"}),
    ] {
        let problem = sidecar.post("/v1/schedules/preview", &body).problem(400);
        assert_eq!(problem["code"], "bad_schedule", "{body}: {problem}");
    }
    sidecar
        .post("/v1/schedules/preview", &json!({"schedule": "@daily", "next": 1001}))
        .problem(400);
    let reason = json!({"reason": "x".repeat(1001)});
    sidecar.post("/v1/schedules/pause", &reason).problem(400);
    for (line, says) in [
        ("GET /v1/schedules/s?next=1001", "next: 1001 is not from 0 to 1000"),
        ("GET /v1/schedules/s?next=many", "next"),
        ("GET /v1/schedules/s?from=soon", "from: `soon` is not a time"),
        ("GET /v1/schedules/s?body=yes", "body: `yes` is neither 1 nor 0"),
        ("GET /v1/schedules?paused=maybe", "paused: `maybe`"),
        ("GET /v1/schedules?limit=0", "limit: 0 is not from 1 to 1000"),
        ("GET /v1/schedules?cursor=_w", "cursor: "),
        ("GET /v1/schedules?missed_since=soon", "missed_since: "),
        ("GET /v1/schedules?state=paused", "state"),
    ] {
        let problem = sidecar.call(line, None).problem(400);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{line}: {problem}");
    }
    assert_eq!(ids(&sidecar.get("/v1/schedules").json()), Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_of_a_job_may_be_local_and_the_horizon_counts_schedules() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, "").await;
    let local = |until: &str, zone: Value| json!({"id": "j", "queue": "emails", "until": until, "time_zone": zone});
    let berlin = json!("Europe/Berlin");
    let job = sidecar.post("/v1/jobs", &local("2090-03-25T09:00:00", berlin.clone())).json();
    assert_eq!(job["due_ms"], NINES[0], "{job}");
    let later = json!({"until": "2090-03-26T09:00:00", "time_zone": berlin});
    let verdict = sidecar.call("PATCH /v1/jobs/j", Some(&later)).json();
    assert_eq!(
        (&verdict["verdict"], &verdict["due_ms"]),
        (&json!("rescheduled"), &json!(NINES[1]))
    );
    let problem = sidecar.post("/v1/jobs", &local("2090-03-25T09:00:00", Value::Null)).problem(400);
    assert_eq!(problem["code"], "bad_delay", "{problem}");

    let all = || {
        let horizon = sidecar.get("/v1/horizon?step=1h&to=20h").json();
        let steps = horizon["steps"].as_array().unwrap().clone();
        steps.iter().map(|step| step["count"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    added(&sidecar, "s", &json!({"schedule": "@every 90m", "queue": "emails"}));
    added(
        &sidecar,
        "paused",
        &json!({"schedule": "@every 90m", "queue": "emails", "paused": true}),
    );
    assert_eq!((all()[1], all().iter().sum::<u64>()), (1, 1), "the next occurrence alone");
}

const TOKENS: &str = r#"
[http.tokens.shop]
token = "token-of-shop"
may = ["schedule", "read"]
queues = ["orders.*"]
[http.tokens.till]
token = "token-of-till"
may = ["act"]
queues = ["orders.*"]
[http.tokens.ops]
token = "token-of-ops"
may = ["schedule", "read", "act"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_has_the_schedules_of_its_queues() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture, TOKENS).await;
    let call = |name: &str, line: &str, body: Value| {
        let headers =
            format!("authorization: Bearer token-of-{name}\r\ncontent-type: application/json\r\n");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        sidecar.send(line, &headers, body.as_bytes())
    };
    let of = |queue: &str| json!({"schedule": "@yearly", "queue": queue});
    let of_broker = json!({"schedule": "@yearly", "target": "orders.x"});
    for (name, line, body) in [
        ("till", "PUT /v1/schedules/own", of("orders.eu")),
        ("till", "GET /v1/schedules", Value::Null),
        ("till", "POST /v1/schedules/preview", json!({"schedule": "@daily"})),
        ("shop", "DELETE /v1/schedules/own", Value::Null),
        ("shop", "POST /v1/schedules/own/fire", Value::Null),
        ("shop", "POST /v1/schedules/own/pause", Value::Null),
        ("shop", "POST /v1/schedules/resume", json!({})),
        ("shop", "PUT /v1/schedules/own", of("bills")),
        ("shop", "PUT /v1/schedules/own", of_broker.clone()),
    ] {
        assert_eq!(call(name, line, body).problem(403)["code"], "forbidden", "{name} {line}");
    }
    assert_eq!(call("shop", "PUT /v1/schedules/own", of("orders.eu")).status, 201);
    assert_eq!(call("ops", "PUT /v1/schedules/other", of("bills")).status, 201);
    assert_eq!(call("ops", "PUT /v1/schedules/topic", of_broker).status, 201);
    let preview = call("shop", "POST /v1/schedules/preview", json!({"schedule": "@daily"}));
    assert_eq!(preview.status, 200, "{preview:?}");
    assert_eq!(ids(&call("shop", "GET /v1/schedules", Value::Null).json()), ["own"]);
    assert_eq!(
        ids(&call("ops", "GET /v1/schedules", Value::Null).json()),
        ["other", "own", "topic"]
    );
    // Those of others are not there, and are neither replaced nor shown.
    for id in ["other", "topic"] {
        call("shop", &format!("GET /v1/schedules/{id}"), Value::Null).problem(404);
        let problem =
            call("shop", &format!("PUT /v1/schedules/{id}"), of("orders.eu")).problem(409);
        assert_eq!(problem["code"], "conflict", "{problem}");
        assert!(problem.get("schedule").is_none(), "{problem}");
        let job = json!({"id": id, "queue": "orders.eu", "for": "1h"});
        let problem = call("shop", "POST /v1/jobs", job).problem(409);
        assert!(problem.get("schedule").is_none(), "{problem}");
        for line in [
            format!("DELETE /v1/schedules/{id}"),
            format!("POST /v1/schedules/{id}/fire"),
            format!("DELETE /v1/jobs/{id}"),
        ] {
            let answer = call("till", &line, Value::Null);
            assert_eq!((answer.status, &answer.json()["verdict"]), (404, &json!("not_found")));
        }
        call("till", &format!("POST /v1/schedules/{id}/pause"), Value::Null).problem(404);
    }
    assert_eq!(call("till", "POST /v1/schedules/pause", json!({})).json()["changed"], 1);
    let paused = call("ops", "GET /v1/schedules?paused=1", Value::Null).json();
    assert_eq!(ids(&paused), ["own"]);
    assert_eq!(
        call("till", "DELETE /v1/schedules/own", Value::Null).json()["verdict"],
        "cancelled"
    );
}
