//! `dwell-lab http`: all jobs arrive, and the figures are there.

use serde_json::Value;
use tempfile::TempDir;

use crate::{lab, left};

fn figures(arguments: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let output =
        lab(&folder, &[&["http"], arguments, &["--output", "json"]].concat()).output().unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
        (Some(0), "")
    );
    assert_eq!(left(folder.path()), Vec::<String>::new());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_backlog_for_one_host_is_measured_beside_a_bare_client() {
    let figures = figures(&["drain", "--jobs", "300", "--runs", "2"]);
    assert_eq!(figures["dwell_per_s"].as_array().map(Vec::len), Some(2), "{figures}");
    assert!(
        figures["share"].as_f64() > Some(0.0) && figures["bare_median"].as_f64() > Some(0.0),
        "{figures}"
    );
}

#[test]
fn hosts_that_hang_leave_the_jobs_of_the_others_alone() {
    let figures = figures(&[
        "hosts",
        "--hosts",
        "20",
        "--hanging",
        "5",
        "--rate",
        "100",
        "--secs",
        "5",
        "--timeout",
        "1",
    ]);
    assert_eq!(
        (figures["jobs"].as_u64(), figures["late"]["count"].as_u64()),
        (Some(375), Some(375)),
        "{figures}"
    );
    assert!(
        figures["unanswered"].as_u64() >= Some(5) && figures["peak_rss_mib"].as_f64() > Some(0.0),
        "{figures}"
    );
}
