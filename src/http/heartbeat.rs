//! The agents' sign of life.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{self, Instant};

/// When an agent last turned its loop, as `/livez` tells it. It tells only: a loop that waits for an outage to end is alive.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<Mutex<Instant>>);

impl Heartbeat {
    /// The first beat is now.
    #[must_use]
    pub fn new() -> Self {
        Heartbeat(Arc::new(Mutex::new(clock::now())))
    }

    /// An agent turned its loop.
    pub fn beat(&self) {
        *self.0.lock() = clock::now();
    }

    /// How long ago the last beat was.
    #[must_use]
    pub fn age(&self) -> Duration {
        clock::now().saturating_duration_since(*self.0.lock())
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self::new()
    }
}
