//! The engine's agent for expired leases, with the settings, metrics and wake-ups of the sidecar.

use std::sync::Arc;

use dwell_engine::rescue::{RescueObserver, RescueRules};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Instant;
use crate::config::{Delivery, Queues};
use crate::dispatch::lease_of;
use crate::fleet::{Fleet, WakeUps};
use crate::job::DeadReason;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::wake_up::WakeUp;
use crate::telemetry::{DuplicateCause, LeaseEnd, Metrics};

/// The agent that takes over expired leases.
pub struct Rescue {
    store: Arc<Store>,
    rules: RescueRules,
    observed: Observed,
    fleet: watch::Receiver<Fleet>,
}

/// The receivers of the events of a rescue.
#[derive(Clone)]
struct Observed {
    /// For the labels of metrics.
    queues: Arc<Queues>,
    metrics: Metrics,
    wake_ups: WakeUps,
}

impl RescueObserver for Observed {
    fn timed_out(&self, queue: Option<&str>, count: u64) {
        if let Some(metrics) =
            queue.and_then(|queue| self.metrics.queue(&self.queues.get(queue)?.name))
        {
            metrics.ended(LeaseEnd::Timeout, count);
        }
    }

    fn taken_over(&self) {
        self.metrics.possible_duplicates(DuplicateCause::Rescued, 1);
    }

    fn dead(&self, reason: DeadReason) {
        self.metrics.dead(reason);
    }

    fn wake(&self, head: WakeUp) -> BoxFuture<'_, ()> {
        self.wake_ups.wake(vec![head]).boxed()
    }
}

impl Rescue {
    /// Makes an agent; [`Rescue::run`] starts it.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        rules: Delivery,
        metrics: Metrics,
        fleet: watch::Receiver<Fleet>,
        wake_ups: WakeUps,
    ) -> Self {
        let rules = RescueRules { lease: lease_of(&rules), retry_ms: rules.retry_ms.into() };
        Rescue {
            store,
            rules,
            observed: Observed { queues: Arc::default(), metrics, wake_ups },
            fleet,
        }
    }

    /// The same with the queues of the settings.
    #[must_use]
    pub fn with_queues(mut self, queues: Arc<Queues>) -> Self {
        self.observed.queues = queues;
        self
    }

    /// Takes over expired leases until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        self.agent().run(stop).await;
    }

    /// Handles one bucket until no lease in it has expired. Returns when the next one expires.
    pub async fn run_once(&self, bucket: u16) -> Result<Option<Instant>, StoreError> {
        self.agent().run_once(bucket).await
    }

    fn agent(&self) -> dwell_engine::rescue::Rescue {
        dwell_engine::rescue::Rescue::new(
            self.store.clone(),
            self.rules.clone(),
            Arc::new(self.observed.clone()),
            self.fleet.clone(),
        )
    }
}
