//! `dwell-lab queue chaos`: a short campaign is sound and meets what it is for, and what it cannot
//! judge is refused.

use serde_json::Value;
use tempfile::TempDir;

use crate::{lab, left};

#[test]
fn jobs_of_a_queue_are_finished_once_although_consumers_instances_and_redis_die() {
    let folder = TempDir::new().unwrap();
    let arguments =
        ["--jobs", "3000", "--rate", "200", "--consumers", "20", "--killed", "0.5", "--seed", "1"];
    let faults = ["--only", "dwell-kill,redis-failover"];
    let output = lab(&folder, &["queue", "chaos", "-o", "json"])
        .args(arguments)
        .args(faults)
        .output()
        .unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&summary["jobs"], &summary["wrongs"], &summary["redis"]),
        (&3000.into(), &0.into(), &"single".into()),
        "{out}"
    );
    for met in ["instances_killed", "redis_killed", "failovers"] {
        assert!(summary[met].as_u64().unwrap() > 0, "{met}: {out}");
    }
    for met in
        ["killed_waiting", "killed_holding", "finishes_stale", "words_unanswered", "finished"]
    {
        assert!(summary["consumers"][met].as_u64().unwrap() > 0, "{met}: {out}");
    }
    assert_eq!(left(folder.path()), Vec::<String>::new());
}

#[test]
fn a_campaign_on_queues_refuses_what_its_check_cannot_judge() {
    let folder = TempDir::new().unwrap();
    for (arguments, why) in [
        (
            &["--only", "broker-kill"][..],
            "broker-kill is not possible here; possible are dwell-kill",
        ),
        (&["--only", "redis-slots-moved"], "redis-slots-moved is not possible here"),
        (
            &["--redis", "cluster", "--durability", "memory"],
            "lose acknowledged jobs below durability replica",
        ),
        (&["--killed", "1.5"], "write a number from 0 to 1"),
        (&["--consumers-only", "--only", "dwell-kill"], "cannot be used with"),
    ] {
        let output = lab(&folder, &["queue", "chaos"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
}
