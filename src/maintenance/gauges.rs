//! Updates the gauges of the namespace, and finds jobs of brokers that nobody delivers to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::schedules::ScheduleGauges;
use crate::clock;
use crate::config::{Broker, Queues};
use crate::fleet::{Fleet, serves};
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::limits::Limited;
use crate::store::reader::counts::Counts;
use crate::telemetry::{DueWithin, JobState, Metrics};

/// The interval between gauge updates, which a larger fleet spreads.
const GAUGE_INTERVAL: Duration = Duration::from_secs(5);
/// The longest time between two updates of one instance in a larger fleet. A scrape that finds
/// older gauges asks for an update (telemetry/gauges.rs).
const MAX_GAUGE_INTERVAL: Duration = Duration::from_secs(15);

/// The agent that updates the gauges.
pub struct JobGauges {
    store: Arc<Store>,
    metrics: Metrics,
    fleet: watch::Receiver<Fleet>,
    /// Brokers without a delivering instance at the last look.
    undelivered: Mutex<BTreeSet<String>>,
    schedules: ScheduleGauges,
    /// The brokers that have targets with limits.
    limited: BTreeSet<String>,
    queues: Arc<Queues>,
}

impl JobGauges {
    /// Makes an agent; [`JobGauges::run`] starts it.
    #[must_use]
    pub fn new(store: Arc<Store>, metrics: Metrics, fleet: watch::Receiver<Fleet>) -> Self {
        let schedules =
            ScheduleGauges::new(store.clone(), metrics.clone(), Arc::default(), fleet.clone());
        let (undelivered, limited) = (Mutex::default(), BTreeSet::new());
        let queues = Arc::default();
        JobGauges { store, metrics, fleet, undelivered, schedules, limited, queues }
    }

    /// The same of an instance that declares these queues.
    #[must_use]
    pub fn with_queues(self, queues: Arc<Queues>) -> Self {
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let schedules = ScheduleGauges::new(store, metrics, queues.clone(), self.fleet.clone());
        JobGauges { schedules, queues, ..self }
    }

    /// The same of an instance with these brokers.
    #[must_use]
    pub fn with_brokers(self, brokers: &BTreeMap<String, Broker>) -> Self {
        let limited = brokers.iter().filter(|(_, broker)| !broker.limits.is_empty());
        JobGauges { limited: limited.map(|(name, _)| name.clone()).collect(), ..self }
    }

    /// Counts until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let counted = self.count().await;
            self.metrics.gauges().tried(counted.is_ok());
            if let Err(error) = counted {
                tracing::debug!(%error, "the gauges could not be updated");
            }
            let pause = self.fleet.borrow().spread(GAUGE_INTERVAL).min(MAX_GAUGE_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
                () = self.metrics.gauges().wanted() => {}
            }
        }
    }

    async fn count(&self) -> Result<(), StoreError> {
        let horizons: Vec<u64> =
            DueWithin::HORIZONS.iter().map(|horizon| horizon.ms() / 1000).collect();
        let mut counts = self.store.reader.counts(&horizons).await?;
        self.metrics.add_given_back(&mut counts);
        self.metrics.jobs(JobState::Scheduled, counts.scheduled.iter().sum());
        self.metrics.jobs(JobState::Ready, counts.ready.iter().sum());
        self.metrics.jobs(JobState::Reserved, counts.reserved.iter().sum());
        self.metrics.jobs(JobState::Dead, counts.dead.iter().sum());
        for (horizon, count) in DueWithin::HORIZONS.iter().zip(&counts.within) {
            self.metrics.due_within(*horizon, *count);
        }
        let overdue_ms =
            counts.next_due_ms.map_or(0, |due| counts.now_ms.saturating_sub(due).max(0));
        self.metrics.oldest_overdue(Duration::from_millis(u64::try_from(overdue_ms).unwrap_or(0)));
        self.strand(&counts).await?;
        self.limit().await?;
        self.schedules.update().await
    }

    /// Counts the limits that hold jobs back.
    async fn limit(&self) -> Result<(), StoreError> {
        let of_queues: Vec<&str> = self
            .queues
            .iter()
            .filter(|rules| rules.is_limited())
            .map(|rules| rules.name.as_str())
            .collect();
        if self.limited.is_empty() && of_queues.is_empty() {
            return Ok(());
        }
        // The start kept them: Redis has lost them.
        if !of_queues.is_empty()
            && !self.store.has_queue_limits()
            && let Err(error) = super::keep_limits_of(&self.store, &self.queues).await
        {
            tracing::debug!(%error, "the limits of queues could not be kept again");
        }
        let limited = self.store.limited().await?;
        for name in &self.limited {
            if let Some(metrics) = self.metrics.broker(name) {
                metrics.target_limited(limited.iter().filter(|one| one.set == *name).count());
            }
        }
        for name in of_queues {
            let is_of =
                |one: &&Limited| one.pattern == name && DueSet::named(&one.set).is_of_queue();
            if let Some(metrics) = self.metrics.queue(name) {
                metrics.limited(limited.iter().filter(is_of).count());
            }
        }
        Ok(())
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
