//! The engine's agent for expired leases, with the settings, events and wake-ups of the sidecar.

use std::sync::Arc;

use dwell_engine::rescue::{RescueRules, WakeReaders};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Instant;
use crate::config::Delivery;
use crate::dispatch::lease_of;
use crate::fleet::{Fleet, WakeUps};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::wake_up::WakeUp;
use crate::telemetry::Events;

/// The agent that takes over expired leases.
pub struct Rescue(dwell_engine::rescue::Rescue);

impl WakeReaders for WakeUps {
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()> {
        self.wake(vec![head]).boxed()
    }
}

impl Rescue {
    /// Makes an agent; [`Rescue::run`] starts it.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        rules: Delivery,
        events: Events,
        fleet: watch::Receiver<Fleet>,
        wake_ups: WakeUps,
    ) -> Self {
        let rules =
            RescueRules { lease: lease_of(&rules), retry_ms: rules.retry.as_slice().into() };
        let (events, wake_ups) = (Arc::new(events), Arc::new(wake_ups));
        Rescue(dwell_engine::rescue::Rescue::new(store, rules, events, wake_ups, fleet))
    }

    /// Takes over expired leases until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        self.0.run(stop).await;
    }

    /// Handles one bucket until no lease in it has expired. Returns when the next one expires.
    pub async fn run_once(&self, bucket: u16) -> Result<Option<Instant>, StoreError> {
        self.0.run_once(bucket).await
    }
}
