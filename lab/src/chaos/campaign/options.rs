//! The options of a campaign.

use std::path::PathBuf;
use std::time::Duration;

use dwell::config::RedisMode;

use crate::chaos::fault::FaultKind;
use crate::chaos::plan::Pace;
use crate::chaos::system::SystemOptions;
use crate::words::word;

/// The options of a campaign.
#[derive(Debug, Clone)]
pub struct Options {
    /// The system under test.
    pub system: SystemOptions,
    /// The seed of plan and load.
    pub seed: u64,
    /// The time during which faults are injected.
    pub duration: Duration,
    /// The least number of faults: a slow machine takes longer than the duration for them.
    pub least: usize,
    /// Jobs a second.
    pub rate: u32,
    /// The pace of the faults.
    pub pace: Pace,
    /// Only these kinds of faults; empty: all that apply.
    pub only: Vec<FaultKind>,
    /// The folder of the history and, after a failed run, of the logs.
    pub out: PathBuf,
    /// The command line that repeats this run.
    pub repeat: String,
    /// Prints progress.
    pub say: fn(&str),
}

impl Options {
    /// The name of the run in the names of its files.
    #[must_use]
    pub fn name(&self) -> String {
        let http = if self.system.http { "-http" } else { "" };
        let what = format!("{}{http}", self.system.broker.as_str());
        run_name(&what, self.system.redis, self.seed)
    }
}

/// The name of a run in the names of its files: its broker, the mode of Redis, and the seed.
pub(super) fn run_name(broker: &str, redis: RedisMode, seed: u64) -> String {
    let redis = match redis {
        RedisMode::Single => String::new(),
        other => format!("-{}", word(&other)),
    };
    format!("{broker}{redis}-{seed}")
}
