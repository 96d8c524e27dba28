//! `dwell-lab schedules`: short campaigns are sound and meet what they are for.

use serde_json::Value;
use tempfile::TempDir;

use crate::{lab, left};

/// The summary of a sound campaign of 50 schedules that fire each second for six.
fn summary(more: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let arguments = ["schedules", "--schedules", "50", "--every", "1s", "--duration", "6s"];
    let output = lab(&folder, &arguments)
        .args(["--kill-every", "2s", "--seed", "1", "-o", "json"])
        .args(more)
        .output()
        .unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    assert_eq!(left(folder.path()), Vec::<String>::new());
    let summary: Value = serde_json::from_str(&out).unwrap();
    for none in ["twice", "lost", "early", "wrongs"] {
        assert_eq!(summary[none], 0, "{none}: {out}");
    }
    let of = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!((of("schedules"), of("kills")), (50, 2), "{out}");
    assert!(of("occurrences") >= 100 && of("occurrences") + of("missed") >= 300, "{out}");
    assert_eq!(summary["late_overall"]["count"].as_u64(), Some(of("occurrences")), "{out}");
    summary
}

#[test]
fn each_time_is_made_once_or_missed_although_instances_are_killed() {
    let summary = summary(&[]);
    assert_eq!((&summary["failovers"], &summary["forgotten"]), (&0.into(), &0.into()), "{summary}");
    assert!(summary["dwell_us"].as_f64() > Some(0.0), "{summary}");
}

#[test]
fn the_same_holds_of_workers_and_a_redis_that_fails_over() {
    let summary = summary(&["--worker", "--failover"]);
    assert_eq!(summary["failovers"], 1, "{summary}");
}

#[test]
fn what_is_no_campaign_is_refused() {
    let folder = TempDir::new().unwrap();
    for (option, value, why) in
        [("--every", "0s", "write more than 0"), ("--schedules", "0", "1..=1000000")]
    {
        let output = lab(&folder, &["schedules", option, value]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{option}: {said}");
    }
}
