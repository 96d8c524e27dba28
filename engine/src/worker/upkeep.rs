//! The upkeep of the namespace without a sidecar: the heartbeat, the rescue of expired leases, and
//! the sweep.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join3};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::clock::{self, whole_ms};
use crate::consumers::Consumers;
use crate::events::{JobEvent, Observer, log};
use crate::fleet::{Fleet, entry, heartbeat};
use crate::rescue::{Rescue, RescueRules, WakeReaders};
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::meta::SweepRules;
use crate::store::wake_up::WakeUp;

/// The lease of a rescue, as a sidecar with the default settings has it.
const RESCUE_LEASE: Duration = Duration::from_secs(20);
/// The interval between two sweeps of the buckets, which a larger fleet spreads.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The upkeep of a worker.
pub(super) struct Upkeep {
    store: Arc<Store>,
    consumers: Consumers,
    retry_ms: Arc<[u64]>,
    queues: Vec<String>,
    dead_retention_ms: u64,
}

/// The subscriber to the events of a worker: the log.
struct Logged;

impl Observer for Logged {
    fn observe(&self, event: &JobEvent<'_>) {
        log::write(event);
        if let JobEvent::TimedOut { queue, count } = *event {
            tracing::debug!(queue, jobs = count, "consumers did not finish jobs within the ttr");
        }
    }
}

impl WakeReaders for Consumers {
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()> {
        self.wake_all(vec![head]).boxed()
    }
}

impl Upkeep {
    pub(super) fn new(
        client: &Client,
        consumers: Consumers,
        queues: Vec<String>,
        dead_retention: Duration,
    ) -> Upkeep {
        let (store, retry_ms) = (client.store.clone(), client.retry_ms.clone());
        Upkeep { store, consumers, retry_ms, queues, dead_retention_ms: whole_ms(dead_retention) }
    }

    /// Runs until told to stop.
    pub(super) async fn run(self, stop: CancellationToken) {
        // A worker delivers to no broker. Its queues are not stranded.
        let sets: Vec<String> =
            self.queues.iter().map(|queue| DueSet::Queue(queue).to_string()).collect();
        let me =
            entry(&format!("worker-{}-{:08x}", std::process::id(), rand::random::<u32>()), &sets);
        let (fleet, follows) = watch::channel(Fleet::alone(&me));
        let rules = RescueRules { lease: RESCUE_LEASE, retry_ms: self.retry_ms.clone() };
        let rescue = Rescue::new(
            self.store.clone(),
            rules,
            Arc::new(Logged),
            Arc::new(self.consumers.clone()),
            follows.clone(),
        );
        join3(
            heartbeat(self.store.clone(), fleet, stop.clone()),
            rescue.run(stop.clone()),
            self.sweep_on(follows, stop.clone()),
        )
        .await;
    }

    async fn sweep_on(&self, fleet: watch::Receiver<Fleet>, stop: CancellationToken) {
        loop {
            if let Err(error) = self.sweep().await
                && !error.is_told()
            {
                tracing::warn!(%error, hint = error.hint, "sweeping failed, trying again");
            }
            let pause = fleet.borrow().spread(SWEEP_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    /// Sweeps all buckets once. First creates a namespace again that Redis lost.
    async fn sweep(&self) -> Result<(), StoreError> {
        self.store.rejoin().await?;
        let rules = self.store.admin.rules_or(SweepRules::DEFAULT).await?;
        let mut result = Ok(());
        for bucket in 0..self.store.keys().buckets() {
            // A bucket that fails does not stop the sweep of the others.
            result = result.and(self.sweep_bucket(bucket, rules).await);
        }
        let counts = self.store.reader.active_counts(|_| true).await?;
        result.and(self.store.admin.forget_queues(&counts.empty).await)
    }

    async fn sweep_bucket(&self, bucket: u16, rules: SweepRules) -> Result<(), StoreError> {
        loop {
            let swept = self.store.admin.sweep(bucket, rules).await?;
            if swept.master_changed {
                tracing::warn!(
                    bucket,
                    "redis failed over or restarted: writes that were not replicated or fsynced are lost"
                );
            }
            if swept.dead == 0 {
                break;
            }
        }
        let by_ms = self
            .store
            .now_ms()
            .saturating_sub(i64::try_from(self.dead_retention_ms).unwrap_or(i64::MAX));
        let asked: Vec<(String, i64)> =
            self.queues.iter().map(|queue| (queue.clone(), by_ms)).collect();
        let old = self.store.admin.with_old_dead(bucket, &asked).await?;
        for (queue, _) in self.queues.iter().zip(old).filter(|(_, has_old)| *has_old) {
            while self.store.admin.sweep_queue(bucket, queue, self.dead_retention_ms).await? > 0 {}
        }
        Ok(())
    }
}
