//! Tells what became of the jobs that a rescue settled.

use crate::events::{Facts, JobEvent, Observer, Settled};
use crate::store::due_set::DueSet;
use crate::store::jobs::claim::ClaimedJob;
use crate::store::jobs::settle::{Bury, ClaimToken, Retry, SettleResult};

/// These jobs were to wait for their next attempt. A job that is ready at once waits for nothing, and
/// a dying one is no retry.
pub(super) fn retried(
    observer: &dyn Observer,
    set: &str,
    jobs: &[(Retry, &ClaimedJob)],
    stood: &[SettleResult],
) {
    let waiting = jobs
        .iter()
        .zip(stood)
        .filter(|((retry, _), _)| retry.dies.is_none() && retry.wait_ms > 0)
        .filter(|(_, stood)| **stood == SettleResult::Settled);
    for ((Retry { job, error, .. }, lease), _) in waiting {
        observer.observe(&JobEvent::Settled {
            set: Some(DueSet::named(set)),
            id: &job.id,
            end: Settled::Retried { error },
            facts: Facts::of(&lease.record.job, lease.state.attempt, lease.state.due_ms),
        });
    }
}

/// These jobs were to be dropped.
pub(super) fn dropped(
    observer: &dyn Observer,
    set: &str,
    jobs: &[ClaimToken],
    stood: &[SettleResult],
) {
    let settled = jobs.iter().zip(stood).filter(|(_, stood)| **stood == SettleResult::Settled);
    for (job, _) in settled {
        let (set, id, end) = (Some(DueSet::named(set)), &job.id, Settled::Dropped);
        observer.observe(&JobEvent::Settled { set, id, end, facts: facts(job) });
    }
}

/// These jobs were to be buried: those of this queue, or of brokers. The last error of a job of a
/// broker that was dying already may quote the answer of a stranger, and is not told.
pub(super) fn dead(
    observer: &dyn Observer,
    queue: Option<&str>,
    jobs: &[Bury],
    stood: &[SettleResult],
) {
    let settled = jobs.iter().zip(stood).filter(|(_, stood)| **stood == SettleResult::Settled);
    for (Bury { job, reason, error }, _) in settled {
        let (set, id, reason) = (queue.map(DueSet::Queue), &job.id, *reason);
        let may_quote = queue.is_none() && job.state.reason.is_some();
        let error = if may_quote { "" } else { error.as_str() };
        observer.observe(&JobEvent::Dead { set, id, reason, error, facts: facts(job) });
    }
}

fn facts(job: &ClaimToken) -> Facts<'_> {
    let (attempt, due_ms) = (Some(job.state.attempt), Some(job.state.due_ms));
    Facts { attempt, due_ms, ..Facts::default() }
}
