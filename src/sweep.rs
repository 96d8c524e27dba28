//! Keeps the namespace tidy (retention of the dead, turns of the memories) and the gauges true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Delivery;
use crate::fleet::{Fleet, serves};
use crate::store::Store;
use crate::store::act::SweepRules;
use crate::store::error::StoreError;
use crate::store::read::Counts;
use crate::telemetry::{DueWithin, JobState, Metrics};
use crate::units::show_duration_ms;

/// How often the gauges are taken by a fleet of up to [`SMALL`] instances.
const GAUGES: Duration = Duration::from_secs(5);
/// The longest time between two counts of one instance in a larger fleet. A reader who finds older gauges has them counted anew (telemetry/gauges.rs).
const GAUGES_MOST: Duration = Duration::from_secs(15);
/// Up to so many instances each takes the gauges as often as one alone.
const SMALL: u32 = 10;
/// How often the buckets are swept; in a larger fleet by each instance more rarely, so that all together do as much as [`SMALL`] would.
const SWEEP: Duration = Duration::from_secs(30);

/// The agent that sweeps.
pub struct Sweep {
    store: Arc<Store>,
    /// What the settings say.
    own: SweepRules,
    /// What the namespace keeps, which is followed; `None` until it was read.
    kept: Mutex<Option<SweepRules>>,
    metrics: Metrics,
    fleet: watch::Receiver<Fleet>,
    /// Brokers to which nobody delivered when it was looked last.
    deserted: Mutex<BTreeSet<String>>,
}

impl Sweep {
    /// An agent that is not running yet.
    #[must_use]
    pub fn new(store: Arc<Store>, rules: &Delivery, metrics: Metrics, fleet: watch::Receiver<Fleet>) -> Self {
        Sweep { store, own: rules.into(), kept: Mutex::default(), metrics, fleet, deserted: Mutex::default() }
    }

    /// Sweeps and counts until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut sweep_at = clock::now();
        loop {
            let counted = self.count().await;
            self.metrics.gauges().tried(counted.is_ok());
            if let Err(error) = counted {
                tracing::debug!(%error, "the gauges are old");
            }
            if clock::now() >= sweep_at {
                sweep_at = clock::now() + self.fleet.borrow().shared(SWEEP / SMALL).max(SWEEP);
                if let Err(error) = self.run_once().await {
                    tracing::warn!(%error, hint = error.hint, "sweeping failed, trying again");
                }
            }
            let gauges = self.fleet.borrow().shared(GAUGES / SMALL).clamp(GAUGES, GAUGES_MOST);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(gauges) => {}
                () = self.metrics.gauges().wanted() => {}
            }
        }
    }

    /// One pass over all buckets. A namespace that Redis lost is made again before: new instances, and people at a command line, look for it.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        let mut result = self.store.rejoin().await;
        result = result.and(self.follow().await);
        // Those of the settings may be shorter than what is kept: nothing is removed by them.
        let Some(rules) = *self.kept.lock() else { return result };
        for bucket in 0..self.store.keys().buckets() {
            // One that fails (damage, a shard that is down) keeps no other from being swept.
            result = result.and(self.sweep(bucket, rules).await);
        }
        result
    }

    /// Reads what the namespace keeps, and says where that is not what the settings say.
    async fn follow(&self) -> Result<(), StoreError> {
        let kept = self.store.keep(self.own).await?;
        let before = self.kept.lock().replace(kept);
        if before != Some(kept) && (before.is_some() || kept != self.own) {
            let show = |rules: SweepRules| {
                format!(
                    "dead_retention {}, dedupe_window {}",
                    show_duration_ms(rules.dead_retention_ms),
                    show_duration_ms(rules.dedupe_window_ms)
                )
            };
            tracing::warn!(
                kept = show(kept),
                settings = show(self.own),
                hint = "make the settings of all instances the same; `dwell check --adopt` makes the namespace keep what the settings say",
                "the namespace keeps delivery.dead_retention and delivery.dedupe_window, and what it keeps is followed"
            );
        }
        Ok(())
    }

    async fn sweep(&self, bucket: u16, rules: SweepRules) -> Result<(), StoreError> {
        loop {
            let swept = self.store.sweep(bucket, rules).await?;
            if swept.master_changed {
                tracing::warn!(bucket, "redis is another master, or restarted: what it had not replicated or fsynced is lost");
            }
            if swept.dead == 0 {
                return Ok(());
            }
        }
    }

    async fn count(&self) -> Result<(), StoreError> {
        let horizons: Vec<u64> = DueWithin::HORIZONS.iter().map(|horizon| horizon.ms() / 1000).collect();
        let counts = self.store.counts(&horizons).await?;
        self.metrics.jobs(JobState::Scheduled, counts.scheduled.iter().sum());
        self.metrics.jobs(JobState::Reserved, counts.reserved.iter().sum());
        self.metrics.jobs(JobState::Dead, counts.dead.iter().sum());
        for (horizon, count) in DueWithin::HORIZONS.iter().zip(&counts.within) {
            self.metrics.due_within(*horizon, *count);
        }
        let overdue_ms = counts.next_due_ms.map_or(0, |due| counts.now_ms.saturating_sub(due).max(0));
        self.metrics.oldest_overdue(Duration::from_millis(u64::try_from(overdue_ms).unwrap_or(0)));
        self.strand(&counts).await
    }

    /// Finds the jobs of brokers that are neither in the settings nor in those of any other instance that lives, twice in a row: others start too.
    async fn strand(&self, counts: &Counts) -> Result<(), StoreError> {
        let foreign = counts.brokers.iter().filter(|(name, count)| *count > 0 && !self.store.own_brokers().contains(name));
        let mut stranded: BTreeMap<String, u64> = foreign.cloned().collect();
        if !stranded.is_empty() {
            let living = self.store.living().await?;
            let fleet = self.fleet.borrow();
            stranded.retain(|broker, _| !living.iter().any(|entry| entry != fleet.me() && serves(entry, broker)));
        }
        let before = std::mem::replace(&mut *self.deserted.lock(), stranded.keys().cloned().collect());
        stranded.retain(|broker, _| before.contains(broker));
        let told = self.metrics.stranded().get();
        for (broker, jobs) in stranded.iter().filter(|(broker, _)| !told.contains_key(*broker)) {
            let hint = "name it in the settings again, or move them: dwell requeue --broker OLD --to NEW";
            tracing::warn!(broker, jobs, hint, "jobs wait for a broker to which no instance delivers");
        }
        for broker in told.keys().filter(|broker| !stranded.contains_key(*broker)) {
            tracing::info!(broker, "no job waits any more for a broker to which no instance delivers");
        }
        self.metrics.stranded().set(stranded);
        Ok(())
    }
}
