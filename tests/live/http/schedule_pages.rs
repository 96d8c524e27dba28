//! The pages of recurring schedules, on a real sidecar.

use serde_json::{Value, json};

use super::browser::{plain_story, story};
use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::support::wait_until;

/// Schedules of several pages.
const MANY: usize = 120;

/// A sidecar with a broker and a queue.
async fn sidecar(fixture: &Fixture) -> Sidecar {
    Sidecar::run(&format!("{}[queues.emails]\n", fixture.settings(true)), "", &[]).await
}

/// Stores a schedule, for a target unless it names a queue.
fn put(sidecar: &Sidecar, id: &str, mut schedule: Value) {
    if schedule.get("queue").is_none() {
        schedule["target"] = "orders.report".into();
    }
    let path: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = sidecar.call(&format!("PUT /v1/schedules/{path}"), Some(&schedule));
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// A schedule as it is stored.
fn found(sidecar: &Sidecar, id: &str) -> Value {
    let answer = sidecar.get(&format!("/v1/schedules/{id}?body=1"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn schedules_are_found_paused_resumed_and_fired() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    put(
        &sidecar,
        "report",
        json!({"schedule": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin", "body": "numbers"}),
    );
    put(&sidecar, "nightly", json!({"schedule": "@daily"}));
    // Nobody fetches its first occurrence, so that each later one is missed.
    put(
        &sidecar,
        "stuck",
        json!({"schedule": "@every 1s", "overlap": "skip", "queue": "emails", "body": "x"}),
    );
    wait_until("a missed occurrence", async || {
        (found(&sidecar, "stuck")["missed"].as_u64().unwrap() > 0).then_some(())
    })
    .await;
    story(&sidecar, "schedules", &["report", "stuck", "nightly"], async |word: &str| match word {
        "see the fired one" => {
            let (_, body) = wait_until("the occurrence at its target", async || {
                fixture.last("ORDERS", "orders.report")
            })
            .await;
            assert_eq!(body, b"numbers");
            let report = found(&sidecar, "report");
            assert_eq!(
                (&report["paused"], &report["reason"], &report["occurrence"]),
                (&json!(true), &json!("a <b>freeze</b>"), &json!(1)),
                "{report}"
            );
        }
        "see one paused" => {
            let paused =
                ["report", "nightly", "stuck"].map(|id| found(&sidecar, id)["paused"] == true);
            assert_eq!(paused, [false, true, false]);
        }
        other => panic!("{other}"),
    })
    .await;
    assert_eq!(found(&sidecar, "nightly")["paused"], false);
}

#[tokio::test]
async fn the_pages_of_a_list_have_each_schedule_once() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    for number in 0..MANY {
        put(&sidecar, &format!("nightly-{number:03}"), json!({"schedule": "@daily"}));
    }
    plain_story(&sidecar, "schedule_pages", &[&MANY.to_string()]).await;
}

#[tokio::test]
async fn a_schedule_is_seen_fired_paused_and_ended() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    put(
        &sidecar,
        "report",
        json!({
            "schedule": "0 9 * * *", "time_zone": "Europe/Berlin", "queue": "emails", "body": "hello",
            "headers": {"tenant": "acme"},
        }),
    );
    plain_story(&sidecar, "schedule", &["report", "emails"]).await;
    assert_eq!(sidecar.get("/v1/schedules/report").status, 404);
}

#[tokio::test]
async fn next_times_are_told_in_the_zone_of_the_schedule() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    put(&sidecar, "tokyo", json!({"schedule": "0 9 * * *", "time_zone": "Asia/Tokyo"}));
    plain_story(&sidecar, "zoned", &["tokyo"]).await;
}

#[tokio::test]
async fn a_schedule_is_typed_with_its_next_times_stored_and_edited() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    story(&sidecar, "schedule_form", &["report"], async |word: &str| {
        let report = found(&sidecar, "report");
        let times = match word {
            "see it stored" => (json!("0 9 * * *"), json!("Europe/Berlin")),
            "see it changed" | "see it unchanged" => (json!("@every 30m"), Value::Null),
            other => panic!("{other}"),
        };
        assert_eq!((&report["schedule"], &report["time_zone"]), (&times.0, &times.1), "{report}");
        // An edit of the times leaves the rest as it was.
        assert_eq!(
            (&report["target"], &report["headers"], &report["body_base64"]),
            (&json!("orders.report"), &json!({"tenant": "acme"}), &json!("Zmlyc3QKc2Vjb25k")),
            "{report}"
        );
    })
    .await;
}

#[tokio::test]
async fn an_edit_keeps_what_it_leaves_alone() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let bodies = [("lines", "YQ0KYg=="), ("bytes", "AP+A")];
    for (id, body) in bodies {
        put(&sidecar, id, json!({"schedule": "@daily", "body_base64": body, "retry": []}));
    }
    let rules = json!({"schedule": "@daily", "spread": "10m", "late": "drop", "max_late": 1500});
    put(&sidecar, "rules", rules);
    let before = found(&sidecar, "rules");
    plain_story(&sidecar, "kept", &["lines", "bytes", "rules"]).await;
    let after = found(&sidecar, "rules");
    let names = ["spread_ms", "late", "max_late_ms", "retry", "retry_is_default", "ttr_ms"];
    assert_eq!(names.map(|name| &after[name]), names.map(|name| &before[name]), "{after}");
    assert_eq!((&after["spread_ms"], &after["retry_is_default"]), (&json!(600_000), &json!(true)));
    for (id, body) in bodies {
        let kept = found(&sidecar, id);
        assert_eq!(
            (&kept["schedule"], &kept["body_base64"], &kept["retry"]),
            (&json!("@hourly"), &json!(body), &json!([])),
            "{kept}"
        );
    }
}

#[tokio::test]
async fn every_id_of_a_schedule_has_an_address() {
    let fixture = Fixture::new().await;
    let sidecar = sidecar(&fixture).await;
    let ids = [
        "<img src=x onerror=alert(1)>",
        "a/b?c=d#e%2f&f",
        "\u{fc}\u{1f600}",
        "..%2f..",
        "pause",
        "preview",
        "edit",
    ];
    for id in ids {
        put(&sidecar, id, json!({"schedule": "@daily", "body": "</pre><script>alert(1)</script>"}));
    }
    plain_story(&sidecar, "hostile_schedules", &ids).await;
}
