//! The highest number of jobs, and of leases in each state, during a fault.

use std::time::Duration;

use dwell::clock;

use crate::chaos::history::Leases;
use crate::chaos::system::{Error, System};

/// The interval between two queries of Redis.
const QUERY_INTERVAL: Duration = Duration::from_millis(2);
/// Long enough for a query during it.
const VISIBLE_DURATION: Duration = Duration::from_millis(30);

/// Waits after a freeze before a kill, so that the jobs in flight are counted.
pub(crate) async fn let_it_be_seen() {
    clock::sleep(VISIBLE_DURATION).await;
}

/// The most jobs and leases seen in flight so far.
pub(super) struct InFlight {
    most: Leases,
}

impl InFlight {
    /// Counts just before a fault.
    pub(super) async fn begin(system: &System) -> Self {
        InFlight { most: system.redis.census.count(i64::MAX).await.leases }
    }

    /// Counts during this future.
    pub(super) async fn during<T>(
        &mut self,
        system: &System,
        doing: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let watching = async {
            loop {
                self.most = self.most.most(system.redis.census.count(i64::MAX).await.leases);
                clock::sleep(QUERY_INTERVAL).await;
            }
        };
        tokio::select! {
            done = doing => done,
            never = watching => never,
        }
    }

    pub(super) fn most(&self) -> Leases {
        self.most
    }
}
