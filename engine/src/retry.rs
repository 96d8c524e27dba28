//! Decides the next step of a job after a failed attempt: the next wait of the retry array, or
//! death. Pure.

use crate::job::{DeadReason, Job};

/// The default of `delivery.retry`, ms: 2m, 10m, 10m, 1h, 2h, 6h, 15h.
pub const DEFAULT_MS: &[u64] =
    &[120_000, 600_000, 600_000, 3_600_000, 7_200_000, 21_600_000, 54_000_000];

/// The next step of a job after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another attempt after this many ms.
    Wait(u64),
    /// The array has no further wait: the job dies.
    Dies(DeadReason),
}

/// The wait at `step` of the job's retry array, or of `default_retry` if the job has none. After
/// the last wait, or the last of [`Job::tries`], death with `reason`. No tries are no limit.
#[must_use]
pub fn next(job: &Job, step: u16, default_retry: &[u64], reason: DeadReason) -> Next {
    if let Some(tries) = job.tries {
        return if tries == 0 || u32::from(step) + 1 < u32::from(tries) {
            Next::Wait(0)
        } else {
            Next::Dies(reason)
        };
    }
    let waits = job.retry.as_deref().unwrap_or(default_retry);
    waits.get(usize::from(step)).map_or(Next::Dies(reason), |ms| Next::Wait(*ms))
}

/// The number of crashes in a row after which a job dies.
pub const MAX_CRASHES: u8 = 5;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dwell_core::Destination;

    use super::*;

    fn job(retry: Option<Vec<u64>>) -> Job {
        Job { retry, ..Job::new("main", Destination::new("a"), Bytes::new()) }
    }

    #[test]
    fn the_array_is_walked_by_step_to_its_end() {
        let dies = Next::Dies(DeadReason::RetriesExhausted);
        let next = |retry: Option<Vec<u64>>, step| {
            next(&job(retry), step, &[7], DeadReason::RetriesExhausted)
        };
        assert_eq!(
            [next(Some(vec![1, 2]), 0), next(Some(vec![1, 2]), 1), next(Some(vec![1, 2]), 2)],
            [Next::Wait(1), Next::Wait(2), dies]
        );
        assert_eq!([next(None, 0), next(None, 1)], [Next::Wait(7), dies]);
        assert_eq!(next(Some(vec![]), 0), dies, "`none` is a single attempt");
        let tried = |step| {
            super::next(
                &Job { tries: Some(2), ..job(None) },
                step,
                &[7],
                DeadReason::RetriesExhausted,
            )
        };
        assert_eq!([tried(0), tried(1)], [Next::Wait(0), dies]);
        let for_ever = Job { tries: Some(0), ..job(Some(vec![])) };
        assert_eq!(
            super::next(&for_ever, u16::MAX, &[], DeadReason::RetriesExhausted),
            Next::Wait(0)
        );
    }
}
