//! The dashboard in headless Chromium: `tests/browser`. The scripts click; this side runs the
//! servers.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::sidecar::Sidecar;
use crate::support::DEADLINE;

/// Returns the path that `make browser` left, or that the environment names instead.
fn found(variable: &str, made: &str) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(made));
    assert!(path.exists(), "no {}: run `make browser`", path.display());
    path
}

/// Plays a story on this sidecar to its end. `done` does what the story asks for, by its words.
pub(super) async fn story(
    sidecar: &Sidecar,
    name: &str,
    arguments: &[&str],
    mut done: impl AsyncFnMut(&str),
) {
    let mut child = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/run.py"))
        .arg(name)
        .arg(&sidecar.address)
        .args(arguments)
        .env("PYTHONPATH", found("DWELL_BROWSER", ".servers/browser"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DWELL_CHROMIUM", found("DWELL_CHROMIUM", ".servers/bin/chromium"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut answers = child.stdin.take().unwrap();
    let mut asked = BufReader::new(child.stdout.take().unwrap()).lines();
    // A story waits for each thing with a deadline of its own, and has several.
    let told = async {
        while let Some(word) = asked.next_line().await.unwrap() {
            done(&word).await;
            answers.write_all(b"done\n").await.unwrap();
        }
        child.wait().await.unwrap()
    };
    let status = timeout(DEADLINE * 3, told)
        .await
        .unwrap_or_else(|_| panic!("the story {name} does not end"));
    assert!(status.success(), "the story {name}: {status}");
}

/// A story that asks for nothing.
pub(super) async fn plain_story(sidecar: &Sidecar, name: &str, arguments: &[&str]) {
    story(sidecar, name, arguments, async |word: &str| panic!("{name} asks for {word}")).await;
}
