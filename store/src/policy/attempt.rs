//! The fate of a job after an attempt to publish it.

use super::late::LateRules;
use super::{Fate, Progress, expiry, retry};
use crate::job::{Confirm, DeadReason, Job};

/// A claimed job whose publication has no outcome when the instance stops. The message may have
/// arrived, so the attempt counts.
pub const ABANDONED: Fate = Fate::Release { unpublished: false };

/// A claimed job that goes back before its publication.
pub const GIVEN_BACK: Fate = Fate::Release { unpublished: true };

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// The broker has stored the message.
    Confirmed,
    /// The broker has stored the message, and the consumer has done its work.
    Finished,
    /// The message was certainly not stored. A later attempt may succeed.
    Refused,
    /// The target will never accept the message.
    Invalid(String),
    /// The attempt has failed.
    Failed(String),
    /// The message may have been stored.
    Unknown(String),
    /// The same, and the lease has ended.
    Expired,
}

/// The next step of a job after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// The job is done.
    Complete,
    /// The job waits for its consumer.
    Hold {
        /// The longest wait from now, ms.
        ttr_ms: u32,
    },
    /// The job is not delivered.
    Settle(Fate),
    /// Nothing: the instance that takes the job over keeps its step.
    Leave,
}

/// The next step of a job after an attempt. `default_retry`: the waits of jobs without a retry
/// array, ms; `rules`: for late jobs that do not set their own; `now_ms`: the time of the outcome. A
/// dead letter has one attempt: the job stays among the dead in any case.
#[must_use]
pub fn concluded(
    job: &Job,
    state: Progress<'_>,
    result: AttemptResult,
    default_retry: &[u64],
    rules: LateRules,
    now_ms: i64,
) -> Conclusion {
    if let Some(fate) = state.buried() {
        return Conclusion::Settle(fate);
    }
    let die = |reason, error| Fate::Die { reason, error, unpublished: false };
    let fate = match result {
        AttemptResult::Confirmed if job.confirm == Confirm::Consumer => {
            return Conclusion::Hold { ttr_ms: job.ttr_ms };
        }
        AttemptResult::Confirmed | AttemptResult::Finished => return Conclusion::Complete,
        AttemptResult::Expired => return Conclusion::Leave,
        AttemptResult::Refused => {
            // The attempt does not count: a first one may be late by now.
            expiry::swept(job, state, rules, now_ms).unwrap_or(Fate::Release { unpublished: true })
        }
        AttemptResult::Invalid(error) => die(DeadReason::Invalid, error),
        AttemptResult::Failed(error) | AttemptResult::Unknown(error) => {
            match retry::wait_ms(job, state.step, default_retry) {
                Some(wait_ms) if expiry::is_over_after(job, state, wait_ms, now_ms) => {
                    die(DeadReason::Expired, error)
                }
                Some(wait_ms) => Fate::Retry { wait_ms, error },
                None => die(DeadReason::RetriesExhausted, error),
            }
        }
    };
    Conclusion::Settle(fate)
}

#[cfg(test)]
mod tests {
    use dwell_core::Destination;

    use super::*;
    use crate::job::{Expire, Late};

    const RULES: LateRules = LateRules { late: Late::Fire, max_late_ms: None };

    #[test]
    fn each_result_has_its_conclusion() {
        let no = || "no".to_owned();
        let settle = Conclusion::Settle;
        let die = |reason| settle(Fate::Die { reason, error: no(), unpublished: false });
        let wait = || settle(Fate::Retry { wait_ms: 7, error: no() });
        let (broker, consumer) = (Confirm::Broker, Confirm::Consumer);
        let table = [
            (broker, 0, AttemptResult::Confirmed, Conclusion::Complete),
            (consumer, 0, AttemptResult::Confirmed, Conclusion::Hold { ttr_ms: 30_000 }),
            (broker, 0, AttemptResult::Finished, Conclusion::Complete),
            (consumer, 0, AttemptResult::Finished, Conclusion::Complete),
            (broker, 1, AttemptResult::Refused, settle(Fate::Release { unpublished: true })),
            (broker, 0, AttemptResult::Invalid(no()), die(DeadReason::Invalid)),
            (broker, 0, AttemptResult::Failed(no()), wait()),
            (broker, 1, AttemptResult::Failed(no()), die(DeadReason::RetriesExhausted)),
            (consumer, 0, AttemptResult::Unknown(no()), wait()),
            (broker, 1, AttemptResult::Unknown(no()), die(DeadReason::RetriesExhausted)),
            (broker, 1, AttemptResult::Expired, Conclusion::Leave),
        ];
        for (confirm, step, result, expected) in table {
            let job = Job { confirm, ..Job::new("main", Destination::new("t"), "") };
            let state = Progress { attempt: 1, step, ..Progress::default() };
            let name = format!("{confirm:?} {step} {result:?}");
            assert_eq!(concluded(&job, state, result, &[7], RULES, 0), expected, "{name}");
        }
    }

    #[test]
    fn an_attempt_after_which_no_time_is_left_is_the_last() {
        let no = || "no".to_owned();
        let die = |error: &str, unpublished| {
            let (reason, error) = (DeadReason::Expired, error.to_owned());
            Conclusion::Settle(Fate::Die { reason, error, unpublished })
        };
        let wait = Conclusion::Settle(Fate::Retry { wait_ms: 7, error: no() });
        let release = Conclusion::Settle(Fate::Release { unpublished: true });
        let passed = "not delivered within its expiry, which ended 0 ms ago";
        let table = [
            (AttemptResult::Failed(no()), 12, wait),
            (AttemptResult::Failed(no()), 13, die("no", false)),
            (AttemptResult::Unknown(no()), 19, die("no", false)),
            (AttemptResult::Refused, 19, release),
            (AttemptResult::Refused, 20, die(passed, true)),
            (AttemptResult::Confirmed, 99, Conclusion::Complete),
        ];
        for (result, now_ms, expected) in table {
            let job = Job {
                expire: Some(Expire::After(10)),
                ..Job::new("main", Destination::new("t"), "")
            };
            let state = Progress { attempt: 1, due_ms: 10, ..Progress::default() };
            let name = format!("{result:?} {now_ms}");
            assert_eq!(concluded(&job, state, result, &[7], RULES, now_ms), expected, "{name}");
        }
    }

    #[test]
    fn a_refused_first_attempt_that_is_late_by_its_expiry_is_late() {
        let rules = LateRules { late: Late::Drop, max_late_ms: Some(5) };
        let expire = Some(Expire::After(10));
        let release = Fate::Release { unpublished: true };
        for (attempt, expire, now_ms, expected) in [
            (1, expire, 20, Some(Fate::Drop)),
            (1, expire, 19, Some(release.clone())),
            (1, None, 99, Some(release)),
            // No attempt but the first is late: the job dies of its expiry.
            (2, expire, 20, None),
        ] {
            let job = Job { expire, ..Job::new("main", Destination::new("t"), "") };
            let state = Progress { attempt, due_ms: 10, ..Progress::default() };
            let conclusion = concluded(&job, state, AttemptResult::Refused, &[7], rules, now_ms);
            let Conclusion::Settle(fate) = conclusion else { panic!("{attempt} {now_ms}") };
            let is_expired = matches!(&fate, Fate::Die { reason: DeadReason::Expired, .. });
            match expected {
                Some(expected) => assert_eq!(fate, expected, "{attempt} {now_ms}"),
                None => assert!(is_expired, "{attempt} {now_ms} {fate:?}"),
            }
        }
    }

    #[test]
    fn a_job_is_kept_among_the_dead_whatever_becomes_of_its_dead_letter() {
        let job = Job { confirm: Confirm::Consumer, ..Job::new("main", Destination::new("t"), "") };
        let reason = DeadReason::Crashed;
        let state = Progress { reason: Some(reason), last_error: "before", ..Progress::default() };
        let no = || "no".to_owned();
        for result in [
            AttemptResult::Confirmed,
            AttemptResult::Finished,
            AttemptResult::Refused,
            AttemptResult::Invalid(no()),
            AttemptResult::Failed(no()),
            AttemptResult::Unknown(no()),
            AttemptResult::Expired,
        ] {
            let kept = Fate::Bury { reason, error: "before".to_owned() };
            assert_eq!(concluded(&job, state, result, &[7], RULES, 0), Conclusion::Settle(kept));
        }
    }
}
