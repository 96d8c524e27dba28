//! A batch in progress: the requests still to send, their calls, and the facts that each request
//! has learned from the answers.

use std::collections::{BTreeMap, HashMap};

use super::RequestRef;
use crate::job::Action;
use crate::store::error::{Class, StoreError};
use crate::store::keys::Keys;
use crate::store::queue::act::{Step, script_of};
use crate::store::queue::schedule::{Answer, CALL_BYTES, CALL_JOBS, WakeUp};
use crate::store::record::{self, Generation};
use crate::store::scripts::Name;

use super::Applied;

/// The most brokers whose sets an action names before it knows the set of its job. With more
/// brokers, it names the brokers of this store.
const MAX_NAMED_BROKERS: usize = 8;

/// A script call: either schedules of one bucket, bounded, with distinct ids; or one action.
pub(in crate::store::queue) struct Group {
    pub(super) name: Name,
    pub(in crate::store::queue) bucket: u16,
    bytes: usize,
    /// Indices into the batch.
    pub(in crate::store::queue) members: Vec<usize>,
    /// The one member is alone by intent: no other joins the call.
    is_closed: bool,
}

/// A request as its script receives it, identical in every repeat.
pub(super) struct Item<'a> {
    pub(super) asked: RequestRef<'a>,
    pub(super) bucket: u16,
    /// The record of a schedule; empty for an action.
    pub(super) record: Vec<u8>,
    /// The generation of the schedule that an action begins.
    pub(super) generation: Generation,
    pub(super) answer: Result<Answer, StoreError>,
    /// The sets that may hold the job of this id: the sets that scripts asked for, and the set of
    /// the schedule before this request.
    learned: Vec<String>,
    /// One learned set is a guess: the set of the schedule before.
    is_seeded: bool,
    /// The next request for the same id.
    next: Option<usize>,
    /// The generation and step that the last call of a `fail` was computed from.
    read: Option<(Generation, u16)>,
    /// The request has a call of its own, because a call with others failed.
    is_alone: bool,
    /// An action names no set before it has learned one, because a call with the sets of brokers
    /// failed.
    is_bare: bool,
}

/// A batch in progress.
pub(super) struct Pass<'a> {
    pub(super) items: Vec<Item<'a>>,
    /// Indices of the requests still to send.
    pub(super) open: Vec<usize>,
    pub(super) wake_ups: Vec<WakeUp>,
    /// Per bucket and set: the earliest due time to which an action has moved a job.
    moved: BTreeMap<(u16, String), i64>,
    /// The brokers whose sets an action names first.
    brokers: Vec<String>,
    /// Whether the round answered a request, or learned the facts for its repeat.
    pub(super) has_progress: bool,
}

impl Item<'_> {
    /// The set of the job that a schedule stores.
    fn own_set(&self) -> Option<String> {
        match self.asked {
            RequestRef::NewJob(new_job) => Some(new_job.job.set().into_owned()),
            RequestRef::Act(_) => None,
        }
    }

    /// Notes a set; false if the request knew it.
    fn learns(&mut self, set: &str) -> bool {
        let is_new = self.own_set().is_none_or(|own| own != set)
            && !self.learned.iter().any(|known| known == set);
        if is_new {
            self.learned.push(set.to_owned());
        }
        is_new
    }
}

/// Tells each request the next one for its id, and the set in which the schedule before it puts the
/// job.
fn link(items: &mut [Item<'_>]) {
    let mut last: HashMap<&str, (usize, Option<String>)> = HashMap::new();
    for at in 0..items.len() {
        let (id, own) = (items[at].asked.id(), items[at].own_set());
        let before = last.get(id).cloned();
        let mut set = own;
        if let Some((before, put)) = before {
            items[before].next = Some(at);
            if let Some(set) = &put {
                items[at].is_seeded = items[at].learns(set);
            }
            set = set.or(put);
        }
        last.insert(id, (at, set));
    }
}

impl<'a> Pass<'a> {
    /// `known`: every broker; `own`: the brokers of this store.
    pub(super) fn new(
        asked: &[RequestRef<'a>],
        keys: &Keys,
        known: &[String],
        own: &[String],
    ) -> Self {
        let unsent = || Err(StoreError::new(Class::Other, "redis: a request was not sent"));
        let item = |asked: &RequestRef<'a>| {
            let record = match asked {
                RequestRef::NewJob(new_job) => {
                    record::encode(new_job, new_job.first.unwrap_or_else(rand::random))
                }
                RequestRef::Act(_) => Vec::new(),
            };
            Item {
                asked: *asked,
                bucket: keys.bucket_of(asked.id()),
                record,
                generation: rand::random(),
                answer: unsent(),
                learned: Vec::new(),
                is_seeded: false,
                next: None,
                read: None,
                is_alone: false,
                is_bare: false,
            }
        };
        let mut items: Vec<Item<'a>> = asked.iter().map(item).collect();
        link(&mut items);
        Pass {
            items,
            open: (0..asked.len()).collect(),
            wake_ups: Vec::new(),
            moved: BTreeMap::new(),
            brokers: if known.len() <= MAX_NAMED_BROKERS {
                known
            } else {
                &own[..own.len().min(MAX_NAMED_BROKERS)]
            }
            .to_vec(),
            has_progress: false,
        }
    }

    /// Puts the second request for an id into the second wave, and so on. A wave is sent only when
    /// no request of the wave before needs a repeat; otherwise a later request could be applied
    /// before an earlier one.
    pub(super) fn waves(&self) -> Vec<Vec<Group>> {
        let mut waves: Vec<Vec<Group>> = Vec::new();
        let mut seen: HashMap<&str, usize> = HashMap::new();
        // By wave and bucket: the group of schedules with room for more.
        let mut unfilled: HashMap<(usize, u16), usize> = HashMap::new();
        for &at in &self.open {
            let Item { asked, bucket, record, is_alone, .. } = &self.items[at];
            let times = seen.entry(asked.id()).or_default();
            let wave = *times;
            *times += 1;
            if waves.len() == wave {
                waves.push(Vec::new());
            }
            let groups = &mut waves[wave];
            let new = |name| Group {
                name,
                bucket: *bucket,
                bytes: 0,
                members: Vec::new(),
                is_closed: *is_alone,
            };
            let place = match asked {
                RequestRef::Act(act) => {
                    groups.push(new(script_of(act.action)));
                    groups.len() - 1
                }
                RequestRef::NewJob(_) if *is_alone => {
                    groups.push(new(Name::Schedule));
                    groups.len() - 1
                }
                RequestRef::NewJob(_) => {
                    let unfilled = unfilled.entry((wave, *bucket)).or_insert(usize::MAX);
                    let has_room = |group: &Group| {
                        !group.is_closed
                            && group.members.len() < CALL_JOBS
                            && group.bytes + record.len() <= CALL_BYTES
                    };
                    if !groups.get(*unfilled).is_some_and(has_room) {
                        *unfilled = groups.len();
                        groups.push(new(Name::Schedule));
                    }
                    *unfilled
                }
            };
            groups[place].bytes += record.len();
            groups[place].members.push(at);
        }
        waves
    }

    /// The sets that a call names: the sets of its own jobs, and the sets that its own requests
    /// have learned. An action that has learned no set names the brokers, unless a call with them
    /// failed.
    pub(super) fn sets_of(&self, group: &Group) -> Vec<String> {
        let mut sets: Vec<String> = Vec::with_capacity(group.members.len());
        for at in &group.members {
            let item = &self.items[*at];
            match item.own_set() {
                None if item.learned.is_empty() && !item.is_bare => {
                    sets.extend(self.brokers.iter().cloned())
                }
                own => sets.extend(own.into_iter().chain(item.learned.iter().cloned())),
            }
        }
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    pub(super) fn answer(&mut self, at: usize, answer: Answer) {
        let item = &mut self.items[at];
        if let (RequestRef::Act(act), Some(due_ms)) = (item.asked, answer.due_ms)
            && matches!(
                act.action,
                Action::Reschedule | Action::Fire | Action::Requeue | Action::Fail
            )
        {
            let sets = if item.learned.is_empty() { &self.brokers } else { &item.learned };
            for set in sets {
                self.moved
                    .entry((item.bucket, set.clone()))
                    .and_modify(|first| *first = due_ms.min(*first))
                    .or_insert(due_ms);
            }
        }
        item.answer = Ok(answer);
    }

    /// Takes the error of a call. The requests learn the facts that the script asked for. Requests
    /// that failed together get a call each. An action that failed with guessed sets is sent
    /// without sets. Without a change, a repeat at once would be refused again.
    pub(super) fn refused(
        &mut self,
        group: &Group,
        error: &StoreError,
        steps: &HashMap<usize, Step>,
    ) {
        let mut error = error.clone();
        if error.class == Class::Outdated && !error.is_held_back() {
            match self.learn(group, &error, steps) {
                Ok(()) => self.has_progress = true,
                Err(refusal) => error = refusal,
            }
        }
        if error.class == Class::Script && !error.is_damage() && self.narrow(group) {
            self.has_progress = true;
            error.class = Class::Outdated;
        }
        group.members.iter().for_each(|at| self.items[*at].answer = Err(error.clone()));
    }

    /// Removes possible causes of the failure that are not the request's own from its next call;
    /// false if no such cause is left.
    fn narrow(&mut self, group: &Group) -> bool {
        match group.members.as_slice() {
            [at] => {
                let item = &mut self.items[*at];
                // The schedule before may have been refused for the key of its set.
                if std::mem::take(&mut item.is_seeded) {
                    item.learned.clear();
                    return true;
                }
                let has_guessed =
                    item.own_set().is_none() && item.learned.is_empty() && !self.brokers.is_empty();
                has_guessed && !std::mem::replace(&mut item.is_bare, true)
            }
            many => {
                many.iter().for_each(|at| self.items[*at].is_alone = true);
                true
            }
        }
    }

    /// Learns the facts that a script asked for; an error if the request knew them before. Only a
    /// set that its call named is a reason to give the request up.
    fn learn(
        &mut self,
        group: &Group,
        error: &StoreError,
        steps: &HashMap<usize, Step>,
    ) -> Result<(), StoreError> {
        let mut is_new = false;
        for (position, set) in error.unknown_sets() {
            let Some(at) = group.members.get(position.wrapping_sub(1)) else { continue };
            is_new |= self.items[*at].learns(set);
            // Each later request for this id needs the same set.
            let mut next = self.items[*at].next;
            while let Some(at) = next {
                self.items[at].learns(set);
                next = self.items[at].next;
            }
        }
        let is_again = error.is_again();
        // The step behind a `fail` is outdated now.
        for (at, step) in
            group.members.iter().filter(|_| is_again).filter_map(|at| Some((*at, steps.get(at)?)))
        {
            if let Some(why) = &step.unreadable {
                return Err(why.clone());
            }
            is_new = self.items[at].read.replace(step.read()) != Some(step.read());
        }
        if is_new {
            return Ok(());
        }
        if is_again {
            // The read may lag behind the master that runs the script, and two equal reads may be
            // of two jobs: the request itself may be sound.
            let message = format!(
                "redis: {}: the job changes while it is read: {}",
                group.name.as_str(),
                error.message
            );
            return Err(StoreError::new(Class::Unserved, message));
        }
        let message = format!(
            "redis: {}: refused again with what the script asked for: {}",
            group.name.as_str(),
            error.message
        );
        Err(StoreError::new(Class::Script, message).hint("run `dwell fsck`"))
    }

    /// The sets that open requests have learned.
    pub(super) fn learned(&self) -> impl Iterator<Item = &String> {
        self.open.iter().flat_map(|at| &self.items[*at].learned)
    }

    pub(super) fn fail(&mut self, error: &StoreError) {
        for at in &self.open {
            self.items[*at].answer = Err(error.clone());
        }
    }

    pub(super) fn keep_what_was_not_run(&mut self) {
        let before = self.open.len();
        // The caller sends these requests again: no later request for the same id may overtake
        // them.
        let mut unsettled: HashMap<&str, StoreError> = HashMap::new();
        for at in &self.open {
            let Item { asked, answer, .. } = &mut self.items[*at];
            match (unsettled.get(asked.id()), &*answer) {
                (Some(error), Err(_)) => *answer = Err(error.clone()),
                (None, Err(error)) if !error.was_not_run() && !error.is_refusal() => {
                    drop(unsettled.insert(asked.id(), error.clone()))
                }
                _ => {}
            }
        }
        self.open.retain(|at| matches!(&self.items[*at].answer, Err(error) if error.was_not_run()));
        self.has_progress |= self.open.len() < before;
    }

    /// The first error of this class.
    pub(super) fn error_of(&self, class: Class) -> Option<StoreError> {
        self.open
            .iter()
            .filter_map(|at| self.items[*at].answer.as_ref().err())
            .find(|error| error.class == class)
            .cloned()
    }

    pub(super) fn applied(mut self) -> Applied {
        self.wake_ups.extend(self.moved.into_iter().map(|((bucket, broker), due_ms)| WakeUp {
            bucket,
            broker,
            due_ms,
        }));
        Applied {
            answers: self.items.into_iter().map(|item| item.answer).collect(),
            wake_ups: self.wake_ups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Act;

    #[test]
    fn a_fail_whose_read_lags_is_no_refusal() {
        let [fail, cancel] =
            [Action::Fail, Action::Cancel].map(|action| Act::new(action, "a".parse().unwrap()));
        let mut pass = Pass::new(
            &[RequestRef::Act(&fail), RequestRef::Act(&cancel)],
            &Keys::new("dwell", 1),
            &[],
            &[],
        );
        // The job does not exist, by the answer of a server that is no longer the master, or at
        // each read.
        let steps = HashMap::from([(0, Step::default())]);
        let again = StoreError::new(Class::Outdated, "redis: fail: DWELL_AGAIN a")
            .answered("DWELL_AGAIN", "a");
        let round = |pass: &mut Pass<'_>| {
            let waves = pass.waves();
            pass.refused(&waves[0][0], &again, &steps);
            pass.refused(&waves[1][0], &StoreError::held_back("fail"), &steps);
            pass.keep_what_was_not_run();
        };
        round(&mut pass);
        assert_eq!((pass.open.len(), pass.has_progress), (2, true), "it is read once more");
        round(&mut pass);
        for item in &pass.items {
            let error = item.answer.as_ref().unwrap_err();
            assert!(!error.is_refusal() && !error.was_not_run(), "{error:?}");
        }
        assert!(pass.open.is_empty(), "the cancel overtakes the fail");
    }
}
