//! The base of all private servers: a child process with a port, a folder and a log, and its
//! signals.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::port::Port;
use super::{ServerError, TIMEOUT};
use dwell::clock;

/// The interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server process. It is killed and its folder is removed when the value is dropped.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    program: PathBuf,
    /// The arguments for this port and folder.
    args: Vec<String>,
    /// The environment variables of the child.
    env: Vec<(String, String)>,
    port: Port,
    child: Option<Child>,
    /// Each start keeps the log of the one before as `log.0`, `log.1`, …
    keeps_logs: bool,
    starts: u32,
    /// Declared after the child, so that it is dropped last, when no process writes to it.
    dir: TempDir,
}

impl Process {
    /// Reserves a port and a folder, and starts nothing.
    pub(super) fn new(name: &'static str, program: PathBuf) -> Result<Self, ServerError> {
        let dir = tempfile::Builder::new()
            .prefix("dwell-")
            .tempdir()
            .map_err(ServerError::prepare("a temporary folder"))?;
        Ok(Process {
            name,
            program,
            args: Vec::new(),
            env: Vec::new(),
            port: Port::reserve()?,
            child: None,
            keeps_logs: false,
            starts: 0,
            dir,
        })
    }

    /// The name of the program.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The port on 127.0.0.1, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The folder with its data, its configuration and its `log`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id; `None` if the server is down.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Sets the arguments for this and every later start.
    pub(super) fn set_args(&mut self, args: Vec<String>) {
        self.args = args;
    }

    /// Sets the variables of every later start.
    pub fn set_env<'a>(&mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        self.env = variables.into_iter().map(owned).collect();
    }

    /// Keeps the log of every earlier start as `log.0`, `log.1`, … in its folder.
    pub fn keep_logs(&mut self) {
        self.keeps_logs = true;
    }

    /// Writes a file of its folder. Returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<String, ServerError> {
        let path = self.dir().join(name);
        let written = fs::write(&path, text);
        written.map_err(ServerError::prepare(format!("the file {}", path.display())))?;
        Ok(path.display().to_string())
    }

    /// Starts the child and waits until `is_ready` says so of the child with this process id.
    /// A taken port is waited for: the caller already knows its number.
    pub(super) async fn start(
        &mut self,
        mut is_ready: impl AsyncFnMut(u32) -> bool,
    ) -> Result<(), ServerError> {
        let ready = clock::timeout(TIMEOUT, async {
            loop {
                let pid = self.spawn()?;
                let ended = loop {
                    clock::sleep(POLL_INTERVAL).await;
                    if let Some(status) = self.ended()? {
                        break status;
                    }
                    if is_ready(pid).await {
                        return Ok(());
                    }
                };
                let log = self.last_words();
                if !log.to_lowercase().contains("address already in use") {
                    return Err(ServerError::Ended {
                        program: self.name,
                        port: self.port(),
                        status: ended,
                        log,
                    });
                }
            }
        })
        .await;
        let Some(result) = ready else {
            self.kill()?;
            return Err(self.late("was not ready"));
        };
        result
    }

    /// SIGKILL: a crash. Data that the operating system has is kept; unwritten data is lost.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        // An error means that the process has already ended.
        let _ = child.kill();
        child.wait().map(drop).map_err(ServerError::prepare("the end of the process"))
    }

    /// SIGTERM; waits for the end of the process. Returns the exit status, `None` if it was not
    /// running.
    pub async fn stop(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        if self.child.is_none() {
            return Ok(None);
        }
        self.signal(Signal::TERM)?;
        // A frozen process handles SIGTERM only after it resumes.
        self.signal(Signal::CONT)?;
        let ended = clock::timeout(TIMEOUT, async {
            loop {
                if let Some(status) = self.ended()? {
                    return Ok(Some(status));
                }
                clock::sleep(POLL_INTERVAL).await;
            }
        })
        .await;
        ended.unwrap_or_else(|| Err(self.late("did not end")))
    }

    /// SIGSTOP: the server keeps its port and its connections, and answers nothing.
    pub fn freeze(&self) -> Result<(), ServerError> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT after [`Process::freeze`].
    pub fn thaw(&self) -> Result<(), ServerError> {
        self.signal(Signal::CONT)
    }

    fn spawn(&mut self) -> Result<u32, ServerError> {
        if self.keeps_logs {
            // Fails if there was no earlier start.
            let _ =
                fs::rename(self.log_path(), self.dir.path().join(format!("log.{}", self.starts)));
            self.starts += 1;
        }
        let log =
            File::create(self.log_path()).map_err(ServerError::prepare("the server's log"))?;
        let also = log.try_clone().map_err(ServerError::prepare("the server's log"))?;
        let mut command = Command::new(&self.program);
        // Settings of the caller's environment must not reach the child, except for the log level.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DWELL_") && name != "DWELL_LOG" {
                command.env_remove(name);
            }
        }
        let child = command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            .spawn()
            .map_err(|error| ServerError::Spawn { program: self.program.clone(), error })?;
        let pid = child.id();
        self.child = Some(child);
        Ok(pid)
    }

    /// The exit status of a server that ended by itself, once.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait().map_err(ServerError::prepare("the end of the process"))?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    fn signal(&self, signal: Signal) -> Result<(), ServerError> {
        let gone = || ServerError::NotRunning { program: self.name, port: self.port() };
        let pid = self
            .pid()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(gone)?;
        // The child was not waited for, so its id is still valid.
        rustix::process::kill_process(pid, signal)
            .map_err(io::Error::from)
            .map_err(ServerError::prepare(format!("a signal to {}", self.name)))
    }

    fn late(&self, what: &'static str) -> ServerError {
        ServerError::Late { program: self.name, port: self.port(), what, log: self.last_words() }
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn last_words(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(6)..].join(" | ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
