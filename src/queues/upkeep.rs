//! Counts the jobs of queues, for the gauges and for `max_jobs`, and removes what is past its time:
//! dead jobs past the retention of their queues, and jobs past their own end.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ends::Ends;
use crate::clock::{self, Instant};
use crate::config::Queues;
use crate::fleet::{Fleet, serves};
use crate::job::set_of_queue;
use crate::request::QueueGauge;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::reader::queues::QueueCounts;
use crate::telemetry::Metrics;

/// How often the jobs are counted where a queue has `max_jobs`: a queue may be over it for as long.
const COUNT_BOUNDED: Duration = Duration::from_secs(1);
/// How often they are counted else, by a fleet of up to [`SMALL_FLEET`] instances: the age of the
/// gauges.
const COUNT: Duration = Duration::from_secs(5);
/// The longest time between two counts of one instance in a larger fleet.
const COUNT_MAX: Duration = Duration::from_secs(15);
/// In a fleet of up to this size, each instance counts as often as a single one.
const SMALL_FLEET: u32 = 10;
/// How often dead jobs are removed, by a fleet of any size together.
const SWEEP: Duration = Duration::from_secs(30);

/// The agent that counts and sweeps queues.
pub struct QueueUpkeep {
    store: Arc<Store>,
    rules: Arc<Queues>,
    gauge: QueueGauge,
    metrics: Metrics,
    fleet: watch::Receiver<Fleet>,
}

impl QueueUpkeep {
    /// Makes an agent; [`QueueUpkeep::run`] starts it. `gauge` is told which queues are full.
    #[must_use]
    pub fn new(store: Arc<Store>, rules: Arc<Queues>, gauge: QueueGauge, metrics: Metrics, fleet: watch::Receiver<Fleet>) -> Self {
        QueueUpkeep { store, rules, gauge, metrics, fleet }
    }

    /// Counts, sweeps and ends jobs until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let ends = Ends::new(self.store.clone(), self.fleet.clone());
        tokio::join!(ends.run(&stop), self.count_on(&stop));
    }

    async fn count_on(&self, stop: &CancellationToken) {
        let is_bounded = self.rules.iter().any(|rules| rules.max_jobs.is_some());
        let (mut sweep_at, mut undeclared) = (clock::now(), BTreeSet::new());
        loop {
            match self.count(&mut undeclared).await {
                Ok(names) if clock::now() >= sweep_at => {
                    sweep_at = self.next_sweep();
                    if let Err(error) = self.sweep(&names).await {
                        tracing::warn!(%error, hint = error.hint, "sweeping the dead jobs of queues failed, trying again");
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the jobs of queues could not be counted"),
            }
            let every = self.fleet.borrow().shared(COUNT / SMALL_FLEET).clamp(COUNT, COUNT_MAX);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(if is_bounded { COUNT_BOUNDED } else { every }) => {}
            }
        }
    }

    fn next_sweep(&self) -> Instant {
        clock::now() + self.fleet.borrow().shared(SWEEP)
    }

    /// Counts all queues. Reports those that are not declared once each. Returns the names.
    async fn count(&self, told: &mut BTreeSet<String>) -> Result<Vec<String>, StoreError> {
        let mut names = self.store.reader.queues().await?;
        names.extend(self.rules.names().map(str::to_owned));
        let names: Vec<String> = names.into_iter().collect();
        let counts = self.store.reader.queue_counts(&names).await?;
        let now_ms = self.store.now_ms();
        for rules in self.rules.iter() {
            let of_rules = counts.iter().filter(|counts| self.rules.get(&counts.queue).is_some_and(|found| found.name == rules.name));
            if let Some(metrics) = self.metrics.queue(&rules.name) {
                metrics.jobs(of_rules, now_ms);
            }
        }
        let is_full = |counts: &&QueueCounts| {
            let most = self.rules.get(&counts.queue).and_then(|rules| rules.max_jobs);
            most.is_some_and(|most| counts.scheduled + counts.ready + counts.reserved >= most)
        };
        self.gauge.set(counts.iter().filter(is_full).map(|counts| counts.queue.clone()).collect::<HashSet<String>>());
        let alive = |counts: &QueueCounts| counts.scheduled + counts.ready + counts.reserved;
        let mut stranded: BTreeMap<String, u64> = counts
            .iter()
            .filter(|counts| self.rules.get(&counts.queue).is_none() && alive(counts) > 0)
            .map(|counts| (counts.queue.clone(), alive(counts)))
            .collect();
        if !stranded.is_empty() {
            // A worker tells its queues.
            let living = self.store.living().await?;
            stranded.retain(|queue, _| !living.iter().any(|entry| serves(entry, &set_of_queue(queue))));
        }
        for (queue, jobs) in stranded.iter().filter(|(queue, _)| !told.contains(*queue)) {
            let hint = "declare the queue in [queues] again, or cancel the jobs";
            tracing::warn!(queue, jobs, hint, "jobs wait in a queue that the settings of this instance do not declare");
        }
        *told = stranded.keys().cloned().collect();
        self.metrics.stranded().set_queues(stranded);
        Ok(names)
    }

    /// Removes dead jobs past their retention. A queue that is not declared keeps its dead.
    async fn sweep(&self, names: &[String]) -> Result<(), StoreError> {
        let retention = |queue: &String| self.rules.get(queue).map(|rules| rules.dead_retention_ms);
        let now_ms = self.store.now_ms();
        let by: Vec<(String, i64, u64)> =
            names.iter().filter_map(|queue| retention(queue).map(|ms| (queue.clone(), now_ms.saturating_sub_unsigned(ms), ms))).collect();
        let asked: Vec<(String, i64)> = by.iter().map(|(queue, by_ms, _)| (queue.clone(), *by_ms)).collect();
        let mut result = Ok(());
        for bucket in 0..self.store.keys().buckets() {
            // A bucket that fails does not stop the sweep of the others.
            match self.store.admin.with_old_dead(bucket, &asked).await {
                Ok(has_old) => {
                    for (queue, _, retention_ms) in by.iter().zip(has_old).filter(|(_, has_old)| *has_old).map(|(by, _)| by) {
                        loop {
                            match self.store.admin.sweep_queue(bucket, queue, *retention_ms).await {
                                Ok(0) => break,
                                Ok(_) => {}
                                Err(error) => {
                                    result = Err(error);
                                    break;
                                }
                            }
                        }
                    }
                }
                Err(error) => result = Err(error),
            }
        }
        result
    }
}
