//! The settings of the process itself: `[shutdown]` and `[runtime]`.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use super::values::Millis;

/// The drain after SIGTERM.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Shutdown {
    /// How long to wait for confirms before unfinished claims are released. At most 1h.
    pub drain: Millis<0, 3_600_000>,
}

impl Default for Shutdown {
    fn default() -> Self {
        defaults::section("shutdown")
    }
}

/// What the process takes of its host.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Runtime {
    /// The number of threads that work. Each takes memory, also while it is idle. 0: as many as the
    /// process may use processors, and at most 4.
    #[schemars(range(min = 0, max = 512))]
    pub threads: u64,
}

impl Default for Runtime {
    fn default() -> Self {
        defaults::section("runtime")
    }
}

/// The most threads where the settings name no number. Memory grows with each; a sidecar on a large
/// host needs no more.
const MAX_DEFAULT_THREADS: usize = 4;

impl Runtime {
    /// Returns the number of worker threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads_of(processors)
    }

    /// The number of worker threads on so many processors.
    pub(super) fn threads_of(&self, processors: impl FnOnce() -> usize) -> usize {
        match usize::try_from(self.threads) {
            Ok(threads) if threads > 0 => threads,
            _ => processors().min(MAX_DEFAULT_THREADS),
        }
    }
}
