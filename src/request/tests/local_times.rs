//! Times without an offset, on the clock of a time zone.

use super::*;
use crate::job::{Action, Due};
use crate::request::{due_stated, moment_ms};

const BERLIN: (&str, &str) = ("delay-time-zone", "Europe/Berlin");

#[test]
fn a_local_time_is_due_on_the_clock_of_its_zone() {
    let rules = rules(Kind::Nats);
    for (time, due_ms) in [
        ("2026-01-31T13:01:00", NOW + 60_000),
        ("2026-01-31 13:01:00.0001", NOW + 60_001),
        // The gap of 2026-03-29 ends at 01:00 UTC, the overlap of 2026-10-25 begins at 00:00 UTC.
        ("2026-03-29T02:30:00", 1_774_746_000_000),
        ("2026-10-25T02:30:00", 1_792_888_200_000),
        ("1960-01-01T00:00:00", 0),
    ] {
        // The zone may come before the time and after it.
        for headers in [[("delay-until", time), BERLIN], [BERLIN, ("delay-until", time)]] {
            let new_job = scheduled(&message(&headers), &rules);
            assert_eq!(new_job.due, Due::At(due_ms), "{headers:?}");
            assert!(new_job.job.headers.is_empty());
        }
        let act =
            [("delay-action", "reschedule"), ("delay-id", "a"), BERLIN, ("delay-until", time)];
        let act = acted(&bare(&act), &rules);
        assert_eq!((act.action, act.due), (Action::Reschedule, Some(Due::At(due_ms))));
    }
}

#[test]
fn a_time_zone_is_for_a_time_without_an_offset() {
    let local = "2026-02-01T12:00:00";
    let cases: &[(&[(&str, &str)], Code)] = &[
        (&[("delay-until", local)], Code::BadDelay),
        (&[("delay-until", local), ("delay-time-zone", "Mars/Olympus")], Code::BadDelay),
        (&[("delay-until", local), ("delay-time-zone", "+01:00")], Code::BadDelay),
        (&[("delay-until", local), ("delay-time-zone", "")], Code::BadDelay),
        (&[("delay-until", "2026-02-30T12:00:00"), BERLIN], Code::BadDelay),
        (&[("delay-until", "2026-02-01T12:00"), BERLIN], Code::BadDelay),
        (&[("delay-until", "2026-02-01T12:00:00Z"), BERLIN], Code::BadHeader),
        (&[("delay-until", "1769860860000"), BERLIN], Code::BadHeader),
        (&[("delay-for", "1s"), BERLIN], Code::BadHeader),
        (&[("x-delay", "1000"), BERLIN], Code::BadHeader),
        (&[("scheduler-epoch", "1769860860"), BERLIN], Code::BadHeader),
        (&[BERLIN], Code::BadHeader),
        (&[("delay-for", "1s"), ("delay-until", local), BERLIN], Code::AmbiguousDelay),
        (&[("delay-until", "2027-02-02T00:00:01"), BERLIN], Code::DelayTooLong),
    ];
    for (headers, code) in cases {
        assert_eq!(refused(&message(headers), &rules(Kind::Nats)), *code, "{headers:?}");
        let act = [&[("delay-action", "reschedule"), ("delay-id", "a")], *headers].concat();
        if !headers.iter().any(|(name, _)| ["x-delay", "scheduler-epoch"].contains(name)) {
            assert_eq!(refused(&bare(&act), &rules(Kind::Nats)), *code, "{act:?}");
        }
    }
}

#[test]
fn callers_state_times_as_messages_do() {
    let stated = |delay_for, until, zone| due_stated(delay_for, until, zone, DAY, NOW);
    let local = Some("2026-01-31T13:01:00");
    assert_eq!(stated(None, local, Some("Europe/Berlin")), Ok(Some(Due::At(NOW + 60_000))));
    assert_eq!(stated(Some(DAY), None, None), Ok(Some(Due::In(DAY))));
    assert_eq!(stated(None, None, None), Ok(None));
    let code = |delay_for, until, zone| stated(delay_for, until, zone).unwrap_err().code;
    assert_eq!(code(None, local, None), Code::BadDelay);
    assert_eq!(code(None, local, Some("Berlin")), Code::BadDelay);
    assert_eq!(code(None, Some("soon"), None), Code::BadDelay);
    assert_eq!(code(None, Some("2026-01-31T13:01:00Z"), Some("UTC")), Code::BadHeader);
    assert_eq!(code(Some(1), None, Some("UTC")), Code::BadHeader);
    assert_eq!(code(Some(1), local, None), Code::AmbiguousDelay);
    assert_eq!(code(None, Some("2026-02-01T13:00:01"), Some("Europe/Berlin")), Code::DelayTooLong);
}

#[test]
fn a_moment_may_have_a_zone_and_an_offset() {
    for zone in [None, Some("Europe/Berlin")] {
        assert_eq!(moment_ms("from", "2026-01-31T12:00:00Z", zone), Ok(NOW));
    }
    assert_eq!(moment_ms("from", "2026-01-31T13:00:00", Some("Europe/Berlin")), Ok(NOW));
    for zone in [None, Some("Berlin")] {
        let refused = moment_ms("from", "2026-01-31T13:00:00", zone).unwrap_err();
        assert_eq!(refused.code, Code::BadDelay);
        assert!(refused.detail.starts_with("from: "), "{refused}");
    }
}

#[test]
fn a_due_header_has_the_forms_of_a_time() {
    let mut rules = rules(Kind::Amqp);
    rules.ingest.due_header = Some("eta".to_owned()).into();
    let local = bare(&[("delay-target", "orders"), ("eta", "2026-01-31T13:01:00")]);
    assert_eq!(refused(&local, &rules), Code::BadDelay, "no offset");
    let zoned = with(local.clone(), BERLIN.0, BERLIN.1.into());
    assert_eq!(scheduled(&zoned, &rules).due, Due::At(NOW + 60_000));
    let back = with(local, "delayed-attempt", "1".into());
    assert_eq!(refused(&back, &rules), Code::Loop, "its zone did not come back");
}
