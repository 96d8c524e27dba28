//! Removes what has expired from the namespace (dead jobs, remembered outcomes), and updates the
//! gauges.

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
use crate::store::error::StoreError;
use crate::store::meta::SweepRules;
use crate::store::reader::counts::Counts;
use crate::telemetry::{DueWithin, JobState, Metrics};
use crate::units::show_duration_ms;

/// The interval between gauge updates, which a larger fleet spreads.
const GAUGE_INTERVAL: Duration = Duration::from_secs(5);
/// The longest time between two updates of one instance in a larger fleet. A scrape that finds
/// older gauges asks for an update (telemetry/gauges.rs).
const MAX_GAUGE_INTERVAL: Duration = Duration::from_secs(15);
/// The interval between sweeps of buckets, which a larger fleet spreads.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The agent that sweeps.
pub struct Retention {
    store: Arc<Store>,
    /// The rules of the settings.
    own: SweepRules,
    /// The rules that the namespace keeps, which apply; `None` until they are read.
    kept: Mutex<Option<SweepRules>>,
    metrics: Metrics,
    fleet: watch::Receiver<Fleet>,
    /// Brokers without a delivering instance at the last look.
    undelivered: Mutex<BTreeSet<String>>,
}

impl Retention {
    /// Makes an agent; [`Retention::run`] starts it.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        rules: &Delivery,
        metrics: Metrics,
        fleet: watch::Receiver<Fleet>,
    ) -> Self {
        Retention {
            store,
            own: rules.into(),
            kept: Mutex::default(),
            metrics,
            fleet,
            undelivered: Mutex::default(),
        }
    }

    /// Sweeps and counts until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut sweep_at = clock::now();
        loop {
            let counted = self.count().await;
            self.metrics.gauges().tried(counted.is_ok());
            if let Err(error) = counted {
                tracing::debug!(%error, "the gauges could not be updated");
            }
            if clock::now() >= sweep_at {
                sweep_at = clock::now() + self.fleet.borrow().spread(SWEEP_INTERVAL);
                if let Err(error) = self.run_once().await
                    && !error.is_told()
                {
                    tracing::warn!(%error, hint = error.hint, "sweeping failed, trying again");
                }
            }
            let gauges = self.fleet.borrow().spread(GAUGE_INTERVAL).min(MAX_GAUGE_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(gauges) => {}
                () = self.metrics.gauges().wanted() => {}
            }
        }
    }

    /// One pass over all buckets. First makes a namespace again that Redis lost: new instances and
    /// commands look for it.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        let mut result = self.store.rejoin().await;
        result = result.and(self.follow().await);
        // The retention of the settings may be shorter than the namespace's: nothing is removed by
        // the settings.
        let Some(rules) = *self.kept.lock() else { return result };
        for bucket in 0..self.store.keys().buckets() {
            // A bucket that fails (damage, a shard that is down) does not stop the sweep of the
            // others.
            result = result.and(self.sweep(bucket, rules).await);
        }
        result
    }

    /// Reads the rules of the namespace, and warns where the settings differ.
    async fn follow(&self) -> Result<(), StoreError> {
        let kept = self.store.admin.keep(self.own).await?;
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
                "delivery.dead_retention and delivery.dedupe_window of the namespace differ from the settings; the values of the namespace apply"
            );
        }
        Ok(())
    }

    async fn sweep(&self, bucket: u16, rules: SweepRules) -> Result<(), StoreError> {
        loop {
            let swept = self.store.admin.sweep(bucket, rules).await?;
            if swept.master_changed {
                tracing::warn!(
                    bucket,
                    "redis failed over or restarted: writes that were not replicated or fsynced are lost"
                );
            }
            if swept.dead == 0 {
                return Ok(());
            }
        }
    }

    async fn count(&self) -> Result<(), StoreError> {
        let horizons: Vec<u64> =
            DueWithin::HORIZONS.iter().map(|horizon| horizon.ms() / 1000).collect();
        let counts = self.store.reader.counts(&horizons).await?;
        self.metrics.jobs(JobState::Scheduled, counts.scheduled.iter().sum());
        self.metrics.jobs(JobState::Reserved, counts.reserved.iter().sum());
        self.metrics.jobs(JobState::Dead, counts.dead.iter().sum());
        for (horizon, count) in DueWithin::HORIZONS.iter().zip(&counts.within) {
            self.metrics.due_within(*horizon, *count);
        }
        let overdue_ms =
            counts.next_due_ms.map_or(0, |due| counts.now_ms.saturating_sub(due).max(0));
        self.metrics.oldest_overdue(Duration::from_millis(u64::try_from(overdue_ms).unwrap_or(0)));
        self.strand(&counts).await
    }

    /// Finds jobs of brokers that neither these settings nor a living instance delivers to. Reports
    /// a broker at the second look: other instances may be starting.
    async fn strand(&self, counts: &Counts) -> Result<(), StoreError> {
        let foreign = counts
            .brokers
            .iter()
            .filter(|(name, count)| *count > 0 && !self.store.own_brokers().contains(name));
        let mut stranded: BTreeMap<String, u64> = foreign.cloned().collect();
        if !stranded.is_empty() {
            let living = self.store.living().await?;
            let fleet = self.fleet.borrow();
            stranded.retain(|broker, _| {
                !living.iter().any(|entry| entry != fleet.me() && serves(entry, broker))
            });
        }
        let before =
            std::mem::replace(&mut *self.undelivered.lock(), stranded.keys().cloned().collect());
        stranded.retain(|broker, _| before.contains(broker));
        let told = self.metrics.stranded().get();
        for (broker, jobs) in stranded.iter().filter(|(broker, _)| !told.contains_key(*broker)) {
            let hint = "add the broker to the settings again, or move the jobs: dwell requeue --broker OLD --to NEW";
            tracing::warn!(
                broker,
                jobs,
                hint,
                "jobs wait for a broker that no instance delivers to"
            );
        }
        for broker in told.keys().filter(|broker| !stranded.contains_key(*broker)) {
            tracing::info!(broker, "no jobs of this broker are stranded any more");
        }
        self.metrics.stranded().set(stranded);
        Ok(())
    }
}
