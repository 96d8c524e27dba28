//! A private server of any kind: a process, and how to find out that it is ready.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use super::ServerError;
use super::process::Process;

/// A kind of server: its options, and how to find out that it is ready.
pub trait ServerKind: Send + Sync {
    /// Checks once whether the child `pid` itself, which has the folder `dir`, serves on `port`.
    fn is_ready(&self, port: u16, dir: &Path, pid: u32) -> impl Future<Output = bool> + Send;
}

/// A private server, with the operations of its [`Process`]. It is killed and its data is removed
/// when the value is dropped.
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

    /// Starts the server on the same port and data, and returns once it is ready. A running server
    /// is killed first.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.process.kill()?;
        let (port, dir) = (self.process.port(), self.process.dir().to_owned());
        self.process.start(async |pid| self.kind.is_ready(port, &dir, pid).await).await
    }
}

impl<K> Deref for Server<K> {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl<K> DerefMut for Server<K> {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
