//! What becomes of a job whose end or expiry has come, judged by its state.

use super::Over;
use crate::events::{Facts, JobEvent, Observer, Settled};
use crate::job::{DeadReason, Job, JobId};
use crate::policy::late::LateRules;
use crate::policy::{Fate, expiry};
use crate::store::due_set::DueSet;
use crate::store::record::{self, Generation, StateRecord};

/// The time to the next look at an entry whose job cannot be read, ms.
pub(super) const UNREADABLE_RETRY_MS: i64 = 3_600_000;
/// The least time to the next look at a job with an expiry that is out, ms: its end gives it back,
/// or the job is gone by then. And to the next look at one that is about to die.
const OUT_RETRY_MS: i64 = 20_000;
/// The time to the next look at a job with an expiry that is dead, or waits for its dead letter, ms.
/// A requeue has it looked at, at once.
const DEAD_RETRY_MS: i64 = 86_400_000;

/// A job that leaves or dies: an argument of `end.lua`.
pub(super) struct Ending {
    pub(super) id: JobId,
    pub(super) set: String,
    pub(super) generation: Generation,
    pub(super) size: usize,
    pub(super) death: Option<Death>,
}

impl Ending {
    /// Whether the job dies. Any other one leaves.
    pub(super) fn dies(&self) -> bool {
        self.death.as_ref().is_some_and(|death| death.state.is_some())
    }

    /// The time of the next look at a job that dies, epoch ms.
    pub(super) fn again_ms(&self, now_ms: i64) -> i64 {
        let at_ms = now_ms.saturating_add(OUT_RETRY_MS);
        self.death.as_ref().map_or(at_ms, |death| soonest(&death.job, at_ms))
    }
}

/// The end of a job that waits, judged by its state.
pub(super) struct Death {
    /// The state that was read; empty: none.
    pub(super) read: Vec<u8>,
    /// The state that the job dies with; `None`: the job leaves.
    pub(super) state: Option<StateRecord>,
    pub(super) job: Job,
    pub(super) attempt: u32,
    pub(super) due_ms: i64,
}

/// A job with an expiry.
pub(super) struct Expiring {
    pub(super) id: JobId,
    pub(super) generation: Generation,
    pub(super) size: usize,
    pub(super) job: Job,
    /// The state of a job that has none.
    pub(super) fresh: Option<StateRecord>,
}

/// What becomes of a job with an expiry, and of its entry.
pub(super) enum Judged {
    Ends(Box<Ending>),
    RecheckAt(JobId, i64),
}

impl From<Over> for Ending {
    fn from(Over { id, queue, generation, size }: Over) -> Self {
        Ending { id, set: DueSet::Queue(&queue).to_string(), generation, size, death: None }
    }
}

impl Expiring {
    /// What becomes of the job. `read`: its state, empty if it has none. `due_ms`: when it is due,
    /// if it waits.
    pub(super) fn judged(
        self,
        read: Vec<u8>,
        (due_ms, is_dead): (Option<i64>, bool),
        rules: LateRules,
        now_ms: i64,
    ) -> Judged {
        let Expiring { id, generation, size, job, fresh } = self;
        let after = |ms: i64| now_ms.saturating_add(ms);
        if is_dead {
            return Judged::RecheckAt(id, soonest(&job, after(DEAD_RETRY_MS)));
        }
        let Some(due_ms) = due_ms else {
            // A job in a claim may have no state: its due time is in the claim.
            let state = StateRecord::decode(&read).ok();
            let expires_ms = state.and_then(|state| expiry::expires_ms(&job, state.progress()));
            let at_ms = after(OUT_RETRY_MS).max(expires_ms.unwrap_or_default());
            return Judged::RecheckAt(id, soonest(&job, at_ms));
        };
        let state = match read.is_empty() {
            true => fresh.map(|fresh| StateRecord { due_ms, ..fresh }),
            false => StateRecord::decode(&read).ok(),
        };
        let Some(state) = state else {
            return Judged::RecheckAt(id, soonest(&job, after(UNREADABLE_RETRY_MS)));
        };
        if state.reason.is_some() {
            return Judged::RecheckAt(id, soonest(&job, after(DEAD_RETRY_MS)));
        }
        let next = state.clone().in_flight();
        let died = match expiry::swept(&job, next.progress(), rules, now_ms) {
            Some(Fate::Die { reason, error, .. } | Fate::Bury { reason, error }) => {
                let last_error = record::short_error(&error).to_owned();
                Some(StateRecord { reason: Some(reason), last_error, ..state.clone() })
            }
            Some(_) => None,
            None => {
                let expires_ms = expiry::expires_ms(&job, state.progress());
                // Without an expiry: an action may begin another one.
                let at_ms = expires_ms.unwrap_or_else(|| after(DEAD_RETRY_MS));
                return Judged::RecheckAt(id, soonest(&job, at_ms));
            }
        };
        let set = DueSet::of(&job).to_string();
        let (attempt, due_ms) = (state.attempt, state.due_ms);
        let death = Some(Death { read, state: died, job, attempt, due_ms });
        Judged::Ends(Box::new(Ending { id, set, generation, size, death }))
    }
}

/// The time of the next look, epoch ms: no later than the end that the job has of its own.
fn soonest(job: &Job, at_ms: i64) -> i64 {
    job.remove_at_ms
        .filter(|_| job.queue().is_some())
        .map_or(at_ms, |remove_at_ms| at_ms.min(remove_at_ms))
}

/// Tells of a job that died or was dropped. The dead letter of a job of a broker is still to come,
/// and tells of the death then. An end of its own is silent.
pub(super) fn tell(ended: &Ending, observer: &dyn Observer) {
    let Some(Death { state, job, attempt, due_ms, .. }) = &ended.death else { return };
    let facts = Facts::of(job, *attempt, *due_ms);
    let (set, id) = (Some(DueSet::of(job)), &ended.id);
    match state {
        Some(state) if job.queue().is_some() => {
            let reason = state.reason.unwrap_or(DeadReason::Expired);
            let error = &state.last_error;
            observer.observe(&JobEvent::Dead { set, id, reason, error, facts });
        }
        Some(_) => {}
        None => {
            observer.observe(&JobEvent::Dropped { set: DueSet::of(job), id });
            if job.queue().is_none() {
                observer.observe(&JobEvent::Settled { set, id, end: Settled::Dropped, facts });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Expire;

    #[test]
    fn the_next_look_is_when_the_fate_can_be_another() {
        let state = StateRecord::of_record(&[0; 31], 1_000).unwrap();
        let dying = StateRecord { reason: Some(DeadReason::Failed), ..state.clone() };
        let table = [
            // State, due, end, now, next look.
            ("waits", &state, Some(1_000), None, 2_000, Some(101_000)),
            ("is expired", &state, Some(1_000), None, 101_000, None),
            ("is out", &state, None, None, 2_000, Some(101_000)),
            ("is out past its expiry", &state, None, None, 200_000, Some(220_000)),
            ("is dying", &dying, Some(1_000), None, 200_000, Some(86_600_000)),
            ("has an end", &state, Some(1_000), Some(50_000), 2_000, Some(50_000)),
        ];
        for (name, state, due_ms, remove_at_ms, now_ms, expected) in table {
            let expire = Some(Expire::After(100_000));
            let job = Job { expire, remove_at_ms, ..Job::for_queue("q", "") };
            let id = JobId::new("a").unwrap();
            let expiring = Expiring { id, generation: [0; 8], size: 0, job, fresh: None };
            let rules = LateRules::default();
            let at_ms = match expiring.judged(state.encode(), (due_ms, false), rules, now_ms) {
                Judged::RecheckAt(_, at_ms) => Some(at_ms),
                Judged::Ends(_) => None,
            };
            assert_eq!(at_ms, expected, "{name}");
        }
    }
}
