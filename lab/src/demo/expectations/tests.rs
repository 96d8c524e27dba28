//! Every planted fault is found and named.

use dwell_connectors::{Destination, Message};

use super::super::plan::{self, Fate, Planned};
use super::messages::Place;
use super::*;
use dwell::job::DeadReason;
use dwell::request::Code;

const SENT: i64 = 1_000_000;
const DUE: i64 = SENT + 500;

fn planned(id: &str, fate: Fate) -> Planned {
    Planned {
        id: id.to_owned(),
        target: plan::ORDERS,
        delay: "500ms".to_owned(),
        delay_ms: 500,
        retry: None,
        fate,
    }
}

fn arrival(id: &str, attempt: u32) -> Message {
    let mut message = Message::new(planned(id, Fate::Arrives(1)).body())
        .with_header("delayed-id", id)
        .with_header("delayed-attempt", attempt.to_string())
        .with_header("delayed-due", DUE.to_string());
    message.destination = Destination::new(plan::ORDERS);
    message
}

fn dead(id: &str, reason: &str) -> Message {
    arrival(id, 2)
        .with_header("delayed-dead-reason", reason)
        .with_header("delayed-last-error", "no stream")
}

/// One job of each fate, as expected.
fn good() -> Expectations {
    let plan = vec![
        planned("a", Fate::Arrives(1)),
        planned("b", Fate::Arrives(3)),
        planned("c", Fate::Dies(DeadReason::RetriesExhausted)),
        planned("d", Fate::Cancelled),
        planned("e", Fate::Rejected(Code::BadDelay)),
    ];
    let mut expectations = Expectations::new(plan, SENT);
    let late = DUE * 1000 + 1500;
    assert_eq!(
        expectations.saw(Place::Target, &arrival("a", 1), late),
        "arrived   a          asked 0.50 s, 1.5 ms late"
    );
    expectations.failed("b", 1, "no stream", 1000).unwrap();
    assert_eq!(expectations.failed("b", 1, "no stream", 900), None, "no news");
    expectations.saw(Place::Target, &arrival("b", 3), late + 2_000_000);
    expectations.saw(Place::Dead, &dead("c", "retries_exhausted"), late);
    expectations.saw(Place::Verdicts, &Message::new(r#"{"id":"d","verdict":"cancelled"}"#), late);
    let refused =
        Message::new("").with_header("delay-id", "e").with_header("delayed-error", "bad_delay");
    expectations.saw(Place::Rejected, &refused, late);
    expectations
}

fn wrong(expectations: &Expectations) -> String {
    expectations.summary().wrong.join("; ")
}

#[test]
fn a_demo_without_faults_is_right() {
    let expectations = good();
    let summary = expectations.summary();
    assert_eq!(summary.wrong, Vec::<String>::new());
    assert_eq!((summary.sent, summary.arrived, summary.retried, summary.dead), (5, 2, 1, 1));
    assert_eq!(
        (summary.cancelled, summary.rejected, summary.lost, summary.early, summary.duplicates),
        (1, 1, 0, 0, 0)
    );
    assert_eq!((expectations.fulfilled(), expectations.len()), (5, 5));
    assert_eq!(summary.lateness.count, 1, "the lateness is that of first attempts");
}

#[test]
fn a_lost_job_is_named() {
    let expectations = Expectations::new(vec![planned("a", Fate::Arrives(1))], SENT);
    assert_eq!((expectations.summary().lost, wrong(&expectations).as_str()), (1, "a is lost"));
}

#[test]
fn early_is_before_the_asked_delay_also_where_the_message_says_otherwise() {
    for (due, at_us) in
        [(DUE, DUE * 1000 - 1), (DUE - 10, DUE * 1000 - 1), (DUE + 10, DUE * 1000 + 1)]
    {
        let mut expectations = Expectations::new(vec![planned("a", Fate::Arrives(1))], SENT);
        let mut message = arrival("a", 1);
        message.headers.retain(|header| header.name != "delayed-due");
        expectations.saw(
            Place::Target,
            &message.with_header("delayed-due", due.to_string()),
            at_us,
        );
        assert_eq!(
            (expectations.summary().early, wrong(&expectations).as_str()),
            (1, "a arrived before it was due")
        );
    }
}

#[test]
fn every_other_fault_is_named() {
    let late = DUE * 1000 + 1;
    let mut expectations = good();
    expectations.saw(Place::Target, &arrival("a", 2), late);
    assert_eq!(
        (expectations.summary().duplicates, wrong(&expectations).as_str()),
        (1, "a arrived 2 times, not 1")
    );
    let mut expectations = good();
    expectations.saw(Place::Target, &arrival("d", 1), late);
    assert_eq!(wrong(&expectations), "d arrived 1 times, not 0");
    let mut expectations = good();
    expectations.saw(Place::Target, &arrival("x", 1), late);
    assert_eq!(wrong(&expectations), "a message with the unknown id x arrived");
    let mut expectations = good();
    expectations.saw(Place::Dead, &dead("a", "invalid"), late);
    assert_eq!(wrong(&expectations), "a: invalid, not nothing");
    let mut expectations = Expectations::new(
        vec![planned("a", Fate::Arrives(2)), planned("b", Fate::Cancelled)],
        SENT,
    );
    let mut bent = arrival("a", 1);
    bent.body = "another".into();
    bent.destination = Destination::new("elsewhere");
    expectations.saw(Place::Target, &bent, late);
    expectations.saw(Place::Verdicts, &Message::new(r#"{"id":"b","verdict":"fired"}"#), late);
    let wrong = wrong(&expectations);
    for expected in [
        "a arrived with attempt 1, not 2",
        "b: fired, not cancelled",
        "another body",
        "at elsewhere",
    ] {
        assert!(wrong.contains(expected), "{expected}: {wrong}");
    }
}
