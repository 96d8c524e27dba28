//! Settlements that wait for their call to the store: one call at a time for each bucket and kind.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::queue::schedule::CALL_JOBS;
use crate::store::queue::settle::{Bury, Completion, LeaseToken, Release, Retry};

/// How one job is settled.
#[derive(Debug)]
pub(super) enum Settlement {
    /// Delivered.
    Complete(LeaseToken),
    /// Dropped as too late.
    Drop(LeaseToken),
    /// Held until its consumer confirms; TTR in ms.
    Hold(LeaseToken, u32),
    /// Back to due, with the retry step kept.
    Release(Release),
    /// The next retry step, or due now as a dead letter.
    Retry(Retry),
    /// Dead.
    Bury(Bury),
}

/// The jobs of one call to the store.
#[derive(Debug, Clone)]
pub(super) enum SettleCall {
    Complete(Completion, Vec<LeaseToken>),
    Hold(Vec<(LeaseToken, u32)>),
    Release(Vec<Release>),
    Retry(Vec<Retry>),
    Bury(Vec<Bury>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallKind {
    Complete,
    Drop,
    Hold,
    Release,
    Retry,
    Bury,
}

impl SettleCall {
    fn kind(&self) -> CallKind {
        match self {
            SettleCall::Complete(Completion::Fired, _) => CallKind::Complete,
            SettleCall::Complete(Completion::Dropped, _) => CallKind::Drop,
            SettleCall::Hold(_) => CallKind::Hold,
            SettleCall::Release(_) => CallKind::Release,
            SettleCall::Retry(_) => CallKind::Retry,
            SettleCall::Bury(_) => CallKind::Bury,
        }
    }

    /// How many jobs the call settles.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        match self {
            SettleCall::Complete(_, jobs) => jobs.len(),
            SettleCall::Hold(jobs) => jobs.len(),
            SettleCall::Release(jobs) => jobs.len(),
            SettleCall::Retry(jobs) => jobs.len(),
            SettleCall::Bury(jobs) => jobs.len(),
        }
    }
}

/// Settlements by kind and bucket.
#[derive(Debug, Default)]
pub(super) struct SettleQueue {
    complete: BTreeMap<u16, Vec<LeaseToken>>,
    dropped: BTreeMap<u16, Vec<LeaseToken>>,
    hold: BTreeMap<u16, Vec<(LeaseToken, u32)>>,
    release: BTreeMap<u16, Vec<Release>>,
    retry: BTreeMap<u16, Vec<Retry>>,
    bury: BTreeMap<u16, Vec<Bury>>,
    /// Calls without an answer: at most one for each bucket and kind. A bucket that does not answer
    /// delays no other, no kind waits for another, and batches grow meanwhile.
    running: BTreeSet<(CallKind, u16)>,
}

impl SettleQueue {
    pub(super) fn push(&mut self, bucket: u16, settlement: Settlement) {
        match settlement {
            Settlement::Complete(job) => self.complete.entry(bucket).or_default().push(job),
            Settlement::Drop(job) => self.dropped.entry(bucket).or_default().push(job),
            Settlement::Hold(job, ttr_ms) => self.hold.entry(bucket).or_default().push((job, ttr_ms)),
            Settlement::Release(release) => self.release.entry(bucket).or_default().push(release),
            Settlement::Retry(retry) => self.retry.entry(bucket).or_default().push(retry),
            Settlement::Bury(bury) => self.bury.entry(bucket).or_default().push(bury),
        }
    }

    /// The next call of a bucket and kind without a running call. The call runs until
    /// [`SettleQueue::answered`].
    pub(super) fn next(&mut self) -> Option<(u16, SettleCall)> {
        let running = &self.running;
        let next = take(&mut self.complete, CallKind::Complete, running, |jobs| SettleCall::Complete(Completion::Fired, jobs))
            .or_else(|| take(&mut self.hold, CallKind::Hold, running, SettleCall::Hold))
            .or_else(|| take(&mut self.retry, CallKind::Retry, running, SettleCall::Retry))
            .or_else(|| take(&mut self.release, CallKind::Release, running, SettleCall::Release))
            .or_else(|| take(&mut self.bury, CallKind::Bury, running, SettleCall::Bury))
            .or_else(|| take(&mut self.dropped, CallKind::Drop, running, |jobs| SettleCall::Complete(Completion::Dropped, jobs)))?;
        self.running.insert((next.1.kind(), next.0));
        Some(next)
    }

    /// The call was answered or given up.
    pub(super) fn answered(&mut self, bucket: u16, call: &SettleCall) {
        self.running.remove(&(call.kind(), bucket));
    }
}

/// At most one call's worth of jobs, of a bucket that has no running call of this kind.
fn take<T>(
    queues: &mut BTreeMap<u16, Vec<T>>,
    kind: CallKind,
    running: &BTreeSet<(CallKind, u16)>,
    call: impl FnOnce(Vec<T>) -> SettleCall,
) -> Option<(u16, SettleCall)> {
    let (&bucket, jobs) = queues.iter_mut().find(|(bucket, _)| !running.contains(&(kind, **bucket)))?;
    let rest = if jobs.len() > CALL_JOBS { jobs.split_off(CALL_JOBS) } else { Vec::new() };
    let jobs = std::mem::replace(jobs, rest);
    if queues.get(&bucket).is_some_and(Vec::is_empty) {
        queues.remove(&bucket);
    }
    Some((bucket, call(jobs)))
}
