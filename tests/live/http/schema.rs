//! A validator and a fuzzer on openapi.json and on the server.

use std::process::Stdio;

use dwell::http::api::openapi;
use tokio::process::Command;

use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::support::python_libraries;

/// The requests that are made up for each call; `DWELL_FUZZ` says another number.
const EXAMPLES: &str = "25";
/// The seed of these requests, so that each run tries the same ones; `DWELL_FUZZ_SEED` says another
/// number.
const SEED: &str = "1";

/// Runs a Python module to its end; panics with its output where it fails.
async fn python(module: &str, args: &[&str], folder: &std::path::Path) {
    let mut command = Command::new("python3");
    command
        .arg("-m")
        .arg(module)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
        .env("PYTHONPATH", python_libraries())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_COLOR", "1");
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{module} {args:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn the_document_is_an_openapi_document_and_served_as_it_is() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let answer = sidecar.get("/openapi.json");
    assert_eq!((answer.status, answer.text == openapi::text()), (200, true));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("openapi.json"), &answer.text).unwrap();
    python("openapi_spec_validator", &["openapi.json"], folder.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fuzzer_finds_no_server_error_and_no_answer_that_the_document_does_not_describe() {
    let fixture = Fixture::new().await;
    // Any target, so that the jobs that the fuzzer makes up are stored and published.
    let settings = fixture.settings(true).replace("allow = [\"orders.>\"]", "allow = [\">\"]");
    let sidecar = Sidecar::run(&settings, "", &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}/openapi.json", sidecar.address);
    let examples = std::env::var("DWELL_FUZZ").unwrap_or_else(|_| EXAMPLES.to_owned());
    let seed = std::env::var("DWELL_FUZZ_SEED").unwrap_or_else(|_| SEED.to_owned());
    // Not all that the rules of requests refuse can be said in a schema; a job that was due is
    // gone; and events have no end.
    let but = [
        "--exclude-checks",
        "positive_data_acceptance,ensure_resource_availability",
        "--exclude-path",
        "/v1/events",
    ];
    let run = [
        "run",
        &url,
        "--max-examples",
        &examples,
        "--seed",
        &seed,
        "--workers",
        "1",
        "--request-timeout",
        "20",
        "--warnings",
        "off",
        "--no-shrink",
    ];
    python("schemathesis.cli", &[&run[..], &but[..]].concat(), folder.path()).await;
    let log = sidecar.log();
    assert!(!log.contains("panicked") && !log.contains("request failed"), "{log}");
    assert_eq!(sidecar.get("/v1/stats").status, 200);
}
