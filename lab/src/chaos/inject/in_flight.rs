//! The highest number of jobs in flight during a fault.

use std::time::Duration;

use dwell::clock;

use crate::chaos::system::{Error, System};

/// How often Redis is asked.
const TICK: Duration = Duration::from_millis(2);
/// Long enough to be seen by the watch.
const SEEN: Duration = Duration::from_millis(30);

/// What was frozen to be killed is left so for a moment: what it then has in flight stays there,
/// and is seen.
pub(crate) async fn let_it_be_seen() {
    clock::sleep(SEEN).await;
}

/// The most jobs seen in flight so far.
pub(super) struct InFlight {
    most: u64,
}

impl InFlight {
    /// What is in flight just before.
    pub(super) async fn begin(system: &System) -> Self {
        InFlight { most: system.reserved().await.unwrap_or(0) }
    }

    /// Watches while this goes on.
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
