//! Actions on existing jobs.

use dwell_connectors::{Destination, Message, Value};

use super::*;
use crate::job::{Action, Due};

fn action(word: &str, more: &[(&str, &str)]) -> Message {
    let headers = [("delay-action", word), ("delay-id", "order-1")];
    bare(&[headers.as_slice(), more].concat())
}

#[test]
fn every_action_is_read_and_its_body_ignored() {
    let words = [
        ("cancel", Action::Cancel),
        ("fire", Action::Fire),
        ("finish", Action::Finish),
        ("fail", Action::Fail),
    ];
    for (word, expected) in words {
        let message = Message {
            body: vec![0xff; 5_000].into(),
            ..action(word, &[("delay-reply-to", "replies.a")])
        };
        let act = acted(&message, &rules(Kind::Nats));
        assert_eq!((act.action, act.id.as_str(), act.due), (expected, "order-1", None));
        assert_eq!(act.reply_to, Some(Destination::new("replies.a")));
        assert!(act.origin.maybe_redelivered);
    }
}

#[test]
fn all_but_schedule_need_an_id() {
    for word in ["cancel", "reschedule", "fire", "finish", "fail"] {
        assert_eq!(
            refused(&bare(&[("delay-action", word), ("delay-for", "1s")]), &rules(Kind::Nats)),
            Code::BadAction,
            "{word}"
        );
        assert_eq!(
            refused(
                &bare(&[("delay-action", word), ("delay-for", "1s"), ("delay-id", "")]),
                &rules(Kind::Nats)
            ),
            Code::BadId,
            "{word}"
        );
    }
}

#[test]
fn reschedule_needs_one_delay_within_the_limits() {
    let mut rules = rules(Kind::Nats);
    assert_eq!(
        acted(&action("reschedule", &[("delay-for", "1s")]), &rules).due,
        Some(Due::At(NOW + 500))
    );
    assert_eq!(
        acted(&action("reschedule", &[("delay-until", "1769860860000")]), &rules).due,
        Some(Due::At(NOW + 60_000))
    );
    rules.ingest.missing_delay = MissingDelay::Immediate;
    assert_eq!(refused(&action("reschedule", &[]), &rules), Code::MissingDelay);
    assert_eq!(
        refused(
            &action("reschedule", &[("delay-for", "1s"), ("delay-until", "1769860860000")]),
            &rules
        ),
        Code::AmbiguousDelay
    );
    assert_eq!(
        refused(&action("reschedule", &[("delay-for", "400d")]), &rules),
        Code::DelayTooLong
    );
}

#[test]
fn finish_and_fail_carry_back_what_the_consumer_saw() {
    for word in ["finish", "fail"] {
        let act = acted(
            &action(word, &[("Delayed-Due", "1769860800000"), ("delayed-attempt", "2")]),
            &rules(Kind::Nats),
        );
        assert_eq!((act.seen_due, act.seen_attempt), (Some(NOW), Some(2)));
        let act = acted(&action(word, &[]), &rules(Kind::Nats));
        assert_eq!((act.seen_due, act.seen_attempt), (None, None));
        let typed = with(
            with(action(word, &[]), "delayed-due", Value::I64(NOW)),
            "delayed-attempt",
            Value::I32(1),
        );
        assert_eq!(acted(&typed, &rules(Kind::Amqp)).seen_attempt, Some(1));
        for (name, value) in
            [("delayed-due", "soon"), ("delayed-attempt", "-1"), ("delayed-attempt", "4294967296")]
        {
            assert_eq!(
                refused(&action(word, &[(name, value)]), &rules(Kind::Nats)),
                Code::BadHeader
            );
        }
        assert_eq!(
            refused(
                &action(word, &[("delayed-attempt", "1"), ("Delayed-Attempt", "1")]),
                &rules(Kind::Nats)
            ),
            Code::BadHeader
        );
    }
    let act = acted(
        &action("cancel", &[("delayed-due", "soon"), ("delayed-attempt", "2")]),
        &rules(Kind::Nats),
    );
    assert_eq!((act.seen_due, act.seen_attempt), (None, None));
}

#[test]
fn a_misspelt_header_or_a_forbidden_reply_refuses_an_action_too() {
    assert_eq!(
        refused(&action("cancel", &[("delay-reply", "x")]), &rules(Kind::Nats)),
        Code::BadHeader
    );
    assert_eq!(
        refused(&action("cancel", &[("delay-reply-to", "other")]), &rules(Kind::Nats)),
        Code::TargetNotAllowed
    );
}
