//! A batch in progress: the requests still to send, their calls, and the facts that each request
//! has learned from the answers.

use std::collections::{BTreeMap, HashMap};

use super::item::{Item, link};
use super::{Answer, Applied, NewOccurrence, RequestRef};
use crate::job::Action;
use crate::store::call::repairs::lacks_script;
use crate::store::call::waves::{Group, Member, waves};
use crate::store::error::{Class, StoreError};
use crate::store::jobs::act::Step;
use crate::store::keys::Keys;
use crate::store::scripts::Name;
use crate::store::wake_up::WakeUp;

/// The most brokers whose sets an action names before it knows the set of its job. With more
/// brokers, it names the brokers of this store.
const MAX_NAMED_BROKERS: usize = 8;
/// The rounds that may end at a wave that needs a repeat before the waves of a round are limited.
const FREE_ROUNDS: u32 = 4;
/// The most waves of a round, after the free rounds, for each wave that the round before answered.
/// So the work for calls that are not sent grows with the requests, not with their square.
const WAVES_PER_ANSWERED: usize = 8;

/// A batch in progress.
pub(super) struct Pass<'a> {
    pub(super) items: Vec<Item<'a>>,
    /// Indices of the requests still to send.
    pub(super) open: Vec<usize>,
    pub(super) wake_ups: Vec<WakeUp>,
    /// The occurrences that requests made.
    pub(super) made: Vec<NewOccurrence>,
    /// The requests to `fail` of jobs that died of their expiry.
    pub(super) expired: Vec<usize>,
    /// Per bucket and set: the earliest due time to which an action has moved a job.
    moved: BTreeMap<(u16, String), i64>,
    /// The brokers whose sets an action names first.
    brokers: Vec<String>,
    /// By id: the set in which a script found the job last. Each later request for the id names it.
    found: HashMap<&'a str, String>,
    /// The most waves of the next round.
    most_waves: usize,
    /// The rounds that ended at a wave that needs a repeat.
    cut_rounds: u32,
    /// Whether the round answered a request, or learned the facts for its repeat.
    pub(super) has_progress: bool,
}

/// The error of a request whose job or schedule changes while it is read. The read may lag behind
/// the master that runs the script, and two equal reads may be of two jobs: the request itself may
/// be sound.
pub(super) fn changing(group: &Group, error: &StoreError) -> StoreError {
    let message = format!(
        "redis: {}: the job changes while it is read: {}",
        group.script.as_str(),
        error.message
    );
    StoreError::new(Class::Unserved, message)
}

impl<'a> Pass<'a> {
    /// `known`: every broker; `own`: the brokers of this store.
    pub(super) fn new(
        asked: &[RequestRef<'a>],
        keys: &Keys,
        known: &[String],
        own: &[String],
    ) -> Self {
        let mut items: Vec<Item<'a>> = asked.iter().map(|asked| Item::new(*asked, keys)).collect();
        link(&mut items);
        Pass {
            items,
            open: (0..asked.len()).collect(),
            wake_ups: Vec::new(),
            made: Vec::new(),
            expired: Vec::new(),
            moved: BTreeMap::new(),
            brokers: if known.len() <= MAX_NAMED_BROKERS {
                known
            } else {
                &own[..own.len().min(MAX_NAMED_BROKERS)]
            }
            .to_vec(),
            found: HashMap::new(),
            most_waves: usize::MAX,
            cut_rounds: 0,
            has_progress: false,
        }
    }

    /// Begins a round, of which no request has an answer yet.
    pub(super) fn begin(&mut self) {
        self.has_progress = false;
        for at in &self.open {
            let item = &mut self.items[*at];
            if !matches!(&item.answer, Err(error) if error.is_held_back()) {
                item.answer = Err(StoreError::held_back(item.script().as_str()));
            }
        }
    }

    /// Limits the waves of the next round by those that the round answered.
    pub(super) fn pace(&mut self, waves: &[Vec<Group>]) {
        let is_over =
            |at: &usize| !matches!(&self.items[*at].answer, Err(error) if error.was_not_run());
        let answered = waves
            .iter()
            .take_while(|groups| groups.iter().flat_map(|group| &group.members).all(is_over))
            .count();
        if answered == waves.len() {
            self.most_waves = self.most_waves.saturating_mul(WAVES_PER_ANSWERED);
            return;
        }
        self.cut_rounds = self.cut_rounds.saturating_add(1);
        if self.cut_rounds >= FREE_ROUNDS {
            self.most_waves = answered.max(1).saturating_mul(WAVES_PER_ANSWERED);
        }
    }

    /// Puts the requests into calls: the new jobs of a bucket together, each other request by
    /// itself.
    pub(super) fn waves(&self) -> Vec<Vec<Group>> {
        let member = |at: &usize| {
            let item = &self.items[*at];
            Member {
                at: *at,
                id: item.asked.id(),
                script: item.script(),
                bucket: item.bucket,
                bytes: item.record.len(),
                is_alone: item.is_alone || !matches!(item.asked, RequestRef::NewJob(_)),
            }
        };
        waves(self.open.iter().map(member), self.most_waves)
    }

    /// The sets, other than its own, in which the job of a request may be.
    fn hints(&self, at: usize) -> impl Iterator<Item = &String> {
        let item = &self.items[at];
        let found = if item.is_unguided { None } else { self.found.get(item.asked.id()) };
        item.guessed.iter().chain(item.learned.iter()).chain(found)
    }

    /// The sets that a call names: the sets of its own jobs, and those in which the jobs of its own
    /// requests may be. An action that knows no set names the brokers, unless a call with them
    /// failed.
    pub(super) fn sets_of(&self, group: &Group) -> Vec<String> {
        let mut sets: Vec<String> = Vec::with_capacity(group.members.len());
        for at in &group.members {
            let before = sets.len();
            let item = &self.items[*at];
            sets.extend(item.own_set());
            sets.extend(self.hints(*at).cloned());
            if sets.len() == before && !item.is_bare {
                sets.extend(self.brokers.iter().cloned());
            }
        }
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    pub(super) fn answer(&mut self, at: usize, answer: Answer) {
        let Item { asked, bucket, .. } = self.items[at];
        if let (RequestRef::Act(act), Some(due_ms)) = (asked, answer.due_ms)
            // The script itself tells the wake-up of an occurrence.
            && !self.items[at].recurring.is_schedule
            && matches!(
                act.action,
                Action::Reschedule | Action::Fire | Action::Requeue | Action::Fail
            )
        {
            let mut sets: Vec<String> = self.hints(at).cloned().collect();
            if sets.is_empty() {
                sets.clone_from(&self.brokers);
            }
            for set in sets {
                self.moved
                    .entry((bucket, set))
                    .and_modify(|first| *first = due_ms.min(*first))
                    .or_insert(due_ms);
            }
        }
        self.items[at].answer = Ok(answer);
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
                let knows_no_set = self.hints(*at).next().is_none();
                let item = &mut self.items[*at];
                // The schedule before may have been refused for the key of its set.
                let is_hinted = !item.guessed.is_empty()
                    || self
                        .found
                        .get(item.asked.id())
                        .is_some_and(|set| !item.learned.contains(set));
                if is_hinted && !std::mem::replace(&mut item.is_unguided, true) {
                    self.drop_guesses(*at);
                    return true;
                }
                let has_guessed =
                    item.own_set().is_none() && knows_no_set && !self.brokers.is_empty();
                has_guessed && !std::mem::replace(&mut item.is_bare, true)
            }
            many => {
                many.iter().for_each(|at| self.items[*at].is_alone = true);
                true
            }
        }
    }

    /// Drops what a request guesses, and the same guesses of the requests behind it.
    fn drop_guesses(&mut self, at: usize) {
        let dropped = std::mem::take(&mut self.items[at].guessed);
        let mut next = self.items[at].next;
        while let Some(at) = next {
            let item = &mut self.items[at];
            let before = item.guessed.len();
            item.guessed.retain(|set| !dropped.contains(set));
            next = item.next.filter(|_| item.guessed.len() < before);
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
        if error.is_of_schedule() {
            return self.learn_schedule(group, error);
        }
        if group.script == Name::ChangeSchedule && (error.is_again() || error.is_occurrence_taken())
        {
            return self.learn_change(group, error);
        }
        let mut is_new = false;
        for (position, set) in error.unknown_sets() {
            let Some(at) = group.members.get(position.wrapping_sub(1)) else { continue };
            let item = &mut self.items[*at];
            let was_named = item.own_set().is_some_and(|own| own == set)
                || item.guessed.iter().chain(&item.learned).any(|known| known == set);
            // The later requests for this id may need the same set.
            let found = self.found.insert(item.asked.id(), set.to_owned());
            let was_found = !item.is_unguided && found.is_some_and(|found| found == set);
            if !was_named {
                item.learned.push(set.to_owned());
            }
            is_new |= !was_named && !was_found;
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
            return Err(changing(group, error));
        }
        let message = format!(
            "redis: {}: refused again with what the script asked for: {}",
            group.script.as_str(),
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

    /// Whether Redis did not know the script of this call.
    pub(super) fn lacks_script(&self, group: &Group) -> bool {
        group.members.iter().any(|at| lacks_script(&self.items[*at].answer))
    }

    /// Answers the requests of a call that cannot be sent again now.
    pub(super) fn give_up(&mut self, group: &Group, error: &StoreError) {
        group.members.iter().for_each(|at| self.items[*at].answer = Err(error.clone()));
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

    /// The errors of the requests still to send.
    pub(super) fn errors(&self) -> impl Iterator<Item = &StoreError> + Clone {
        self.open.iter().filter_map(|at| self.items[*at].answer.as_ref().err())
    }

    pub(super) fn applied(mut self) -> Applied {
        self.wake_ups.extend(self.moved.into_iter().map(|((bucket, broker), due_ms)| WakeUp {
            bucket,
            broker,
            due_ms,
        }));
        let (wake_ups, made, expired) = (self.wake_ups, self.made, self.expired);
        let answers = self.items.into_iter();
        let answers = answers.map(|item| item.answer.map_err(StoreError::into_answer)).collect();
        Applied { answers, wake_ups, made, expired }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Conflict, Due, Job, Verdict};
    use crate::request::{Act, NewJob};
    use crate::store::jobs::batch::item::Planned;
    use crate::store::schedules::plan::tests::new;
    use crate::store::schedules::plan::{Plan, put};

    /// Requests for one id, in pairs: the first moves the job into a queue of its own, the second
    /// leaves it there, and names another queue.
    fn pairs(count: usize) -> Vec<NewJob> {
        let of = |n: usize| {
            let (queue, conflict) =
                if n.is_multiple_of(2) { ("a", Conflict::Replace) } else { ("b", Conflict::Keep) };
            NewJob::new(Job::for_queue(format!("{queue}{}", n / 2), "x"), Due::At(1))
                .id("x".parse().unwrap())
                .on_conflict(conflict)
        };
        (0..count).map(of).collect()
    }

    fn pass_of(jobs: &[NewJob]) -> Pass<'_> {
        let asked: Vec<RequestRef<'_>> = jobs.iter().map(RequestRef::NewJob).collect();
        Pass::new(&asked, &Keys::new("dwell", 1), &[], &[])
    }

    fn unknown(set: &str) -> StoreError {
        StoreError::new(Class::Outdated, "redis: schedule: DWELL_BROKER")
            .answered("DWELL_BROKER", &format!("1 {set}"))
    }

    #[test]
    fn each_of_many_requests_for_one_id_names_the_set_of_its_job_and_few_others() {
        let jobs = pairs(1000);
        let mut pass = pass_of(&jobs);
        pass.begin();
        let waves = pass.waves();
        assert_eq!(waves.len(), 1000);
        for (n, groups) in waves.iter().enumerate().skip(1) {
            let sets = pass.sets_of(&groups[0]);
            assert!(sets.contains(&format!("=a{}", (n - 1) / 2)), "{n}: {sets:?}");
            assert!(sets.len() <= 3, "{n}: {sets:?}");
        }
        // The job is another caller's: it stays where it is.
        pass.refused(&waves[0][0], &unknown("=theirs"), &HashMap::new());
        for groups in &waves[1..] {
            pass.refused(&groups[0], &StoreError::held_back("schedule"), &HashMap::new());
        }
        pass.keep_what_was_not_run();
        assert_eq!((pass.open.len(), pass.has_progress), (1000, true));
        for groups in &waves {
            let sets = pass.sets_of(&groups[0]);
            assert!(sets.contains(&"=theirs".to_owned()) && sets.len() <= 4, "{sets:?}");
        }
    }

    #[test]
    fn rounds_that_answer_little_make_few_calls() {
        let jobs = pairs(1000);
        let mut pass = pass_of(&jobs);
        let (mut calls, mut rounds) = (0, 0);
        while !pass.open.is_empty() {
            pass.begin();
            let waves = pass.waves();
            calls += waves.len();
            rounds += 1;
            // Somebody else moves the job between the requests.
            pass.answer(waves[0][0].members[0], Answer::of(Verdict::Replaced));
            if let Some(groups) = waves.get(1) {
                pass.refused(&groups[0], &unknown(&format!("=m{rounds}")), &HashMap::new());
            }
            pass.keep_what_was_not_run();
            pass.pace(&waves);
            assert!(pass.has_progress);
        }
        assert_eq!(rounds, 1000, "each round answers one request");
        assert!(calls <= 1000 * (FREE_ROUNDS as usize + WAVES_PER_ANSWERED), "{calls} calls");
        assert!(pass.items.iter().all(|item| item.answer.is_ok()));
    }

    #[test]
    fn a_request_is_given_up_once_a_script_asks_for_what_its_call_named() {
        let jobs = pairs(2);
        let mut pass = pass_of(&jobs);
        for is_open in [true, false] {
            pass.begin();
            let waves = pass.waves();
            pass.refused(&waves[0][0], &unknown("=theirs"), &HashMap::new());
            pass.keep_what_was_not_run();
            assert_eq!((pass.has_progress, pass.open.contains(&0)), (true, is_open));
        }
        assert!(pass.items[0].answer.as_ref().is_err_and(StoreError::is_refusal));
        assert_eq!(pass.open, [1], "the next request for the id is still to send");
    }

    #[test]
    fn a_call_that_cannot_be_repaired_is_given_up_with_what_waits_behind_it() {
        let jobs = pairs(2);
        let mut pass = pass_of(&jobs);
        pass.begin();
        let waves = pass.waves();
        let lost = StoreError::new(Class::NoScript, "redis: schedule: NOSCRIPT");
        pass.refused(&waves[0][0], &lost, &HashMap::new());
        pass.refused(&waves[1][0], &StoreError::held_back("schedule"), &HashMap::new());
        pass.keep_what_was_not_run();
        assert_eq!(pass.open, [0, 1]);
        assert!(pass.lacks_script(&waves[0][0]) && !pass.lacks_script(&waves[1][0]));
        pass.give_up(&waves[0][0], &StoreError::new(Class::Timeout, "redis: SCRIPT LOAD"));
        pass.keep_what_was_not_run();
        assert!(pass.open.is_empty());
        for answer in pass.applied().answers {
            assert_eq!(answer.unwrap_err().class, Class::Timeout);
        }
    }

    #[test]
    fn a_schedule_that_cannot_be_read_fails_what_waits_behind_it_and_nothing_else() {
        let (put, other) = (new("a", "@hourly"), new("b", "@hourly"));
        let cancel = Act::new(Action::Cancel, "a".parse().unwrap());
        let asked = [
            RequestRef::NewSchedule(&put),
            RequestRef::Act(&cancel),
            RequestRef::NewSchedule(&other),
        ];
        for class in [Class::Io, Class::Moved] {
            let mut pass = Pass::new(&asked, &Keys::new("dwell", 1), &[], &[]);
            pass.begin();
            pass.fail_these(&[0], &StoreError::new(class, "redis: reading recurring schedules"));
            assert_eq!(pass.open, [2], "{class:?}");
            let answers = pass.applied().answers;
            assert!(answers[..2].iter().all(Result::is_err), "{answers:?}");
        }
    }

    #[test]
    fn no_caller_is_told_that_a_script_is_missing() {
        let jobs = pairs(1);
        let mut pass = pass_of(&jobs);
        pass.fail(&StoreError::new(Class::NoScript, "redis: schedule: NOSCRIPT"));
        assert_eq!(pass.applied().answers.remove(0).unwrap_err().class, Class::Unserved);
    }

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

    #[test]
    fn an_action_on_a_schedule_is_sent_as_a_change_of_it() {
        let cancel = Act::new(Action::Cancel, "a".parse().unwrap());
        let mut pass = Pass::new(
            &[RequestRef::Act(&cancel)],
            &Keys::new("dwell", 1),
            &[],
            &["main".to_owned()],
        );
        let schedule = StoreError::new(Class::Outdated, "redis: cancel: DWELL_SCHEDULE a")
            .answered("DWELL_SCHEDULE", "a");
        for is_open in [true, true, true, false] {
            pass.begin();
            let waves = pass.waves();
            assert_eq!(waves[0][0].script, Name::Cancel);
            pass.refused(&waves[0][0], &schedule, &HashMap::new());
            pass.keep_what_was_not_run();
            assert_eq!(pass.open.contains(&0), is_open);
            if is_open {
                assert!(pass.has_progress);
                assert_eq!(pass.waves()[0][0].script, Name::ChangeSchedule);
            }
            // No schedule has the id when it is read.
            pass.items[0].recurring.is_schedule = false;
        }
        assert_eq!(pass.items[0].answer.as_ref().unwrap_err().class, Class::Unserved);
    }

    #[test]
    fn a_change_is_planned_anew_as_long_as_the_state_changes() {
        let new = new("a", "@hourly");
        let asked = [RequestRef::NewSchedule(&new)];
        let mut pass = Pass::new(&asked, &Keys::new("dwell", 1), &[], &[]);
        let again = StoreError::new(Class::Outdated, "redis: change_schedule: DWELL_AGAIN a")
            .answered("DWELL_AGAIN", "a");
        for (state, is_open) in [("one", true), ("two", true), ("two", false)] {
            pass.begin();
            let plan = Plan { expected: Some(state.into()), ..put(&new, None, 0, [0; 8]) };
            pass.items[0].recurring.planned = Some(Box::new(Planned { plan, set: None }));
            let waves = pass.waves();
            pass.refused(&waves[0][0], &again, &HashMap::new());
            pass.keep_what_was_not_run();
            assert_eq!(pass.open.contains(&0), is_open, "{state}");
        }
        assert_eq!(pass.items[0].answer.as_ref().unwrap_err().class, Class::Unserved);
    }
}
