//! `delay-spread`: due times that an id moves.

use dwell_schedule::spread_ms;

use super::*;
use crate::job::Due;

fn spread(spread: &str, more: &[(&str, &str)]) -> Message {
    message(&[&[("delay-spread", spread)], more].concat())
}

/// Names and values.
type Headers<'a> = &'a [(&'a str, &'a str)];

#[test]
fn the_stated_time_is_moved_by_the_id() {
    let mut rules = rules(Kind::Nats);
    let by_ms = spread_ms("order-1", 300_000);
    assert!((1..300_000).contains(&by_ms), "a golden value of the schedule package");
    let by = i64::try_from(by_ms).unwrap();
    let due = |more: &[(&str, &str)], rules: &RequestRules| {
        scheduled(&spread("5m", &[more, &[("delay-id", "order-1")]].concat()), rules).due
    };
    assert_eq!(due(&[("delay-for", "1h")], &rules), Due::At(NOW - 500 + 3_600_000 + by));
    assert_eq!(due(&[("delay-until", "1769860860000")], &rules), Due::At(NOW + 60_000 + by));
    let local = [("delay-until", "2026-01-31T13:01:00"), ("delay-time-zone", "Europe/Berlin")];
    assert_eq!(due(&local, &rules), Due::At(NOW + 60_000 + by));
    assert_eq!(due(&[("x-delay", "1000")], &rules), Due::At(NOW + 500 + by));
    rules.ingest.delay_from = DelayFrom::Receipt;
    assert_eq!(due(&[("delay-for", "1h")], &rules), Due::In(3_600_000 + by_ms));
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(due(&[], &rules), Due::In(by_ms));
    rules.ingest.delay_from = DelayFrom::Message;
    let ahead = Message {
        timestamp_ms: Some(NOW + 700),
        ..spread("5m", &[("delay-for", "1s"), ("delay-id", "order-1")])
    };
    let expected = Due::Earlier { at_ms: NOW + 1_700 + by, in_ms: 1_000 + by_ms };
    assert_eq!(scheduled(&ahead, &rules).due, expected);
    let none = message(&[("delay-for", "1s"), ("delay-spread", "0"), ("delay-id", "order-1")]);
    assert_eq!(scheduled(&none, &rules).due, Due::At(NOW + 500));
}

#[test]
fn a_generated_id_moves_its_job_too() {
    let new_job = scheduled(&spread("5m", &[("delay-for", "1h")]), &rules(Kind::Nats));
    let by = i64::try_from(spread_ms(new_job.id.as_str(), 300_000)).unwrap();
    assert!(new_job.generated);
    assert_eq!(new_job.due, Due::At(NOW - 500 + 3_600_000 + by));
}

#[test]
fn the_whole_spread_is_within_the_longest_delay() {
    let rules = rules(Kind::Nats);
    let cases: &[(Headers<'_>, &str, bool)] = &[
        (&[("delay-for", "365d")], "1d", true),
        (&[("delay-for", "365d1ms")], "1d", false),
        (&[("delay-until", "2027-02-01T11:55:00Z")], "5m", true),
        (&[("delay-until", "2027-02-01T11:55:00.001Z")], "5m", false),
        (&[("delay-for", "0")], "366d", true),
        (&[("delay-for", "0")], "366d1ms", false),
        (&[("delay-for", "1s")], "9223372036854775807", false),
    ];
    for (time, within, is_taken) in cases {
        for id in ["order-1", "order-2", "order-3"] {
            let message = spread(within, &[*time, &[("delay-id", id)]].concat());
            if *is_taken {
                scheduled(&message, &rules);
            } else {
                assert_eq!(refused(&message, &rules), Code::DelayTooLong, "{time:?} {within} {id}");
            }
        }
    }
    assert_eq!(refused(&spread("wide", &[("delay-for", "1s")]), &rules), Code::BadHeader);
}
