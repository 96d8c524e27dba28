//! The query of a list: which jobs are wanted.

use std::time::SystemTime;

use super::page::Cursor;
use super::queue_filter::QueueFilter;
use crate::clock::epoch_ms;
use crate::store::reader::lookup::{JobState, StoredJob};

/// Selects jobs for a list.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Query {
    /// The state of the jobs.
    pub state: JobState,
    /// Due at this time or later, epoch ms.
    #[doc(hidden)]
    pub from_ms: Option<i64>,
    /// Due before this time, epoch ms.
    #[doc(hidden)]
    pub to_ms: Option<i64>,
    /// Only jobs for this target: a subject, topic or routing key, or `exchange/routing key`.
    pub target: Option<String>,
    /// Only jobs of this queue.
    pub queue: Option<String>,
    /// Only jobs of these queues, and none of brokers.
    #[doc(hidden)]
    pub queues: Option<QueueFilter>,
    /// Only jobs after this one: the `next` of the previous page.
    pub after: Option<Cursor>,
    /// The most jobs in the page.
    pub limit: usize,
}

impl Query {
    /// The first 100 jobs in this state, by due time.
    #[must_use]
    pub fn new(state: JobState) -> Self {
        Query {
            state,
            from_ms: None,
            to_ms: None,
            target: None,
            queue: None,
            queues: None,
            after: None,
            limit: 100,
        }
    }

    /// Only jobs that are due at this time or later.
    #[must_use]
    pub fn with_from(mut self, from: SystemTime) -> Self {
        self.from_ms = Some(epoch_ms(from));
        self
    }

    /// Only jobs that are due before this time.
    #[must_use]
    pub fn with_to(mut self, to: SystemTime) -> Self {
        self.to_ms = Some(epoch_ms(to));
        self
    }

    /// Only jobs for this target: a subject, topic or routing key, or `exchange/routing key`.
    #[must_use]
    pub fn with_target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Only jobs of this queue.
    #[must_use]
    pub fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Only jobs after this one: the `next` of the previous page.
    #[must_use]
    pub fn with_after(mut self, after: Cursor) -> Self {
        self.after = Some(after);
        self
    }

    /// The most jobs in the page.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Whether a job lies between `from_ms` and `to_ms` and after `after`.
    pub(super) fn spans(&self, spot: &Cursor) -> bool {
        self.from_ms.is_none_or(|from| spot.at_ms >= from)
            && self.to_ms.is_none_or(|to| spot.at_ms < to)
            && self.after.as_ref().is_none_or(|after| spot > after)
    }

    pub(super) fn is_for(&self, found: &StoredJob) -> bool {
        let job = &found.record.job;
        let is_for = |target: &String| {
            job.destination().is_some_and(|to| *target == to.address || *target == to.to_string())
        };
        self.wants(job.queue())
            && self.target.as_ref().is_none_or(is_for)
            && self.queue.as_deref().is_none_or(|queue| job.queue() == Some(queue))
    }

    /// Whether jobs of this queue are wanted; `None`: jobs of brokers.
    pub(super) fn wants(&self, queue: Option<&str>) -> bool {
        self.queues.as_ref().is_none_or(|filter| queue.is_some_and(|queue| filter.wants(queue)))
    }

    /// Whether only the record of a job shows if the query selects it.
    pub(super) fn has_filter(&self) -> bool {
        self.target.is_some() || self.queue.is_some() || self.queues.is_some()
    }
}
