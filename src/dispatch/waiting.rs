//! Claimed jobs that are not published yet: not due, without a place in the window, or without one
//! in the share of their destination.

use std::collections::VecDeque;

use super::due_queue::DueQueue;
use super::shares::SHARE_WAIT;
use crate::clock::Instant;
use crate::store::jobs::claim::ClaimedJob;

/// The claimed jobs of one broker that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    not_due: DueQueue<Box<ClaimedJob>>,
    /// Jobs that are due and wait for a place in the window, and since when they are ready.
    without_place: VecDeque<(Instant, Box<ClaimedJob>)>,
    /// Jobs that wait for their destination's share of the window, and since when.
    without_share: VecDeque<(Instant, Box<ClaimedJob>)>,
    /// How many of these wait for a destination that may answer late.
    late: usize,
    /// An outcome arrived since `without_share` was last tried: a share may have a free place.
    outcome_arrived: bool,
}

impl Waiting {
    /// Keeps a job until it is due.
    pub(super) fn until_due(&mut self, lease: Box<ClaimedJob>) {
        self.not_due.push(lease.ready, lease);
    }

    /// Keeps a job until the window has a place. `since`: when the job was first ready.
    pub(super) fn for_place(&mut self, since: Instant, lease: Box<ClaimedJob>) {
        self.without_place.push_back((since, lease));
    }

    /// The first job that waits for a place.
    #[must_use]
    pub(super) fn first_without_place(&self) -> Option<&ClaimedJob> {
        self.without_place.front().map(|(_, lease)| &**lease)
    }

    /// Takes that job.
    pub(super) fn pop_without_place(&mut self) -> Option<(Instant, Box<ClaimedJob>)> {
        self.without_place.pop_front()
    }

    /// Keeps a job until its destination's share has a place, or until [`SHARE_WAIT`] after
    /// `since`. `late`: the destination may answer later than that.
    pub(super) fn for_share(&mut self, since: Instant, late: bool, lease: Box<ClaimedJob>) {
        self.late += usize::from(late);
        // The first one is the one that has waited longest.
        if self.without_share.front().is_some_and(|(first, _)| since < *first) {
            self.without_share.push_front((since, lease));
        } else {
            self.without_share.push_back((since, lease));
        }
    }

    /// Returns the number of jobs that wait for the share of a destination that may answer late.
    #[must_use]
    pub(super) fn late(&self) -> usize {
        self.late
    }

    /// An outcome arrived: a share may have a free place.
    pub(super) fn outcome_arrived(&mut self) {
        self.outcome_arrived = true;
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Box<ClaimedJob>> {
        self.not_due.pop_due(now)
    }

    /// The jobs whose share may have a place now, or that have waited too long.
    pub(super) fn take_without_share(
        &mut self,
        now: Instant,
    ) -> VecDeque<(Instant, Box<ClaimedJob>)> {
        if std::mem::take(&mut self.outcome_arrived)
            || self.share_wait_ends().is_some_and(|until| now >= until)
        {
            self.late = 0;
            std::mem::take(&mut self.without_share)
        } else {
            VecDeque::new()
        }
    }

    fn share_wait_ends(&self) -> Option<Instant> {
        self.without_share.front().map(|(since, _)| *since + SHARE_WAIT)
    }

    /// When the next job is due, or has waited too long for its share.
    #[must_use]
    pub(super) fn next_at(&self) -> Option<Instant> {
        [self.not_due.next_due(), self.share_wait_ends()].into_iter().flatten().min()
    }

    /// Takes all jobs.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Box<ClaimedJob>> + use<> {
        self.late = 0;
        let without_share =
            std::mem::take(&mut self.without_share).into_iter().map(|(_, lease)| lease);
        let without_place =
            std::mem::take(&mut self.without_place).into_iter().map(|(_, lease)| lease);
        self.not_due.drain().chain(without_place).chain(without_share)
    }
}
