//! The times beside those of cronsim, which `compare/compare.py` wrote.

#![allow(clippy::unwrap_used, reason = "tests")]

use dwell_schedule::{Timetable, Zone};

const CRONSIM: &str = include_str!("compare/cronsim.txt");
const DIFFERENCES: &str = include_str!("compare/differences.txt");

/// The times of a line, epoch seconds.
fn times(from: i64, steps: &str) -> Vec<i64> {
    let mut times = vec![from];
    for step in steps.split(' ') {
        let (step, count) = step.split_once('x').unwrap_or((step, "1"));
        for _ in 0..count.parse().unwrap() {
            times.push(times.last().unwrap() + step.parse::<i64>().unwrap());
        }
    }
    times.remove(0);
    times
}

fn shown(second: Option<&i64>) -> String {
    second.map_or_else(
        || "none".to_owned(),
        |second| jiff::Timestamp::from_second(*second).unwrap().to_string(),
    )
}

/// The README explains each line of `differences.txt`.
#[test]
fn times_differ_from_those_of_cronsim_only_where_the_rule_does() {
    let mut found = Vec::new();
    for line in CRONSIM.lines() {
        let [expression, zone, from, steps] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let from: i64 = from.parse().unwrap();
        let theirs = times(from, steps);
        let timetable = Timetable::new(
            expression.parse().unwrap(),
            Some(Zone::parse(zone).unwrap()),
            None,
            None,
            0,
        )
        .unwrap();
        let ours: Vec<i64> =
            timetable.upcoming(from * 1_000, theirs.len()).iter().map(|ms| ms / 1_000).collect();
        if ours != theirs {
            let place = (0..16).find(|place| ours.get(*place) != theirs.get(*place)).unwrap();
            found.push(format!(
                "{expression}\t{zone}\t{}\t{}",
                shown(ours.get(place)),
                shown(theirs.get(place))
            ));
        }
    }
    let known: Vec<&str> = DIFFERENCES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('\t').unwrap().1)
        .collect();
    assert!(found == known, "found:\n{}", found.join("\n"));
}
