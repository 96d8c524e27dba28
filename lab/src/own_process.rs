//! Processes of this program, which end when their input ends.

use std::io;
use std::process::Stdio;

use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// Starts this program with these arguments. The process ends with the value at the latest.
pub(crate) fn spawn(arguments: &[String], out: Stdio) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::piped()).stdout(out).kill_on_drop(true).spawn()
}

/// Is cancelled when the input of this process ends.
pub(crate) fn input_end() -> CancellationToken {
    let end = CancellationToken::new();
    let told = end.clone();
    std::thread::spawn(move || {
        // Whatever ends the input ends the process.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        told.cancel();
    });
    end
}
