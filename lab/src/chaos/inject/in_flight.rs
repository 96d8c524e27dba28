//! The highest number of jobs in flight during a fault.

use std::time::Duration;

use dwell::clock;

use crate::chaos::system::{Error, System};

/// The interval between two queries of Redis.
const TICK: Duration = Duration::from_millis(2);
/// Long enough for a query during it.
const SEEN: Duration = Duration::from_millis(30);

/// Waits after a freeze before a kill, so that the jobs in flight are counted.
pub(crate) async fn let_it_be_seen() {
    clock::sleep(SEEN).await;
}

/// The most jobs seen in flight so far.
pub(super) struct InFlight {
    most: u64,
}

impl InFlight {
    /// Counts the jobs in flight just before a fault.
    pub(super) async fn begin(system: &System) -> Self {
        InFlight { most: system.reserved().await.unwrap_or(0) }
    }

    /// Counts during this future.
    pub(super) async fn during<T>(&mut self, system: &System, doing: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let watching = async {
            loop {
                self.most = self.most.max(system.reserved().await.unwrap_or(0));
                clock::sleep(TICK).await;
            }
        };
        tokio::select! {
            done = doing => done,
            never = watching => never,
        }
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }
}
