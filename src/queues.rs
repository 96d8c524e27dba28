//! The queues of an instance: their rules, their consumers, and their events. HTTP and the
//! drop-in listeners stand on this.

pub mod lease_actions;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{self, Instant};
use crate::config::{QueueRules, Queues};
use crate::consumers::{Consumers, PopRequest, PoppedJobs};
pub use crate::consumers::{MAX_POP_BYTES, MAX_POP_JOBS, MAX_POP_WAIT};
use crate::events::{JobEvent, Observer};
use crate::store::error::StoreError;
use crate::store::jobs::acknowledge::{Acknowledged, Acknowledgement};
use crate::store::jobs::pop::Popped;
use crate::telemetry::Events;

/// The most queues of one pop.
pub const MAX_POP_QUEUES: usize = 100;
/// The most acknowledgements of one call on leases.
pub const MAX_ACKNOWLEDGEMENTS: usize = 1000;

/// The queues of an instance. Cheap to clone.
#[derive(Clone)]
pub struct QueueService {
    rules: Arc<Queues>,
    consumers: Consumers,
    events: Events,
    max_ttr_ms: u64,
}

impl QueueService {
    /// Makes the queues of these settings.
    #[must_use]
    pub fn new(
        rules: Arc<Queues>,
        consumers: Consumers,
        events: Events,
        max_ttr_ms: u64,
    ) -> QueueService {
        QueueService { rules, consumers, events, max_ttr_ms }
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

    /// Begins a pop of the first [`MAX_POP_QUEUES`] declared queues, to be carried out by
    /// [`QueueService::pop_now`] and then, if that has nothing, [`QueueService::pop_until`].
    /// [`QueueService::sent`] hands the jobs out.
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
        queues.iter().for_each(|queue| self.events.observe(&JobEvent::PopAsked { queue }));
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
            self.events.observe(&JobEvent::Popped {
                queue: &job.lease.queue,
                id: &job.id,
                attempt: job.state.attempt,
                due_ms: job.state.due_ms,
                late: clock::micros(job.late_us(now_us)),
            });
        }
        jobs
    }

    /// As [`Consumers::acknowledge`].
    pub async fn acknowledge(
        &self,
        acknowledgements: &[Acknowledgement],
    ) -> Vec<Result<Acknowledged, StoreError>> {
        self.consumers.acknowledge(acknowledgements).await
    }
}
