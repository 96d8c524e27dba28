//! The logs of a server over all its restarts.

use std::fs;
use std::path::Path;

/// The logs of this folder in order, each under the server's name and the number of its start.
pub(super) fn read(name: &str, dir: &Path) -> Vec<(String, String)> {
    let text = |file: &str| {
        fs::read(dir.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    // Each start renames the log before it. The first number is arbitrary, because earlier logs
    // were not kept.
    let mut lives: Vec<u32> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("log.")?.parse().ok())
        .collect();
    lives.sort_unstable();
    let old = lives
        .iter()
        .filter_map(|life| Some((format!("{name}.{life}"), text(&format!("log.{life}")).ok()?)));
    old.chain(text("log").ok().map(|text| (name.to_owned(), text))).collect()
}
