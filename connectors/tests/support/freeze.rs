//! Freezes or resumes a process: its connections stay open and silent.

use std::process::Command;
use std::time::{Duration, Instant};

/// SIGSTOP or SIGCONT. Returns once every thread has stopped, because a signal takes effect with a
/// delay.
pub(crate) fn freeze(id: u32, frozen: bool) {
    let signal = if frozen { "-STOP" } else { "-CONT" };
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(10);
    while frozen && !stands_still(id) {
        assert!(Instant::now() < deadline, "process {id} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether all threads are stopped; true on systems without `/proc`.
fn stands_still(id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit(')')
            .next()
            .is_none_or(|rest| rest.trim_start().starts_with(['T', 'Z']) || rest.is_empty())
    })
}
