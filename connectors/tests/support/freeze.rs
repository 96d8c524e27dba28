//! Stops a process where it stands, or lets it go on: its connections stay open, and silent.

use std::process::Command;
use std::time::{Duration, Instant};

/// SIGSTOP or SIGCONT. Returns once every thread of it stands still: a signal alone is on its way.
pub(crate) fn freeze(id: u32, frozen: bool) {
    let signal = if frozen { "-STOP" } else { "-CONT" };
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(10);
    while frozen && !stands_still(id) {
        assert!(Instant::now() < deadline, "process {id} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether all threads are stopped; true where the system has no `/proc` to ask.
fn stands_still(id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state stands behind the name, which is in brackets.
        stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['T', 'Z']) || rest.is_empty())
    })
}
