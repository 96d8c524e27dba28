//! The fate of a job that is late at its first attempt.

use super::{Fate, Progress};
use crate::job::{DeadReason, Job, Late};

/// The fate of a job that is late at its first attempt, where the job itself does not set it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LateRules {
    /// The fate of a late job.
    pub late: Late,
    /// A job overdue by more than this, ms, is late; `None`: no job is late.
    pub max_late_ms: Option<u64>,
}

/// The fate of a late job; `None` if the job is not late, or is delivered all the same. `now_ms`:
/// by the clock of the master that the job comes from, because the masters of a cluster differ.
pub(super) fn fate(job: &Job, state: Progress<'_>, rules: LateRules, now_ms: i64) -> Option<Fate> {
    let max_late_ms = job.max_late_ms.or(rules.max_late_ms)?;
    let late_ms = now_ms.saturating_sub(state.due_ms);
    if state.attempt > 1 || late_ms <= i64::try_from(max_late_ms).unwrap_or(i64::MAX) {
        return None;
    }
    match job.late.unwrap_or(rules.late) {
        Late::Fire => None,
        Late::Drop => Some(Fate::Drop),
        Late::Dead => Some(Fate::Die {
            reason: DeadReason::Late,
            error: format!(
                "overdue by {late_ms} ms at its first attempt, max_late is {max_late_ms} ms"
            ),
            unpublished: true,
        }),
    }
}

/// The last time at which the job is not late, epoch ms; `None`: it is delivered however late.
#[must_use]
pub fn latest_ms(job: &Job, state: Progress<'_>, rules: LateRules) -> Option<i64> {
    let max_late_ms = job.max_late_ms.or(rules.max_late_ms)?;
    let is_judged = state.attempt <= 1 && job.late.unwrap_or(rules.late) != Late::Fire;
    is_judged.then(|| state.due_ms.saturating_add_unsigned(max_late_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_attempt_that_is_overdue_by_more_than_max_late_is_late() {
        let drop = LateRules { late: Late::Drop, max_late_ms: Some(100) };
        let none = LateRules { late: Late::Drop, max_late_ms: None };
        let table = [
            // Rules, max_late of the job, attempt, now, dropped.
            (drop, None, 1, 1101, true),
            (drop, None, 1, 1100, false),
            (drop, None, 1, 900, false),
            (drop, None, 2, 9999, false),
            (drop, Some(200), 1, 1200, false),
            (drop, Some(200), 1, 1201, true),
            (drop, Some(u64::MAX), 1, i64::MAX, false),
            (none, None, 1, i64::MAX, false),
            (none, Some(0), 1, 1000, false),
            (none, Some(0), 1, 1001, true),
        ];
        for (rules, max_late_ms, attempt, now_ms, dropped) in table {
            let job = Job { max_late_ms, ..Job::for_queue("q", "") };
            let state = Progress { attempt, due_ms: 1000, ..Progress::default() };
            let expected = dropped.then_some(Fate::Drop);
            assert_eq!(
                fate(&job, state, rules, now_ms),
                expected,
                "{max_late_ms:?} {attempt} {now_ms}"
            );
            let is_late = latest_ms(&job, state, rules).is_some_and(|latest| now_ms > latest);
            assert_eq!(is_late, dropped, "{max_late_ms:?} {attempt} {now_ms}");
        }
    }

    #[test]
    fn the_rule_of_the_job_comes_before_that_of_the_settings() {
        let state = Progress { attempt: 1, ..Progress::default() };
        let dead = || Fate::Die {
            reason: DeadReason::Late,
            error: "overdue by 7 ms at its first attempt, max_late is 5 ms".to_owned(),
            unpublished: true,
        };
        let table = [
            (None, Late::Fire, None),
            (None, Late::Drop, Some(Fate::Drop)),
            (None, Late::Dead, Some(dead())),
            (Some(Late::Fire), Late::Dead, None),
            (Some(Late::Drop), Late::Fire, Some(Fate::Drop)),
            (Some(Late::Dead), Late::Drop, Some(dead())),
        ];
        for (of_job, late, expected) in table {
            let job = Job { late: of_job, ..Job::for_queue("q", "") };
            let rules = LateRules { late, max_late_ms: Some(5) };
            assert_eq!(fate(&job, state, rules, 7), expected, "{of_job:?} {late:?}");
        }
    }
}
