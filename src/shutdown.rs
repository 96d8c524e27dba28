//! Signals: SIGTERM and SIGINT ask for an orderly end, the second of them for an immediate one.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for signals.
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Takes SIGTERM and SIGINT over from the system's default, which is to die.
    pub fn new() -> std::io::Result<Self> {
        Ok(Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// The next signal's name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
