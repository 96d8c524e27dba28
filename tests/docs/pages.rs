//! The Markdown files of the repository, and pages that are generated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the repository.
pub(crate) fn text_of(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Markdown file for people: those of the root, and those below docs, deploy, clients, engine,
/// schedule, store and core.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut folders: Vec<PathBuf> =
        ["docs", "deploy", "clients", "engine", "schedule", "store", "core"]
            .iter()
            .map(|folder| root().join(folder))
            .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    found.sort();
    found
}

/// What a run of the binary prints, without a terminal and without this machine's environment.
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_dwell")).args(arguments).env_clear().output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Fails where the page of docs/reference is not the generated one. With DWELL_WRITE_DOCS it is
/// written instead.
pub(crate) fn assert_current(name: &str, generated: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var_os("DWELL_WRITE_DOCS").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    let stale = (1..)
        .zip(present.lines())
        .zip(generated.lines())
        .find(|((_, present), generated)| present != generated);
    assert!(
        present == generated,
        "docs/reference/{name} is not what the code says (first at {stale:?}): run `make reference`"
    );
}
