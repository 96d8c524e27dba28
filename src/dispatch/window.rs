//! The in-flight window: the bound on jobs that are claimed and have no outcome.

use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS};

/// Counts claimed jobs and their bytes until their outcome is known, and then the jobs until the
/// store has settled them.
#[derive(Debug)]
pub(super) struct Window {
    jobs_max: usize,
    bytes_max: usize,
    jobs: usize,
    bytes: usize,
    /// Jobs whose outcome is known: as many again, so that a store that does not answer ends the
    /// claims.
    unsettled: usize,
}

impl Window {
    /// An empty window.
    #[must_use]
    pub(super) fn new(jobs_max: usize, bytes_max: u64) -> Self {
        Window { jobs_max, bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX), jobs: 0, bytes: 0, unsettled: 0 }
    }

    /// Whether another claim may start.
    #[must_use]
    pub(super) fn has_room(&self) -> bool {
        self.jobs < self.jobs_max && self.bytes < self.bytes_max && self.unsettled < self.jobs_max
    }

    /// Whether a claim would get less than half of a call's jobs, and less than an eighth of the
    /// window.
    #[must_use]
    pub(super) fn has_little_room(&self) -> bool {
        self.jobs_max.saturating_sub(self.jobs) < (CALL_JOBS / 2).min(self.jobs_max / 8)
    }

    /// Reserves jobs and bytes for one claim, as far as the window allows. A probe claims one job.
    pub(super) fn reserve(&mut self, is_probe: bool) -> (usize, usize) {
        let jobs = self.jobs_max.saturating_sub(self.jobs).min(if is_probe { 1 } else { CALL_JOBS });
        let bytes = self.bytes_max.saturating_sub(self.bytes).min(if is_probe { 1 } else { CALL_BYTES });
        self.jobs += jobs;
        self.bytes += bytes;
        (jobs, bytes)
    }

    /// Ends the reservation of a claim that was answered.
    pub(super) fn unreserve(&mut self, (jobs, bytes): (usize, usize)) {
        self.jobs -= jobs;
        self.bytes -= bytes;
    }

    /// Adds a claimed job. A single job may be larger than the reservation; the window then
    /// overshoots by that job.
    pub(super) fn add(&mut self, bytes: usize) {
        self.jobs += 1;
        self.bytes += bytes;
    }

    /// The outcome of a job of this size is known, and the store has yet to settle the job.
    pub(super) fn concluded(&mut self, bytes: usize) {
        self.lost(bytes);
        self.unsettled += 1;
    }

    /// The lease of a job of this size has expired: nothing is settled.
    pub(super) fn lost(&mut self, bytes: usize) {
        self.jobs -= 1;
        self.bytes -= bytes;
    }

    /// The store has settled this many jobs.
    pub(super) fn settled(&mut self, jobs: usize) {
        self.unsettled -= jobs;
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
        window.unreserve((128, 1 << 20));
        (0..100).for_each(|_| window.add(10));
        assert_eq!(window.reserve(false), (28, 1 << 20));
        window.unreserve((28, 1 << 20));
        assert_eq!(window.reserve(true), (1, 1));
        window.unreserve((1, 1));
        window.unreserve((72, 1 << 20));
        (0..99).for_each(|_| window.concluded(10));
        window.lost(10);
        assert_eq!((window.jobs, window.bytes, window.unsettled), (0, 0, 99));
        window.settled(99);
        assert_eq!(window.unsettled, 0);
    }

    #[test]
    fn a_store_that_settles_nothing_ends_the_claims() {
        let mut window = Window::new(10, 4 << 20);
        for _ in 0..10 {
            assert!(window.has_room());
            window.add(10);
            window.concluded(10);
        }
        assert!(!window.has_room() && window.jobs == 0);
        window.settled(1);
        assert!(window.has_room());
    }

    #[test]
    fn one_job_larger_than_the_window_goes_alone() {
        let mut window = Window::new(10, 100);
        assert_eq!(window.reserve(false), (10, 100));
        window.unreserve((10, 100));
        window.add(5000);
        assert!(!window.has_room());
        window.concluded(5000);
        assert!(window.has_room());
    }
}
