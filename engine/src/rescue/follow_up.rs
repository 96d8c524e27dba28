//! Decides the next step of a job whose lease ended without a settlement. Pure.

use crate::job::{DeadReason, OnTimeout};
use crate::retry::{self, MAX_CRASHES, Next};
use crate::store::queue::claim::ClaimedJob;
use crate::store::queue::settle::{Bury, ClaimToken, Release, Retry};

/// The last error of a job after a time-out.
pub(super) const TIMEOUT_ERROR: &str = "the consumer did not finish it within the ttr";

/// The next step of the job.
#[derive(Debug)]
pub(super) enum FollowUp {
    /// The job is due again, at the same step.
    Release(Release),
    /// The job is due at its next step, or dies on the way to the dead letters.
    Retry(Retry),
    /// The job is dead at once.
    Bury(Bury),
    /// The job is over by its own end.
    End(ClaimToken),
}

/// The next step of the job after the end of this lease. `default_retry`: the waits of jobs without
/// a retry array, ms.
pub(super) fn follow_up(lease: &ClaimedJob, default_retry: &[u64], now_ms: i64) -> FollowUp {
    if lease.record.job.ends_ms.is_some_and(|ms| ms <= now_ms) {
        return FollowUp::End(lease.token());
    }
    if lease.state.held { after_timeout(lease, default_retry) } else { after_crash(lease) }
}

/// A consumer did not finish within the TTR.
fn after_timeout(lease: &ClaimedJob, default_retry: &[u64]) -> FollowUp {
    let (job, token) = (&lease.record.job, lease.token());
    let error = TIMEOUT_ERROR.to_owned();
    let (wait_ms, dies) =
        match retry::next(job, lease.state.step, default_retry, DeadReason::RetriesExhausted) {
            Next::Wait(ms) => (ms, None),
            Next::Dies(reason) => (0, Some(reason)),
        };
    match (job.queue(), dies) {
        // No dead letter is published first.
        (Some(_), Some(reason)) => FollowUp::Bury(Bury { job: token, reason, error }),
        (Some(_), None) if job.on_timeout == OnTimeout::Ready => {
            FollowUp::Retry(Retry { job: token, wait_ms: 0, unpublished: false, dies, error })
        }
        _ => FollowUp::Retry(Retry { job: token, wait_ms, unpublished: false, dies, error }),
    }
}

/// The instance that had claimed the job crashed.
fn after_crash(lease: &ClaimedJob) -> FollowUp {
    let job = lease.token();
    if lease.state.crashes < MAX_CRASHES {
        FollowUp::Release(Release { job, pause_ms: 0, unpublished: false })
    } else if let Some(reason) = lease.state.reason {
        // The instance crashed again while publishing the dead letter: keep the job without another
        // try.
        FollowUp::Bury(Bury { job, reason, error: lease.state.last_error.clone() })
    } else {
        let error = format!("{} crashes in a row of an instance that held it", lease.state.crashes);
        FollowUp::Retry(Retry {
            job,
            wait_ms: 0,
            unpublished: false,
            dies: Some(DeadReason::Crashed),
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use dwell_core::Destination;

    use super::*;
    use crate::clock;
    use crate::job::Job;
    use crate::store::queue::settle::{ClaimName, ClaimToken};
    use crate::store::record::{Record, State};

    fn lease(job: Job, state: impl FnOnce(&mut State)) -> ClaimedJob {
        let mut of_job = State::of_record(&[0; 30], 0).expect("30 bytes are enough");
        state(&mut of_job);
        let id: crate::JobId = "x".parse().expect("an id");
        let token = ClaimToken {
            id: id.clone(),
            lease: ClaimName { nonce: [0; 8], created: [0; 8] },
            position: 0,
            has_state: true,
            state: of_job.clone(),
        };
        let record = Record { job, generated: false, generation: [0; 8], fingerprint: [0; 8] };
        let now = clock::now();
        ClaimedJob {
            id,
            bucket: 0,
            token,
            deadline: now,
            taken_us: 0,
            ready: now,
            state: of_job,
            record,
            size: 0,
        }
    }

    #[test]
    fn a_job_of_a_queue_is_ready_or_waits_and_is_dead_at_the_end_of_its_array() {
        let job =
            |on_timeout| Job { retry: Some(vec![700]), on_timeout, ..Job::for_queue("q", "") };
        let held = |on_timeout, step| {
            follow_up(
                &lease(job(on_timeout), |state| (state.held, state.step) = (true, step)),
                &[],
                0,
            )
        };
        assert!(matches!(
            held(OnTimeout::Ready, 0),
            FollowUp::Retry(Retry { wait_ms: 0, dies: None, .. })
        ));
        assert!(matches!(
            held(OnTimeout::Retry, 0),
            FollowUp::Retry(Retry { wait_ms: 700, dies: None, .. })
        ));
        assert!(matches!(
            held(OnTimeout::Ready, 1),
            FollowUp::Bury(Bury { reason: DeadReason::RetriesExhausted, .. })
        ));
    }

    #[test]
    fn a_job_that_is_over_by_its_own_end_leaves_no_trace() {
        let job = || Job { tries: Some(1), ends_ms: Some(7), ..Job::for_queue("q", "") };
        let held = |now_ms| follow_up(&lease(job(), |state| state.held = true), &[], now_ms);
        assert!(matches!(held(7), FollowUp::End(_)));
        assert!(matches!(held(6), FollowUp::Bury(_)));
    }

    #[test]
    fn a_job_of_a_broker_goes_by_its_array_and_by_its_dead_letter() {
        let job = || Job::new("main", Destination::new("t"), "");
        let held = |step| {
            follow_up(&lease(job(), |state| (state.held, state.step) = (true, step)), &[900], 0)
        };
        assert!(matches!(held(0), FollowUp::Retry(Retry { wait_ms: 900, dies: None, .. })));
        assert!(matches!(
            held(1),
            FollowUp::Retry(Retry { dies: Some(DeadReason::RetriesExhausted), .. })
        ));
        let crashed = |crashes, reason| {
            follow_up(
                &lease(job(), |state| (state.crashes, state.reason) = (crashes, reason)),
                &[],
                0,
            )
        };
        assert!(matches!(crashed(1, None), FollowUp::Release(Release { pause_ms: 0, .. })));
        assert!(matches!(
            crashed(MAX_CRASHES, None),
            FollowUp::Retry(Retry { dies: Some(DeadReason::Crashed), .. })
        ));
        assert!(matches!(
            crashed(MAX_CRASHES, Some(DeadReason::Failed)),
            FollowUp::Bury(Bury { reason: DeadReason::Failed, .. })
        ));
    }
}
