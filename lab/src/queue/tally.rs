//! The counts of events at consumers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) pops_with_jobs: Count,
    pub(super) pops_empty: Count,
    /// The instance answered that Redis is away.
    pub(super) pops_unavailable: Count,
    /// The connection broke: the instance was killed.
    pub(super) pops_cut_off: Count,
    /// Nobody listened.
    pub(super) pops_refused: Count,
    /// The consumer went away.
    pub(super) pops_left: Count,
    /// The most jobs that pops without an answer may have been handed.
    pub(super) unanswered_jobs: Count,
    pub(super) killed_waiting: Count,
    pub(super) killed_holding: Count,
    pub(super) killed_speaking: Count,
    pub(super) finished: Count,
    pub(super) finishes_stale: Count,
    pub(super) finishes_repeated: Count,
    pub(super) words_unanswered: Count,
}

/// The sums of a campaign.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Counts {
    /// Pops that were answered with jobs.
    pub pops_with_jobs: u64,
    /// Pops that were answered without jobs.
    pub pops_empty: u64,
    /// Pops that were answered 503: Redis was away.
    pub pops_unavailable: u64,
    /// Pops that were under way at an instance that was killed.
    pub pops_cut_off: u64,
    /// Pops that were never sent: the instance was down.
    pub pops_refused: u64,
    /// Consumers that went away during a pop, and lived on.
    pub pops_left: u64,
    /// Consumers that were killed during a pop.
    pub killed_waiting: u64,
    /// Consumers that were killed between a pop and its words.
    pub killed_holding: u64,
    /// Consumers that were killed while their words were under way.
    pub killed_speaking: u64,
    /// Finishes that were answered `finished`.
    pub finished: u64,
    /// Finishes that were answered `stale`: the lease had run out, or a promoted master did not
    /// know it.
    pub finishes_stale: u64,
    /// Finishes that were answered `fired`: an earlier word without an answer had counted.
    pub finishes_repeated: u64,
    /// Calls with words that got no answer.
    pub words_unanswered: u64,
}

impl Tally {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            pops_with_jobs: self.pops_with_jobs.get(),
            pops_empty: self.pops_empty.get(),
            pops_unavailable: self.pops_unavailable.get(),
            pops_cut_off: self.pops_cut_off.get(),
            pops_refused: self.pops_refused.get(),
            pops_left: self.pops_left.get(),
            killed_waiting: self.killed_waiting.get(),
            killed_holding: self.killed_holding.get(),
            killed_speaking: self.killed_speaking.get(),
            finished: self.finished.get(),
            finishes_stale: self.finishes_stale.get(),
            finishes_repeated: self.finishes_repeated.get(),
            words_unanswered: self.words_unanswered.get(),
        }
    }
}
