//! Settlements that wait for their call to the store. Each kind has one call at a time, so that
//! calls are large while Redis is busy, and a second one that is large. Slow calls do not count.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Instant;
use crate::policy::Fate;
use crate::store::call::CALL_JOBS;
use crate::store::jobs::settle::{Bury, ClaimToken, Completion, Release, Retry};

/// A call delays the others of its kind for this long at most, and two calls for twice as long: a
/// single Redis works on one call at a time, and small calls cost more. A call that takes longer
/// delays no other: its master hangs, its bucket is damaged, or Redis is far away.
const MAX_CALL_DELAY: Duration = Duration::from_millis(2);
/// So many jobs may go in a second call beside a prompt one: Redis then has work while this process
/// reads an answer.
const MIN_SECOND_CALL_JOBS: usize = CALL_JOBS * 3 / 4;

/// The settlement of one job.
#[derive(Debug)]
pub(super) enum Settlement {
    /// Delivered.
    Complete(ClaimToken),
    /// Dropped as too late.
    Drop(ClaimToken),
    /// Held until its consumer confirms; TTR in ms.
    Hold(ClaimToken, u32),
    /// Back to due, with the retry step kept.
    Release(Release),
    /// The next retry step, or due now as a dead letter.
    Retry(Retry),
    /// Dead.
    Bury(Bury),
}

impl Settlement {
    /// Gives a job its fate. `pause_ms`: the wait of a released job.
    pub(super) fn of(fate: Fate, job: ClaimToken, pause_ms: u64) -> Settlement {
        match fate {
            Fate::Release { unpublished } => {
                Settlement::Release(Release { job, pause_ms, unpublished })
            }
            Fate::Retry { wait_ms, error } => {
                Settlement::Retry(Retry { job, wait_ms, unpublished: false, dies: None, error })
            }
            Fate::Die { reason, error, unpublished } => {
                Settlement::Retry(Retry { job, wait_ms: 0, unpublished, dies: Some(reason), error })
            }
            Fate::Bury { reason, error } => Settlement::Bury(Bury { job, reason, error }),
            Fate::Drop => Settlement::Drop(job),
        }
    }
}

/// The jobs of one call to the store.
#[derive(Debug, Clone)]
pub(super) enum SettleCall {
    Complete(Completion, Vec<ClaimToken>),
    Hold(Vec<(ClaimToken, u32)>),
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

    /// Returns the number of jobs that the call settles.
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
    complete: BTreeMap<u16, Vec<ClaimToken>>,
    dropped: BTreeMap<u16, Vec<ClaimToken>>,
    hold: BTreeMap<u16, Vec<(ClaimToken, u32)>>,
    release: BTreeMap<u16, Vec<Release>>,
    retry: BTreeMap<u16, Vec<Retry>>,
    bury: BTreeMap<u16, Vec<Bury>>,
    /// Calls without an answer: at most one for each bucket and kind. A bucket that does not answer
    /// delays no other, no kind waits for another, and batches grow meanwhile.
    running: BTreeMap<(CallKind, u16), Instant>,
    /// The bucket of each kind that is looked at first: buckets take turns.
    turns: BTreeMap<CallKind, u16>,
    /// When [`SettleQueue::next`] last looked. A call that became slow since may let another start.
    looked: Option<Instant>,
}

impl SettleQueue {
    pub(super) fn push(&mut self, bucket: u16, settlement: Settlement) {
        match settlement {
            Settlement::Complete(job) => self.complete.entry(bucket).or_default().push(job),
            Settlement::Drop(job) => self.dropped.entry(bucket).or_default().push(job),
            Settlement::Hold(job, ttr_ms) => {
                self.hold.entry(bucket).or_default().push((job, ttr_ms))
            }
            Settlement::Release(release) => self.release.entry(bucket).or_default().push(release),
            Settlement::Retry(retry) => self.retry.entry(bucket).or_default().push(retry),
            Settlement::Bury(bury) => self.bury.entry(bucket).or_default().push(bury),
        }
    }

    /// The next call of a bucket and kind without a running call. The call runs until
    /// [`SettleQueue::answered`].
    pub(super) fn next(&mut self, now: Instant) -> Option<(u16, SettleCall)> {
        self.looked = Some(now);
        let calls = Calls { running: &self.running, turns: &self.turns, now };
        let next = take(&mut self.complete, CallKind::Complete, calls, |jobs| {
            SettleCall::Complete(Completion::Fired, jobs)
        })
        .or_else(|| take(&mut self.hold, CallKind::Hold, calls, SettleCall::Hold))
        .or_else(|| take(&mut self.retry, CallKind::Retry, calls, SettleCall::Retry))
        .or_else(|| take(&mut self.release, CallKind::Release, calls, SettleCall::Release))
        .or_else(|| take(&mut self.bury, CallKind::Bury, calls, SettleCall::Bury))
        .or_else(|| {
            take(&mut self.dropped, CallKind::Drop, calls, |jobs| {
                SettleCall::Complete(Completion::Dropped, jobs)
            })
        })?;
        self.running.insert((next.1.kind(), next.0), now);
        self.turns.insert(next.1.kind(), next.0.wrapping_add(1));
        Some(next)
    }

    /// When a running call stops to delay others; `None` if no call does.
    #[must_use]
    pub(super) fn next_at(&self) -> Option<Instant> {
        let counts = [
            self.complete.len(),
            self.hold.len(),
            self.retry.len(),
            self.release.len(),
            self.bury.len(),
            self.dropped.len(),
        ];
        let is_empty = counts.iter().all(|count| *count == 0);
        let ends = self
            .running
            .values()
            .map(|begun| *begun + MAX_CALL_DELAY)
            .filter(|end| self.looked.is_some_and(|looked| looked < *end));
        if is_empty { None } else { ends.min() }
    }

    /// The call was answered or given up.
    pub(super) fn answered(&mut self, bucket: u16, call: &SettleCall) {
        self.running.remove(&(call.kind(), bucket));
    }
}

/// The calls without an answer.
#[derive(Clone, Copy)]
struct Calls<'a> {
    running: &'a BTreeMap<(CallKind, u16), Instant>,
    turns: &'a BTreeMap<CallKind, u16>,
    now: Instant,
}

impl Calls<'_> {
    /// Returns the number of calls of this kind that began less than [`MAX_CALL_DELAY`] ago.
    fn prompt(&self, kind: CallKind) -> usize {
        self.running
            .iter()
            .filter(|((running, _), begun)| *running == kind && self.now < **begun + MAX_CALL_DELAY)
            .count()
    }
}

/// At most one call's worth of jobs of this kind: of the first bucket, from the turn of the kind
/// on, that has no running call. A bucket with few jobs is not passed over, or its turn would never
/// come.
fn take<T>(
    queues: &mut BTreeMap<u16, Vec<T>>,
    kind: CallKind,
    calls: Calls<'_>,
    call: impl FnOnce(Vec<T>) -> SettleCall,
) -> Option<(u16, SettleCall)> {
    if queues.is_empty() {
        return None;
    }
    let least = match calls.prompt(kind) {
        0 => 1,
        1 => MIN_SECOND_CALL_JOBS,
        _ => return None,
    };
    let turn = calls.turns.get(&kind).copied().unwrap_or(0);
    let is_free = |bucket: &&u16| !calls.running.contains_key(&(kind, **bucket));
    let bucket = queues
        .range(turn..)
        .chain(queues.range(..turn))
        .map(|(bucket, _)| bucket)
        .find(is_free)
        .copied()?;
    let jobs = queues.get_mut(&bucket).filter(|jobs| jobs.len() >= least)?;
    let rest = if jobs.len() > CALL_JOBS { jobs.split_off(CALL_JOBS) } else { Vec::new() };
    let jobs = std::mem::replace(jobs, rest);
    if queues.get(&bucket).is_some_and(Vec::is_empty) {
        queues.remove(&bucket);
    }
    Some((bucket, call(jobs)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(super) mod tests {
    use super::*;
    use crate::clock;
    use crate::job::JobId;
    use crate::policy::limit::Turn;
    use crate::store::jobs::settle::ClaimName;
    use crate::store::record::StateRecord;

    fn completed(queue: &mut SettleQueue, bucket: u16) {
        queue.push(bucket, Settlement::Complete(job()));
    }

    pub(in crate::dispatch) fn job() -> ClaimToken {
        let (id, lease) =
            (JobId::new("a".to_owned()).unwrap(), ClaimName { nonce: [0; 8], created: [0; 8] });
        ClaimToken { id, lease, position: 0, has_state: false, state: state() }
    }

    fn state() -> StateRecord {
        StateRecord {
            held: false,
            counted: false,
            crashes: 0,
            attempt: 0,
            step: 0,
            due_ms: 0,
            anew_ms: None,
            generation: [0; 8],
            fingerprint: [0; 8],
            marks: 0,
            reason: None,
            turn: Turn::NONE,
            last_error: String::new(),
        }
    }

    fn begun(queue: &mut SettleQueue, now: Instant) -> Option<(u16, usize)> {
        queue.next(now).map(|(bucket, call)| (bucket, call.len()))
    }

    #[test]
    fn one_call_runs_and_the_others_grow_meanwhile() {
        let (mut queue, now) = (SettleQueue::default(), clock::now());
        (0..3).for_each(|bucket| completed(&mut queue, bucket));
        assert_eq!([begun(&mut queue, now), begun(&mut queue, now)], [Some((0, 1)), None]);
        (0..3).for_each(|bucket| completed(&mut queue, bucket));
        assert_eq!(queue.next_at(), Some(now + MAX_CALL_DELAY));
        queue.answered(0, &SettleCall::Complete(Completion::Fired, vec![]));
        // Buckets take turns: bucket 0 has jobs again, and is not the next.
        assert_eq!([begun(&mut queue, now), begun(&mut queue, now)], [Some((1, 2)), None]);
        queue.answered(1, &SettleCall::Complete(Completion::Fired, vec![]));
        assert_eq!(begun(&mut queue, now), Some((2, 2)));
        queue.answered(2, &SettleCall::Complete(Completion::Fired, vec![]));
        assert_eq!(begun(&mut queue, now), Some((0, 1)));
    }

    #[test]
    fn a_large_call_goes_beside_another_and_passes_over_no_small_one() {
        let (mut queue, now) = (SettleQueue::default(), clock::now());
        let done = |queue: &mut SettleQueue, bucket| {
            queue.answered(bucket, &SettleCall::Complete(Completion::Fired, vec![]))
        };
        let large = |queue: &mut SettleQueue, bucket| {
            (0..MIN_SECOND_CALL_JOBS).for_each(|_| completed(queue, bucket))
        };
        completed(&mut queue, 0);
        assert_eq!(begun(&mut queue, now), Some((0, 1)));
        [0, 1, 2, 4].iter().for_each(|bucket| large(&mut queue, *bucket));
        completed(&mut queue, 3);
        assert_eq!(
            [begun(&mut queue, now), begun(&mut queue, now)],
            [Some((1, MIN_SECOND_CALL_JOBS)), None],
            "no third call"
        );
        done(&mut queue, 0);
        assert_eq!(begun(&mut queue, now), Some((2, MIN_SECOND_CALL_JOBS)));
        done(&mut queue, 1);
        assert_eq!(
            begun(&mut queue, now),
            None,
            "bucket 3 has one job, and bucket 4 comes after it"
        );
        done(&mut queue, 2);
        assert_eq!(
            [begun(&mut queue, now), begun(&mut queue, now)],
            [Some((3, 1)), Some((4, MIN_SECOND_CALL_JOBS))]
        );
    }

    #[test]
    fn a_call_that_hangs_delays_no_other_and_no_kind_waits_for_another() {
        let (mut queue, now) = (SettleQueue::default(), clock::now());
        (0..2).for_each(|bucket| completed(&mut queue, bucket));
        assert_eq!([begun(&mut queue, now), begun(&mut queue, now)], [Some((0, 1)), None]);
        queue.push(0, Settlement::Drop(job()));
        assert_eq!([begun(&mut queue, now), begun(&mut queue, now)], [Some((0, 1)), None]);
        completed(&mut queue, 0);
        let later = now + MAX_CALL_DELAY;
        assert_eq!(
            [begun(&mut queue, later), begun(&mut queue, later)],
            [Some((1, 1)), None],
            "bucket 0 has a call that runs"
        );
        assert_eq!(queue.next_at(), Some(later + MAX_CALL_DELAY));
        queue.answered(0, &SettleCall::Complete(Completion::Fired, vec![]));
        assert_eq!(begun(&mut queue, later), None, "the call of bucket 1 runs");
        queue.answered(1, &SettleCall::Complete(Completion::Fired, vec![]));
        assert_eq!(
            (begun(&mut queue, later), queue.next_at()),
            (Some((0, 1)), None),
            "nothing waits"
        );
    }
}
