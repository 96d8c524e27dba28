//! `dwell-lab smoothing`: short scenarios are sound and meet what they are for.

use serde_json::Value;
use tempfile::TempDir;

use crate::{lab, left};

/// The summary of a sound scenario.
fn summary(arguments: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let arguments = [&["smoothing"], arguments, &["-o", "json"]].concat();
    let output = lab(&folder, &arguments).output().unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    assert_eq!(left(folder.path()), Vec::<String>::new());
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(summary["wrongs"], 0, "{out}");
    summary
}

/// A limit of 100 a second on 300 jobs: 2.9 s after the first burst.
fn limited(what: &str, more: &[&str]) -> Value {
    let arguments = ["--limit", what, "--rate", "100/s", "--jobs", "300"];
    let summary = summary(&[&arguments, more].concat());
    assert_eq!((&summary["limit"], &summary["jobs"]["jobs"]), (&what.into(), &300.into()));
    for none in ["lost", "early"] {
        assert_eq!(summary["jobs"][none], 0, "{none}: {summary}");
    }
    let pace = &summary["pace"];
    assert_eq!((pace["burst"].as_u64(), pace["limit_per_s"].as_f64()), (Some(10), Some(100.0)));
    assert!(pace["per_s"].as_f64() > Some(0.0), "{summary}");
    assert!(pace["worst_second"].as_u64() <= pace["worst_second_allowed"].as_u64(), "{summary}");
    summary
}

#[test]
fn a_limited_target_gets_its_rate_and_delays_no_other() {
    let summary = limited("target", &[]);
    assert_eq!((&summary["jobs"]["doubled"], &summary["jobs"]["burned"]), (&0.into(), &0.into()));
    assert_eq!(summary["others"]["late"]["count"], 300, "{summary}");
}

#[test]
fn a_killed_instance_loses_no_job_of_a_limited_target() {
    assert_eq!(limited("target", &["--kill"])["killed"], true);
}

#[test]
fn a_limited_host_and_a_limited_queue_get_their_rates() {
    for what in ["host", "queue"] {
        let summary = limited(what, &[]);
        assert_eq!((&summary["jobs"]["doubled"], &summary["others"]), (&0.into(), &Value::Null));
    }
}

#[test]
fn a_storm_of_requests_becomes_the_deliveries_that_the_rule_says() {
    let arguments = ["--debounce", "--requests", "500", "--over", "2s", "--max-wait", "600ms"];
    let summary = summary(&[&arguments[..], &["--wait", "300ms"]].concat());
    let deliveries = summary["deliveries"].as_array().unwrap();
    assert!((2..=4).contains(&deliveries.len()), "{summary}");
    assert_eq!(deliveries.last().unwrap()["request"], 499, "{summary}");
}

#[test]
fn a_backlog_of_requests_becomes_one_delivery() {
    let arguments = ["--debounce", "--backlog", "--requests", "500", "--over", "1s"];
    let summary = summary(&arguments);
    assert_eq!(summary["deliveries"].as_array().map(Vec::len), Some(1), "{summary}");
}

#[test]
fn what_becomes_of_jobs_is_told_once() {
    let summary = summary(&["--events", "--jobs", "200"]);
    assert_eq!(summary["dropped"], 0, "{summary}");
    for (kind, count) in
        [("scheduled", 200), ("delivered", 120), ("retried", 20), ("dead", 60), ("cancelled", 20)]
    {
        let told = (&summary["kinds"][kind]["happened"], &summary["kinds"][kind]["told"]);
        assert_eq!(told, (&count.into(), &count.into()), "{kind}: {summary}");
    }
}

#[test]
fn what_is_no_scenario_is_refused() {
    let folder = TempDir::new().unwrap();
    for (arguments, why) in [
        (&["--limit", "target", "--events"][..], "cannot be used with"),
        (&["--events", "--kill"], "cannot be used with"),
        (&["--limit", "queue", "--backlog"], "cannot be used with"),
        (&[], "required"),
        (&["--limit", "target", "--rate", "500"], "such as 500/s"),
        (&["--debounce", "--wait", "4s"], "at most --max-wait"),
    ] {
        let output = lab(&folder, &[&["smoothing"], arguments].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
}
