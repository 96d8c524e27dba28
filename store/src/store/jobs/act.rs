//! Actions on one job: `cancel`, `reschedule`, `fire`, `finish`, `fail`, `requeue`, the same for
//! every inbound interface.

use crate::job::{Action, DeadReason, Due};
use crate::policy::{Progress, expiry, retry};
use crate::request::Act;
use crate::store::call::script_call::ScriptCall;
use crate::store::call::time::Time;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::jobs::schedule::own_queues_argument;
use crate::store::reader::lookup;
use crate::store::record::{self, Generation, StateRecord};
use crate::store::scripts::Name;

/// The step of a job that is to `fail`, and the wait of that step, ms; `None` at the end of the
/// retry array, or of the expiry.
#[derive(Debug, Default)]
pub(super) struct Step {
    generation: Generation,
    step: u16,
    wait_ms: Option<u64>,
    /// The wait would end past the expiry of the job.
    is_over: bool,
    /// The reason why the job cannot be read.
    pub(super) unreadable: Option<StoreError>,
}

impl Jobs {
    /// Reads the wait of the job's step for `fail`. The script checks that the step is still
    /// current.
    pub(super) async fn step_of(
        &self,
        act: &Act,
        default_retry: &[u64],
    ) -> Result<Step, StoreError> {
        let found = match lookup::find(&self.namespace, &act.id).await {
            // The script itself answers for an unreadable job. This error counts only if the script
            // asks for the wait.
            Err(error) if error.class == Class::Script => {
                return Ok(Step { unreadable: Some(error), ..Step::default() });
            }
            found => found?,
        };
        let Some(found) = found else { return Ok(Step::default()) };
        let step = found.state_record.as_ref().map_or(0, |state| state.step);
        let job = &found.record.job;
        let wait_ms = retry::wait_ms(job, step, default_retry);
        let state = found.state_record.as_ref().map_or(
            Progress { due_ms: found.score_ms, ..Progress::default() },
            StateRecord::progress,
        );
        let is_over = wait_ms
            .is_some_and(|ms| expiry::is_over_after(job, state, ms, self.namespace.now_ms()));
        Ok(Step {
            generation: found
                .state_record
                .as_ref()
                .map_or(found.record.generation, |state| state.generation),
            step,
            wait_ms: wait_ms.filter(|_| !is_over),
            is_over,
            unreadable: None,
        })
    }
}

impl Step {
    /// The generation and step that the wait was computed from: a repeat from the same would be
    /// refused again.
    pub(super) fn read(&self) -> (Generation, u16) {
        (self.generation, self.step)
    }

    /// Whether the wait would end past the expiry of the job.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

/// The script of an action.
pub(super) fn script_of(action: Action) -> Name {
    match action {
        Action::Add => Name::Schedule,
        Action::Cancel => Name::Cancel,
        Action::Reschedule => Name::Reschedule,
        Action::Fire => Name::Fire,
        Action::Finish => Name::Finish,
        Action::Fail => Name::Fail,
        Action::Requeue => Name::Requeue,
    }
}

/// The arguments of an action. `generation`: of the schedule that the action begins; `step`: for
/// `fail`; `deadline_us`: the end of the caller's wait.
pub(super) fn act_arguments(
    call: &mut ScriptCall,
    act: &Act,
    generation: Generation,
    step: Option<&Step>,
    deadline_us: Option<i64>,
) {
    let seen_due = act.seen_due.map(|ms| ms.to_string()).unwrap_or_default();
    let bits = u8::from(act.origin.maybe_redelivered) | u8::from(act.origin.is_message) << 1;
    let deadline = deadline_us.map(|us| format!(":{us}")).unwrap_or_default();
    let bits = format!("{bits}{deadline}{}", own_queues_argument(act.own_queues.as_ref()));
    call.arg(act.id.as_str()).arg(&act.origin.fingerprint[..]).arg(bits);
    match act.action {
        Action::Reschedule => {
            call.arg(Time::from(act.due.unwrap_or(Due::NOW))).arg(&generation[..]);
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
            let reason = if step.is_over { DeadReason::Expired } else { DeadReason::Failed };
            call.arg(seen_due)
                .arg(act.seen_attempt.map(|attempt| attempt.to_string()).unwrap_or_default())
                .arg(&step.generation[..])
                .arg(step.step)
                .arg(step.wait_ms.map(|ms| Time::In(ms).to_string()).unwrap_or_default())
                .arg("the consumer said `fail`")
                .arg(record::code_of_reason(Some(reason)));
        }
        Action::Cancel | Action::Fire | Action::Add => {}
    }
}
