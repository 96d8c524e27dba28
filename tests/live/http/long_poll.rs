//! Pops that wait: their wake-ups, and their end if client, instance or Redis goes away.

use std::net::Shutdown;

use dwell_testkit::servers::DwellServer;
use dwell_testkit::usage::Usage;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::queues::{add, answer, counts, pop, settings, sidecar, until_waiting, waiting_pop};
use super::sidecar::Sidecar;
use crate::commands::fixture::{Fixture, program};
use crate::support::{metric, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_another_instance_takes_ends_the_wait() {
    let fixture = Fixture::new().await;
    let (one, other) = (sidecar(&fixture).await, sidecar(&fixture).await);
    let links = [waiting_pop(&one, "60s"), waiting_pop(&one, "60s")];
    until_waiting(&one, 2).await;
    assert_eq!(
        other.get("/v1/queues/emails").json()["waiting"],
        0,
        "each instance tells of its own"
    );
    add(&other, "a", "emails", "0s");
    add(&other, "b", "emails", "300ms");
    let mut ids = links.map(|link| {
        let (status, _, jobs) = answer(link);
        assert_eq!((status, jobs["jobs"].as_array().unwrap().len()), (200, 1), "{jobs}");
        jobs["jobs"][0]["id"].as_str().unwrap().to_owned()
    });
    ids.sort();
    assert_eq!((ids, counts(&one)), (["a".to_owned(), "b".to_owned()], [0, 0, 2, 0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_delivers_nothing_serves_its_consumers_as_others_do() {
    let fixture = Fixture::new().await;
    let settings = format!("{}\n[queues.emails]\nretry = [\"1h\"]\n", fixture.settings(true));
    let sidecar = Sidecar::run(&settings, "", &["--no-dispatch"]).await;
    add(&sidecar, "a", "emails", "0s");
    let lost = pop(&sidecar, "emails", json!({"ttr": "4s"}));
    assert_eq!(
        (&lost[0]["id"], &lost[0]["attempt"], counts(&sidecar)),
        (&json!("a"), &json!(1), [0, 0, 1, 0])
    );
    // The lease ends, and no other instance is there to take the job over.
    let again = pop(&sidecar, "emails", json!({"wait": "30s", "ttr": "1h"}));
    assert_eq!(
        (again.len(), &again[0]["id"], &again[0]["attempt"]),
        (1, &json!("a"), &json!(2)),
        "{again:?}"
    );
    let dispatched = json!({"id": "b", "target": "orders.x", "for": "0s", "body": "waits"});
    assert_eq!(sidecar.post("/v1/jobs", &dispatched).status, 201);
    assert_eq!(sidecar.get("/v1/jobs/b").json()["attempt"], 0, "it delivers nothing");

    let other = self::sidecar(&fixture).await;
    let link = waiting_pop(&sidecar, "60s");
    until_waiting(&sidecar, 1).await;
    add(&other, "c", "emails", "0s");
    let (status, _, jobs) = answer(link);
    assert_eq!((status, &jobs["jobs"][0]["id"]), (200, &json!("c")), "{jobs}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_gets_no_job() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let (gone, half) = (waiting_pop(&sidecar, "60s"), waiting_pop(&sidecar, "60s"));
    until_waiting(&sidecar, 2).await;
    drop(gone);
    until_waiting(&sidecar, 1).await;
    half.shutdown(Shutdown::Write).unwrap();
    until_waiting(&sidecar, 0).await;
    add(&sidecar, "a", "emails", "0s");
    assert_eq!(counts(&sidecar), [0, 1, 0, 0]);
    let job = pop(&sidecar, "emails", json!({})).remove(0);
    assert_eq!((&job["id"], &job["attempt"]), (&json!("a"), &json!(1)));
    // Hung up at any moment of the call: no job is lost, and the next consumer gets it within its
    // TTR.
    for number in 0..8 {
        let link = waiting_pop(&sidecar, "60s");
        until_waiting(&sidecar, 1).await;
        sidecar.post(
            "/v1/jobs",
            &json!({"id": format!("n{number}"), "queue": "emails", "for": 0, "ttr": "1s"}),
        );
        drop(link);
        let job = pop(&sidecar, "emails", json!({"wait": "20s", "ttr": "1m"}));
        assert_eq!(job[0]["id"], format!("n{number}"));
        assert_eq!(
            sidecar
                .post(&format!("/v1/jobs/n{number}/finish"), &json!({"lease": job[0]["lease"]}))
                .status,
            200
        );
        until_waiting(&sidecar, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_wait_cost_little_memory() {
    const WAITING_POPS: u64 = 400;
    const MAX_BYTES_PER_POP: u64 = 10 << 10;
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    // The first calls cost memory once.
    let mut links: Vec<_> = (0..10).map(|_| waiting_pop(&sidecar, "60s")).collect();
    until_waiting(&sidecar, 10).await;
    let resident = || Usage::of([sidecar.pid()]).unwrap().rss;
    let before = resident();
    links.extend((0..WAITING_POPS).map(|_| waiting_pop(&sidecar, "60s")));
    until_waiting(&sidecar, 10 + WAITING_POPS).await;
    // The memory that the calls used before they waited goes back to the system later.
    wait_until("little memory", async || {
        (resident() < before + WAITING_POPS * MAX_BYTES_PER_POP).then_some(())
    })
    .await;
    drop(links);
    until_waiting(&sidecar, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_stops_answers_who_waits() {
    let fixture = Fixture::new().await;
    let mut sidecar = sidecar(&fixture).await;
    let links = [waiting_pop(&sidecar, "60s"), waiting_pop(&sidecar, "60s")];
    until_waiting(&sidecar, 2).await;
    kill_process(Pid::from_raw(i32::try_from(sidecar.pid()).unwrap()).unwrap(), Signal::TERM)
        .unwrap();
    for link in links {
        let (status, _, body) = answer(link);
        assert_eq!((status, body), (200, json!({"jobs": []})));
    }
    let ended = wait_until("its end", async || sidecar.ended()).await;
    assert!(ended.success(), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_that_redis_is_away() {
    let mut fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let link = waiting_pop(&sidecar, "60s");
    until_waiting(&sidecar, 1).await;
    fixture.redis.kill().unwrap();
    let (status, head, problem) = answer(link);
    assert!(
        (status, &problem["code"]) == (503, &json!("redis")) && head.contains("\r\nretry-after: "),
        "{head} {problem}"
    );
    for line in [
        "POST /v1/queues/emails/pop",
        "GET /v1/queues",
        "GET /v1/queues/emails/peek",
        "POST /v1/queues/emails/pause",
    ] {
        let answer = sidecar.call(line, None);
        assert_eq!(answer.problem(503)["code"], "redis", "{line}");
        assert!(answer.head.contains("\r\nretry-after: "), "{answer:?}");
    }
    fixture.redis.restart().await.unwrap();
    wait_until("an answer again", async || (sidecar.get("/v1/queues").status == 200).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_queues_are_there_from_the_start() {
    let fixture = Fixture::new().await;
    let dwell = DwellServer::start(program(), &settings(&fixture)).await.unwrap();
    let text = dwell.metrics().await.unwrap();
    let states = ["scheduled", "ready", "reserved", "dead"]
        .map(|state| format!("dwell_queue_jobs{{queue=\"emails\",state=\"{state}\"}} 0"));
    let ends = ["finished", "failed", "released", "timeout"]
        .map(|end| format!("dwell_lease_ends_total{{queue=\"orders.*\",end=\"{end}\"}} 0"));
    let others = [
        "dwell_pop_total{queue=\"emails\"} 0",
        "dwell_popped_jobs_total{queue=\"orders.*\"} 0",
        "dwell_pop_lateness_seconds_count 0",
    ];
    for line in states.iter().chain(&ends).map(String::as_str).chain(others) {
        assert!(text.lines().any(|there| there == line), "no line {line} in:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metric_of_all_jobs_counts_those_that_are_ready() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    ["a", "b"].iter().for_each(|id| add(&sidecar, id, "emails", "0s"));
    add(&sidecar, "c", "orders.new", "1h");
    // The gauges are taken every few seconds.
    wait_until("the gauge counts the ready jobs", async || {
        let text = sidecar.metrics();
        let count = |state| metric(&text, &format!("dwell_jobs{{state=\"{state}\"}}"));
        (count("ready") == 2.0 && count("scheduled") == 1.0).then_some(())
    })
    .await;
}
