//! The gauges of recurring schedules, and the schedules that nobody makes occurrences of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{self, Instant};
use crate::config::Queues;
use crate::fleet::{Fleet, serves};
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::telemetry::{Metrics, ScheduleState};

/// The interval between looks for schedules that nobody serves, which a larger fleet spreads: a
/// look reads the schedules whose time has passed.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Sets the gauges of schedules.
pub(super) struct ScheduleGauges {
    store: Arc<Store>,
    metrics: Metrics,
    /// The queues that these settings declare.
    queues: Arc<Queues>,
    fleet: watch::Receiver<Fleet>,
    seen: Mutex<Seen>,
}

/// The last look for schedules that nobody serves.
#[derive(Default)]
struct Seen {
    at: Option<Instant>,
    unserved: BTreeMap<String, u64>,
}

impl ScheduleGauges {
    pub(super) fn new(
        store: Arc<Store>,
        metrics: Metrics,
        queues: Arc<Queues>,
        fleet: watch::Receiver<Fleet>,
    ) -> Self {
        ScheduleGauges { store, metrics, queues, fleet, seen: Mutex::default() }
    }

    /// Counts the schedules, and looks from time to time for those that nobody serves.
    pub(super) async fn update(&self) -> Result<(), StoreError> {
        let counts = self.store.schedules.counts().await?;
        self.metrics.schedules(ScheduleState::Active, counts.active);
        self.metrics.schedules(ScheduleState::Paused, counts.paused);
        if counts.all() == 0 {
            self.report(BTreeMap::new());
            return Ok(());
        }
        let interval = self.fleet.borrow().spread(LOOK_INTERVAL);
        let now = clock::now();
        if self.seen.lock().at.is_some_and(|at| now.duration_since(at) < interval) {
            return Ok(());
        }
        // A look that fails is not repeated at once either.
        self.seen.lock().at = Some(now);
        let living = self.store.living().await?;
        // An instance that only ingests makes no occurrences for its brokers: its entry has none.
        let me = self.fleet.borrow().me().to_owned();
        let is_served = |set: DueSet<'_>| {
            set.queue().is_some_and(|queue| self.queues.get(queue).is_some())
                || serves(&me, &set.name())
                || living.iter().any(|entry| serves(entry, &set.name()))
        };
        let unserved = self.store.schedules.stranded(is_served).await?;
        self.report(unserved);
        Ok(())
    }

    /// Sets the gauges, and reports at the second look: other instances may be starting.
    fn report(&self, unserved: BTreeMap<String, u64>) {
        let mut seen = self.seen.lock();
        let mut stranded = unserved.clone();
        stranded.retain(|set, _| seen.unserved.contains_key(set));
        let told = self.metrics.stranded().schedules();
        for (set, schedules) in stranded.iter().filter(|(set, _)| !told.contains_key(*set)) {
            let hint = "add the broker or the queue to the settings of an instance again, or cancel the schedules";
            tracing::warn!(
                broker = set,
                schedules,
                hint,
                "recurring schedules wait for a broker or a queue that no instance serves"
            );
        }
        seen.unserved = unserved;
        drop(seen);
        self.metrics.stranded().set_schedules(stranded);
    }
}
