//! A request of a batch, and the sets in which the requests before it may leave its job.

use std::collections::HashMap;

use super::{Answer, RequestRef};
use crate::job::{Action, Conflict};
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::keys::Keys;
use crate::store::queue::act::script_of;
use crate::store::record::{self, Generation};
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
}

impl<'a> Item<'a> {
    /// A request that was not sent yet.
    pub(super) fn new(asked: RequestRef<'a>, keys: &Keys) -> Self {
        let record = match asked {
            RequestRef::NewJob(new_job) => {
                record::encode(new_job, new_job.first.unwrap_or_else(rand::random))
            }
            RequestRef::Act(_) => Vec::new(),
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
        }
    }

    /// The set of the job that a schedule stores.
    pub(super) fn own_set(&self) -> Option<String> {
        match self.asked {
            RequestRef::NewJob(new_job) => Some(DueSet::of(&new_job.job).to_string()),
            RequestRef::Act(_) => None,
        }
    }

    /// The script of the request.
    pub(super) fn script(&self) -> Name {
        script(self.asked)
    }
}

fn script(asked: RequestRef<'_>) -> Name {
    match asked {
        RequestRef::NewJob(_) => Name::Schedule,
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
                    new_job.conflict == Conflict::Replace && !new_job.apart && !new_job.generated;
                if replaces || !self.has_job {
                    let own = DueSet::of(&new_job.job).to_string();
                    self.sets.retain(|set| *set != own);
                    self.sets.insert(0, own);
                    self.sets.truncate(MAX_GUESSED_SETS);
                }
                self.has_job |= !new_job.apart && !new_job.queue_full;
            }
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
