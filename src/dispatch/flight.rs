//! What is in flight, and the window that bounds it.

use crate::clock::Instant;
use crate::store::inbound::{CALL_BYTES, CALL_JOBS};
use crate::store::lease::Lease;
use crate::store::settle::Held;
use crate::telemetry::trace::Span;

/// A publication without an outcome yet.
#[derive(Debug)]
pub(super) struct Flight {
    /// The job and its lease; the body went with the publication.
    pub(super) lease: Lease,
    /// When it was handed over.
    pub(super) published: Instant,
    /// Without an answer by then its outcome is unknown.
    pub(super) deadline: Instant,
    pub(super) span: Span,
}

impl Flight {
    /// A publication that is handed over at `published`.
    #[must_use]
    pub(super) fn new(mut lease: Lease, published: Instant, deadline: Instant, span: Span) -> Self {
        // The publication holds the body as long as it is needed; headers are not needed again either.
        lease.record.job.body = bytes::Bytes::new();
        lease.record.job.headers = dwell_connectors::Headers::default();
        Flight { lease, published, deadline, span }
    }

    /// What settles it.
    #[must_use]
    pub(super) fn held(&self) -> Held {
        self.lease.held()
    }
}

/// The bound on what is claimed and not settled: jobs until the store took their outcome, bytes until they have one.
#[derive(Debug)]
pub(super) struct Window {
    jobs_max: usize,
    bytes_max: usize,
    jobs: usize,
    bytes: usize,
}

impl Window {
    /// An empty window.
    #[must_use]
    pub(super) fn new(jobs_max: usize, bytes_max: u64) -> Self {
        Window { jobs_max, bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX), jobs: 0, bytes: 0 }
    }

    /// Room for another claim.
    #[must_use]
    pub(super) fn has_room(&self) -> bool {
        self.jobs < self.jobs_max && self.bytes < self.bytes_max
    }

    /// Reserves room for one claim, where there is some: jobs and bytes. For one job, where the claim only tries whether somebody is there.
    pub(super) fn reserve(&mut self, only_tries: bool) -> (usize, usize) {
        let jobs = self.jobs_max.saturating_sub(self.jobs).min(if only_tries { 1 } else { CALL_JOBS });
        let bytes = self.bytes_max.saturating_sub(self.bytes).min(if only_tries { 1 } else { CALL_BYTES });
        self.jobs += jobs;
        self.bytes += bytes;
        (jobs, bytes)
    }

    /// A claim came back: its reservation ends.
    pub(super) fn unreserve(&mut self, jobs: usize, bytes: usize) {
        self.jobs -= jobs;
        self.bytes -= bytes;
    }

    /// A job of this size was claimed. (A single job may be larger than what was reserved: the window then overshoots by that job.)
    pub(super) fn take(&mut self, bytes: usize) {
        self.jobs += 1;
        self.bytes += bytes;
    }

    /// The outcome of a job of this size is known: its body is gone.
    pub(super) fn settling(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// The store took the outcomes of so many jobs.
    pub(super) fn settled(&mut self, jobs: usize) {
        self.jobs -= jobs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_bounds_jobs_and_bytes() {
        let mut window = Window::new(200, 4 << 20);
        assert_eq!(window.reserve(false), (128, 1 << 20));
        assert_eq!(window.reserve(false), (72, 1 << 20));
        assert!(!window.has_room());
        window.unreserve(128, 1 << 20);
        (0..100).for_each(|_| window.take(10));
        assert_eq!(window.reserve(false), (28, 1 << 20));
        window.unreserve(28, 1 << 20);
        assert_eq!(window.reserve(true), (1, 1));
        window.unreserve(1, 1);
        window.unreserve(72, 1 << 20);
        (0..100).for_each(|_| window.settling(10));
        window.settled(100);
        assert_eq!((window.jobs, window.bytes), (0, 0));
    }

    #[test]
    fn one_job_larger_than_the_window_goes_alone() {
        let mut window = Window::new(10, 100);
        assert_eq!(window.reserve(false), (10, 100));
        window.unreserve(10, 100);
        window.take(5000);
        assert!(!window.has_room());
        window.settling(5000);
        assert!(window.has_room());
    }
}
