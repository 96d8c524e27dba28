//! The chaos commands fail with exit code 2 if nothing was tested or a run counts twice. No server
//! is needed.

use std::path::Path;
use std::process::{Command, Output};

use dwell_lab::chaos::history::Tally;
use dwell_lab::chaos::report::{Report, Run};

/// The first line of a history.
const HEAD: &str = r#"{"format":1,"seed":7,"commit":"abc","version":"0","broker":"nats","instances":2,"durability":"memory","lease_ms":8000,"late_ms":9,"repeat":""}"#;

fn chaos(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dwell-lab")).arg("chaos").args(args).output().unwrap()
}

/// The command fails with exit code 2 and this message.
fn refused(args: &[&str], why: &str) {
    let output = chaos(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(said.contains(why), "{args:?}: {said}");
}

fn run(seed: u64, commit: &str) -> Run {
    Run {
        broker: "nats".to_owned(),
        seed,
        commit: commit.to_owned(),
        instances: 2,
        durability: "replica".to_owned(),
        redis: "single".to_owned(),
        seconds: 9,
        faults: 1,
        struck_seconds: 1,
        checked_again: false,
        jobs: 1,
        sound: true,
        repeat: "run".to_owned(),
        memory: Vec::new(),
    }
}

fn written(folder: &Path, name: &str, runs: Vec<Run>) -> String {
    let file = folder.join(name);
    std::fs::write(&file, serde_json::to_string(&Report { runs, ..Report::default() }).unwrap())
        .unwrap();
    file.display().to_string()
}

#[test]
fn a_fault_that_cannot_be_done_is_no_campaign_and_leaves_no_report_of_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let stale = written(folder.path(), "report-nats-5.json", vec![run(5, "abc")]);
    let out = folder.path().display().to_string();
    refused(
        &[
            "run",
            "--only",
            "redis-failover",
            "--durability",
            "memory",
            "--seed",
            "5",
            "--out",
            &out,
        ],
        "redis-failover is not possible",
    );
    assert!(!Path::new(&stale).exists());
}

#[test]
fn a_record_in_which_nothing_was_broken_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let end = r#"{"t_us":1,"proc":"campaign","op":"end","scheduled":0,"reserved":0,"dead":[],"damage":[]}"#;
    std::fs::write(&file, format!("{HEAD}\n{end}\n")).unwrap();
    refused(&["check", &file.display().to_string()], "nothing was tested");
}

#[test]
fn killed_consumers_are_the_faults_of_a_queues_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let shown = file.display().to_string();
    let write = |killed_holding| {
        let tally = Tally { killed_holding, ..Tally::default() };
        let end = serde_json::json!({
            "t_us": 1, "proc": "campaign", "op": "end", "scheduled": 0, "reserved": 0, "dead": [],
            "damage": [], "consumers": tally,
        });
        let head = HEAD.replace("nats", "queue");
        std::fs::write(&file, format!("{head}\n{end}\n")).unwrap();
    };
    write(0);
    refused(&["check", &shown], "nothing was tested");
    write(1);
    let output = chaos(&["check", &shown]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_campaign_on_queues_has_two_doors_and_leaves_no_report_of_another_one() {
    for door in [["chaos", "queue"], ["queue", "chaos"]] {
        let folder = tempfile::tempdir().unwrap();
        let stale = written(folder.path(), "report-queue-cluster-5.json", Vec::new());
        let other = written(folder.path(), "report-queue-5.json", Vec::new());
        let output = Command::new(env!("CARGO_BIN_EXE_dwell-lab"))
            .args(door)
            .args(["--redis", "cluster", "--durability", "memory", "--seed", "5", "--out"])
            .arg(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{door:?}: {said}");
        for part in ["below durability replica", "to repeat: dwell-lab chaos queue --jobs"] {
            assert!(said.contains(part), "{door:?}: {said}");
        }
        assert_eq!([stale, other].map(|file| Path::new(&file).exists()), [false, true]);
    }
}

#[test]
fn nothing_is_merged_of_nothing_and_no_run_twice() {
    let folder = tempfile::tempdir().unwrap();
    let one = written(folder.path(), "one.json", vec![run(1, "abc")]);
    let other = written(folder.path(), "other.json", vec![run(2, "abc")]);
    refused(&["merge"], "name the reports");
    refused(&["merge", &one, &other, &one], "seed 1 at abc is already in the report");
    assert_eq!(chaos(&["merge", &one, &other]).status.code(), Some(0));
}

#[test]
fn the_page_takes_only_runs_of_a_tree_that_can_be_had_again() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("page.md").display().to_string();
    let dirty = written(folder.path(), "dirty.json", vec![run(1, "abc"), run(2, "abc-dirty")]);
    refused(&["page", &dirty, "--into", &into], "seed 2");
    refused(&["page", &written(folder.path(), "none.json", Vec::new()), "--into", &into], "no run");
    assert!(!Path::new(&into).exists());
    let clean = written(folder.path(), "clean.json", vec![run(1, "abc")]);
    assert_eq!(chaos(&["page", &clean, "--into", &into]).status.code(), Some(0));
}
