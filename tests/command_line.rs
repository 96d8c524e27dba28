//! The binary as a shell sees it: what it prints, where, and its exit code.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// `dwell` with an environment that holds nothing of this machine's.
fn dwell(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(arguments).env_clear();
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_wrong_command_line_exits_64() {
    for arguments in [
        &[][..],
        &["chekc"],
        &["check", "--ofline"],
        &["check", "--set", "x"],
        &["completions", "dos"],
    ] {
        let (code, stdout, stderr) = run(&mut dwell(arguments));
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{arguments:?}");
        assert!(!stderr.is_empty());
    }
}

#[test]
fn a_setting_without_its_name_is_not_shown() {
    for arguments in
        [&["check", "--set", "redis.urls:hushhush"][..], &["check", "--set=redis.urls:hushhush"]]
    {
        let (code, stdout, stderr) = run(&mut dwell(arguments));
        assert_eq!(code, Some(64), "{stderr}");
        assert!(
            stderr.contains("***") && !format!("{stdout}{stderr}").contains("hush"),
            "{stdout}{stderr}"
        );
    }
}

#[test]
fn an_endpoint_of_spans_that_is_none_is_told_without_its_password() {
    for endpoint in [
        "http://me:hush hush@127.0.0.1:1",
        "http://me:hushhush@ 127.0.0.1",
        "http://me:hush,hush@{}",
    ] {
        let mut run_it = dwell(&[
            "run",
            "--wait",
            "0s",
            "-c",
            concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats.toml"),
        ]);
        let (code, stdout, stderr) = run(run_it.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
        assert_eq!(code, Some(78), "{stdout}{stderr}");
        assert!(stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{stderr}");
        assert!(!format!("{stdout}{stderr}").contains("hush"), "{endpoint}: {stdout}{stderr}");
    }
}

#[test]
fn help_and_version_exit_0_on_stdout() {
    let (code, stdout, _) = run(&mut dwell(&["--help"]));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("check") && stdout.contains("DWELL_CONFIG"), "{stdout}");
    let (code, stdout, _) = run(&mut dwell(&["--version"]));
    assert_eq!((code, stdout), (Some(0), format!("dwell {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, stdout, _) = run(&mut dwell(&["completions", shell]));
        assert_eq!(code, Some(0));
        assert!(stdout.contains("completions"), "{shell}");
    }
}

#[test]
fn the_schema_is_json_and_a_closed_pipe_is_no_failure() {
    let (code, stdout, _) = run(&mut dwell(&["schema", "-o", "json"]));
    assert_eq!((code, stdout.lines().count()), (Some(0), 1));
    let schema: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(schema["properties"]["redis"]["$ref"], "#/$defs/Redis");

    let mut child =
        dwell(&["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (first.as_str(), output.status.code(), output.stderr.as_slice()),
        ("{\n", Some(0), &b""[..])
    );
}

#[test]
fn mistakes_in_the_settings_exit_78_each_with_a_line() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dwell.toml");
    std::fs::write(
        &file,
        "[redis]\nbuckets = 0\nurl = \"redis://:hush@h\"\n[delivery]\nlate = \"never\"\n",
    )
    .unwrap();
    let path = file.to_str().unwrap();

    let (code, stdout, stderr) = run(dwell(&["check", "--offline", "-o", "json"])
        .env("DWELL_CONFIG", path)
        .env("DWELL_DELIVERY__TTR", "soon"));
    assert_eq!((code, stderr.as_str()), (Some(78), ""));
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = lines.iter().map(|line| line["check"].as_str().unwrap()).collect();
    assert_eq!(names, ["redis.buckets", "redis.url", "brokers", "delivery.late", "delivery.ttr"]);
    assert_eq!(
        lines[0]["detail"],
        format!("{path}:2: this is the number 0, not a number from 1 to 1024")
    );
    assert_eq!(lines[1]["hint"], "did you mean `urls`?");
    assert!(lines[4]["detail"].as_str().unwrap().starts_with("DWELL_DELIVERY__TTR: "));
    assert!(lines.iter().all(|line| line["ok"] == false
        && line.as_object().unwrap().len() == 4
        && line["hint"] != ""));

    let (code, text, _) = run(&mut dwell(&["-c", path, "check", "--offline"]));
    assert_eq!((code, text.matches("FAIL").count()), (Some(78), 4), "{text}");
    assert!(!text.contains("hush") && !stdout.contains("hush"));
}

#[test]
fn a_file_that_is_not_there_exits_78() {
    let (code, stdout, _) = run(&mut dwell(&["check", "--offline", "-c", "/nowhere/dwell.toml"]));
    assert_eq!(code, Some(78));
    assert!(
        stdout.contains("/nowhere/dwell.toml: cannot read the settings: no such file"),
        "{stdout}"
    );
}

#[cfg(feature = "nats")]
#[test]
fn good_settings_exit_0() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats.toml");
    let (code, stdout, stderr) =
        run(&mut dwell(&["check", "--offline", "-c", file, "--set", "redis.buckets=4"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with("ok") && stdout.contains("brokers: main"), "{stdout}");
}
