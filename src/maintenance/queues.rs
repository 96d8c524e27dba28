//! Counts the jobs of queues, for the gauges and for `max_jobs`, and removes what is past its time:
//! dead jobs past the retention of their queues, and jobs past their own end.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::expiry::Expiry;
use crate::clock::{self, Instant};
use crate::config::Queues;
use crate::fleet::{Fleet, serves};
use crate::request::FullQueues;
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::reader::active::ActiveCounts;
use crate::store::reader::queues::QueueCounts;
use crate::telemetry::Metrics;

/// The shortest interval between counts where a queue has `max_jobs`: it may exceed its limit for
/// as long.
const BOUNDED_COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between other counts, which a larger fleet spreads: the age of the gauges.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// The most sets (of a queue in a bucket) that an instance counts a second, on the average.
const MAX_SETS_PER_SECOND: f64 = 4000.0;
/// The longest time between two counts of one instance in a larger fleet.
const MAX_COUNT_INTERVAL: Duration = Duration::from_secs(15);
/// Up to so many queues are counted by their names, without a look at which queues there are.
const MAX_NAMED_QUEUES: usize = 32;
/// The interval between removals of dead jobs, by a fleet of any size together.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The pause after a count of this many sets: many are counted more rarely, and the instance is not
/// busier.
fn pause_after(sets: usize) -> Duration {
    Duration::from_secs(1).mul_f64(sets as f64 / MAX_SETS_PER_SECOND)
}

/// The queues with `max_jobs` that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounded {
    /// Queues that the settings name: few, whatever callers do.
    Named,
    /// Queues that match a pattern, of which a caller may make many.
    ByPattern,
}

impl Bounded {
    fn of(name: &str) -> Bounded {
        if name.contains('*') { Bounded::ByPattern } else { Bounded::Named }
    }
}

/// The agent that counts and sweeps queues.
pub(super) struct QueueMaintenance {
    store: Arc<Store>,
    rules: Arc<Queues>,
    full_queues: FullQueues,
    metrics: Metrics,
    fleet: watch::Receiver<Fleet>,
}

impl QueueMaintenance {
    /// Makes an agent; [`QueueMaintenance::run`] starts it. `gauge` is told which queues are full.
    #[must_use]
    pub(super) fn new(
        store: Arc<Store>,
        rules: Arc<Queues>,
        full_queues: FullQueues,
        metrics: Metrics,
        fleet: watch::Receiver<Fleet>,
    ) -> Self {
        QueueMaintenance { store, rules, full_queues, metrics, fleet }
    }

    /// Counts, sweeps and ends jobs until told to stop.
    pub(super) async fn run(self, stop: CancellationToken) {
        let expiry = Expiry::new(self.store.clone(), self.fleet.clone());
        let full = Mutex::default();
        tokio::join!(
            expiry.run(&stop),
            self.count_on(&stop),
            self.count_bounded_on(&stop, Bounded::Named, &full),
            self.count_bounded_on(&stop, Bounded::ByPattern, &full),
        );
    }

    async fn count_on(&self, stop: &CancellationToken) {
        let (mut sweep_at, mut undeclared) = (clock::now(), BTreeSet::new());
        loop {
            let mut pause = self.fleet.borrow().spread(COUNT_INTERVAL).min(MAX_COUNT_INTERVAL);
            match self.count(&mut undeclared).await {
                Ok(counts) => {
                    pause = pause.max(pause_after(counts.sets));
                    if clock::now() >= sweep_at {
                        sweep_at = self.next_sweep();
                        if let Err(error) = self.sweep(&counts.dead).await
                            && !error.is_told()
                        {
                            tracing::warn!(%error, hint = error.hint, "sweeping the dead jobs of queues failed, trying again");
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "the jobs of queues could not be counted"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    /// Counts the queues that may become full by themselves: many other queues must not delay it.
    async fn count_bounded_on(
        &self,
        stop: &CancellationToken,
        bounded: Bounded,
        full: &Mutex<[HashSet<String>; 2]>,
    ) {
        if self
            .rules
            .iter()
            .all(|rules| rules.max_jobs().is_none() || bounded != Bounded::of(&rules.name))
        {
            return;
        }
        loop {
            let pause = match self.count_bounded(bounded).await {
                Ok((queues, sets)) => {
                    let mut full = full.lock();
                    full[bounded as usize] = queues;
                    self.full_queues.set(full.iter().flatten().cloned().collect());
                    BOUNDED_COUNT_INTERVAL.max(pause_after(sets))
                }
                Err(error) => {
                    tracing::debug!(%error, "the jobs of queues with max_jobs could not be counted");
                    BOUNDED_COUNT_INTERVAL
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    fn next_sweep(&self) -> Instant {
        clock::now() + self.fleet.borrow().shared(SWEEP_INTERVAL)
    }

    /// Counts the queues that may become full. Returns the full queues, and the number of sets
    /// counted.
    async fn count_bounded(
        &self,
        bounded: Bounded,
    ) -> Result<(HashSet<String>, usize), StoreError> {
        let is_of = |name: &str| bounded == Bounded::of(name);
        let named: Vec<String> = self
            .rules
            .iter()
            .filter(|rules| rules.max_jobs().is_some() && is_of(&rules.name))
            .map(|rules| rules.name.clone())
            .collect();
        let (counts, sets) = if bounded == Bounded::Named && named.len() <= MAX_NAMED_QUEUES {
            let sets = named.len() * usize::from(self.store.keys().buckets());
            (self.store.reader.queue_counts(&named).await?, sets)
        } else {
            let is_wanted = |queue: &str| {
                self.rules
                    .get(queue)
                    .is_some_and(|rules| rules.max_jobs().is_some() && is_of(&rules.name))
            };
            let counted = self.store.reader.active_counts(is_wanted).await?;
            (counted.queues.into_values().collect(), counted.sets)
        };
        let is_full = |counts: &QueueCounts| {
            self.most(&counts.queue)
                .is_some_and(|most| counts.scheduled + counts.ready + counts.reserved >= most)
        };
        Ok((counts.into_iter().filter(is_full).map(|counts| counts.queue).collect(), sets))
    }

    fn most(&self, queue: &str) -> Option<u64> {
        self.rules.get(queue).and_then(|rules| rules.max_jobs())
    }

    /// Counts all queues that have jobs, and forgets those that have none any more. Reports those
    /// that are not declared once each.
    async fn count(&self, told: &mut BTreeSet<String>) -> Result<ActiveCounts, StoreError> {
        let counted = self.store.reader.active_counts(|_| true).await?;
        self.store.admin.forget_queues(&counted.empty).await?;
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
            let living = self.store.living().await?;
            stranded.retain(|queue, _| {
                !living.iter().any(|entry| serves(entry, &DueSet::Queue(queue).to_string()))
            });
        }
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
        Ok(counted)
    }

    /// Removes dead jobs past their retention. `dead`: per bucket, the queues that it has dead jobs
    /// of. A queue that is not declared keeps its dead.
    async fn sweep(&self, dead: &[Vec<String>]) -> Result<(), StoreError> {
        let now_ms = self.store.now_ms();
        let mut result = Ok(());
        for (bucket, queues) in (0..).zip(dead) {
            let retention =
                |queue: &String| Some((queue.clone(), self.rules.get(queue)?.dead_retention.ms()));
            let by: Vec<(String, u64)> = queues.iter().filter_map(retention).collect();
            let asked: Vec<(String, i64)> = by
                .iter()
                .map(|(queue, ms)| (queue.clone(), now_ms.saturating_sub_unsigned(*ms)))
                .collect();
            // A bucket that fails does not stop the sweep of the others.
            match self.store.admin.with_old_dead(bucket, &asked).await {
                Ok(has_old) => {
                    for (queue, retention_ms) in
                        by.iter().zip(has_old).filter(|(_, has_old)| *has_old).map(|(by, _)| by)
                    {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use dwell_testkit::servers::{RedisOptions, RedisServer};

    use super::*;
    use crate::config::{QueueRules, Redis};
    use crate::job::{Due, Job};
    use crate::request::NewJob;
    use crate::store::Unobserved;

    #[test]
    fn the_sets_that_are_counted_a_second_stay_few() {
        let pauses =
            [0, 4000, 10_000].map(|sets| BOUNDED_COUNT_INTERVAL.max(pause_after(sets)).as_millis());
        assert_eq!(pauses, [1000, 1000, 2500]);
    }

    fn rules(name: &str, max_jobs: u64) -> QueueRules {
        QueueRules { name: name.to_owned(), max_jobs, ..QueueRules::default() }
    }

    #[tokio::test]
    async fn queues_by_a_pattern_are_counted_apart_from_those_by_name() {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let store = Arc::new(
            Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap(),
        );
        let buckets = usize::from(store.keys().buckets());
        let rules = Arc::new(Queues::new([rules("emails", 1), rules("mine.*", 1)]));
        let (full_queues, metrics) = (FullQueues::default(), Metrics::new([], []));
        let maintenance = QueueMaintenance::new(
            store.clone(),
            rules,
            full_queues.clone(),
            metrics,
            watch::channel(Fleet::alone("me ")).1,
        );
        // More than one call learns at a time.
        let many: Vec<String> = (0..200).map(|number| format!("mine.{number}")).collect();
        let of = |queue: &str| {
            NewJob::new(Job::for_queue(queue, "x"), Due::In(3_600_000)).id(queue.parse().unwrap())
        };
        let jobs: Vec<NewJob> = many.iter().map(String::as_str).chain(["emails"]).map(of).collect();
        store.queue.schedule(&jobs).await.unwrap();

        let named = maintenance.count_bounded(Bounded::Named).await.unwrap();
        assert_eq!(
            named,
            (HashSet::from(["emails".to_owned()]), buckets),
            "the many cost this count nothing"
        );
        let (by_pattern, sets) = maintenance.count_bounded(Bounded::ByPattern).await.unwrap();
        assert_eq!(by_pattern, many.iter().cloned().collect());
        assert!(sets >= many.len(), "{sets}");

        let stop = CancellationToken::new();
        let running = tokio::spawn(maintenance.run(stop.clone()));
        let all_full = async {
            while full_queues.full().len() < many.len() + 1 {
                tokio::task::yield_now().await;
            }
        };
        clock::timeout(Duration::from_secs(30), all_full)
            .await
            .expect("the queues of both kinds are full");
        stop.cancel();
        running.await.unwrap();
    }
}
