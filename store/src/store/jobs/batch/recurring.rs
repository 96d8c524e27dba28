//! The requests of a batch for recurring schedules: each is planned by what was read, and planned
//! anew once that has changed.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join_all;

use super::RequestRef;
use super::answer::queue_full;
use super::item::{Item, Planned};
use super::pass::{Pass, changing};
use crate::store::call::waves::Group;
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::schedules::plan::{self, Plan};
use crate::store::schedules::{self, Found};
use crate::store::scripts::Name;

/// How often an id may turn out to be that of a schedule, and no schedule's at the next read.
const MAX_TURNS: u8 = 3;
/// The most times that `fire` tries whose ids other jobs have.
const MAX_TAKEN_TIMES: usize = 100;

impl Jobs {
    /// Plans the requests of these waves that concern recurring schedules. True if other calls are
    /// to be made: the id of an action is no schedule's by now and the action is for a job, or
    /// requests have their answer, because their schedules could not be read.
    pub(super) async fn plan(
        &self,
        pass: &mut Pass<'_>,
        waves: &[Vec<Group>],
    ) -> Result<bool, StoreError> {
        let mut members: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for group in waves.iter().flatten().filter(|group| group.script == Name::ChangeSchedule) {
            members.entry(group.bucket).or_default().extend(&group.members);
        }
        if members.is_empty() {
            return Ok(false);
        }
        let mut looks = Vec::with_capacity(members.len());
        for (bucket, members) in &members {
            let mut ids: Vec<&str> = members.iter().map(|at| pass.items[*at].asked.id()).collect();
            ids.sort_unstable();
            ids.dedup();
            looks.push(async move {
                let found = match schedules::look(&self.namespace, *bucket, &ids).await {
                    // A damaged key concerns its bucket alone, and the script says so too.
                    Err(why) if why.is_unreadable() => {
                        vec![Found { state: None, read: Err(why) }; ids.len()]
                    }
                    found => found?,
                };
                Ok::<_, StoreError>(ids.into_iter().zip(found))
            });
        }
        let mut found: HashMap<&str, Found> = HashMap::new();
        let mut has_turned = false;
        for (members, looked) in members.values().zip(join_all(looks).await) {
            match looked {
                Ok(of_bucket) => found.extend(of_bucket),
                // A master that hangs fails its own requests alone.
                Err(error) => {
                    pass.fail_these(members, &error);
                    has_turned = true;
                }
            }
        }
        if !self.namespace.has_seen_clock() {
            self.namespace.read_clock().await?;
        }
        let now_ms = self.namespace.now_ms();
        for at in members.into_values().flatten() {
            let item = &mut pass.items[at];
            let Some(found) = found.get(item.asked.id()).cloned() else { continue };
            item.recurring.planned = planned(item, found, now_ms).map(|mut planned| {
                if let Some(why) = self.has_no_room(&planned.plan) {
                    planned.plan = Plan::refuses(planned.plan.expected.take(), why);
                }
                planned
            });
            let is_none = item.recurring.planned.is_none();
            item.recurring.is_schedule &= !is_none;
            has_turned |= is_none;
        }
        Ok(has_turned)
    }

    /// The error of an action that would put an occurrence into a full queue.
    fn has_no_room(&self, plan: &Plan) -> Option<StoreError> {
        let queue = DueSet::named(&plan.made()?.set).queue()?;
        let is_full = self.namespace.is_queue_full.get()?;
        is_full(queue).then(queue_full)
    }
}

impl Pass<'_> {
    /// The id of an action is a schedule's: the next call changes the schedule.
    pub(super) fn learn_schedule(
        &mut self,
        group: &Group,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        for at in &group.members {
            let recurring = &mut self.items[*at].recurring;
            recurring.turns += 1;
            if recurring.turns > MAX_TURNS {
                return Err(changing(group, error));
            }
            recurring.is_schedule = true;
        }
        Ok(())
    }

    /// The schedule changed since it was read, or another job has the id of its occurrence: the
    /// next call is planned anew.
    pub(super) fn learn_change(
        &mut self,
        group: &Group,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        for at in &group.members {
            let recurring = &mut self.items[*at].recurring;
            let Some(planned) = &recurring.planned else { continue };
            let plan = &planned.plan;
            if error.is_occurrence_taken() {
                recurring.not_at.extend(plan.made().map(|made| made.nominal_ms));
                if recurring.not_at.len() > MAX_TAKEN_TIMES {
                    return Err(changing(group, error));
                }
                continue;
            }
            let expected = Some(plan.expected.clone());
            if recurring.outdated == expected {
                return Err(changing(group, error));
            }
            recurring.outdated = expected;
        }
        Ok(())
    }

    /// Answers these requests with an error, and those behind them for the same ids.
    pub(super) fn fail_these(&mut self, members: &[usize], error: &StoreError) {
        let mut error = error.clone();
        if error.was_not_run() {
            error.class = Class::Unserved;
        }
        members.iter().for_each(|at| self.items[*at].answer = Err(error.clone()));
        self.keep_what_was_not_run();
    }
}

/// The plan of a request for a recurring schedule; `None` for an action whose id is no schedule's.
fn planned(item: &Item<'_>, found: Found, now_ms: i64) -> Option<Box<Planned>> {
    let Found { state, read } = found;
    let read = match read {
        Ok(read) => read,
        Err(why) => {
            return Some(Box::new(Planned { plan: Plan::refuses(state, why), set: None }));
        }
    };
    let set = read.as_ref().map(|read| DueSet::of(&read.schedule.job).to_string());
    let plan = match item.asked {
        RequestRef::NewSchedule(new) => plan::put(new, read.as_ref(), now_ms, item.generation),
        RequestRef::Act(act) => plan::act(act.action, &read?, now_ms, &item.recurring.not_at),
        RequestRef::NewJob(_) => return None,
    };
    Some(Box::new(Planned { plan, set }))
}
