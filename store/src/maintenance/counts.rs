//! Counts the jobs of queues, has the buckets forget the queues without a job, and removes the dead
//! jobs of queues past their retention.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::counting::Counting;
use crate::clock;
use crate::fleet::Fleet;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::reader::active::ActiveCounts;

/// The interval between counts that an observer looks at, which a larger fleet spreads: the age of
/// the gauges.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// The most sets (of a queue in a bucket) that an instance counts a second, on the average.
const MAX_SETS_PER_SECOND: f64 = 4000.0;
/// The longest time between two counts of one instance in a larger fleet.
const MAX_COUNT_INTERVAL: Duration = Duration::from_secs(15);
/// The interval between removals of dead jobs.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The pause after a count of this many sets: many are counted more rarely, and the instance is not
/// busier.
#[must_use]
pub fn pause_after(sets: usize) -> Duration {
    Duration::from_secs(1).mul_f64(sets as f64 / MAX_SETS_PER_SECOND)
}

/// Is told of the counts.
pub trait CountObserver: Send + Sync {
    /// All queues that have jobs were counted.
    fn counted<'a>(&'a self, counts: &'a ActiveCounts) -> BoxFuture<'a, ()>;
}

/// The retention of the dead jobs of a queue by its name, ms; `None`: they stay.
pub type RetentionOf = dyn Fn(&str) -> Option<u64> + Send + Sync;

/// The options of the counts of queues.
#[derive(Clone)]
pub struct CountOptions {
    /// The retention of the dead jobs of each queue.
    pub dead_retention_ms: Arc<RetentionOf>,
    /// Is told of each count. Without one, an instance counts as often as it sweeps.
    pub observer: Option<Arc<dyn CountObserver>>,
}

/// The agent that counts and sweeps queues.
pub struct QueueCounter {
    store: Arc<Store>,
    options: CountOptions,
    fleet: watch::Receiver<Fleet>,
}

impl QueueCounter {
    /// Makes an agent; [`QueueCounter::run`] starts it.
    #[must_use]
    pub fn new(store: Arc<Store>, options: CountOptions, fleet: watch::Receiver<Fleet>) -> Self {
        QueueCounter { store, options, fleet }
    }

    /// Counts and sweeps until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut sweep_at = clock::now();
        let mut counting = Counting::new(self.store.clone());
        loop {
            let (mut pause, sweep_interval) = self.intervals();
            match self.count(&mut counting).await {
                Ok(counts) => {
                    pause = pause.max(pause_after(counts.sets));
                    if clock::now() >= sweep_at {
                        sweep_at = clock::now() + sweep_interval;
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

    /// The pause between counts, and the least time between sweeps. Instances with an observer have
    /// the same settings, so that a fleet of any size sweeps once per interval. Others have queues
    /// of their own: each sweeps with each count.
    fn intervals(&self) -> (Duration, Duration) {
        let fleet = self.fleet.borrow();
        if self.options.observer.is_some() {
            (fleet.spread(COUNT_INTERVAL).min(MAX_COUNT_INTERVAL), fleet.shared(SWEEP_INTERVAL))
        } else {
            (fleet.spread(SWEEP_INTERVAL), Duration::ZERO)
        }
    }

    /// Counts all queues that have jobs, and forgets those that have none any more.
    async fn count(&self, counting: &mut Counting) -> Result<ActiveCounts, StoreError> {
        let counts = counting.active(|_| true).await?;
        if let Err(error) = self.store.admin.forget_queues(&counts.empty).await {
            tracing::debug!(%error, "queues without a job could not be forgotten, trying again");
        }
        if let Some(observer) = &self.options.observer {
            observer.counted(&counts).await;
        }
        Ok(counts)
    }

    /// Removes dead jobs past their retention. `dead`: per bucket, the queues that it has dead jobs
    /// of.
    async fn sweep(&self, dead: &[Vec<String>]) -> Result<(), StoreError> {
        let now_ms = self.store.now_ms();
        let mut result = Ok(());
        for (bucket, queues) in (0..).zip(dead) {
            let retention =
                |queue: &String| Some((queue.clone(), (self.options.dead_retention_ms)(queue)?));
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
