//! Every input of the corpus and of the regressions, and random bytes, through every target.
#![cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dwell_fuzz::TARGETS;
use proptest::prelude::*;

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The inputs of the archive: one a line, each with its place.
fn corpus(fuzz: &Path, name: &str) -> Vec<(String, Vec<u8>)> {
    let path = fuzz.join("corpus").join(name).with_extension("base64");
    let archive =
        fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let read = |(line, input): (usize, &str)| {
        let place = format!("{}:{line}", path.display());
        let bytes = STANDARD.decode(input).unwrap_or_else(|why| panic!("{place}: {why}"));
        (place, bytes)
    };
    (1..).zip(archive.lines()).map(read).collect()
}

/// What once broke a promise: a file each. A target that never broke one has no folder.
fn regressions(fuzz: &Path, name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fuzz.join("regressions").join(name);
    let files = if folder.exists() { entries(&folder) } else { Vec::new() };
    files.into_iter().map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
}

#[test]
fn every_promise_holds_for_what_was_ever_found() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, target) in TARGETS {
        let corpus = corpus(fuzz, name);
        assert!(corpus.len() >= 10, "{name} has only {} inputs", corpus.len());
        for (place, bytes) in corpus.into_iter().chain(regressions(fuzz, name)) {
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                panic!("a promise broke on {place}: run it alone, see above");
            }
        }
    }
}

/// An input in a folder of another name is fed to nothing.
#[test]
fn the_folder_of_a_regression_is_named_as_its_target() {
    for folder in entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions"))
        .into_iter()
        .filter(|path| path.is_dir())
    {
        assert!(
            TARGETS.iter().any(|(name, _)| folder.ends_with(name)),
            "{} is no target",
            folder.display()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn every_promise_holds_for_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (_, target) in TARGETS {
            target(&bytes);
        }
    }
}
