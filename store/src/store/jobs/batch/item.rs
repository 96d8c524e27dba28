//! A request of a batch, and the sets in which the requests before it may leave its job.

use std::collections::HashMap;

use bytes::Bytes;

use super::{Answer, RequestRef};
use crate::job::Action;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::jobs::act::script_of;
use crate::store::keys::Keys;
use crate::store::record::{self, Generation};
use crate::store::schedules::plan::Plan;
use crate::store::scripts::Name;

/// The most sets that a request names because of the schedules before it. The last schedule may
/// leave the job where it was, for example because it was applied before.
const MAX_GUESSED_SETS: usize = 2;

/// A request as its script receives it, identical in every repeat.
pub(super) struct Item<'a> {
    pub(super) asked: RequestRef<'a>,
    pub(super) bucket: u16,
    /// The record of a schedule; empty for an action.
    pub(super) record: Vec<u8>,
    /// The generation of the schedule that an action begins.
    pub(super) generation: Generation,
    pub(super) answer: Result<Answer, StoreError>,
    /// The sets, other than its own, into which the schedules before this request may put the job.
    pub(super) guessed: Vec<String>,
    /// The sets that scripts asked this request for.
    pub(super) learned: Vec<String>,
    /// The request names only its own set and the sets that scripts asked it for, because a call
    /// with others failed.
    pub(super) is_unguided: bool,
    /// The next request for the same id.
    pub(super) next: Option<usize>,
    /// The generation and step that the last call of a `fail` was computed from.
    pub(super) read: Option<(Generation, u16)>,
    /// The request has a call of its own, because a call with others failed.
    pub(super) is_alone: bool,
    /// An action names no set before it has learned one, because a call with the sets of brokers
    /// failed.
    pub(super) is_bare: bool,
    /// The facts of a request for a recurring schedule.
    pub(super) recurring: Recurring,
}

/// The facts of a request for a recurring schedule.
#[derive(Default)]
pub(super) struct Recurring {
    /// The id of the action is that of a schedule.
    pub(super) is_schedule: bool,
    /// How often the id of the action was found to be a schedule's.
    pub(super) turns: u8,
    /// The plan of the next call.
    pub(super) planned: Option<Box<Planned>>,
    /// The state that a refused call was planned from.
    pub(super) outdated: Option<Option<Bytes>>,
    /// Times, epoch ms, whose ids other jobs have.
    pub(super) not_at: Vec<i64>,
}

/// The plan of a request for a recurring schedule.
pub(super) struct Planned {
    pub(super) plan: Plan,
    /// The set of the job of the schedule that exists.
    pub(super) set: Option<String>,
}

impl<'a> Item<'a> {
    /// A request that was not sent yet.
    pub(super) fn new(asked: RequestRef<'a>, keys: &Keys) -> Self {
        let record = match asked {
            RequestRef::NewJob(new_job) => {
                record::encode(new_job, new_job.call_id.unwrap_or_else(rand::random))
            }
            RequestRef::NewSchedule(_) | RequestRef::Act(_) => Vec::new(),
        };
        Item {
            asked,
            bucket: keys.bucket_of(asked.id()),
            record,
            generation: rand::random(),
            answer: Err(StoreError::held_back(script(asked).as_str())),
            guessed: Vec::new(),
            learned: Vec::new(),
            is_unguided: false,
            next: None,
            read: None,
            is_alone: false,
            is_bare: false,
            recurring: Recurring::default(),
        }
    }

    /// The set of the job that a request stores, or of the occurrences of its schedule.
    pub(super) fn own_set(&self) -> Option<String> {
        match self.asked {
            RequestRef::NewJob(new_job) => Some(DueSet::of(&new_job.job).to_string()),
            RequestRef::NewSchedule(new) => Some(DueSet::of(&new.job).to_string()),
            RequestRef::Act(_) => {
                self.recurring.planned.as_ref().and_then(|planned| planned.set.clone())
            }
        }
    }

    /// The script of the request.
    pub(super) fn script(&self) -> Name {
        if self.recurring.is_schedule { Name::ChangeSchedule } else { script(self.asked) }
    }
}

fn script(asked: RequestRef<'_>) -> Name {
    match asked {
        RequestRef::NewJob(_) => Name::Schedule,
        RequestRef::NewSchedule(_) => Name::ChangeSchedule,
        RequestRef::Act(act) => script_of(act.action),
    }
}

/// The whereabouts of the job of one id after the requests so far, if none is refused.
#[derive(Default)]
struct Trail {
    /// The last request.
    last: Option<usize>,
    /// The sets that may have the job, the newest first.
    sets: Vec<String>,
    /// The job exists, in whichever set.
    has_job: bool,
}

impl Trail {
    /// Follows one request.
    fn follow(&mut self, asked: RequestRef<'_>) {
        match asked {
            RequestRef::NewJob(new_job) => {
                let replaces =
                    new_job.conflict.replaces() && !new_job.is_new_message && !new_job.generated;
                if replaces || !self.has_job {
                    let own = DueSet::of(&new_job.job).to_string();
                    self.sets.retain(|set| *set != own);
                    self.sets.insert(0, own);
                    self.sets.truncate(MAX_GUESSED_SETS);
                }
                self.has_job |= !new_job.is_new_message && !new_job.queue_full;
            }
            RequestRef::NewSchedule(_) => {}
            // The job may be over, or dead, and then every schedule replaces it.
            RequestRef::Act(act) => {
                self.has_job &=
                    !matches!(act.action, Action::Cancel | Action::Finish | Action::Fail);
            }
        }
    }
}

/// Tells each request the next one for its id, and the sets into which the schedules before it may
/// put the job.
pub(super) fn link(items: &mut [Item<'_>]) {
    let mut trails: HashMap<&str, Trail> = HashMap::with_capacity(items.len());
    for at in 0..items.len() {
        let asked = items[at].asked;
        let trail = trails.entry(asked.id()).or_default();
        if let Some(before) = trail.last.replace(at) {
            items[before].next = Some(at);
            let own = items[at].own_set();
            items[at].guessed =
                trail.sets.iter().filter(|set| own.as_ref() != Some(*set)).cloned().collect();
        }
        trail.follow(asked);
    }
}
