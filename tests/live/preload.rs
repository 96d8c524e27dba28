//! C libraries that tests preload into child processes.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a source of this repository into a library in this folder.
pub(crate) fn compiled(folder: &Path, source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let library = folder.join(source.file_stem().unwrap()).with_extension("so");
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(done.success(), "{}", source.display());
    library
}
