//! The fate of a job whose lease ended without a settlement: its owner crashed, or its consumer did
//! not finish within the TTR.

use super::{Fate, Progress, expiry, retry};
use crate::job::{DeadReason, Job, OnTimeout};

/// The last error of a job after a time-out.
pub const TIMEOUT_ERROR: &str = "the consumer did not finish it within the ttr";

/// The number of crashes in a row after which a job dies.
const MAX_CRASHES: u8 = 5;

/// The fate of a job after the end of a lease. `is_held`: a consumer had the job, else an instance.
/// `default_retry`: the waits of jobs without a retry array, ms.
#[must_use]
pub fn ended(
    job: &Job,
    state: Progress<'_>,
    is_held: bool,
    default_retry: &[u64],
    now_ms: i64,
) -> Fate {
    if expiry::has_ended(job, now_ms) {
        Fate::Drop
    } else if is_held {
        unfinished(job, state, default_retry, now_ms)
    } else {
        crashed(state)
    }
}

/// The fate of a job whose consumer did not finish within the TTR: as [`timed_out`], but a wait that
/// would end past the expiry is not begun.
#[must_use]
pub fn unfinished(job: &Job, state: Progress<'_>, default_retry: &[u64], now_ms: i64) -> Fate {
    match timed_out(job, state.step, default_retry) {
        Fate::Retry { wait_ms, error } if expiry::is_over_after(job, state, wait_ms, now_ms) => {
            let reason = DeadReason::Expired;
            let fate = Fate::Die { reason, error, unpublished: false };
            if job.queue().is_some() { fate.of_queue() } else { fate }
        }
        fate => fate,
    }
}

/// The fate of a job without an expiry whose consumer did not finish within the TTR.
#[must_use]
pub fn timed_out(job: &Job, step: u16, default_retry: &[u64]) -> Fate {
    let error = TIMEOUT_ERROR.to_owned();
    let is_of_queue = job.queue().is_some();
    match retry::wait_ms(job, step, default_retry) {
        Some(_) if is_of_queue && job.on_timeout == OnTimeout::Ready => {
            Fate::Retry { wait_ms: 0, error }
        }
        Some(wait_ms) => Fate::Retry { wait_ms, error },
        None => {
            let reason = DeadReason::RetriesExhausted;
            let fate = Fate::Die { reason, error, unpublished: false };
            if is_of_queue { fate.of_queue() } else { fate }
        }
    }
}

/// The fate of a job whose instance crashed.
fn crashed(state: Progress<'_>) -> Fate {
    if state.crashes < MAX_CRASHES {
        return Fate::Release { unpublished: false };
    }
    // The instances crashed while they published the dead letter: there is no other try.
    state.buried().unwrap_or_else(|| Fate::Die {
        reason: DeadReason::Crashed,
        error: format!("{} crashes in a row of an instance that held it", state.crashes),
        unpublished: false,
    })
}

/// [`timed_out`] for the script `time_out`, in three bits. 1 to 5: below the step 1, 2, 4, 8 or 16
/// the job is due again at once after a time-out, at its next step. 6: at every step. 7: as long as
/// the default array has a wait. 0: the next step depends on more than the number of the step. The
/// numbers are never more than the job allows: above them, the rescue asks [`ended`].
#[must_use]
pub fn time_out_code(job: &Job) -> u8 {
    if job.queue().is_none()
        || job.on_timeout != OnTimeout::Ready
        || job.remove_at_ms.is_some()
        || job.expire.is_some()
    {
        return 0;
    }
    match (job.tries, &job.retry) {
        (Some(0), _) => 6,
        (Some(tries), _) => below(usize::from(tries) - 1),
        (None, Some(waits)) => below(waits.len()),
        (None, None) => 7,
    }
}

/// The code for the largest of 1, 2, 4, 8 and 16 up to this number of steps; 0: there is none.
fn below(steps: usize) -> u8 {
    [1, 2, 4, 8, 16]
        .iter()
        .zip(1..)
        .filter(|(most, _)| **most <= steps)
        .map(|(_, code)| code)
        .last()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use dwell_core::Destination;

    use super::*;
    use crate::job::Expire;

    fn retry(wait_ms: u64) -> Fate {
        Fate::Retry { wait_ms, error: TIMEOUT_ERROR.to_owned() }
    }

    #[test]
    fn a_time_out_moves_the_job_one_step_or_ends_it() {
        let queue =
            |on_timeout| Job { retry: Some(vec![700]), on_timeout, ..Job::for_queue("q", "") };
        let broker = || Job::new("main", Destination::new("t"), "");
        let (reason, error) = (DeadReason::RetriesExhausted, TIMEOUT_ERROR.to_owned());
        let bury = Fate::Bury { reason, error: error.clone() };
        let die = Fate::Die { reason, error, unpublished: false };
        let table = [
            ("ready", queue(OnTimeout::Ready), 0, retry(0)),
            ("the next wait", queue(OnTimeout::Retry), 0, retry(700)),
            ("the end of the array", queue(OnTimeout::Ready), 1, bury.clone()),
            ("the end of the tries", Job { tries: Some(1), ..queue(OnTimeout::Retry) }, 0, bury),
            ("the default array", broker(), 0, retry(900)),
            ("the end of the default array", broker(), 1, die),
        ];
        for (name, job, step, expected) in table {
            assert_eq!(timed_out(&job, step, &[900]), expected, "{name}");
        }
    }

    #[test]
    fn a_crash_sends_the_job_back_and_the_fifth_in_a_row_ends_it() {
        let job = Job::new("main", Destination::new("t"), "");
        let release = || Fate::Release { unpublished: false };
        let die = Fate::Die {
            reason: DeadReason::Crashed,
            error: "5 crashes in a row of an instance that held it".to_owned(),
            unpublished: false,
        };
        let (reason, error) = (DeadReason::Failed, "no".to_owned());
        let table = [
            (1, None, release()),
            (4, None, release()),
            (5, None, die),
            (4, Some(reason), release()),
            (5, Some(reason), Fate::Bury { reason, error }),
        ];
        for (crashes, reason, expected) in table {
            let state = Progress { crashes, reason, last_error: "no", ..Progress::default() };
            assert_eq!(ended(&job, state, false, &[], 0), expected, "{crashes} {reason:?}");
        }
    }

    #[test]
    fn a_job_past_its_own_end_leaves_without_a_trace() {
        let job = Job { remove_at_ms: Some(7), ..Job::for_queue("q", "") };
        let state = Progress::default();
        assert_eq!(ended(&job, state, true, &[0], 7), Fate::Drop);
        assert_eq!(ended(&job, state, false, &[0], 7), Fate::Drop);
        assert_eq!(ended(&job, state, true, &[0], 6), retry(0));
    }

    #[test]
    fn a_time_out_past_the_expiry_is_the_end() {
        let expire = Some(Expire::After(10));
        let state = Progress { attempt: 1, ..Progress::default() };
        let error = || TIMEOUT_ERROR.to_owned();
        let reason = DeadReason::Expired;
        let of_queue = Job { expire, retry: Some(vec![700]), ..Job::for_queue("q", "") };
        assert_eq!(ended(&of_queue, state, true, &[], 9), retry(0));
        let bury = Fate::Bury { reason, error: error() };
        assert_eq!(ended(&of_queue, state, true, &[], 10), bury);
        let of_broker = Job { expire, ..Job::new("main", Destination::new("t"), "") };
        assert_eq!(ended(&of_broker, state, true, &[4], 5), retry(4));
        let die = Fate::Die { reason, error: error(), unpublished: false };
        assert_eq!(ended(&of_broker, state, true, &[4], 6), die);
        let release = Fate::Release { unpublished: false };
        assert_eq!(ended(&of_broker, state, false, &[4], 99), release, "judged at its next claim");
    }

    #[test]
    fn the_script_sends_back_only_jobs_that_the_policy_sends_back() {
        let default_retry = [5, 6, 7];
        // As in time_out.lua.
        let goes_on = |code: u8, step: u16| match code {
            0 => false,
            6 => true,
            7 => usize::from(step) < default_retry.len(),
            code => step < 1_u16 << (code - 1),
        };
        let job = || Job::for_queue("q", "");
        let jobs = (0..40)
            .flat_map(|count| {
                let waits = Some(vec![9; usize::from(count)]);
                [Job { tries: Some(count), ..job() }, Job { retry: waits, ..job() }]
            })
            .chain([
                job(),
                Job { on_timeout: OnTimeout::Retry, ..job() },
                Job { remove_at_ms: Some(1), ..job() },
                Job { expire: Some(Expire::After(1)), ..job() },
                Job::new("main", Destination::new("t"), ""),
            ]);
        for job in jobs {
            for step in (0..50).filter(|step| goes_on(time_out_code(&job), *step)) {
                assert_eq!(timed_out(&job, step, &default_retry), retry(0), "{job:?} {step}");
                assert!(!expiry::has_ended(&job, i64::MAX), "{job:?}");
                assert_eq!(job.expire, None, "{job:?}");
            }
        }
    }
}
