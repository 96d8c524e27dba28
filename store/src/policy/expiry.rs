//! The end that a job has of its own: the silent one of a job of a queue (`ttl` of lmstfy), and the
//! expiry after which a job is dead.

use super::late::{self, LateRules};
use super::{Fate, Progress};
use crate::job::{DeadReason, Expire, Job};

/// Whether the job's own end has come: the job leaves in any state, without a dead letter.
#[must_use]
pub fn has_ended(job: &Job, now_ms: i64) -> bool {
    job.remove_at_ms.is_some_and(|remove_at_ms| remove_at_ms <= now_ms)
}

/// The time from which the job is expired, epoch ms; `None`: the job does not expire. A schedule
/// that an action began at or after a fixed time has no expiry.
#[must_use]
pub fn expires_ms(job: &Job, state: Progress<'_>) -> Option<i64> {
    match job.expire? {
        Expire::After(ms) => {
            Some(state.anew_ms.unwrap_or(state.due_ms).saturating_add_unsigned(ms))
        }
        Expire::At(at_ms) => state.anew_ms.is_none_or(|anew_ms| anew_ms < at_ms).then_some(at_ms),
    }
}

/// The fate of a job that is not delivered within its expiry; `None`: the job is not expired.
#[must_use]
pub fn fate(job: &Job, state: Progress<'_>, now_ms: i64) -> Option<Fate> {
    let expires_ms = expires_ms(job, state).filter(|expires_ms| *expires_ms <= now_ms)?;
    let ago_ms = now_ms.saturating_sub(expires_ms);
    let mut error = format!("not delivered within its expiry, which ended {ago_ms} ms ago");
    if !state.last_error.is_empty() {
        error = format!("{error}; the last error before: {}", state.last_error);
    }
    Some(Fate::Die { reason: DeadReason::Expired, error, unpublished: true })
}

/// Whether a wait from now, ms, would end past the expiry: the wait is not begun.
#[must_use]
pub fn is_over_after(job: &Job, state: Progress<'_>, wait_ms: u64, now_ms: i64) -> bool {
    expires_ms(job, state)
        .is_some_and(|expires_ms| expires_ms <= now_ms.saturating_add_unsigned(wait_ms))
}

/// The fate of an expired job that waits and that nobody claims or pops; `None`: the job waits on.
/// The rules for late jobs come first. `state`: with the attempt that would be next.
#[must_use]
pub fn swept(job: &Job, state: Progress<'_>, rules: LateRules, now_ms: i64) -> Option<Fate> {
    let expired = fate(job, state, now_ms)?;
    let fate = late::fate(job, state, rules, now_ms).unwrap_or(expired);
    Some(if job.queue().is_some() { fate.of_queue() } else { fate })
}

#[cfg(test)]
mod tests {
    use dwell_core::Destination;

    use super::*;
    use crate::job::Late;

    #[test]
    fn a_job_is_over_from_its_end_on() {
        for (remove_at_ms, has_ended) in
            [(None, false), (Some(6), true), (Some(7), true), (Some(8), false)]
        {
            let job = Job { remove_at_ms, ..Job::for_queue("q", "") };
            assert_eq!(super::has_ended(&job, 7), has_ended, "{remove_at_ms:?}");
        }
    }

    #[test]
    fn an_expiry_counts_from_the_due_time_or_from_the_action_that_began_it_anew() {
        let table = [
            (None, 5, None, None),
            (Some(Expire::After(10)), 5, None, Some(15)),
            (Some(Expire::After(10)), 5, Some(40), Some(50)),
            (Some(Expire::After(u64::MAX)), 5, None, Some(i64::MAX)),
            // A time before the due time holds, unless an action came after it.
            (Some(Expire::At(3)), 5, None, Some(3)),
            (Some(Expire::At(30)), 5, Some(29), Some(30)),
            (Some(Expire::At(30)), 5, Some(30), None),
        ];
        for (expire, due_ms, anew_ms, expected) in table {
            let job = Job { expire, ..Job::for_queue("q", "") };
            let state = Progress { due_ms, anew_ms, ..Progress::default() };
            assert_eq!(expires_ms(&job, state), expected, "{expire:?} {due_ms} {anew_ms:?}");
        }
    }

    #[test]
    fn a_job_that_nobody_takes_dies_of_its_expiry_or_is_late() {
        let expire = Some(Expire::After(10));
        let job = || Job { expire, ..Job::new("main", Destination::new("t"), "") };
        let state = Progress { attempt: 1, last_error: "no", ..Progress::default() };
        let error =
            "not delivered within its expiry, which ended 2 ms ago; the last error before: no";
        let (reason, error) = (DeadReason::Expired, error.to_owned());
        let die = Fate::Die { reason, error: error.clone(), unpublished: true };
        let bury = Fate::Bury { reason, error };
        let fires = LateRules::default();
        let drops = LateRules { late: Late::Drop, max_late_ms: Some(5) };
        assert_eq!(swept(&job(), state, fires, 9), None);
        assert_eq!(swept(&job(), state, drops, 9), None, "only an expired job is swept");
        assert_eq!(swept(&job(), state, fires, 12), Some(die));
        assert_eq!(swept(&job(), state, drops, 12), Some(Fate::Drop));
        let of_queue = Job { expire, ..Job::for_queue("q", "") };
        assert_eq!(swept(&of_queue, state, fires, 12), Some(bury));
        assert!(is_over_after(&job(), state, 1, 9) && !is_over_after(&job(), state, 0, 9));
    }
}
