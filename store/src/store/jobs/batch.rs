//! A batch of new jobs, recurring schedules and actions, sent in one pass of the durability gate. Each request has its
//! own answer.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::Value;

use crate::clock::{self, Instant};
use crate::job::Action;
use crate::request::{Act, NewJob};
use crate::store::answer::Items;
use crate::store::call::repairs::{Repair, Repairs};
use crate::store::call::script_call::ScriptCall;
use crate::store::call::waves::Group;
use crate::store::client::RESPONSE_TIMEOUT;
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::jobs::act::{Step, act_arguments};
use crate::store::jobs::schedule::{schedule_arguments, schedule_deadline};
use crate::store::scripts::Name;
use crate::store::wake_up::WakeUp;

mod answer;
mod item;
mod pass;
mod recurring;
mod request_ref;

pub use answer::{Answer, NewOccurrence};
use answer::{CallAnswers, read_answer};
use pass::Pass;
pub use request_ref::RequestRef;

/// The time after its creation within which a call may be carried out. It is less than the response
/// timeout, so that Redis never carries out a call that its caller has given up.
const CALL_TTL: Duration = Duration::from_secs(4);
/// The number of jobs that one read fetches for `fail`: a record may be large.
const JOBS_PER_READ: usize = 32;

/// The result of a batch.
#[derive(Debug, Default)]
pub struct Applied {
    /// The answers, one per request, in the order of the requests. A
    /// [refusal](StoreError::is_refusal) concerns that request alone and repeats with every
    /// attempt. After any other error, send the request again, in the order of the batch.
    pub answers: Vec<Result<Answer, StoreError>>,
    /// The buckets whose readers must wake earlier than planned.
    pub wake_ups: Vec<WakeUp>,
    /// The occurrences of recurring schedules that the requests made.
    pub made: Vec<NewOccurrence>,
    /// The places of the requests to `fail` whose wait would have ended past the expiry of the job:
    /// the job died of that, not of the end of its retry array.
    pub expired: Vec<usize>,
}

/// The result of `schedule`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// The answers, one per request, in the order of the requests.
    pub answers: Vec<Answer>,
    /// The buckets whose readers must wake earlier than planned.
    pub wake_ups: Vec<WakeUp>,
}

impl Jobs {
    /// Stores jobs as [`apply`](Jobs::apply) does. After an error the result of every request is
    /// unknown: send the same requests again.
    pub async fn schedule(&self, requests: &[NewJob]) -> Result<Scheduled, StoreError> {
        let asked: Vec<RequestRef<'_>> = requests.iter().map(RequestRef::NewJob).collect();
        let Applied { answers, wake_ups, .. } = self.apply(&asked, &[]).await;
        Ok(Scheduled { answers: answers.into_iter().collect::<Result<_, _>>()?, wake_ups })
    }

    /// Acts on a job, as [`apply`](Jobs::apply) does.
    pub async fn act(&self, act: &Act, default_retry: &[u64]) -> Result<Answer, StoreError> {
        if act.action == Action::Add {
            return Err(StoreError::rejected("`schedule` is no action on a job that exists"));
        }
        let answer = self.apply(&[RequestRef::Act(act)], default_retry).await.answers.pop();
        answer
            .unwrap_or_else(|| Err(StoreError::new(Class::Other, "redis: an action has no answer")))
    }

    /// Applies requests; requests for one id in their order. `default_retry` is the retry array of
    /// jobs that have none.
    ///
    /// A repeated request may set `origin.maybe_redelivered`: if it was applied before, it changes
    /// nothing and gets the same answer.
    pub async fn apply(&self, asked: &[RequestRef<'_>], default_retry: &[u64]) -> Applied {
        let mut pass = Pass::new(
            asked,
            &self.namespace.keys,
            &self.namespace.brokers(),
            self.namespace.own_brokers(),
        );
        let mut repairs = Repairs::default();
        while !pass.open.is_empty() {
            pass.begin();
            let mut waves = pass.waves();
            match self.plan(&mut pass, &waves).await {
                Ok(true) if pass.open.is_empty() => break,
                Ok(true) => waves = pass.waves(),
                Ok(false) => {}
                Err(error) => {
                    pass.fail(&error);
                    break;
                }
            }
            let steps = match self.steps(&pass, &waves, default_retry).await {
                Ok(steps) => steps,
                Err(error) => {
                    pass.fail(&error);
                    break;
                }
            };
            let deadline_us = self.deadline_us();
            let call = |group: &Group| self.call_of(group, &pass, &steps, deadline_us);
            let calls: Vec<Vec<ScriptCall>> =
                waves.iter().map(|groups| groups.iter().map(call).collect()).collect();
            let begun = clock::now();
            let link = self.namespace.gate.link();
            let passed = self.namespace.gate.pass(link, &calls).await;
            self.observe_groups(waves.iter().flatten(), &passed, begun);
            if passed.iter().any(|answer| matches!(answer, Err(error) if error.unanswered)) {
                let mut until = self.unanswered_until.lock();
                *until = Some(begun + RESPONSE_TIMEOUT).max(*until);
            }
            for (group, answer) in waves.iter().flatten().zip(passed) {
                self.read(group, answer, &steps, &mut pass);
            }
            pass.keep_what_was_not_run();
            pass.pace(&waves);
            let Some(repair) = repairs.after(pass.errors(), pass.has_progress) else { break };
            // The number of rounds has no limit: each round answers a request, or learns the facts
            // for its repeat.
            if repair == Repair::Resend
                && let Err(error) = self.join_brokers(&pass).await
            {
                pass.fail(&error);
                break;
            }
            let (groups, calls): (Vec<&Group>, Vec<&ScriptCall>) = waves
                .iter()
                .flatten()
                .zip(calls.iter().flatten())
                .filter(|(group, _)| pass.lacks_script(group))
                .unzip();
            let repaired = self.namespace.repair(link, repair, &calls).await;
            for (group, repaired) in groups.into_iter().zip(repaired) {
                if let Err(error) = repaired {
                    pass.give_up(group, &error);
                }
            }
            pass.keep_what_was_not_run();
        }
        pass.applied()
    }

    /// Waits until Redis can no longer carry out any batch call that got no answer, for example
    /// after a connection reset. The wait is the response timeout, which is longer than a call may
    /// be carried out. Before the wait ends, no other reader may get the message: the late call
    /// could be carried out after the request of that reader.
    pub async fn unanswered_are_over(&self) {
        let until = *self.unanswered_until.lock();
        if let Some(until) = until {
            clock::sleep_until(until).await;
        }
    }

    /// Reads the step of the job of each `fail` of these waves.
    async fn steps(
        &self,
        pass: &Pass<'_>,
        waves: &[Vec<Group>],
        default_retry: &[u64],
    ) -> Result<HashMap<usize, Step>, StoreError> {
        let fails: Vec<(usize, &Act)> = waves
            .iter()
            .flatten()
            .flat_map(|group| &group.members)
            .filter(|at| pass.items[**at].script() == Name::Fail)
            .filter_map(|at| match pass.items[*at].asked {
                RequestRef::Act(act) => Some((*at, act)),
                _ => None,
            })
            .collect();
        let mut steps = HashMap::with_capacity(fails.len());
        for fails in fails.chunks(JOBS_PER_READ) {
            let read =
                try_join_all(fails.iter().map(|(_, act)| self.step_of(act, default_retry))).await?;
            steps.extend(fails.iter().map(|(at, _)| *at).zip(read));
        }
        Ok(steps)
    }

    /// The deadline of a call that is made now, epoch µs by Redis's clock; `None` if the clock is
    /// unknown. A call can be stuck on its way until its caller gives it up. Then the same message,
    /// and later ones, may arrive by another way before that call continues.
    pub(super) fn deadline_us(&self) -> Option<i64> {
        self.namespace.has_seen_clock().then(|| {
            self.namespace
                .now_us()
                .saturating_add(i64::try_from(CALL_TTL.as_micros()).unwrap_or(i64::MAX))
        })
    }

    fn call_of(
        &self,
        group: &Group,
        pass: &Pass<'_>,
        steps: &HashMap<usize, Step>,
        deadline_us: Option<i64>,
    ) -> ScriptCall {
        let mut call = self.namespace.script_call(group.script, group.bucket, &pass.sets_of(group));
        if group.script == Name::ChangeSchedule {
            call.arg(deadline_us.map(|us| us.to_string()).unwrap_or_default()).arg("1");
        }
        for at in &group.members {
            let item = &pass.items[*at];
            let asked = item.asked;
            match (asked, &item.recurring.planned) {
                (_, Some(planned)) => {
                    planned.plan.arguments(
                        &mut call,
                        asked.job_id(),
                        asked.origin(),
                        asked.own_queues(),
                    );
                }
                (RequestRef::NewJob(new_job), None) => {
                    schedule_arguments(&mut call, new_job, &item.record);
                }
                // Every new schedule of a wave was planned.
                (RequestRef::NewSchedule(_), None) => {}
                (RequestRef::Act(act), None) => {
                    act_arguments(&mut call, act, item.generation, steps.get(at), deadline_us)
                }
            }
        }
        call.with_jobs(group.members.len());
        if group.script == Name::Schedule {
            schedule_deadline(&mut call, deadline_us);
        }
        call
    }

    fn read(
        &self,
        group: &Group,
        answer: Result<Value, StoreError>,
        steps: &HashMap<usize, Step>,
        pass: &mut Pass<'_>,
    ) {
        let read = answer.and_then(|value| {
            let mut items = Items::new(group.script.as_str(), value)?;
            match group.script {
                Name::Schedule => self.read_scheduled(group.bucket, group.members.len(), items),
                Name::ChangeSchedule => {
                    let at = group.members[0];
                    self.read_changed(group.bucket, &pass.items[at], at, items)
                }
                _ => Ok(CallAnswers::one(read_answer(i64::MIN, &mut items))),
            }
        });
        match read {
            Ok(CallAnswers { answers, wake_ups, made }) => {
                group.members.iter().zip(answers).for_each(|(at, answer)| match answer {
                    Ok(answer) => {
                        if answer.is_death() && steps.get(at).is_some_and(Step::is_over) {
                            pass.expired.push(*at);
                        }
                        pass.answer(*at, answer);
                    }
                    error => pass.items[*at].answer = error,
                });
                pass.wake_ups.extend(wake_ups);
                pass.made.extend(made);
            }
            Err(error) => {
                // The error brings Redis's clock, which may differ from the clock last seen.
                if let Some(us) = error.late() {
                    self.namespace.saw_clock(us);
                }
                pass.refused(group, &error, steps);
            }
        }
    }

    /// Scripts met brokers that this store does not know: they are new in the namespace, or the
    /// namespace lost them.
    async fn join_brokers(&self, pass: &Pass<'_>) -> Result<(), StoreError> {
        let known = self.namespace.brokers();
        let met: BTreeSet<&String> = pass
            .learned()
            .filter(|set| !DueSet::named(set).is_of_queue() && !known.contains(set))
            .collect();
        if !met.is_empty() {
            self.namespace.rejoin().await?;
            met.into_iter().for_each(|set| self.namespace.learn(set));
        }
        Ok(())
    }

    /// Reports the duration once per script, and each class of errors once.
    fn observe_groups<'a>(
        &self,
        groups: impl Iterator<Item = &'a Group>,
        passed: &[Result<Value, StoreError>],
        begun: Instant,
    ) {
        let took = clock::now().duration_since(begun);
        let (mut names, mut classes) = (Vec::new(), Vec::new());
        for (group, answer) in groups.zip(passed) {
            match answer {
                Ok(_) if !names.contains(&group.script) => names.push(group.script),
                Err(error) if !error.was_not_run() && !classes.contains(&error.class) => {
                    classes.push(error.class)
                }
                _ => {}
            }
        }
        names.into_iter().for_each(|name| self.namespace.observer.called(name, took));
        classes.into_iter().for_each(|class| self.namespace.observer.failed(class));
    }
}
