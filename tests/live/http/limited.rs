//! The jobs that wait at a limited queue, as the admin API and `dwell stats` tell them.

use serde_json::json;

use super::queues::{add, counts, pop};
use super::sidecar::Sidecar;
use crate::commands::fixture::{Fixture, run_with};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_and_the_command_tell_the_ready_jobs_of_a_limited_queue() {
    let fixture = Fixture::new().await;
    let url = fixture.redis.url();
    for (namespace, limit) in [("rate", "rate = \"1/h\""), ("places", "in_flight = 1")] {
        let settings = format!(
            "[redis]\nurls = [\"{url}\"]\nnamespace = \"{namespace}\"\n[queues.emails]\n{limit}\n"
        );
        let sidecar = Sidecar::run(&settings, "", &[]).await;
        for id in ["first", "second", "third"] {
            add(&sidecar, &format!("{namespace}-{id}"), "emails", "0s");
        }
        assert_eq!(pop(&sidecar, "emails", json!({"max": 10})).len(), 1, "{limit}");
        assert_eq!(counts(&sidecar), [0, 2, 1, 0], "{limit}");

        let config = sidecar.config();
        let stats = |more: &[&str]| {
            run_with(&[&["-c", config.to_str().unwrap(), "stats"], more].concat(), b"")
        };
        wait_until("the API and the command tell two jobs", async || {
            // A pop in vain says for some seconds that jobs wait.
            assert!(pop(&sidecar, "emails", json!({})).is_empty(), "{limit}");
            let told = sidecar.get("/v1/stats").json()["limited"].clone();
            let since_ms = told[0]["since_ms"].as_i64()?;
            let wanted = json!([{"broker": null, "queue": "emails", "pattern": "emails", "waiting": 2, "since_ms": since_ms}]);
            let horizon = sidecar.get("/v1/horizon").json()["limited"].clone();
            let command = stats(&["-o", "json"]).object()["limited"].clone();
            let text = stats(&[]).out;
            let row: Vec<&str> = text.lines().last()?.split_whitespace().take(3).collect();
            ([told, horizon, command].iter().all(|one| *one == wanted)
                && row == ["emails", "emails", "2"])
            .then_some(())
        })
        .await;
    }
}
