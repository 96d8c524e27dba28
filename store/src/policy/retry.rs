//! The wait between two attempts, by the retry array of the job.

use crate::job::Job;

/// The default of `delivery.retry`, and of the `retry` of a queue, ms: 2m, 10m, 10m, 1h, 2h, 6h,
/// 15h. Stored jobs of queues have it as a flag of their record (store/record.rs): another default
/// needs another flag, and this array stays what the flag means.
pub const DEFAULT_MS: &[u64] =
    &[120_000, 600_000, 600_000, 3_600_000, 7_200_000, 21_600_000, 54_000_000];

/// The wait at `step` of the job's retry array, ms, or of `default_retry` if the job has none.
/// `None` after the last wait, or the last of [`Job::tries`]: the job dies. No tries are no limit.
#[must_use]
pub fn wait_ms(job: &Job, step: u16, default_retry: &[u64]) -> Option<u64> {
    if let Some(tries) = job.tries {
        return (tries == 0 || u32::from(step) + 1 < u32::from(tries)).then_some(0);
    }
    job.retry.as_deref().unwrap_or(default_retry).get(usize::from(step)).copied()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dwell_core::Destination;

    use super::*;

    #[test]
    fn the_array_is_walked_by_step_to_its_end() {
        let table = [
            // Tries, array, step, wait.
            (None, Some(vec![1, 2]), 0, Some(1)),
            (None, Some(vec![1, 2]), 1, Some(2)),
            (None, Some(vec![1, 2]), 2, None),
            (None, None, 0, Some(7)),
            (None, None, 1, None),
            // `none` is a single attempt.
            (None, Some(vec![]), 0, None),
            (Some(2), None, 0, Some(0)),
            (Some(2), None, 1, None),
            (Some(0), Some(vec![]), u16::MAX, Some(0)),
        ];
        for (tries, retry, step, expected) in table {
            let name = format!("{tries:?} {retry:?} {step}");
            let job = Job { tries, retry, ..Job::new("main", Destination::new("a"), Bytes::new()) };
            assert_eq!(wait_ms(&job, step, &[7]), expected, "{name}");
        }
    }
}
