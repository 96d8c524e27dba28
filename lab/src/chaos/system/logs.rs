//! The logs of a server over all its restarts.

use std::fs;
use std::path::Path;

/// Each log of this folder, first life first, under the server's name with the number of the life.
pub(super) fn read(name: &str, dir: &Path) -> Vec<(String, String)> {
    let text = |file: &str| fs::read(dir.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // A start moves the log of the life before aside; the first number may be any, because what
    // came before was not kept.
    let mut lives: Vec<u32> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("log.")?.parse().ok())
        .collect();
    lives.sort_unstable();
    let old = lives.iter().filter_map(|life| Some((format!("{name}.{life}"), text(&format!("log.{life}")).ok()?)));
    old.chain(text("log").ok().map(|text| (name.to_owned(), text))).collect()
}
