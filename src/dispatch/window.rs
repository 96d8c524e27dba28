//! The in-flight window: the bound on jobs that are claimed and not settled.

use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS};

/// Counts claimed jobs until the store has settled them, and their bytes until their outcome is
/// known.
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

    /// Whether another claim may start.
    #[must_use]
    pub(super) fn has_room(&self) -> bool {
        self.jobs < self.jobs_max && self.bytes < self.bytes_max
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

    /// The outcome of a job of this size is known; its body is no longer held.
    pub(super) fn free_bytes(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// The store has settled this many jobs.
    pub(super) fn free_jobs(&mut self, jobs: usize) {
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
        window.unreserve((128, 1 << 20));
        (0..100).for_each(|_| window.add(10));
        assert_eq!(window.reserve(false), (28, 1 << 20));
        window.unreserve((28, 1 << 20));
        assert_eq!(window.reserve(true), (1, 1));
        window.unreserve((1, 1));
        window.unreserve((72, 1 << 20));
        (0..100).for_each(|_| window.free_bytes(10));
        window.free_jobs(100);
        assert_eq!((window.jobs, window.bytes), (0, 0));
    }

    #[test]
    fn one_job_larger_than_the_window_goes_alone() {
        let mut window = Window::new(10, 100);
        assert_eq!(window.reserve(false), (10, 100));
        window.unreserve((10, 100));
        window.add(5000);
        assert!(!window.has_room());
        window.free_bytes(5000);
        assert!(window.has_room());
    }
}
