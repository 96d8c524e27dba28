//! The operations on a private server of any kind.

use std::path::Path;
use std::process::ExitStatus;

use super::ServerError;
use super::process::{Probe, Process};

/// A kind of server: its options, and how to find out that it is ready.
pub trait ServerKind: Send + Sync {
    /// Checks once whether the child `pid`, which listens on `port` and has the folder `dir`, is
    /// ready.
    fn probe(&self, port: u16, dir: &Path, pid: u32) -> impl Future<Output = Probe> + Send;
}

/// A private server. It is killed and its data is removed when the value is dropped.
#[derive(Debug)]
pub struct Server<K> {
    pub(super) process: Process,
    pub(super) kind: K,
}

impl<K: ServerKind> Server<K> {
    /// A server with its arguments, not started: [`Server::restart`] starts it.
    pub(super) fn over(process: Process, kind: K) -> Self {
        Server { process, kind }
    }

    /// As [`Server::over`], started and ready.
    pub(super) async fn started(process: Process, kind: K) -> Result<Self, ServerError> {
        let mut server = Self::over(process, kind);
        server.restart().await?;
        Ok(server)
    }

    /// The port on 127.0.0.1, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.process.port()
    }

    /// The process id; `None` if the server is down.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// The folder with its data, its configuration and its `log`.
    pub fn dir(&self) -> &Path {
        self.process.dir()
    }

    /// Adds variables for every later start.
    pub fn set_env<'a>(&mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.process.set_env(
            variables
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        );
    }

    /// Keeps the log of every earlier start as `log.0`, `log.1`, … in its folder.
    pub fn keep_logs(&mut self) {
        self.process.keep_logs();
    }

    /// SIGKILL: a crash. Data that the operating system has is kept; unwritten data is lost.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        self.process.kill()
    }

    /// SIGTERM; waits for the end of the process. Returns the exit status, `None` if it was not
    /// running.
    pub async fn stop(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        self.process.stop().await
    }

    /// Starts the server on the same port and data, and returns once it is ready. A running server
    /// is killed first.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.process.kill()?;
        let (port, dir) = (self.process.port(), self.process.dir().to_owned());
        self.process.start(async |pid| self.kind.probe(port, &dir, pid).await).await
    }

    /// The exit status of a server that ended by itself, once.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        self.process.ended()
    }

    /// SIGSTOP: the server keeps its connections and answers nothing.
    pub fn freeze(&self) -> Result<(), ServerError> {
        self.process.freeze()
    }

    /// SIGCONT after [`Server::freeze`].
    pub fn thaw(&self) -> Result<(), ServerError> {
        self.process.thaw()
    }
}
