//! Signals: the first SIGTERM or SIGINT drains, the second ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives signals.
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Replaces the default action of SIGTERM and SIGINT.
    pub fn new() -> std::io::Result<Self> {
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
