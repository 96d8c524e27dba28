//! The overdue jobs that went back to due for later, because their destination does not take them.
//! In the store they have the time of their next try, so its counts miss them until then.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The length of a slice of time, ms.
const SLICE_MS: i64 = 100;

/// The jobs that one broker's dispatch gave back and that are not tried again yet. Clones share
/// them.
#[derive(Debug, Clone, Default)]
pub struct GivenBack(Arc<Mutex<BTreeMap<i64, Waiting>>>);

/// Overdue jobs that wait for their next try.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The number of the jobs.
    pub count: u64,
    /// The due time of the oldest, epoch ms.
    pub oldest_ms: Option<i64>,
}

impl Waiting {
    fn add(&mut self, other: Waiting) {
        self.count += other.count;
        self.oldest_ms = self.oldest_ms.into_iter().chain(other.oldest_ms).min();
    }
}

impl GivenBack {
    /// Jobs went back at `now_ms`. Of each: since when it is due, and after which pause it is tried
    /// again, ms.
    pub fn add(&self, now_ms: i64, jobs: impl Iterator<Item = (i64, u64)>) {
        let mut slices = self.0.lock();
        while slices.first_key_value().is_some_and(|(at, _)| *at < slice(now_ms)) {
            slices.pop_first();
        }
        for (due_ms, pause_ms) in
            jobs.filter(|(due_ms, pause_ms)| *due_ms <= now_ms && *pause_ms > 0)
        {
            let next_ms = now_ms.saturating_add(i64::try_from(pause_ms).unwrap_or(i64::MAX));
            let job = Waiting { count: 1, oldest_ms: Some(due_ms) };
            slices.entry(slice(next_ms)).or_default().add(job);
        }
    }

    /// The jobs that wait at `now_ms`. Those of the running slice are not counted, because the time
    /// of their next try may be over, and then the store counts them as overdue. The oldest job may
    /// be one of them: it is overdue either way.
    #[must_use]
    pub fn waiting(&self, now_ms: i64) -> Waiting {
        let mut all = Waiting::default();
        let running = slice(now_ms);
        for (at, jobs) in self.0.lock().range(running..) {
            all.add(Waiting { count: if *at == running { 0 } else { jobs.count }, ..*jobs });
        }
        all
    }
}

/// The slice of a time.
fn slice(ms: i64) -> i64 {
    ms.div_euclid(SLICE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_counts_from_its_due_time_until_its_next_try() {
        let given_back = GivenBack::default();
        let jobs = [(1_000, 5_000), (4_000, 2_000), (10_000, 0), (10_001, 9_000)];
        given_back.add(10_000, jobs.into_iter());
        let both = Waiting { count: 2, oldest_ms: Some(1_000) };
        assert_eq!(given_back.waiting(10_000), both, "neither the one at once nor the one ahead");
        assert_eq!(given_back.waiting(11_999), both);
        let first = Waiting { count: 1, ..both };
        assert_eq!(given_back.waiting(12_000), first, "the store has the other as overdue");
        let oldest = Waiting { count: 0, ..both };
        assert_eq!(given_back.waiting(15_000), oldest, "overdue, whoever counts it");
        assert_eq!(given_back.waiting(15_100), Waiting::default());
        // Tried at 12 s, and given back again.
        given_back.add(12_100, [(4_000, 8_000)].into_iter());
        assert_eq!(given_back.waiting(12_100), both);
        assert_eq!(
            given_back.waiting(16_000),
            Waiting { count: 1, oldest_ms: Some(4_000) },
            "the oldest was tried"
        );
        given_back.add(30_000, std::iter::empty());
        assert!(given_back.0.lock().is_empty(), "what is over is forgotten");
    }
}
