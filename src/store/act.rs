//! Actions on one job: `cancel`, `reschedule`, `fire`, `finish`, `fail`, `requeue`; one path for all doors. And `sweep`, which they lean on.

use redis::{Cmd, Value};

use super::Store;
use super::answer::Items;
use super::error::{Class, StoreError};
use super::inbound::{Answer, CALL_JOBS, read_answer, time_argument};
use super::link::Moves;
use super::record::{self, Generation};
use super::scripts::Name;
use crate::clock;
use crate::job::{Action, DeadReason, Due};
use crate::request::Act;

/// How long an applied action is remembered, ms: one turn; entries live one to two turns.
pub(super) const ACTS_TURN_MS: u64 = 24 * 3_600_000;
/// How often an action is tried again because the job changed under its hands.
const ATTEMPTS: usize = 16;

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

/// What a `sweep` goes by.
#[derive(Debug, Clone, Copy)]
pub struct SweepRules {
    /// How long the dead are kept, ms.
    pub dead_retention_ms: u64,
    /// How long a job that is over is remembered, ms.
    pub dedupe_window_ms: u64,
}

impl Store {
    /// Acts on a job, behind the durability gate. `default_retry` is the array of a job that brings none. Sent again after an error with
    /// `origin.check` set, it changes nothing that was applied and answers the same.
    pub async fn act(&self, act: &Act, default_retry: &[u64]) -> Result<Answer, StoreError> {
        let name = match act.action {
            Action::Cancel => Name::Cancel,
            Action::Reschedule => Name::Reschedule,
            Action::Fire => Name::Fire,
            Action::Finish => Name::Finish,
            Action::Fail => Name::Fail,
            Action::Requeue => Name::Requeue,
            Action::Schedule => return Err(StoreError::new(Class::Other, "`schedule` is not an action on a job that exists")),
        };
        let bucket = self.keys.bucket_of(act.id.as_str());
        let seen_due = act.seen_due.map(|ms| ms.to_string()).unwrap_or_default();
        let generation: Generation = rand::random();
        for _ in 0..ATTEMPTS {
            let mut call = self.script_call(name, bucket, &self.brokers());
            call.arg(act.id.as_str()).arg(&act.origin.fingerprint[..]).arg(u8::from(act.origin.check));
            match act.action {
                Action::Reschedule => {
                    call.arg(time_argument(act.due.unwrap_or(Due::In(0)))).arg(&generation[..]);
                }
                Action::Requeue => {
                    call.arg(&generation[..]);
                }
                Action::Finish => {
                    call.arg(&seen_due);
                }
                Action::Fail => self.fail_arguments(act, &seen_due, default_retry, &mut call).await?,
                Action::Cancel | Action::Fire | Action::Schedule => {}
            }
            match self.pass_act(name, call).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.message.contains("DWELL_BROKER") => self.rejoin().await?,
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::new(Class::Other, format!("redis: {}: the job changed {ATTEMPTS} times while it was acted on", name.as_str())))
    }

    /// What `fail` needs to know of the job: the wait of its step. The script checks that it still stands.
    async fn fail_arguments(&self, act: &Act, seen_due: &str, default_retry: &[u64], call: &mut Cmd) -> Result<(), StoreError> {
        let seen_attempt = act.seen_attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
        let found = match self.find(&act.id).await {
            // It cannot be read: then no attempt of it was made whose next wait could be asked for, and the script says what it is.
            Err(error) if error.class == Class::Script => None,
            found => found?,
        };
        let (generation, step, wait) = match found {
            Some(found) => {
                let step = found.state.as_ref().map_or(0, |state| state.step);
                let waits = found.record.job.retry.as_deref().unwrap_or(default_retry);
                let wait = waits.get(usize::from(step)).map(u64::to_string).unwrap_or_default();
                (found.state.as_ref().map_or(found.record.generation, |state| state.generation), step, wait)
            }
            None => ([0; 8], 0, String::new()),
        };
        call.arg(seen_due)
            .arg(seen_attempt)
            .arg(&generation[..])
            .arg(step)
            .arg(wait)
            .arg("the consumer said `fail`")
            .arg(record::code_of_reason(Some(DeadReason::Failed)));
        Ok(())
    }

    async fn pass_act(&self, name: Name, call: Cmd) -> Result<Option<Answer>, StoreError> {
        let begun = clock::now();
        let link = self.gate.link();
        let calls = [vec![call]];
        let mut moves = Moves::default();
        let mut loaded = false;
        let answers = loop {
            match self.gate.pass(link, name.as_str(), &calls).await {
                Err(error) if error.class == Class::NoScript && !loaded => {
                    loaded = true;
                    link.load(&name.source(), calls.iter().flatten()).await?;
                }
                // Another master may not know the script.
                Err(error) if moves.follow(&error).await => loaded = false,
                answers => break answers,
            }
        };
        self.observe(name, begun, &answers);
        let value = answers?.into_iter().next_back().unwrap_or(Value::Nil);
        if let Value::Array(items) = &value
            && items.first() == Some(&Value::BulkString(b"again".to_vec()))
        {
            return Ok(None);
        }
        read_answer(&mut Items::new(name.as_str(), value)?).map(Some)
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
