//! The in-flight window: the bound on jobs that are published and not settled, and on those that
//! are claimed ahead.

use crate::store::call::{CALL_BYTES, CALL_JOBS};

/// Claims may bring this many jobs more than have a place: as many as all claims of a single server
/// at a time. Otherwise the window would be empty by as many as are on their way from Redis.
const MAX_JOBS_AHEAD: usize = 4 * CALL_JOBS;

/// Counts jobs from their publication until the store has settled them: after a kill, these may
/// come twice. Beside them, some jobs are claimed ahead and wait for a place. The bytes of both are
/// counted from the claim until the outcome is known.
#[derive(Debug)]
pub(super) struct Window {
    jobs_max: usize,
    bytes_max: usize,
    jobs: usize,
    /// Jobs that have no place: waiting ones, and the reservations of claims.
    ahead: usize,
    bytes: usize,
}

impl Window {
    /// An empty window.
    #[must_use]
    pub(super) fn new(jobs_max: usize, bytes_max: u64) -> Self {
        Window {
            jobs_max,
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            jobs: 0,
            ahead: 0,
            bytes: 0,
        }
    }

    /// Returns the number of jobs that may still be claimed. While the window has no free place,
    /// none is claimed.
    fn room(&self) -> usize {
        let ahead_max = MAX_JOBS_AHEAD.min(self.jobs_max / 2);
        if self.has_place() {
            (self.jobs_max + ahead_max).saturating_sub(self.jobs + self.ahead)
        } else {
            0
        }
    }

    /// Whether another claim may start.
    #[must_use]
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0 && self.bytes < self.bytes_max
    }

    /// Whether a claim would get less than half of a call's jobs, and less than an eighth of the
    /// window.
    #[must_use]
    pub(super) fn has_little_room(&self) -> bool {
        self.room() < (CALL_JOBS / 2).min(self.jobs_max / 8)
    }

    /// Reserves jobs and bytes for one claim, as far as the window allows. A probe claims one job.
    pub(super) fn reserve(&mut self, is_probe: bool) -> (usize, usize) {
        let jobs = self.room().min(if is_probe { 1 } else { CALL_JOBS });
        let bytes =
            self.bytes_max.saturating_sub(self.bytes).min(if is_probe { 1 } else { CALL_BYTES });
        self.ahead += jobs;
        self.bytes += bytes;
        (jobs, bytes)
    }

    /// Ends the reservation of a claim that was answered.
    pub(super) fn unreserve(&mut self, (jobs, bytes): (usize, usize)) {
        self.ahead -= jobs;
        self.bytes -= bytes;
    }

    /// Adds a claimed job, which has no place yet. A single job may be larger than the reservation;
    /// the window then overshoots by that job.
    pub(super) fn add(&mut self, bytes: usize) {
        self.ahead += 1;
        self.bytes += bytes;
    }

    /// Whether another job may be published.
    #[must_use]
    pub(super) fn has_place(&self) -> bool {
        self.jobs < self.jobs_max
    }

    /// A claimed job gets a place: it is published, or settled without a publication.
    pub(super) fn take_place(&mut self) {
        self.ahead -= 1;
        self.jobs += 1;
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
        // 100 more may be on their way.
        assert_eq!(
            [window.reserve(false), window.reserve(false), window.reserve(false)],
            [(128, 1 << 20), (128, 1 << 20), (44, 1 << 20)]
        );
        assert!(!window.has_room() && window.has_place());
        window.unreserve((128, 1 << 20));
        (0..128).for_each(|_| window.add(10));
        assert!(!window.has_room());
        window.unreserve((128, 1 << 20));
        window.unreserve((44, 1 << 20));
        (0..128).for_each(|_| window.take_place());
        assert_eq!(window.reserve(true), (1, 1));
        window.unreserve((1, 1));
        (0..128).for_each(|_| window.free_bytes(10));
        window.free_jobs(128);
        assert_eq!((window.jobs, window.ahead, window.bytes), (0, 0, 0));
    }

    #[test]
    fn nothing_is_claimed_while_no_job_has_a_place() {
        let mut window = Window::new(200, 4 << 20);
        (0..250).for_each(|_| window.add(10));
        assert!(window.has_room());
        (0..200).for_each(|_| window.take_place());
        assert!(!window.has_room() && !window.has_place());
        window.free_jobs(1);
        assert!(window.has_place() && window.has_room());
    }

    #[test]
    fn a_window_of_one_job_claims_one() {
        let mut window = Window::new(1, 4 << 20);
        assert_eq!(window.reserve(false), (1, 1 << 20));
        assert!(!window.has_room());
    }

    #[test]
    fn one_job_larger_than_the_window_goes_alone() {
        let mut window = Window::new(10, 100);
        assert_eq!(window.reserve(false), (15, 100));
        window.unreserve((15, 100));
        window.add(5000);
        window.take_place();
        assert!(!window.has_room());
        window.free_bytes(5000);
        assert!(window.has_room());
    }
}
