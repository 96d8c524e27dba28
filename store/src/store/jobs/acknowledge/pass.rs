//! One pass of acknowledgements: their script calls, with repeats of what Redis did not run.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Acknowledged, Answers, LeaseAction, LeaseVerdict, Proven, UNSENT, failed};
use crate::clock;
use crate::job::JobId;
use crate::store::answer::Items;
use crate::store::call::repairs::{Repairs, lacks_script};
use crate::store::call::script_call::ScriptCall;
use crate::store::call::time::Time;
use crate::store::call::waves::{Group, Member, waves};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::namespace::Namespace;
use crate::store::record;
use crate::store::scripts::Name;

/// The most attempts at a call that Redis did not run.
const MAX_ATTEMPTS: usize = 8;

/// Carries out acknowledgements behind the durability gate, several for one id in their order: one
/// script call a bucket for those of distinct ids, up to the bounds of a call.
pub(super) async fn carry_out(namespace: &Namespace, acknowledgements: &[Proven]) -> Answers {
    let mut answers = failed(acknowledgements.len(), UNSENT);
    let mut open: Vec<usize> = (0..acknowledgements.len()).collect();
    let mut repairs = Repairs::default();
    let mut alone: HashSet<usize> = HashSet::new();
    for attempt in 1..=MAX_ATTEMPTS {
        let before = (open.len(), alone.len());
        let member = |at: &usize| {
            let id = acknowledgements[*at].id.as_str();
            Member {
                at: *at,
                id,
                script: Name::Acknowledge,
                bucket: namespace.keys.bucket_of(id),
                bytes: 0,
                is_alone: alone.contains(at),
            }
        };
        let waves = waves(open.iter().map(member), usize::MAX);
        let calls: Vec<Vec<ScriptCall>> = waves
            .iter()
            .map(|groups| {
                groups
                    .iter()
                    .map(|group| acknowledge_call(namespace, group, acknowledgements))
                    .collect()
            })
            .collect();
        let (link, begun) = (namespace.gate.link(), clock::now());
        let passed = namespace.gate.pass(link, &calls).await;
        for (group, answer) in waves.iter().flatten().zip(passed) {
            namespace.observe(Name::Acknowledge, begun, &answer);
            let mut read = answer.and_then(|value| {
                read_verdicts(Items::new("acknowledge", value)?, group.members.len())
            });
            // The failure may concern another acknowledgement of the call, such as a key of its
            // queue.
            if let Err(error) = &mut read
                && error.class == Class::Script
                && group.members.len() > 1
            {
                alone.extend(&group.members);
                error.class = Class::Outdated;
            }
            for (place, at) in group.members.iter().enumerate() {
                answers[*at] = read.as_ref().map(|read| read[place]).map_err(Clone::clone);
            }
        }
        open.retain(|at| matches!(&answers[*at], Err(error) if error.was_not_run()));
        let has_progress = (open.len(), alone.len()) != before;
        let errors = open.iter().filter_map(|at| answers[*at].as_ref().err());
        let repair = repairs.after(errors, has_progress).filter(|_| attempt < MAX_ATTEMPTS);
        let Some(repair) = repair else { break };
        let (groups, calls): (Vec<&Group>, Vec<&ScriptCall>) = waves
            .iter()
            .flatten()
            .zip(calls.iter().flatten())
            .filter(|(group, _)| group.members.iter().any(|at| lacks_script(&answers[*at])))
            .unzip();
        let repaired = namespace.repair(link, repair, &calls).await;
        // What waits behind a call that cannot be sent again must not overtake it.
        let mut given_up: HashMap<&JobId, StoreError> = HashMap::new();
        for (group, repaired) in groups.into_iter().zip(repaired) {
            if let Err(error) = repaired {
                let of_group = group.members.iter().map(|at| &acknowledgements[*at].id);
                given_up.extend(of_group.map(|id| (id, error.clone())));
            }
        }
        open.retain(|at| match given_up.get(&acknowledgements[*at].id) {
            Some(error) => {
                answers[*at] = Err(error.clone());
                false
            }
            None => true,
        });
        if open.is_empty() {
            break;
        }
    }
    answers.into_iter().map(|answer| answer.map_err(StoreError::into_answer)).collect()
}

fn acknowledge_call(
    namespace: &Namespace,
    group: &Group,
    acknowledgements: &[Proven],
) -> ScriptCall {
    let of_group = || group.members.iter().map(|at| &acknowledgements[*at]);
    let sets: BTreeSet<String> = of_group()
        .map(|acknowledgement| DueSet::Queue(&acknowledgement.queue).to_string())
        .collect();
    let sets: Vec<String> = sets.into_iter().collect();
    let mut call = namespace.script_call(Name::Acknowledge, group.bucket, &sets);
    for Proven { id, queue, proof, expires_ms, action, .. } in of_group() {
        let expires = expires_ms.map(|ms| format!("<{ms}")).unwrap_or_default();
        let (name, more) = match action {
            LeaseAction::Finish => ("finish", String::new()),
            LeaseAction::Fail { wait_ms, error } => {
                let wait = wait_ms.map(|ms| Time::In(ms).to_string()).unwrap_or_default();
                ("fail", format!("{wait}{expires}:{}", record::short_error(error)))
            }
            LeaseAction::Release { wait_ms } => {
                ("release", format!("{}{expires}", Time::In(*wait_ms)))
            }
            LeaseAction::Touch { ttr_ms } => ("touch", Time::In(*ttr_ms).to_string()),
            LeaseAction::Drop => ("drop", String::new()),
            LeaseAction::Bury { reason, error } => (
                "bury",
                format!("{}:{}", record::code_of_reason(Some(*reason)), record::short_error(error)),
            ),
        };
        call.arg(name).arg(id.as_str()).arg(DueSet::Queue(queue).to_string());
        call.arg(&proof[..]).arg(more);
    }
    call
}

fn read_verdicts(mut items: Items, count: usize) -> Result<Vec<Acknowledged>, StoreError> {
    (0..count)
        .map(|_| {
            let verdict = items.text()?;
            let verdict = LeaseVerdict::ALL
                .into_iter()
                .find(|known| known.as_str() == verdict)
                .ok_or_else(|| {
                    StoreError::new(
                        Class::Script,
                        format!("redis: acknowledge answered the unknown verdict `{verdict}`"),
                    )
                })?;
            Ok(Acknowledged { verdict, ms: items.maybe_number()? })
        })
        .collect()
}
