//! A host that asks for a pause: its jobs wait and burn nothing, other hosts go on. And one that
//! says nothing.

use serde_json::json;
use tokio::net::TcpListener;

use super::fixture::{Fixture, broker};
use super::receiver::{Receiver, answer};
use crate::support::{metric, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_one_host_back_and_no_other() {
    let (busy, free) = tokio::join!(
        Receiver::start(|_, _| answer(429, &[("retry-after", "3600")], "slow down")),
        Receiver::always(200)
    );
    let fixture = Fixture::start(&[&busy, &free], "").await;
    let job = |id: &str, to: &Receiver| json!({"id": id, "for": "0s", "target": to.url(&format!("/{id}")), "retry": []});
    fixture.schedule(job("first", &busy)).await;
    fixture.until_metric(r#"dwell_target_paused{broker="hook"}"#, 1.0).await;
    for number in 0..10 {
        fixture.schedule(job(&format!("waits-{number}"), &busy)).await;
        fixture.schedule(job(&format!("goes-{number}"), &free)).await;
    }
    free.until(10).await;
    for number in 0..10 {
        fixture.until_over(&format!("goes-{number}")).await;
    }
    assert_eq!(busy.seen().len(), 1, "no other path of the host is tried");
    // Without a retry array a failed attempt would be the death of each.
    for id in ["first", "waits-0", "waits-9"] {
        let job = fixture.until_state(id, "scheduled").await;
        assert_eq!(job["attempt"], 0, "{job}");
    }
    fixture.until_metric(r#"dwell_publish_total{broker="hook",outcome="refused"}"#, 1.0).await;
    fixture.until_metric(r#"dwell_publish_total{broker="hook",outcome="failed"}"#, 0.0).await;
    assert!(fixture.log().contains("throttled, the host is paused"));

    // They are due again in an hour, and overdue since they were first due.
    let stats = wait_until("all that wait are overdue", async || {
        let (_, stats) = fixture.call("GET /v1/stats", &json!({})).await;
        (stats["overdue"] == 11).then_some(stats)
    })
    .await;
    assert!(stats["next_due_ms"].as_i64().unwrap() < stats["now_ms"].as_i64().unwrap(), "{stats}");
    wait_until("the gauge of the oldest", async || {
        let text = fixture.dwell.metrics().await.unwrap();
        (metric(&text, "dwell_oldest_overdue_seconds") > 0.0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_names_a_host_that_says_nothing_and_what_to_check() {
    // The kernel takes the connections.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", silent.local_addr().unwrap());
    let more = broker("mute", &[], "timeout = \"3s\"")
        .replace("allow = []", &format!("allow = [\"{origin}/*\"]"));
    let fixture = Fixture::start(&[], &more).await;
    for number in 0..3 {
        let target = format!("{origin}/{number}");
        fixture.schedule(json!({"id": format!("job-{number}"), "for": "0s", "broker": "mute", "target": target})).await;
    }
    let line = wait_until("the log names the host", async || {
        fixture
            .log()
            .lines()
            .find(|line| line.contains("the host does not confirm"))
            .map(str::to_owned)
    })
    .await;
    assert!(
        line.contains(&origin)
            && line.contains("check that the host answers requests within the `timeout`"),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_time_to_connect_ends_no_pause() {
    // The kernel takes the connections, and nobody speaks TLS.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("https://{}", silent.local_addr().unwrap());
    let more = broker("mute", &[], "timeout = \"3s\"")
        .replace("allow = []", &format!("allow = [\"{origin}/*\"]"));
    let fixture = Fixture::start(&[], &more).await;
    let job = |id: &str, ttr: &str| json!({"id": id, "for": "0s", "broker": "mute", "target": format!("{origin}/{id}"), "retry": [], "ttr": ttr});
    for number in 0..3 {
        fixture.schedule(job(&format!("long-{number}"), "30s")).await;
    }
    let paused = r#"dwell_target_paused{broker="mute"}"#;
    fixture.until_metric(paused, 1.0).await;
    fixture.schedule(job("short", "300ms")).await;
    let short = fixture.until_state("short", "dead").await;
    assert!(short["last_error"].as_str().unwrap().contains("no connection within "), "{short}");
    assert_eq!(metric(&fixture.dwell.metrics().await.unwrap(), paused), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_pause_the_job_arrives_as_the_first_attempt() {
    let receiver = Receiver::start(|number, _| match number {
        1 => answer(503, &[("retry-after", "1")], ""),
        // Without `retry-after`: as full.
        2 => answer(429, &[], ""),
        _ => answer(200, &[], ""),
    })
    .await;
    let fixture = Fixture::start(&[&receiver], "").await;
    fixture
        .schedule(json!({"id": "patient", "for": "0s", "target": receiver.url("/"), "retry": []}))
        .await;
    fixture.until_over("patient").await;
    let seen = receiver.seen();
    let attempts: Vec<_> = seen.iter().map(|seen| seen.text("delayed-attempt")).collect();
    assert_eq!(attempts, ["1", "1", "1"]);
    assert!(seen[1].at_ms >= seen[0].at_ms + 1000, "the host gets its pause");
    fixture.until_metric(r#"dwell_target_paused{broker="hook"}"#, 0.0).await;
}
