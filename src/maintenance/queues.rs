//! What the counts of queues say: the gauges, and the queues that nobody declares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dwell_store::maintenance::counts::CountObserver;
use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;

use crate::config::Queues;
use crate::fleet::serves;
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::reader::active::ActiveCounts;
use crate::store::reader::queues::QueueCounts;
use crate::telemetry::Metrics;

/// Is told of the counts of queues.
pub(super) struct QueueGauges {
    store: Arc<Store>,
    rules: Arc<Queues>,
    metrics: Metrics,
    /// The queues that are not declared and were reported.
    told: Mutex<BTreeSet<String>>,
}

impl CountObserver for QueueGauges {
    fn counted<'a>(&'a self, counts: &'a ActiveCounts) -> BoxFuture<'a, ()> {
        self.update(counts).boxed()
    }
}

impl QueueGauges {
    pub(super) fn new(store: Arc<Store>, rules: Arc<Queues>, metrics: Metrics) -> Self {
        QueueGauges { store, rules, metrics, told: Mutex::default() }
    }

    /// Sets the gauges, and reports the queues that are not declared once each.
    async fn update(&self, counted: &ActiveCounts) {
        let counts: Vec<&QueueCounts> = counted.queues.values().collect();
        let now_ms = self.store.now_ms();
        for rules in self.rules.iter() {
            let of_rules = counts.iter().copied().filter(|counts| {
                self.rules.get(&counts.queue).is_some_and(|found| found.name == rules.name)
            });
            if let Some(metrics) = self.metrics.queue(&rules.name) {
                metrics.jobs(of_rules, now_ms);
            }
        }
        let alive = |counts: &QueueCounts| counts.scheduled + counts.ready + counts.reserved;
        let mut stranded: BTreeMap<String, u64> = counts
            .iter()
            .filter(|counts| self.rules.get(&counts.queue).is_none() && alive(counts) > 0)
            .map(|counts| (counts.queue.clone(), alive(counts)))
            .collect();
        if !stranded.is_empty() {
            // A worker tells its queues.
            let living = match self.store.living().await {
                Ok(living) => living,
                Err(error) => {
                    tracing::debug!(%error, "the queues of other instances are unknown");
                    return;
                }
            };
            stranded.retain(|queue, _| {
                !living.iter().any(|entry| serves(entry, &DueSet::Queue(queue).to_string()))
            });
        }
        let mut told = self.told.lock();
        for (queue, jobs) in stranded.iter().filter(|(queue, _)| !told.contains(*queue)) {
            let hint = "declare the queue in [queues] again, or cancel the jobs";
            tracing::warn!(
                queue,
                jobs,
                hint,
                "jobs wait in a queue that the settings of this instance do not declare"
            );
        }
        *told = stranded.keys().cloned().collect();
        self.metrics.stranded().set_queues(stranded);
    }
}
