//! A private server of whichever kind: what can be done to each of them.

use std::path::Path;
use std::process::ExitStatus;

use super::ServerError;
use super::process::{Probe, Process};

/// What a kind of server adds to a process: its options, and when it is ready.
pub trait ServerKind: Send + Sync {
    /// Looks once at the child `pid` that listens on `port` and has the folder `dir`.
    fn probe(&self, port: u16, dir: &Path, pid: u32) -> impl Future<Output = Probe> + Send;
}

/// A private server. Dropped, it is killed, and its folder goes with its data.
#[derive(Debug)]
pub struct Server<K> {
    pub(super) process: Process,
    pub(super) kind: K,
}

impl<K: ServerKind> Server<K> {
    /// A server whose arguments are set, not started yet: [`Server::restart`] does.
    pub(super) fn over(process: Process, kind: K) -> Self {
        Server { process, kind }
    }

    /// The same, started and ready.
    pub(super) async fn started(process: Process, kind: K) -> Result<Self, ServerError> {
        let mut server = Self::over(process, kind);
        server.restart().await?;
        Ok(server)
    }

    /// The port on 127.0.0.1: the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.process.port()
    }

    /// The process id; `None` while it is down.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// The folder with its data, its configuration and its `log`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.process.dir()
    }

    /// Sets variables for every later start, besides those of this process.
    pub fn set_env<'a>(&mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.process.set_env(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
    }

    /// From now on a start leaves the log of the one before as `log.0`, `log.1`, … in its folder.
    pub fn keep_logs(&mut self) {
        self.process.keep_logs();
    }

    /// SIGKILL: a crash. The system still has what it wrote; what it had not written is gone.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        self.process.kill()
    }

    /// SIGTERM, and waits for its end. How it ended; `None` where it did not run.
    pub async fn stop(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        self.process.stop().await
    }

    /// Starts it on the same port and data, and returns when it is ready. One that runs is killed first.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.process.kill()?;
        let (port, dir) = (self.process.port(), self.process.dir().to_owned());
        self.process.start(async |pid| self.kind.probe(port, &dir, pid).await).await
    }

    /// How it ended, where it ended by itself and nobody was told yet.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        self.process.ended()
    }

    /// SIGSTOP: it keeps its connections and answers nothing, as a host that hangs.
    pub fn freeze(&self) -> Result<(), ServerError> {
        self.process.freeze()
    }

    /// SIGCONT after [`Server::freeze`].
    pub fn thaw(&self) -> Result<(), ServerError> {
        self.process.thaw()
    }
}
