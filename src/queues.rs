//! The queues of an instance: their rules, their consumers, and their counters. HTTP and the
//! drop-in listeners stand on this.

pub mod lease_actions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{self, Instant};
use crate::config::{QueueRules, Queues};
use crate::consumers::{Consumers, PopRequest, PoppedJobs};
use crate::job::DeadReason;
use crate::store::error::StoreError;
use crate::store::queue::acknowledge::{Acknowledged, Acknowledgement, LeaseVerdict};
use crate::store::queue::pop::Popped;
use crate::telemetry::{LeaseEnd, Metrics, QueueMetrics};

/// The most jobs of one pop.
pub const MAX_POP_JOBS: usize = 1000;
/// The most bytes of bodies in the answer to a pop; one job is always handed out.
pub const MAX_POP_BYTES: usize = 8 << 20;
/// The longest wait of a pop.
pub const MAX_POP_WAIT: Duration = Duration::from_secs(60);
/// The most queues of one pop.
pub const MAX_POP_QUEUES: usize = 100;
/// The most acknowledgements of one call on leases.
pub const MAX_ACKNOWLEDGEMENTS: usize = 1000;

/// The queues of an instance. Cheap to clone.
#[derive(Clone)]
pub struct QueueService {
    rules: Arc<Queues>,
    consumers: Consumers,
    metrics: Metrics,
    max_ttr_ms: u64,
}

impl QueueService {
    /// Makes the queues of these settings.
    #[must_use]
    pub fn new(
        rules: Arc<Queues>,
        consumers: Consumers,
        metrics: Metrics,
        max_ttr_ms: u64,
    ) -> QueueService {
        QueueService { rules, consumers, metrics, max_ttr_ms }
    }

    /// The rules of the settings.
    #[must_use]
    pub fn rules(&self) -> &Queues {
        &self.rules
    }

    /// The rules of a queue; `None` if it is not declared.
    #[must_use]
    pub fn of(&self, queue: &str) -> Option<&QueueRules> {
        self.rules.get(queue)
    }

    /// The pops that wait for this queue at this instance.
    #[must_use]
    pub fn waiting(&self, queue: &str) -> usize {
        self.consumers.waiting(queue)
    }

    /// As [`Consumers::resume`].
    ///
    /// # Errors
    /// Redis does not answer or refuses.
    pub async fn resume(&self, queue: &str) -> Result<(), StoreError> {
        self.consumers.resume(queue).await
    }

    /// The longest lease, ms.
    #[must_use]
    pub fn max_ttr_ms(&self) -> u64 {
        self.max_ttr_ms
    }

    /// Counts a pop of the first [`MAX_POP_QUEUES`] declared queues, to be carried out by
    /// [`QueueService::pop_now`] and then, if that has nothing, [`QueueService::pop_until`].
    /// [`QueueService::sent`] counts the jobs.
    #[must_use]
    pub fn begin(
        &self,
        mut queues: Vec<String>,
        max: usize,
        wait: Duration,
        ttr_ms: Option<u64>,
    ) -> PopRequest {
        let mut seen = std::collections::HashSet::new();
        queues.retain(|queue| seen.insert(queue.clone()));
        queues.truncate(MAX_POP_QUEUES);
        queues.iter().filter_map(|queue| self.metrics_of(queue)).for_each(QueueMetrics::pop);
        PopRequest {
            queues,
            max: max.min(MAX_POP_JOBS),
            max_bytes: MAX_POP_BYTES,
            wait,
            ttr_ms,
            max_ttr_ms: self.max_ttr_ms,
        }
    }

    /// As [`Consumers::pop_now`].
    ///
    /// # Errors
    /// Redis does not answer or refuses.
    pub async fn pop_now(&self, asked: &PopRequest) -> Result<PoppedJobs, StoreError> {
        self.consumers.pop_now(asked).await
    }

    /// As [`Consumers::pop_until`].
    ///
    /// # Errors
    /// Redis does not answer or refuses.
    pub async fn pop_until(
        &self,
        asked: &PopRequest,
        until: Instant,
    ) -> Result<PoppedJobs, StoreError> {
        self.consumers.pop_until(asked, until).await
    }

    /// The jobs of a pop are written to their consumer: they are its own until their leases end.
    pub fn sent(&self, jobs: PoppedJobs, now_us: i64) -> Vec<Popped> {
        let jobs = jobs.sent();
        for job in &jobs {
            if let Some(metrics) = self.metrics_of(&job.lease.queue) {
                let is_first = job.state.attempt == 1;
                metrics.popped(is_first.then(|| clock::micros(job.late_us(now_us))));
            }
        }
        jobs
    }

    /// Carries out lease_actions on leases and counts them.
    pub async fn acknowledge(
        &self,
        acknowledgements: &[Acknowledgement],
    ) -> Vec<Result<Acknowledged, StoreError>> {
        let answers = self.consumers.acknowledge(acknowledgements).await;
        let mut ends: HashMap<(&str, LeaseEnd), u64> = HashMap::new();
        for (action, answer) in acknowledgements.iter().zip(&answers) {
            let end = match answer.as_ref().map(|answer| answer.verdict) {
                Ok(LeaseVerdict::Finished) => LeaseEnd::Finished,
                Ok(LeaseVerdict::Failed) => LeaseEnd::Failed,
                Ok(LeaseVerdict::Dead) => {
                    self.metrics.dead(DeadReason::Failed);
                    LeaseEnd::Failed
                }
                Ok(LeaseVerdict::Released) => LeaseEnd::Released,
                _ => continue,
            };
            *ends.entry((&action.lease.queue, end)).or_default() += 1;
        }
        for ((queue, end), count) in ends {
            if let Some(metrics) = self.metrics_of(queue) {
                metrics.ended(end, count);
            }
        }
        answers
    }

    /// A consumer finished a job without naming its lease.
    pub fn finished(&self, queue: &str) {
        if let Some(metrics) = self.metrics_of(queue) {
            metrics.ended(LeaseEnd::Finished, 1);
        }
    }

    fn metrics_of(&self, queue: &str) -> Option<&QueueMetrics> {
        self.metrics.queue(&self.rules.get(queue)?.name)
    }
}
