//! `dwell ready`: the command of a container's health check; and the end of the log of a run.

use dwell_testkit::servers::DwellServer;

use super::fixture::{Fixture, program, run_with};
use crate::support::wait_until;

#[tokio::test]
async fn an_instance_says_by_an_exit_code_whether_it_is_ready() {
    let mut fixture = Fixture::new().await;
    let mut dwell = DwellServer::prepare(program(), &fixture.settings(true)).unwrap();
    let config = dwell.dir().join("dwell.toml").display().to_string();
    let ready = || run_with(&["ready", "-c", &config], b"");
    let nobody = ready();
    assert!(
        nobody.code == 1 && nobody.err.contains("no instance answers at probes.listen"),
        "{nobody:?}"
    );

    fixture.redis.kill().unwrap();
    let redis = &mut fixture.redis;
    let course = async {
        let waits = wait_until("it says what it waits for", async || {
            Some(ready()).filter(|said| said.out.contains("redis://"))
        });
        let waits = waits.await;
        assert!(
            waits.code == 1
                && waits.out.starts_with("not ready\n")
                && waits.out.contains("\n  ingest.main: "),
            "{waits:?}"
        );
        redis.restart().await.unwrap();
    };
    let (started, ()) = tokio::join!(dwell.restart(), course);
    started.unwrap();
    let said = ready();
    assert_eq!((said.code, said.out.as_str()), (0, "ready\n"), "{}", said.err);
    let json = run_with(&["ready", "-c", &config, "-o", "json"], b"").object();
    assert_eq!(json["ready"], true, "{json}");

    assert!(dwell.stop().await.unwrap().unwrap().success());
    let log = std::fs::read_to_string(dwell.dir().join("log")).unwrap();
    let messages: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["message"].to_string())
        .collect();
    assert_eq!(
        messages[messages.len() - 2..],
        [r#""drained: nothing is left in flight""#, r#""ended""#],
        "{log}"
    );
    assert_eq!(ready().code, 1);
}

#[test]
fn wrong_settings_are_told_once_by_exit_code_1() {
    let said = run_with(&["ready", "--set", "redis.buckets=7"], b"");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.starts_with("error: ") && said.err.contains(" in the settings\n"), "{said:?}");
    assert!(!said.err.contains("error: error: "), "{said:?}");
}
