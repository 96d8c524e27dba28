//! Actions on one job: `cancel`, `reschedule`, `fire`, `finish`, `fail`, `requeue`; one path for all doors. And `sweep`, which they lean on.

use redis::Cmd;

use super::Store;
use super::answer::Items;
use super::batch::RequestRef;
use super::error::{Class, StoreError};
use super::record::{self, Generation};
use super::schedule::{Answer, CALL_JOBS, time_argument};
use super::scripts::Name;
use crate::job::{Action, DeadReason, Due};
use crate::request::Act;

/// How long an applied action is remembered, ms: one turn; entries live one to two turns.
pub(super) const ACTS_TURN_MS: u64 = 24 * 3_600_000;

/// What a `sweep` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Dead jobs past their retention that were removed.
    pub dead: u64,
    /// Tables of memories that were turned over.
    pub turned: u64,
    /// The master is another one, or restarted, since the last sweep of the bucket.
    pub master_changed: bool,
}

/// What a `sweep` goes by: kept in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepRules {
    /// How long the dead are kept, ms.
    pub dead_retention_ms: u64,
    /// How long a job that is over is remembered, ms.
    pub dedupe_window_ms: u64,
}

/// Where a job stands that is to `fail`, and the wait of that step, ms; empty where its array is at its end.
#[derive(Debug, Default)]
pub(super) struct Step {
    generation: Generation,
    step: u16,
    wait: String,
    /// Why the job cannot be read.
    pub(super) unreadable: Option<StoreError>,
}

impl Store {
    /// Acts on a job, as [`apply`](Store::apply) does.
    pub async fn act(&self, act: &Act, default_retry: &[u64]) -> Result<Answer, StoreError> {
        if act.action == Action::Schedule {
            return Err(StoreError::new(Class::Other, "`schedule` is not an action on a job that exists"));
        }
        let answer = self.apply(&[RequestRef::Act(act)], default_retry).await.answers.pop();
        answer.unwrap_or_else(|| Err(StoreError::new(Class::Other, "redis: an action has no answer")))
    }

    /// What `fail` needs to know of the job: the wait of its step. The script checks that it still stands.
    pub(super) async fn step_of(&self, act: &Act, default_retry: &[u64]) -> Result<Step, StoreError> {
        let found = match self.find(&act.id).await {
            // The script says what it is; only where the next wait were asked for, it has none.
            Err(error) if error.class == Class::Script => return Ok(Step { unreadable: Some(error), ..Step::default() }),
            found => found?,
        };
        let Some(found) = found else { return Ok(Step::default()) };
        let step = found.state.as_ref().map_or(0, |state| state.step);
        let waits = found.record.job.retry.as_deref().unwrap_or(default_retry);
        let wait = waits.get(usize::from(step)).map(u64::to_string).unwrap_or_default();
        Ok(Step {
            generation: found.state.as_ref().map_or(found.record.generation, |state| state.generation),
            step,
            wait,
            unreadable: None,
        })
    }

    /// Removes what has had its time in this bucket, and notes the server that is its master now: a verdict of `cancelled` depends on when it
    /// changed.
    pub async fn sweep(&self, bucket: u16, rules: SweepRules) -> Result<Swept, StoreError> {
        let mut call = self.script_call(Name::Sweep, bucket, &[]);
        call.arg(rules.dead_retention_ms).arg(rules.dedupe_window_ms).arg(ACTS_TURN_MS).arg(CALL_JOBS);
        let mut items = Items::new("sweep", self.call(Name::Sweep, &call).await?)?;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(Swept { dead: number(items.int()?), turned: number(items.int()?), master_changed: items.int()? == 1 })
    }
}

/// The script of an action.
pub(super) fn script_of(action: Action) -> Name {
    match action {
        Action::Schedule => Name::Schedule,
        Action::Cancel => Name::Cancel,
        Action::Reschedule => Name::Reschedule,
        Action::Fire => Name::Fire,
        Action::Finish => Name::Finish,
        Action::Fail => Name::Fail,
        Action::Requeue => Name::Requeue,
    }
}

/// The arguments of an action. `generation`: of the schedule that it begins; `step`: of a `fail`; `deadline_us`: until when its caller waits.
pub(super) fn act_arguments(call: &mut Cmd, act: &Act, generation: Generation, step: Option<&Step>, deadline_us: Option<i64>) {
    let seen_due = act.seen_due.map(|ms| ms.to_string()).unwrap_or_default();
    let bits = u8::from(act.origin.check) | u8::from(act.origin.is_message) << 1;
    let bits = deadline_us.map_or_else(|| bits.to_string(), |us| format!("{bits}:{us}"));
    call.arg(act.id.as_str()).arg(&act.origin.fingerprint[..]).arg(bits);
    match act.action {
        Action::Reschedule => {
            call.arg(time_argument(act.due.unwrap_or(Due::In(0)))).arg(&generation[..]);
        }
        Action::Requeue => {
            call.arg(&generation[..]);
        }
        Action::Finish => {
            call.arg(seen_due);
        }
        Action::Fail => {
            let unread = Step::default();
            let step = step.unwrap_or(&unread);
            call.arg(seen_due)
                .arg(act.seen_attempt.map(|attempt| attempt.to_string()).unwrap_or_default())
                .arg(&step.generation[..])
                .arg(step.step)
                .arg(&step.wait)
                .arg("the consumer said `fail`")
                .arg(record::code_of_reason(Some(DeadReason::Failed)));
        }
        Action::Cancel | Action::Fire | Action::Schedule => {}
    }
}
