//! The counts of each event: the series that it changes, and no other.

use std::collections::BTreeMap;

use dwell_connectors::Destination;

use super::super::tests::metrics;
use super::*;
use crate::events::{Facts, Settled};
use crate::job::JobId;
use crate::store::due_set::DueSet;
use crate::telemetry::events::attempted;

/// The counters, and the counts of histograms, that are not zero.
fn counted(metrics: &Metrics) -> BTreeMap<String, u64> {
    metrics
        .encode()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| series.contains("_total") || series.contains("_count"))
        .filter_map(|(series, value)| Some((series.to_owned(), value.parse().ok()?)))
        .filter(|(_, value)| *value > 0)
        .collect()
}

/// The series that `event` changes in new metrics, without the prefix.
fn counts(event: &JobEvent<'_>) -> Vec<String> {
    let metrics = metrics();
    metrics.observe(event);
    counted(&metrics)
        .into_iter()
        .map(|(series, value)| format!("{} {value}", series.trim_start_matches("dwell_")))
        .collect()
}

#[test]
fn each_event_of_a_request_counts_once() {
    let (id, to) = (&JobId::random(), &Destination::new("replies"));
    let received = |verdict| {
        let (ingest, action) = ("in", Action::Add);
        JobEvent::Received { ingest, id, action, verdict }
    };
    let applied = |action, verdict| {
        let (set, to, due_ms) = (None, None, Some(1));
        JobEvent::Applied { id, set, to, action, verdict, due_ms }
    };
    let replied = JobEvent::Replied {
        ingest: "in",
        id,
        to,
        outcome: PublishOutcome::Unroutable,
        answer: &"no queue",
        is_told: false,
    };
    let (ingest, code, detail) = ("in", "bad_id", "an id must not be empty");
    let (left_out, position) = (None, ("", 0));
    let in_flight = r#"cancelled_total{verdict="in_flight"} 1"#;
    let table: [(JobEvent<'_>, &[&str]); 15] = [
        (received(Verdict::Added), &[r#"ingest_total{ingest="in",result="scheduled"} 1"#]),
        (received(Verdict::Replaced), &[r#"ingest_total{ingest="in",result="scheduled"} 1"#]),
        (received(Verdict::Duplicate), &[r#"ingest_total{ingest="in",result="duplicate"} 1"#]),
        (received(Verdict::Kept), &[r#"ingest_total{ingest="in",result="duplicate"} 1"#]),
        (received(Verdict::Conflict), &[]),
        (received(Verdict::NotFound), &[r#"ingest_total{ingest="in",result="action"} 1"#]),
        (JobEvent::BadRequest { ingest, code, detail }, &[]),
        (
            JobEvent::Rejected { ingest, code, left_out, position },
            &[r#"ingest_total{ingest="in",result="rejected"} 1"#],
        ),
        (
            JobEvent::Returned { ingest, count: 3 },
            &[r#"ingest_total{ingest="in",result="rejected"} 3"#],
        ),
        (applied(Action::Cancel, Verdict::InFlight), &[in_flight]),
        // Cancel never answers so.
        (applied(Action::Cancel, Verdict::Added), &[]),
        (applied(Action::Add, Verdict::Added), &[]),
        (replied, &[r#"replies_total{ingest="in",outcome="unroutable"} 1"#]),
        (
            JobEvent::RepliesAbandoned { ingest, count: 2 },
            &[r#"replies_total{ingest="in",outcome="unknown"} 2"#],
        ),
        // Without metrics of this name nothing is counted.
        (JobEvent::Returned { ingest: "nobody", count: 1 }, &[]),
    ];
    for (event, expected) in table {
        assert_eq!(counts(&event), expected, "{event:?}");
    }
}

#[test]
fn each_event_of_a_delivery_counts_once() {
    let (id, to) = (&JobId::random(), &Destination::new("orders.a"));
    let attempt = |outcome| attempted(id, to, outcome, false);
    let (broker, set, attempt_number, error) = ("main", DueSet::Broker("main"), 1, "no");
    let (outcome, reason) = (PublishOutcome::Failed, DeadReason::Late);
    let retried = JobEvent::Retried { broker, id, attempt: attempt_number, error, wait_ms: 1 };
    let dying = JobEvent::Dying { broker, id, attempt: attempt_number, error, reason };
    let unknown = r#"publish_total{broker="main",outcome="unknown"} 1"#;
    let made = |is_caught_up| JobEvent::OccurrenceMade {
        schedule: id,
        id,
        set,
        to: None,
        due_ms: 0,
        number: 1,
        is_caught_up,
    };
    let (times, late) = (&[1, 2][..], "late");
    let missed = JobEvent::OccurrencesMissed {
        schedule: id,
        set,
        count: 7,
        times,
        reason: late,
        to_log: None,
    };
    let table: [(JobEvent<'_>, &[&str]); 19] = [
        (made(false), &[r#"schedule_occurrences_total{result="made"} 1"#]),
        (made(true), &[r#"schedule_occurrences_total{result="caught_up"} 1"#]),
        (missed, &[r#"schedule_occurrences_total{result="missed"} 7"#]),
        (
            attempt(PublishOutcome::Confirmed),
            &[
                "confirm_seconds_count 1",
                "lateness_seconds_count 1",
                r#"publish_total{broker="main",outcome="confirmed"} 1"#,
            ],
        ),
        (
            attempt(PublishOutcome::Unroutable),
            &[r#"publish_total{broker="main",outcome="unroutable"} 1"#],
        ),
        (
            attempt(PublishOutcome::Refused),
            &[r#"publish_total{broker="main",outcome="refused"} 1"#],
        ),
        (attempt(PublishOutcome::Failed), &[r#"publish_total{broker="main",outcome="failed"} 1"#]),
        (
            attempt(PublishOutcome::Invalid),
            &[r#"publish_total{broker="main",outcome="invalid"} 1"#],
        ),
        (
            attempt(PublishOutcome::Unknown),
            &[r#"possible_duplicates_total{cause="unknown_outcome"} 1"#, unknown],
        ),
        (attempted(id, to, PublishOutcome::Unknown, true), &["leases_lost_total 1", unknown]),
        (JobEvent::DeadLetter { broker, id, outcome, error: Some(error) }, &[]),
        (retried, &[]),
        (dying, &[]),
        (
            JobEvent::Lost { broker, bucket: 0, count: 3, duplicates: 2 },
            &["leases_lost_total 3", r#"possible_duplicates_total{cause="lease_lost"} 2"#],
        ),
        (
            JobEvent::Abandoned { broker, count: 4 },
            &[r#"possible_duplicates_total{cause="unknown_outcome"} 4"#],
        ),
        (
            JobEvent::TakenOver { set, id, crashes: 0 },
            &[r#"possible_duplicates_total{cause="rescued"} 1"#],
        ),
        (JobEvent::Dropped { set, id }, &["late_dropped_total 1"]),
        (
            JobEvent::Settled {
                set: Some(set),
                id,
                end: Settled::Dropped,
                facts: Facts::default(),
            },
            &[],
        ),
        (JobEvent::Unreadable { id, bucket: 0, why: error }, &[]),
    ];
    for (event, expected) in table {
        assert_eq!(counts(&event), expected, "{event:?}");
    }
    for reason in DeadReason::ALL {
        let event = JobEvent::Dead { set: Some(set), id, reason, error, facts: Facts::default() };
        assert_eq!(counts(&event), [format!("dead_total{{reason=\"{}\"}} 1", reason.as_str())]);
    }
}

#[test]
fn each_event_of_a_queue_counts_under_its_rules() {
    let id = &JobId::random();
    // A pattern is the label of all queues that it fits.
    let queue = "orders.eu";
    let popped = |attempt| {
        let (due_ms, late) = (0, Duration::from_micros(700));
        JobEvent::Popped { queue, id, attempt, due_ms, late }
    };
    let acknowledged = |verdict| {
        let (error, is_applied) = ("", false);
        JobEvent::Acknowledged { queue, id, verdict, error, is_applied }
    };
    let handed_out = r#"popped_jobs_total{queue="orders.*"} 1"#;
    let failed = r#"lease_ends_total{queue="orders.*",end="failed"} 1"#;
    let table: [(JobEvent<'_>, &[&str]); 13] = [
        (JobEvent::PopAsked { queue }, &[r#"pop_total{queue="orders.*"} 1"#]),
        (JobEvent::PopAsked { queue: "emails" }, &[r#"pop_total{queue="emails"} 1"#]),
        (JobEvent::PopAsked { queue: "undeclared" }, &[]),
        (popped(1), &["pop_lateness_seconds_count 1", handed_out]),
        (popped(2), &[handed_out]),
        (
            acknowledged(LeaseVerdict::Finished),
            &[r#"lease_ends_total{queue="orders.*",end="finished"} 1"#],
        ),
        (acknowledged(LeaseVerdict::Failed), &[failed]),
        (acknowledged(LeaseVerdict::Dead), &[failed]),
        (
            acknowledged(LeaseVerdict::Released),
            &[r#"lease_ends_total{queue="orders.*",end="released"} 1"#],
        ),
        (acknowledged(LeaseVerdict::Touched), &[]),
        (acknowledged(LeaseVerdict::Stale), &[]),
        (
            JobEvent::TimedOut { queue: Some(queue), count: 5 },
            &[r#"lease_ends_total{queue="orders.*",end="timeout"} 5"#],
        ),
        (JobEvent::TimedOut { queue: None, count: 5 }, &[]),
    ];
    for (event, expected) in table {
        assert_eq!(counts(&event), expected, "{event:?}");
    }
}

#[test]
fn the_last_error_of_a_broker_names_its_target() {
    let (id, to) = (JobId::random(), Destination::new("orders.a"));
    let metrics = metrics();
    let last_error = || metrics.broker("main").unwrap().last_error().get();
    metrics.observe(&attempted(&id, &to, PublishOutcome::Confirmed, false));
    assert_eq!(last_error(), None);
    metrics.observe(&attempted(&id, &to, PublishOutcome::Failed, false));
    assert_eq!(last_error().unwrap().message, "orders.a: no");
}
