//! `dwell check` beside an instance with other limits.

use dwell_testkit::servers::DwellServer;

use super::check_servers::{check, line, says};
use super::fixture::{Fixture, program, run_with};
use crate::support::wait_until;

/// The settings with these numbers of places: of a target, and of each queue of a pattern.
fn settings(fixture: &Fixture, of_target: u32, of_queue: u32) -> String {
    format!(
        "{}[brokers.main.limits.\"orders.slow\"]\nin_flight = {of_target}\n\
         [queues.\"mails.*\"]\nin_flight = {of_queue}\n",
        fixture.settings(true)
    )
}

#[tokio::test]
async fn other_numbers_of_places_than_those_of_another_instance_are_a_warning() {
    let fixture = Fixture::new().await;
    let own = settings(&fixture, 3, 10);
    let _other = DwellServer::start(program(), &own).await.unwrap();
    // An instance tells its number of queues as it starts, and that of a target with an attempt.
    wait_until("the namespace keeps the number of the queues", async || {
        let kept = fixture.redis.order(&["HGET", "dwell:meta", "in_flight:mails.*"]).await.unwrap();
        (kept == ["10"]).then_some(())
    })
    .await;
    let config = fixture.file("own.toml", &own);
    let send = ["send", "--target", "orders.slow", "--for", "0", "x"];
    let sent = run_with(&[&["-c", config.as_str()], &send[..]].concat(), b"");
    assert_eq!((sent.code, sent.err.as_str()), (0, ""), "{}", sent.out);
    wait_until("it is delivered", async || (fixture.messages("ORDERS") == 1).then_some(())).await;

    let said = run_with(&["-c", &config, "check"], b"");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("\nok    limits  1 of targets, 1 of queues\n"), "{}", said.out);
    let lower = settings(&fixture, 3, 4);
    for (other, names) in [
        (settings(&fixture, 5, 10), "main orders.slow"),
        (lower.clone(), "queues.\"mails.*\""),
        (lower.replace("in_flight = 4\n", ""), "queues.\"mails.*\""),
        (settings(&fixture, 5, 4), "main orders.slow, queues.\"mails.*\""),
    ] {
        let lines = check(&fixture, &other, &[], 0);
        let limits = line(&lines, "limits");
        says(limits, true, "", "make the limits of all instances the same");
        let told = format!("another instance has other limits, or had them before: {names}");
        assert_eq!(limits["detail"], told, "{other}");
    }
}
