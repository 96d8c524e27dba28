//! The rule of what an expression means, by its cases in `cron_rule.json`.

#![allow(clippy::unwrap_used, reason = "tests")]

use dwell_schedule::{Expression, Timetable, Zone};
use serde_json::Value;

fn cases(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("cron_rule.json")).unwrap();
    all[name].as_array().unwrap().clone()
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap()
}

fn ms(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

fn times(case: &Value, name: &str) -> Vec<i64> {
    case[name].as_array().unwrap().iter().map(|time| ms(time.as_str().unwrap())).collect()
}

#[test]
fn samples_fire_at_their_times() {
    for case in cases("samples") {
        let cron: Expression = text(&case, "cron").parse().unwrap();
        let zone: Zone = text(&case, "zone").parse().unwrap();
        let timetable = Timetable::new(cron, Some(zone), None, None, 0).unwrap();
        let expected: Vec<i64> =
            case["next_ms"].as_array().unwrap().iter().map(|ms| ms.as_i64().unwrap()).collect();
        let from = ms(text(&case, "from"));
        assert_eq!(expected.len(), 20, "{case}");
        assert_eq!(timetable.upcoming(from, 20), expected, "{case}");
        assert_eq!(times(&case, "next"), expected[..5], "{case}");
        let mut back = Vec::new();
        let mut to = expected[19];
        while to > from {
            back.insert(0, timetable.latest_at_or_before(to).unwrap());
            to = timetable.latest_at_or_before(back[0] - 1).unwrap();
        }
        assert_eq!(back, expected, "{case}");
    }
}

#[test]
fn start_and_end_are_included() {
    for case in cases("starts") {
        let cron: Expression = text(&case, "cron").parse().unwrap();
        let zone: Zone = text(&case, "zone").parse().unwrap();
        let start = ms(text(&case, "start"));
        let end = case["end"].as_str().map(ms);
        let timetable = Timetable::new(cron, Some(zone), Some(start), end, 0).unwrap();
        let first = case["first"].as_str().map(ms);
        if first.is_some() {
            assert_eq!(timetable.first(i64::MIN), first, "{case}");
            assert_eq!(timetable.first(start), first, "{case}");
            assert_eq!(timetable.next(start - 1), first, "{case}");
        } else {
            let count = case["count"].as_u64().map_or(100, |count| count as usize);
            assert_eq!(timetable.upcoming(start - 1, count), times(&case, "all"), "{case}");
        }
    }
}

#[test]
fn intervals_are_counted_from_the_start() {
    for case in cases("every") {
        let every: Expression = text(&case, "every").parse().unwrap();
        let start = ms(text(&case, "start"));
        let timetable = Timetable::new(every, None, Some(start), None, 0).unwrap();
        let asked = case["asked"].as_str().map_or(start, ms);
        let expected = times(&case, "next");
        assert_eq!(timetable.first(asked), Some(expected[0]), "{case}");
        assert_eq!(timetable.upcoming(expected[0] - 1, 5), expected, "{case}");
        let gap = timetable.gap(asked, expected[4]);
        assert_eq!((gap.count, gap.newest), (5, expected), "{case}");
    }
}

#[test]
fn what_the_rule_refuses_is_refused_and_told() {
    for case in cases("refused") {
        let refused = case[0].as_str().unwrap();
        let error = Expression::parse(refused).expect_err(refused).to_string();
        assert!(error.contains(':') || error.contains("write"), "{refused}: {error}");
        Expression::parse_nats(refused).expect_err(refused);
    }
}

#[test]
fn zones_are_names() {
    let all: Value = serde_json::from_str(include_str!("cron_rule.json")).unwrap();
    for name in all["zones"]["taken"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        assert_eq!(Zone::parse(name).unwrap().name(), name);
    }
    for name in all["zones"]["refused"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        assert!(Zone::parse(name).is_err(), "{name}");
    }
    assert!(Zone::parse("Etc/Unknown").is_err());
}
