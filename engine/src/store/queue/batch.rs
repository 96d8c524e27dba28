//! A batch of schedules and actions, sent in one pass of the durability gate. Each request has its
//! own answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{Cmd, Value};

use crate::clock::{self, Instant};
use crate::job::{Action, queue_of_set, set_of_queue};
use crate::request::Act;
use crate::store::answer::Items;
use crate::store::client::{RESPONSE_TIMEOUT, Redirects, RedisClient};
use crate::store::error::{Class, StoreError};
use crate::store::keys::Keys;
use crate::store::queue::Queue;
use crate::store::queue::act::{Step, act_arguments, script_of};
use crate::store::queue::schedule::{Answer, CALL_BYTES, CALL_JOBS, WakeUp, read_answer, schedule_arguments, schedule_deadline};
use crate::store::record::{self, Generation};
use crate::store::scripts::Name;

mod asked;

pub use asked::RequestRef;

/// How often a call is repeated because its job changed since it was read, or because its keys
/// lacked a broker.
const ATTEMPTS: usize = 16;
/// How long after its creation a call may be carried out. Less than the response timeout, so that
/// Redis never carries out a call that its caller has given up.
const LATE: Duration = Duration::from_secs(4);
/// How many jobs are read at a time for `fail`: a record may be large.
const READS: usize = 32;

/// The result of a batch.
#[derive(Debug, Default)]
pub struct Applied {
    /// One per request, in the order of the requests. An error that is unreadable concerns that
    /// request alone and repeats with every attempt. After any other error, send the request again,
    /// in the order of the batch.
    pub answers: Vec<Result<Answer, StoreError>>,
    /// The buckets whose readers must wake earlier than planned.
    pub wake_ups: Vec<WakeUp>,
}

/// One script call: either schedules of one bucket, bounded, with distinct ids; or one action.
pub(super) struct Group {
    name: Name,
    pub(super) bucket: u16,
    bytes: usize,
    /// Indices into the batch.
    pub(super) members: Vec<usize>,
}

/// A request as its script receives it, identical in every repeat.
struct Item<'a> {
    asked: RequestRef<'a>,
    bucket: u16,
    /// The record of a schedule; empty for an action.
    record: Vec<u8>,
    /// The generation of the schedule that an action begins.
    generation: Generation,
    answer: Result<Answer, StoreError>,
}

/// A batch in progress.
struct Pass<'a> {
    items: Vec<Item<'a>>,
    /// Indices of the requests still to send.
    open: Vec<usize>,
    wake_ups: Vec<WakeUp>,
    /// Per bucket: the earliest due time to which an action has moved a job.
    moved: BTreeMap<u16, i64>,
    /// The queues, by `=` and their names, that scripts found jobs of.
    met: BTreeSet<String>,
}

impl Queue {
    /// Applies requests; requests for one id in their order. `default_retry` is the retry array of
    /// jobs that have none.
    ///
    /// A repeated request may set `origin.check`: if it was applied before, it changes nothing and
    /// gets the same answer.
    pub async fn apply(&self, asked: &[RequestRef<'_>], default_retry: &[u64]) -> Applied {
        let mut pass = Pass::new(asked, &self.namespace.keys);
        let (mut loaded, mut attempts, mut moves) = (false, 0, Redirects::default());
        let queues: BTreeSet<&str> = asked.iter().filter_map(|asked| asked.queue()).collect();
        if let Err(error) = self.namespace.add_queues(queues.into_iter()).await {
            pass.fail(&error);
            return pass.applied(&[]);
        }
        while !pass.open.is_empty() {
            let steps = match self.steps(&pass, default_retry).await {
                Ok(steps) => steps,
                Err(error) => {
                    pass.fail(&error);
                    break;
                }
            };
            let waves = pass.waves();
            let brokers = self.namespace.brokers();
            let deadline_us = self.deadline_us();
            let call = |group: &Group| self.call_of(group, &pass, &steps, &brokers, deadline_us);
            let calls: Vec<Vec<Cmd>> = waves.iter().map(|groups| groups.iter().map(call).collect()).collect();
            let begun = clock::now();
            let link = self.namespace.gate.link();
            let doing = waves.first().and_then(|groups| groups.first()).map_or("", |group| group.name.as_str());
            let passed = self.namespace.gate.pass(link, doing, &calls).await;
            self.observe_groups(waves.iter().flatten(), &passed, begun);
            if passed.iter().any(|answer| matches!(answer, Err(error) if error.unanswered)) {
                let mut until = self.unanswered_until.lock();
                *until = Some(begun + RESPONSE_TIMEOUT).max(*until);
            }
            for (group, answer) in waves.iter().flatten().zip(passed) {
                self.read(group, answer, &mut pass);
            }
            pass.end_unreadable(&steps);
            pass.keep_what_was_not_run();
            let Some(error) = pass.first_error() else { break };
            let repaired = match error.class {
                // The other master may not know the scripts.
                Class::Moved => {
                    loaded = false;
                    Ok(moves.follow(&error).await)
                }
                Class::NoScript if !loaded => {
                    loaded = true;
                    self.load_groups(link, &waves, &calls).await.map(|()| true)
                }
                Class::Outdated if attempts < ATTEMPTS => {
                    attempts += 1;
                    self.learn_sets(&mut pass).await.map(|()| true)
                }
                _ => Ok(false),
            };
            match repaired {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    pass.fail(&error);
                    break;
                }
            }
        }
        pass.applied(&self.namespace.brokers())
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

    /// Reads what each `fail` needs of its job.
    async fn steps(&self, pass: &Pass<'_>, default_retry: &[u64]) -> Result<HashMap<usize, Step>, StoreError> {
        let fails: Vec<(usize, &Act)> = pass
            .open
            .iter()
            .filter_map(|at| match pass.items[*at].asked {
                RequestRef::Act(act) if act.action == Action::Fail => Some((*at, act)),
                _ => None,
            })
            .collect();
        let mut steps = HashMap::with_capacity(fails.len());
        for fails in fails.chunks(READS) {
            let read = try_join_all(fails.iter().map(|(_, act)| self.step_of(act, default_retry))).await?;
            steps.extend(fails.iter().map(|(at, _)| *at).zip(read));
        }
        Ok(steps)
    }

    /// Until when a call that is made now may be carried out, epoch µs by Redis's clock; `None` if
    /// the clock is unknown. A call can be stuck on its way until its caller gives it up. Then the
    /// same message, and later ones, may arrive by another way before that call continues.
    pub(super) fn deadline_us(&self) -> Option<i64> {
        self.namespace.has_seen_clock().then(|| self.namespace.now_us().saturating_add(i64::try_from(LATE.as_micros()).unwrap_or(i64::MAX)))
    }

    fn call_of(&self, group: &Group, pass: &Pass<'_>, steps: &HashMap<usize, Step>, brokers: &[String], deadline_us: Option<i64>) -> Cmd {
        let queues = group.members.iter().filter_map(|at| pass.items[*at].asked.queue()).map(set_of_queue);
        let queues: BTreeSet<String> = queues.chain(pass.met.iter().cloned()).collect();
        let sets: Vec<String> = brokers.iter().cloned().chain(queues).collect();
        let mut call = self.namespace.script_call(group.name, group.bucket, &sets);
        for at in &group.members {
            let item = &pass.items[*at];
            match item.asked {
                RequestRef::Schedule(schedule) => schedule_arguments(&mut call, schedule, &item.record),
                RequestRef::Act(act) => act_arguments(&mut call, act, item.generation, steps.get(at), deadline_us),
            }
        }
        if group.name == Name::Schedule {
            schedule_deadline(&mut call, deadline_us);
        }
        call
    }

    fn read(&self, group: &Group, answer: Result<Value, StoreError>, pass: &mut Pass<'_>) {
        let read = answer.and_then(|value| {
            let mut items = Items::new(group.name.as_str(), value)?;
            match group.name {
                Name::Schedule => self.read_scheduled(group, items),
                _ => Ok((vec![read_answer(&mut items)], Vec::new())),
            }
        });
        match read {
            Ok((answers, wake_ups)) => {
                group.members.iter().zip(answers).for_each(|(at, answer)| match answer {
                    Ok(answer) => pass.answer(*at, answer),
                    error => pass.items[*at].answer = error,
                });
                pass.wake_ups.extend(wake_ups);
            }
            Err(error) => {
                // The error brings Redis's clock, which may differ from the clock last seen.
                if let Some(us) = error.late() {
                    self.namespace.saw_clock(us);
                }
                group.members.iter().for_each(|at| pass.items[*at].answer = Err(error.clone()));
            }
        }
    }

    /// Scripts met brokers or queues that were missing in their keys. A queue always is, unless the
    /// request names it. A broker is new in the namespace, or the namespace lost it.
    async fn learn_sets(&self, pass: &mut Pass<'_>) -> Result<(), StoreError> {
        let errors = pass.open.iter().filter_map(|at| pass.items[*at].answer.as_ref().err());
        let met = errors.filter_map(|error| Some(error.message.rsplit_once("DWELL_BROKER")?.1.trim_matches(['"', ':', ' '])));
        let met: BTreeSet<String> = met.map(str::to_owned).collect();
        let known = self.namespace.sets();
        if met.iter().any(|set| !known.contains(set)) {
            self.namespace.rejoin().await?;
            met.iter().for_each(|set| self.namespace.learn(set));
        }
        pass.met.extend(met.into_iter().filter(|set| queue_of_set(set).is_some()));
        Ok(())
    }

    /// Loads the scripts of these calls on the masters that they address.
    async fn load_groups(&self, link: &RedisClient, waves: &[Vec<Group>], calls: &[Vec<Cmd>]) -> Result<(), StoreError> {
        for name in Name::ALL {
            let groups = waves.iter().flatten().zip(calls.iter().flatten());
            let of_name: Vec<&Cmd> = groups.filter(|(group, _)| group.name == name).map(|(_, call)| call).collect();
            if !of_name.is_empty() {
                link.load(&name.source(), of_name.into_iter()).await?;
            }
        }
        Ok(())
    }

    /// Reports the duration once per script, and each class of errors once.
    fn observe_groups<'a>(&self, groups: impl Iterator<Item = &'a Group>, passed: &[Result<Value, StoreError>], begun: Instant) {
        let took = clock::now().duration_since(begun);
        let (mut names, mut classes) = (Vec::new(), Vec::new());
        for (group, answer) in groups.zip(passed) {
            match answer {
                Ok(_) if !names.contains(&group.name) => names.push(group.name),
                Err(error) if !error.was_not_run() && !classes.contains(&error.class) => classes.push(error.class),
                _ => {}
            }
        }
        names.into_iter().for_each(|name| self.namespace.observer.called(name, took));
        classes.into_iter().for_each(|class| self.namespace.observer.failed(class));
    }
}

impl<'a> Pass<'a> {
    fn new(asked: &[RequestRef<'a>], keys: &Keys) -> Self {
        let unsent = || Err(StoreError::new(Class::Other, "redis: a request was not sent"));
        let item = |asked: &RequestRef<'a>| {
            let record = match asked {
                RequestRef::Schedule(schedule) => record::encode(schedule, schedule.first.unwrap_or_else(rand::random)),
                RequestRef::Act(_) => Vec::new(),
            };
            Item { asked: *asked, bucket: keys.bucket_of(asked.id()), record, generation: rand::random(), answer: unsent() }
        };
        Pass {
            items: asked.iter().map(item).collect(),
            open: (0..asked.len()).collect(),
            wake_ups: Vec::new(),
            moved: BTreeMap::new(),
            met: BTreeSet::new(),
        }
    }

    /// Puts the second request for an id into the second wave, and so on. A wave is sent only when
    /// no request of the wave before needs a repeat; otherwise a later request could be applied
    /// before an earlier one.
    fn waves(&self) -> Vec<Vec<Group>> {
        let mut waves: Vec<Vec<Group>> = Vec::new();
        let mut seen: HashMap<&str, usize> = HashMap::new();
        // By wave and bucket: the group of schedules with room for more.
        let mut unfilled: HashMap<(usize, u16), usize> = HashMap::new();
        for &at in &self.open {
            let Item { asked, bucket, record, .. } = &self.items[at];
            let times = seen.entry(asked.id()).or_default();
            let wave = *times;
            *times += 1;
            if waves.len() == wave {
                waves.push(Vec::new());
            }
            let groups = &mut waves[wave];
            let new = |name| Group { name, bucket: *bucket, bytes: 0, members: Vec::new() };
            let place = match asked {
                RequestRef::Act(act) => {
                    groups.push(new(script_of(act.action)));
                    groups.len() - 1
                }
                RequestRef::Schedule(_) => {
                    let unfilled = unfilled.entry((wave, *bucket)).or_insert(usize::MAX);
                    let has_room = |group: &Group| group.members.len() < CALL_JOBS && group.bytes + record.len() <= CALL_BYTES;
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

    fn answer(&mut self, at: usize, answer: Answer) {
        let item = &mut self.items[at];
        if let (RequestRef::Act(act), Some(due_ms)) = (item.asked, answer.due_ms)
            && matches!(act.action, Action::Reschedule | Action::Fire | Action::Requeue | Action::Fail)
        {
            self.moved.entry(item.bucket).and_modify(|first| *first = due_ms.min(*first)).or_insert(due_ms);
        }
        item.answer = Ok(answer);
    }

    fn fail(&mut self, error: &StoreError) {
        for at in &self.open {
            self.items[*at].answer = Err(error.clone());
        }
    }

    /// A `fail` whose job cannot be read has no wait; without this it would be repeated for ever.
    fn end_unreadable(&mut self, steps: &HashMap<usize, Step>) {
        for (at, why) in steps.iter().filter_map(|(at, step)| Some((*at, step.unreadable.as_ref()?))) {
            let answer = &mut self.items[at].answer;
            if matches!(answer, Err(error) if error.class == Class::Outdated && error.message.contains("DWELL_AGAIN")) {
                *answer = Err(why.clone());
            }
        }
    }

    fn keep_what_was_not_run(&mut self) {
        self.open.retain(|at| matches!(&self.items[*at].answer, Err(error) if error.was_not_run()));
    }

    fn first_error(&self) -> Option<StoreError> {
        self.open.iter().find_map(|at| self.items[*at].answer.as_ref().err()).cloned()
    }

    fn applied(mut self, brokers: &[String]) -> Applied {
        for (bucket, due_ms) in self.moved {
            let sets = brokers.iter().chain(&self.met);
            self.wake_ups.extend(sets.map(|set| WakeUp { bucket, broker: set.clone(), due_ms }));
        }
        Applied { answers: self.items.into_iter().map(|item| item.answer).collect(), wake_ups: self.wake_ups }
    }
}
