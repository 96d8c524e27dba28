//! The machine of a measurement: cores, memory and versions, without host names.

use std::fs;

use serde::{Deserialize, Serialize};

use dwell::store::Store;
use dwell_testkit::environment::{Environment, Result};

/// A machine and what ran on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The name of the processor; empty if unknown.
    pub processor: String,
    /// Memory, bytes; 0 if unknown.
    pub memory: u64,
    /// `linux x86_64`
    pub system: String,
    /// This program: its version and its build profile.
    pub dwell: String,
    /// Redis's name and version.
    pub redis: String,
    /// The broker's name and version.
    pub broker: String,
}

impl Machine {
    /// This machine, with the servers of this environment.
    ///
    /// # Errors
    /// Redis did not answer.
    pub async fn of(environment: &Environment, store: &Store) -> Result<Machine> {
        let read = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
            value.unwrap_or_default().trim().to_owned()
        };
        let kib = read("/proc/meminfo", "MemTotal");
        let build =
            if cfg!(debug_assertions) { " (debug build: its figures mean nothing)" } else { "" };
        Ok(Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: read("/proc/cpuinfo", "model name"),
            memory: kib.trim_end_matches("kB").trim().parse().unwrap_or(0) * 1024,
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            dwell: format!("{}{build}", env!("CARGO_PKG_VERSION")),
            redis: store.reader.version().await?,
            broker: environment.broker_version().await.unwrap_or_default(),
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { cores, processor, memory, system, dwell, redis, broker } = self;
        let gib = *memory as f64 / f64::from(1 << 30);
        write!(f, "{cores} cores")?;
        if !processor.is_empty() {
            write!(f, " ({processor})")?;
        }
        write!(f, ", {gib:.0} GiB, {system}; dwell {dwell}, {redis}, {broker}")
    }
}
