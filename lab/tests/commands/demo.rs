//! `dwell-lab demo` without a terminal.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{lab, left};

#[test]
fn the_demo_shows_every_fate_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let began = Instant::now();
    let output = lab(&folder, &["demo"]).output().unwrap();
    let took = began.elapsed();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    for line in [
        "\nsent 34: 31 arrived (1 of them after failed attempts), 1 dead, 1 cancelled, 1 rejected\n",
        "\nlost 0, early 0, duplicates 0\n",
        "\nfailed    invoice-1  attempt 1: ",
        "\nfailed    invoice-1  attempt 2: ",
        " late, with attempt 3\n",
        "\ndead      parcel-1   attempt 2: ",
        "retries_exhausted",
        "\nverdict   trial-1    cancelled\n",
        "\nrejected  typo-1     bad_delay: ",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains('\x1b'), "plain lines: {out}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(left(folder.path()), Vec::<String>::new());
}

#[test]
fn the_demo_of_queues_shows_every_fate_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &["demo", "--broker", "queue"]).output().unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    for line in [
        ", no broker\n",
        "\nsent 35: 32 arrived (2 of them after failed attempts), 1 dead, 1 cancelled, 1 rejected\n",
        "\nlost 0, early 0, duplicates 0\n",
        "\nfailed    invoice-1  attempt 1: ",
        "\nfailed    invoice-1  attempt 2: ",
        " late, with attempt 3\n",
        "\nfailed    parcel-1   attempt 1: ",
        "\ndead      parcel-1   attempt 2: the printer has no paper; failed\n",
        "\nsilent    report-1   attempt 1: ",
        "\nstale     report-1   ",
        " late, with attempt 2\n",
        "\nverdict   trial-1    cancelled\n",
        "\nrejected  typo-1     bad_delay: ",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert_eq!(left(folder.path()), Vec::<String>::new());
}

#[test]
fn the_demo_of_http_targets_shows_every_fate_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &["demo", "--broker", "http"]).output().unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    for line in [
        ", no broker\n",
        "\nsent 35: 32 arrived (2 of them after failed attempts), 1 dead, 1 cancelled, 1 rejected\n",
        "\nlost 0, early 0, duplicates 0\n",
        "\nfailed    invoice-1  attempt 1: the target answered 500 ",
        "\nfailed    invoice-1  attempt 2: ",
        " late, with attempt 3\n",
        "\nfailed    parcel-1   attempt 1: ",
        "\ndead      parcel-1   attempt 2: the target answered 500 Internal Server Error; retries_exhausted\n",
        "\nsilent    report-1   attempt 1: ",
        " late, with attempt 2\n",
        "\nverdict   trial-1    cancelled\n",
        "\nrejected  typo-1     bad_delay: ",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert_eq!(left(folder.path()), Vec::<String>::new());
}

#[test]
fn an_interrupted_demo_ends_its_servers() {
    let folder = TempDir::new().unwrap();
    let mut demo =
        lab(&folder, &["demo"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let servers = lines.find(|line| line.starts_with("servers")).unwrap();
    let ports: Vec<u16> = servers.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    assert_eq!(ports.len(), 2, "{servers}");
    lines.find(|line| line.starts_with("arrived")).unwrap();
    kill_process(Pid::from_raw(i32::try_from(demo.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    let mut error = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(
        (demo.wait().unwrap().code(), error.as_str()),
        (Some(1), "error: SIGINT: stopped\n"),
        "{rest:?}"
    );
    for port in ports {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} still listens");
    }
    assert_eq!(left(folder.path()), Vec::<String>::new());
}
