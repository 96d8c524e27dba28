//! A broker removed from the settings: its jobs are reported, and can be moved to another broker.

use std::collections::BTreeSet;

use dwell_testkit::servers::DwellServer;
use serde_json::Value;

use super::fixture::{Fixture, program};
use crate::support::{metric, wait_until};

const LEFT: &str = "dwell_stranded_jobs{broker=\"old\"}";

/// The same server under a second name.
fn with_old(fixture: &Fixture) -> String {
    let of_old = format!(
        "[brokers.old]\ntype = \"nats\"\nurl = \"{}\"\nallow = [\"orders.>\", \"letters.>\"]\n",
        fixture.nats.url()
    );
    format!("{}{of_old}", fixture.settings(true))
}

fn shown(fixture: &Fixture, id: &str) -> Value {
    fixture.run(&["-o", "json", "show", id]).object()
}

#[tokio::test]
async fn jobs_of_a_broker_that_left_the_settings_are_told_of_and_moved() {
    let fixture = Fixture::new().await;
    let mut both = DwellServer::start(program(), &with_old(&fixture)).await.unwrap();
    let old = fixture.file("old.toml", &with_old(&fixture));
    for (id, target) in [("a", "orders.a"), ("b", "orders.b"), ("letter", "letters.x")] {
        let line = [
            "-c",
            &old,
            "send",
            "--for",
            "1h",
            "--target",
            target,
            "--header",
            "delay-broker=old",
            "--id",
            id,
            "x",
        ];
        let said = super::fixture::run_with(&line, b"");
        assert_eq!(said.code, 0, "{said:?}");
    }
    wait_until("all are stored", async || {
        (fixture.run(&["-o", "json", "stats"]).object()["scheduled"] == 3).then_some(())
    })
    .await;
    assert!(
        both.metrics().await.unwrap().contains("dwell_stranded_jobs{broker=\"old\"} 0\n"),
        "it is in the settings"
    );
    both.stop().await.unwrap();
    let due = shown(&fixture, "a")["due_ms"].clone();

    let dwell = DwellServer::start(program(), &fixture.settings(true)).await.unwrap();
    let scrape = wait_until("they are counted", async || {
        Some(dwell.metrics().await.unwrap()).filter(|scrape| scrape.contains(LEFT))
    })
    .await;
    assert_eq!(
        (metric(&scrape, LEFT), metric(&scrape, "dwell_stranded_jobs{broker=\"main\"}")),
        (3.0, 0.0)
    );
    let log = std::fs::read_to_string(dwell.dir().join("log")).unwrap();
    assert!(log.contains("jobs wait for a broker that no instance delivers to"), "{log}");
    let checked = fixture.run(&["-o", "json", "check"]);
    let line = checked
        .lines()
        .into_iter()
        .find(|line| line["check"] == "redis.stranded")
        .expect("check tells");
    assert!(
        checked.code == 0
            && line["ok"] == true
            && line["detail"].as_str().unwrap().contains("3 jobs wait for the broker `old`"),
        "{line}"
    );

    for wrong in [
        &["--broker", "old", "--to", "nowhere"][..],
        &["--broker", "old", "--to", "old"],
        &["--broker", "old"],
        &["a", "--broker", "old", "--to", "main"],
        &[],
    ] {
        assert_eq!(fixture.run(&[&["requeue"], wrong].concat()).code, 64, "{wrong:?}");
    }
    assert_eq!(fixture.run(&["requeue", "--broker", "never", "--to", "main"]).code, 2);
    let said = fixture.run(&["-o", "json", "requeue", "--broker", "old", "--to", "main"]);
    assert_eq!(said.code, 2, "one stays: {said:?}");
    let lines = said.lines();
    assert_eq!(
        (lines.len(), &lines[0]["id"], &lines[0]["verdict"]),
        (2, &"letter".into(), &"target_not_allowed".into()),
        "{lines:?}"
    );
    assert_eq!(
        (&lines[1]["scheduled"], &lines[1]["refused"], &lines[1]["reserved"]),
        (&2.into(), &1.into(), &0.into()),
        "{lines:?}"
    );
    assert_eq!(
        (&shown(&fixture, "a")["broker"], &shown(&fixture, "a")["due_ms"]),
        (&"main".into(), &due)
    );
    assert_eq!(shown(&fixture, "letter")["broker"], "old");
    assert_eq!(fixture.run(&["fsck"]).code, 0);

    assert_eq!(fixture.run(&["fire", "a"]).code, 0);
    wait_until("it is delivered", async || (fixture.messages("ORDERS") == 1).then_some(())).await;
    assert_eq!(fixture.run(&["-o", "json", "cancel", "b"]).object()["verdict"], "cancelled");
    assert_eq!(fixture.run(&["cancel", "letter"]).code, 0);
    wait_until("none is left", async || {
        (metric(&dwell.metrics().await.unwrap(), LEFT) == 0.0).then_some(())
    })
    .await;
    let checks: BTreeSet<String> = fixture
        .run(&["-o", "json", "check"])
        .lines()
        .iter()
        .map(|line| line["check"].to_string())
        .collect();
    assert!(!checks.contains("\"redis.stranded\""), "{checks:?}");
}
