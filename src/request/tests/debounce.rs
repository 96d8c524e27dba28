//! `delay-on-conflict: debounce` with `delay-max-wait`.

use super::*;
use crate::job::{Conflict, Due};

const BOTH: [(&str, &str); 2] = [("delay-on-conflict", "debounce"), ("delay-max-wait", "10m")];

fn debounce(more: &[(&str, &str)]) -> Message {
    message(&[&BOTH[..], &[("delay-id", "order-1")], more].concat())
}

#[test]
fn a_burst_counts_from_receipt() {
    let mut rules = rules(Kind::Nats);
    let new_job = scheduled(&debounce(&[("delay-for", "10m")]), &rules);
    assert_eq!(new_job.conflict, Conflict::Debounce { max_wait_ms: 600_000 });
    assert_eq!(new_job.due, Due::In(600_000), "the message has a time of its own");
    let until = scheduled(&debounce(&[("delay-until", "1769860860000")]), &rules);
    assert_eq!(until.due, Due::At(NOW + 60_000));
    let later = scheduled(&debounce(&[("delay-until", "2026-02-28T12:00:00Z")]), &rules);
    assert_eq!(later.conflict, new_job.conflict, "the store bounds a time");
    let Due::In(spread_ms) =
        scheduled(&debounce(&[("delay-for", "10m"), ("delay-spread", "5m")]), &rules).due
    else {
        panic!("a spread delay is a delay")
    };
    assert!((600_000..900_000).contains(&spread_ms));
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(scheduled(&debounce(&[]), &rules).due, Due::In(0));
}

#[test]
fn what_cannot_work_is_refused() {
    let rules = rules(Kind::Nats);
    let id = ("delay-id", "order-1");
    let cases: &[(&[(&str, &str)], Code)] = &[
        (&[id, ("delay-for", "1s"), BOTH[0]], Code::BadHeader),
        (&[id, ("delay-for", "1s"), BOTH[1]], Code::BadHeader),
        (&[id, ("delay-for", "1s"), BOTH[1], ("delay-on-conflict", "replace")], Code::BadHeader),
        (&[("delay-for", "1s"), BOTH[0], BOTH[1]], Code::BadId),
        (&[id, ("delay-for", "600001"), BOTH[0], BOTH[1]], Code::BadHeader),
        (&[id, ("delay-for", "1s"), BOTH[0], ("delay-max-wait", "soon")], Code::BadHeader),
        (&[id, ("delay-for", "1s"), BOTH[0], ("delay-max-wait", "-1s")], Code::BadHeader),
        (&[id, ("delay-schedule", "@daily"), BOTH[0]], Code::BadHeader),
        (&[id, ("delay-schedule", "@daily"), BOTH[0], BOTH[1]], Code::BadHeader),
        (&[id, ("delay-action", "cancel"), BOTH[1]], Code::BadHeader),
        (&[id, ("delay-action", "reschedule"), ("delay-for", "1s"), BOTH[1]], Code::BadHeader),
    ];
    for (headers, code) in cases {
        assert_eq!(refused(&message(headers), &rules), *code, "{headers:?}");
    }
}
