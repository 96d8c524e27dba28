//! The end that a job of a queue has of its own.

use crate::job::Job;

/// Whether the job's own end has come: the job leaves in any state, without a dead letter.
#[must_use]
pub fn has_ended(job: &Job, now_ms: i64) -> bool {
    job.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_over_from_its_end_on() {
        for (ends_ms, has_ended) in
            [(None, false), (Some(6), true), (Some(7), true), (Some(8), false)]
        {
            let job = Job { ends_ms, ..Job::for_queue("q", "") };
            assert_eq!(super::has_ended(&job, 7), has_ended, "{ends_ms:?}");
        }
    }
}
