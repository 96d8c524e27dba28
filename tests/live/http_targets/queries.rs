//! Queries often hold tokens: they stand in no log, no metric and no error.

use std::process::Command;

use dwell_testkit::servers::Port;
use serde_json::json;

use super::fixture::{Fixture, broker, call};
use super::receiver::{Receiver, answer};
use crate::commands::fixture::program;
use crate::support::wait_until;

const HUSH: &str = "hushQuery6b2e";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_in_no_log_metric_or_error() {
    let receiver = Receiver::start(|_, seen| match seen.uri.path() {
        "/gone" => answer(410, &[], ""),
        "/busy" => answer(429, &[], ""),
        "/moved" => answer(302, &[("location", "http://127.0.0.1/?token=hushQuery6b2e")], ""),
        _ => answer(500, &[], ""),
    })
    .await;
    let closed = format!("http://127.0.0.1:{}", Port::reserve().unwrap().number());
    let dead = format!("dead = \"{closed}/letters?token={HUSH}\"");
    let more = broker("lettered", &[&receiver], &dead)
        .replace("allow = [", &format!("allow = [\"{closed}/*\", "));
    let mut fixture = Fixture::start(&[&receiver], &more).await;
    fixture.dwell.set_env([("DWELL_LOG", "trace"), ("RUST_BACKTRACE", "1")]);
    fixture.dwell.stop().await.unwrap();
    fixture.dwell.restart().await.unwrap();
    let query = format!("?token={HUSH}");
    let mut ids = Vec::new();
    for (id, at) in [
        ("fails", receiver.url("/fails")),
        ("gone", receiver.url("/gone")),
        ("moved", receiver.url("/moved")),
        ("away", closed),
    ] {
        let target = format!("{}{query}", if id == "away" { format!("{at}/") } else { at });
        fixture.schedule(json!({"id": id, "broker": "lettered", "for": "0s", "target": target, "retry": ["10ms"]})).await;
        ids.push(id);
    }
    let mut said = Vec::new();
    for id in ids {
        let mut job = fixture.until_state(id, "dead").await;
        // A caller who asks for the job may see its target.
        assert!(job["target"].as_str().unwrap().ends_with(&query), "{job}");
        job["target"] = json!("");
        assert_ne!(job["last_error"], "", "{job}");
        said.push(job.to_string());
    }
    fixture.schedule(json!({"id": "busy", "broker": "lettered", "for": "0s", "target": format!("{}{query}", receiver.url("/busy"))})).await;
    fixture.until_metric(r#"dwell_target_paused{broker="lettered"}"#, 1.0).await;
    for target in [format!("https://evil.example/{query}"), format!("nonsense{query}")] {
        let (status, problem) = fixture
            .call("POST /v1/jobs", &json!({"broker": "lettered", "for": "0s", "target": target}))
            .await;
        assert_eq!(status, 400);
        said.push(problem.to_string());
    }
    said.push(call(fixture.dwell.http_port(), "GET /v1/stats", "").await.1);
    said.push(fixture.dwell.metrics().await.unwrap());
    said.push(fixture.dwell.get("/readyz").await.unwrap());
    let config = fixture.dwell.dir().join("dwell.toml");
    for arguments in [&["check"][..], &["check", "-o", "json"], &["stats"]] {
        let output = Command::new(program())
            .args(arguments)
            .arg("-c")
            .arg(&config)
            .env_clear()
            .output()
            .unwrap();
        said.push(format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let log = wait_until("the log", async || {
        Some(fixture.log())
            .filter(|log| log.contains("DEBUG") && log.contains("did not take the dead letter"))
    })
    .await;
    said.push(log);
    for text in said {
        if let Some(at) = text.find(HUSH) {
            panic!(
                "{}",
                &text[text.floor_char_boundary(at.saturating_sub(400))
                    ..text.ceil_char_boundary((at + 60).min(text.len()))]
            );
        }
    }
}
