//! The recurring schedules of the settings: `check` tells what a start does with them, a start does
//! it, and mistakes end it.

use std::time::Duration;

use dwell_testkit::servers::DwellServer;
use serde_json::Value;

use super::fixture::{Fixture, program, run_with};
use crate::support::{metric, wait_until, wait_within};

/// A schedule that left the settings is ended within a minute; here the machine may be busy.
const ENDED: Duration = Duration::from_secs(90);

const QUEUE: &str = "[queues.q]\n";
const NIGHTLY: &str = "[schedules.nightly]\nschedule = \"0 3 29 2 *\"\ntime_zone = \"Europe/Berlin\"\nqueue = \"q\"\nbody = \"tonight\"\n";
const REPORTS: &str = "[schedules.\"all reports\"]\nschedule = \"@every 1h\"\ntarget = \"orders.report\"\npaused = true\n";
const NEW: &str = "[schedules.new]\nschedule = \"@yearly\"\nqueue = \"q\"\n";

/// The details of this check with the fixture's settings and these.
fn told(fixture: &Fixture, check: &str, more: &str) -> Vec<String> {
    let path = fixture.file("checked.toml", &format!("{}{more}", fixture.settings(true)));
    let said = run_with(&["check", "-o", "json", "-c", &path], b"");
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    let lines = said.lines().into_iter().filter(|line| line["check"] == check);
    lines.map(|line| line["detail"].as_str().unwrap().to_owned()).collect()
}

async fn start(fixture: &Fixture, more: &str) -> DwellServer {
    let settings = format!("{}{more}", fixture.settings(true));
    DwellServer::start(program(), &settings).await.unwrap()
}

#[tokio::test]
async fn check_tells_what_a_start_does_and_a_start_does_it() {
    let fixture = Fixture::new().await;
    let before = format!("{QUEUE}{NIGHTLY}{REPORTS}");
    let plan = |more: &str| told(&fixture, "schedules", more);
    assert_eq!(plan(""), [""; 0], "there is nothing to tell of settings without schedules");
    assert_eq!(plan(&before), ["a start adds 2: `all reports` `nightly`"]);
    let zones = told(&fixture, "time_zones", "");
    assert!(zones.len() == 1 && zones[0].contains("of version 20"), "{zones:?}");

    let mut first = start(&fixture, &before).await;
    wait_until("they are stored", async || {
        (plan(&before) == ["a start finds 2 as stored"]).then_some(())
    })
    .await;
    let scrape = wait_until("they are counted", async || {
        let scrape = first.metrics().await.unwrap();
        (metric(&scrape, "dwell_schedules{state=\"active\"}") > 0.0).then_some(scrape)
    })
    .await;
    assert_eq!(metric(&scrape, "dwell_schedules{state=\"active\"}"), 1.0);
    assert_eq!(metric(&scrape, "dwell_schedules{state=\"paused\"}"), 1.0);

    let after = format!("{QUEUE}{}{NEW}", NIGHTLY.replace("tonight", "today"));
    assert_eq!(
        plan(&after),
        [
            "a start adds 1: `new`, changes 1: `nightly`, leaves to the living instances that have them 1: `all reports`"
        ]
    );
    let lost = told(&fixture, "redis.stranded", "");
    assert!(
        lost.len() == 1 && lost[0].contains("1 recurring schedules wait for the queue `q`"),
        "{lost:?}"
    );
    assert_eq!(told(&fixture, "redis.stranded", QUEUE), [""; 0], "main has the other");

    let mut second = start(&fixture, &after).await;
    wait_until("its own are stored", async || {
        plan(&after)[0].contains("finds 2 as stored").then_some(())
    })
    .await;
    assert!(first.stop().await.unwrap().unwrap().success());
    wait_within(ENDED, "the one that no settings have any more is ended", async || {
        (plan(&after) == ["a start finds 2 as stored"]).then_some(())
    })
    .await;
    let log = std::fs::read_to_string(second.dir().join("log")).unwrap();
    assert!(log.contains("no settings have this schedule any more"), "{log}");
    assert!(second.stop().await.unwrap().unwrap().success());
}

#[tokio::test]
async fn all_mistakes_of_schedules_end_a_start() {
    let fixture = Fixture::new().await;
    let wrong = "[schedules.a]\nschedule = \"0 25 * * *\"\ntime_zone = \"Mars\"\ntarget = \"bills.a\"\n\
                 [schedules.b]\nschedule = \"@daily\"\nqueue = \"none\"\ncatch = \"all\"\n";
    let path = fixture.file("wrong.toml", &format!("{}{wrong}", fixture.settings(true)));
    let check = run_with(&["check", "--offline", "-o", "json", "-c", &path], b"");
    assert_eq!(check.code, 78, "{check:?}");
    let mut keys: Vec<String> =
        check.lines().iter().map(|line| line["check"].as_str().unwrap().to_owned()).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "schedules.a.schedule",
            "schedules.a.target",
            "schedules.a.time_zone",
            "schedules.b.catch",
            "schedules.b.queue",
        ]
    );
    for line in check.lines() {
        let detail = line["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("{path}:")) && line["hint"] != "", "{line}");
    }
    let ran = run_with(&["run", "-c", &path], b"");
    let mut logged: Vec<String> = ran
        .err
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["setting"].to_string())
        .map(|setting| setting.trim_matches('"').to_owned())
        .collect();
    logged.sort_unstable();
    assert_eq!((ran.code, logged), (78, keys));
}
