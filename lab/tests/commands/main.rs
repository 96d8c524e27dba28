//! `dwell-lab` as a shell runs it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod bench;
mod chaos;
mod demo;
mod http;
mod queue;
mod schedules;
mod smoothing;

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// `dwell-lab`, with a folder for its temporary files.
fn lab(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell-lab"));
    command
        .args(arguments)
        .env("TMPDIR", folder.path())
        .env_remove("DWELL_LOG")
        .env("DWELL_PROGRAM", env!("CARGO_BIN_EXE_dwell-instance"));
    command
}

/// The remaining temporary files, except the locks of ports.
fn left(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with("dwell-ports-")).collect()
}
