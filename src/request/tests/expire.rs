//! `delay-expire`, and `expire_header` of an ingest.

use super::*;
use crate::job::{Due, Expire};

fn expire(value: &str, more: &[(&str, &str)], rules: &RequestRules) -> Option<Expire> {
    let headers = [&[("delay-for", "1h"), ("delay-expire", value)], more].concat();
    scheduled(&message(&headers), rules).job.expire
}

/// Names and values.
type Headers<'a> = &'a [(&'a str, &'a str)];

#[test]
fn an_expiry_is_a_duration_or_a_time() {
    let rules = rules(Kind::Nats);
    let zone = ("delay-time-zone", "Europe/Berlin");
    let cases: [(&str, Headers<'_>, Expire); 7] = [
        ("1h", &[], Expire::After(3_600_000)),
        ("5000", &[], Expire::After(5000)),
        ("PT15M", &[], Expire::After(900_000)),
        ("1769860860000", &[], Expire::At(NOW + 60_000)),
        ("2026-01-31T12:01:00Z", &[], Expire::At(NOW + 60_000)),
        ("2026-01-31T13:01:00", &[zone], Expire::At(NOW + 60_000)),
        // A time that has passed: the job is dead at its due time.
        ("2020-01-31T12:00:00Z", &[], Expire::At(1_580_472_000_000)),
    ];
    for (value, more, expected) in cases {
        assert_eq!(expire(value, more, &rules), Some(expected), "{value}");
    }
    assert_eq!(scheduled(&message(&[("delay-for", "1h")]), &rules).job.expire, None);
    // One zone for both times.
    let local =
        [("delay-until", "2026-01-31T13:01:00"), ("delay-expire", "2026-01-31T14:01:00"), zone];
    let new_job = scheduled(&message(&local), &rules);
    let expected = (Due::At(NOW + 60_000), Some(Expire::At(NOW + 3_660_000)));
    assert_eq!((new_job.due, new_job.job.expire), expected);
}

#[test]
fn an_expiry_that_cannot_be_read_is_refused() {
    let rules = rules(Kind::Nats);
    for value in
        ["0", "0s", "-1s", "soon", "P1M", "", "2026-01-31T13:01:00", "2026-13-01T00:00:00Z"]
    {
        let headers = [("delay-for", "1h"), ("delay-expire", value)];
        assert_eq!(refused(&message(&headers), &rules), Code::BadHeader, "{value}");
    }
    let act = [("delay-action", "cancel"), ("delay-id", "a"), ("delay-expire", "1h")];
    assert_eq!(refused(&message(&act), &rules), Code::BadHeader);
    let zone = [
        ("delay-for", "1h"),
        ("delay-expire", "2026-01-31T13:01:00"),
        ("delay-time-zone", "Europe/Nowhere"),
    ];
    assert_eq!(refused(&message(&zone), &rules), Code::BadDelay);
    let schedule = [("delay-schedule", "@daily"), ("delay-id", "a")];
    let with = |value: &'static str| message(&[&schedule[..], &[("delay-expire", value)]].concat());
    assert_eq!(refused(&with("2027-01-31T13:01:00Z"), &rules), Code::BadHeader);
    match parse(&with("1h"), &rules, NOW) {
        Ok(Request::NewSchedule(new)) => {
            assert_eq!(new.job.expire, Some(Expire::After(3_600_000)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_header_of_the_producers_own_holds_the_expiry() {
    let mut rules = rules(Kind::Amqp);
    rules.ingest.expire_header = Some("expires".to_owned()).into();
    let to = || bare(&[("delay-target", "orders"), ("delay-for", "1h")]);
    let expire = |value: Value| scheduled(&with(to(), "Expires", value), &rules).job.expire;
    for time in ["2026-01-31T12:01:00Z".into(), Value::I64(NOW + 60_000)] {
        assert_eq!(expire(time), Some(Expire::At(NOW + 60_000)));
    }
    for none in [Value::Null, "".into(), " ".into()] {
        assert_eq!(expire(none), None);
    }
    assert_eq!(scheduled(&to(), &rules).job.expire, None);
    assert_eq!(refused(&with(to(), "expires", "tomorrow".into()), &rules), Code::BadHeader);
    let local = with(to(), "expires", "2026-01-31T13:01:00".into());
    assert_eq!(refused(&local, &rules), Code::BadHeader, "no offset");
    let zoned = with(local.clone(), "delay-time-zone", "Europe/Berlin".into());
    assert_eq!(scheduled(&zoned, &rules).job.expire, Some(Expire::At(NOW + 60_000)));
    let back = with(local, "delayed-attempt", "1".into());
    assert_eq!(scheduled(&back, &rules).job.expire, None, "its zone did not come back");
    let wins = with(with(to(), "expires", "tomorrow".into()), "delay-expire", "1s".into());
    assert_eq!(scheduled(&wins, &rules).job.expire, Some(Expire::After(1000)));
}
