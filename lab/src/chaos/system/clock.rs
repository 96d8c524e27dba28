//! A wall clock that can jump, for the instances or for Redis: a small preloaded library.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use dwell::clock;

use super::Error;

/// The library, in C: compiled by the C compiler of the build.
const LIBRARY_SOURCE: &str = include_str!("clock.c");
/// The variable that names the file with the error of the clock, in seconds.
const OFFSET_VARIABLE: &str = "CHAOS_CLOCK_OFFSET";

/// The simulated wall clock of one host.
pub(crate) struct HostClock {
    /// `None` without a C compiler.
    library: Option<PathBuf>,
    offset: PathBuf,
}

impl HostClock {
    /// A correct clock, with its files in this folder.
    pub(super) async fn new(folder: &Path, host: &str) -> Result<Self, Error> {
        let [source, library, offset] =
            ["c", "so", "offset"].map(|kind| folder.join(format!("{host}.{kind}")));
        for (file, text) in [(&source, LIBRARY_SOURCE), (&offset, "0\n")] {
            std::fs::write(file, text).map_err(Error::file(file))?;
        }
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = tokio::process::Command::new(compiler);
        command.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).arg("-ldl");
        command.stdin(Stdio::null());
        let compiled = command.output().await.is_ok_and(|output| output.status.success());
        Ok(HostClock { library: compiled.then_some(library), offset })
    }

    /// The environment variables of a process with this clock.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(library) = &self.library else { return Vec::new() };
        vec![
            ("LD_PRELOAD", library.display().to_string()),
            (OFFSET_VARIABLE, self.offset.display().to_string()),
        ]
    }

    /// The error of the clock in a process that has it, µs, to a second.
    pub(crate) async fn step_us(&self) -> Result<i64, Error> {
        let mut command = tokio::process::Command::new("date");
        command.arg("+%s").envs(self.environment()).stdin(Stdio::null()).kill_on_drop(true);
        let said = command.output().await.map_err(Error::io("date"))?;
        let said = String::from_utf8_lossy(&said.stdout).trim().parse::<i64>();
        let seconds = said.map_err(|_| Error::unexpected("date said no time"))?;
        Ok(seconds * 1_000_000 - clock::wall_us())
    }

    /// Fails if a process does not read this clock, such as a statically linked one.
    pub(crate) fn is_in(&self, pid: Option<u32>) -> Result<(), Error> {
        let Some((pid, library)) = pid.zip(self.library.as_deref()) else { return Ok(()) };
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))
            .map_err(Error::io(format!("the libraries of process {pid}")))?;
        if maps.contains(&*library.to_string_lossy()) {
            Ok(())
        } else {
            let why = format!("process {pid} has its own clock: the library is not preloaded");
            Err(Error::Unexpected(why))
        }
    }

    /// Sets the error of the clock, in seconds. Processes read it within a hundredth of a second.
    pub(crate) fn set(&self, seconds: i64) -> Result<(), Error> {
        if self.library.is_none() {
            let why = "a jump of the clock needs a C compiler: set CC, or install one";
            return Err(Error::unexpected(why));
        }
        // Renamed, so that no process reads a part of the number.
        let next = self.offset.with_extension("next");
        std::fs::write(&next, format!("{seconds}\n"))
            .and_then(|()| std::fs::rename(&next, &self.offset))
            .map_err(Error::file(&self.offset))
    }
}
