//! The fate of a job that an instance has claimed, or that a pop has taken, before its delivery.

use super::late::{self, LateRules};
use super::{Fate, Progress, expiry};
use crate::job::{DeadReason, Job};

/// The facts about a claim.
#[derive(Debug)]
pub struct Claimed {
    /// The time of the claim by the clock of its master, epoch ms.
    pub now_ms: i64,
    /// The lease leaves time for an outcome. Otherwise this process was suspended, or the answer of
    /// the claim was late, and another instance may hold the job by the time of a confirm.
    pub has_time: bool,
    /// Dead letters are published. Otherwise the dead stay in Redis alone.
    pub has_dead_letters: bool,
    /// The error of a rejected request that became a dead job.
    pub refusal: Option<String>,
}

/// The fate of a claimed job; `None`: the job is published. A job with a reason of death is
/// published as a dead letter.
#[must_use]
pub fn claimed(job: &Job, state: Progress<'_>, claim: Claimed, rules: LateRules) -> Option<Fate> {
    if !claim.has_time {
        return Some(Fate::Release { unpublished: true });
    }
    if let Some(fate) = state.buried() {
        return (!claim.has_dead_letters).then_some(fate);
    }
    if let Some(error) = claim.refusal {
        // A requeue gives such a job a due time: then the job is published to its target.
        let reason = DeadReason::Invalid;
        return (state.due_ms == 0).then_some(Fate::Die { reason, error, unpublished: true });
    }
    late::fate(job, state, rules, claim.now_ms).or_else(|| expiry::fate(job, state, claim.now_ms))
}

/// The fate of a popped job; `None`: the job is handed out.
#[must_use]
pub fn popped(job: &Job, state: Progress<'_>, rules: LateRules, now_ms: i64) -> Option<Fate> {
    if expiry::has_ended(job, now_ms) {
        return Some(Fate::Drop);
    }
    late::fate(job, state, rules, now_ms)
        .or_else(|| expiry::fate(job, state, now_ms))
        .map(Fate::of_queue)
}

#[cfg(test)]
mod tests {
    use dwell_core::Destination;

    use super::*;
    use crate::job::{Expire, Late};

    const RULES: LateRules = LateRules { late: Late::Dead, max_late_ms: Some(5) };
    const LATE: &str = "overdue by 9 ms at its first attempt, max_late is 5 ms";

    fn claim(has_time: bool, has_dead_letters: bool, refusal: Option<&str>) -> Claimed {
        Claimed { now_ms: 9, has_time, has_dead_letters, refusal: refusal.map(str::to_owned) }
    }

    #[test]
    fn a_claimed_job_is_released_dead_or_late_in_this_order() {
        let job = Job::new("main", Destination::new("t"), "");
        let fresh = Progress { attempt: 1, ..Progress::default() };
        let retried = Progress { attempt: 2, ..fresh };
        let dying = Progress { reason: Some(DeadReason::Failed), last_error: "no", ..fresh };
        let requeued = Progress { due_ms: 9, ..fresh };
        let release = || Some(Fate::Release { unpublished: true });
        let die = |reason, error: &str| {
            Some(Fate::Die { reason, error: error.to_owned(), unpublished: true })
        };
        let bury = Some(Fate::Bury { reason: DeadReason::Failed, error: "no".to_owned() });
        let table = [
            ("too late for an outcome", fresh, claim(false, true, None), release()),
            ("the same, dying", dying, claim(false, false, Some("bad")), release()),
            ("without dead letters", dying, claim(true, false, None), bury),
            ("a dead letter", dying, claim(true, true, None), None),
            ("rejected", fresh, claim(true, true, Some("bad")), die(DeadReason::Invalid, "bad")),
            ("rejected, requeued", requeued, claim(true, true, Some("bad")), None),
            ("late", fresh, claim(true, true, None), die(DeadReason::Late, LATE)),
            ("in time", requeued, claim(true, true, None), None),
            ("not the first attempt", retried, claim(true, true, None), None),
        ];
        for (name, state, claim, expected) in table {
            assert_eq!(claimed(&job, state, claim, RULES), expected, "{name}");
        }
    }

    #[test]
    fn an_expired_job_dies_and_late_is_judged_first() {
        let expire = Some(Expire::After(4));
        let job = || Job { expire, ..Job::new("main", Destination::new("t"), "") };
        let fresh = Progress { attempt: 1, ..Progress::default() };
        let expired = || Fate::Die {
            reason: DeadReason::Expired,
            error: "not delivered within its expiry, which ended 5 ms ago".to_owned(),
            unpublished: true,
        };
        let late =
            Fate::Die { reason: DeadReason::Late, error: LATE.to_owned(), unpublished: true };
        let fires = LateRules::default();
        let drops = LateRules { late: Late::Drop, ..RULES };
        let table = [
            ("expired", fires, fresh, Some(expired())),
            ("late", RULES, fresh, Some(late)),
            ("dropped", drops, fresh, Some(Fate::Drop)),
            ("not the first attempt", RULES, Progress { attempt: 2, ..fresh }, Some(expired())),
            ("in time", fires, Progress { due_ms: 6, ..fresh }, None),
        ];
        for (name, rules, state, expected) in table {
            let of_queue = Job { expire, ..Job::for_queue("q", "") };
            let buried = expected.clone().map(Fate::of_queue);
            assert_eq!(popped(&of_queue, state, rules, 9), buried, "{name}");
            assert_eq!(claimed(&job(), state, claim(true, true, None), rules), expected, "{name}");
        }
    }

    #[test]
    fn a_popped_job_is_over_or_late_or_handed_out() {
        let fresh = Progress { attempt: 1, ..Progress::default() };
        let job = || Job::for_queue("q", "");
        let bury = Fate::Bury { reason: DeadReason::Late, error: LATE.to_owned() };
        let table = [
            ("late", job(), fresh, Some(bury)),
            ("in time", job(), Progress { due_ms: 4, ..fresh }, None),
            ("not the first", job(), Progress { attempt: 2, ..fresh }, None),
            ("over", Job { remove_at_ms: Some(9), ..job() }, fresh, Some(Fate::Drop)),
            ("dropped", Job { late: Some(Late::Drop), ..job() }, fresh, Some(Fate::Drop)),
            ("fires", Job { late: Some(Late::Fire), remove_at_ms: Some(10), ..job() }, fresh, None),
        ];
        for (name, job, state, expected) in table {
            assert_eq!(popped(&job, state, RULES, 9), expected, "{name}");
        }
    }
}
