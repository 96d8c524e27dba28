//! A recurring schedule, explored by itself: two spawners make its occurrences, and the requests of
//! a client come between. Calls are lost, repeated and carried out later, consumers take jobs, and a
//! failover takes the last writes back.
//!
//! The plans are small ones of this file: `change_schedule.lua` compares states and never reads
//! them.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use dwell_store::store::keys::Keys;
use dwell_store::store::record;
use dwell_store::store::scripts::Name;

use crate::call::{Call, Set, Sets, eight, job, keys, request};
use crate::is_full;
use crate::lua::Scripts;
use crate::redis::{Moment, Store};
use crate::reply::Reply;

const MASTER: &str = "run_id:a\r\nmaster_replid2:0\r\n";
const ID: &str = "s";
/// The last nominal time, ticks; the first is 1.
const LAST: u8 = 3;
/// What is fired by hand has times from here on, ticks.
const FIRED: u8 = 100;
/// The most states of a scene, and of one in a full run (`is_full`).
const MAX_STATES: usize = 3_000;
const MAX_STATES_FULL: usize = 300_000;

/// A request of the client. A schedule has the generation of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Put(u8),
    Fire,
    Cancel,
}

struct Scene {
    name: &'static str,
    asks: &'static [Ask],
    left: Left,
}

/// What may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Left {
    /// Calls of spawners that are lost, or carried out later once more.
    late: u8,
    /// Answers to the client that are lost.
    lost: u8,
    consumed: u8,
    failovers: u8,
}

const NOTHING: Left = Left { late: 0, lost: 0, consumed: 0, failovers: 0 };

static SCENES: [Scene; 4] = [
    Scene { name: "late", asks: &[Ask::Put(1)], left: Left { late: 2, consumed: 2, ..NOTHING } },
    Scene {
        name: "fired",
        asks: &[Ask::Put(1), Ask::Fire, Ask::Fire],
        left: Left { lost: 1, ..NOTHING },
    },
    Scene {
        name: "put again",
        asks: &[Ask::Put(1), Ask::Fire, Ask::Cancel, Ask::Put(2)],
        left: Left { lost: 1, ..NOTHING },
    },
    Scene {
        name: "failover",
        asks: &[Ask::Put(1), Ask::Fire],
        left: Left { consumed: 1, failovers: 1, ..NOTHING },
    },
];

/// The state of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Progress {
    generation: u8,
    next: u8,
    made: u8,
    /// The time of the newest occurrence; 0: none was made.
    last: u8,
    revision: u8,
}

impl Progress {
    fn bytes(self) -> Vec<u8> {
        vec![b'S', self.generation, self.next, self.made, self.last, self.revision]
    }

    fn read(bytes: &[u8]) -> Progress {
        let [_, generation, next, made, last, revision] = *bytes else {
            panic!("the state is {bytes:?}")
        };
        Progress { generation, next, made, last, revision }
    }
}

/// A change of the schedule.
#[derive(Default)]
struct Change {
    read: Vec<u8>,
    state: Vec<u8>,
    record: Vec<u8>,
    next: Option<u8>,
    /// Generation and time.
    take: Option<(u8, u8)>,
    /// The number of the request, and its verdict.
    asked: Option<(u8, &'static str)>,
    make: Option<[Vec<u8>; 3]>,
}

impl Change {
    fn call(self) -> Call {
        let (take, generation) = match self.take {
            Some((generation, time)) => (id_of(time), generation_of(generation, time).to_vec()),
            None => (Vec::new(), Vec::new()),
        };
        let (fingerprint, verdict) = match self.asked {
            Some((number, verdict)) => (eight(number).to_vec(), verdict.as_bytes().to_vec()),
            None => (Vec::new(), Vec::new()),
        };
        let refuses = if self.asked.is_some() { "1" } else { "" };
        let mut words: Vec<Vec<u8>> = vec![
            Vec::new(),
            refuses.into(),
            ID.into(),
            self.read,
            self.state,
            self.record,
            self.next.map(ms_of).unwrap_or_default().into_bytes(),
            Vec::new(),
            take,
            generation,
            fingerprint,
            b"3".to_vec(),
            verdict,
            Vec::new(),
            u8::from(self.make.is_some()).to_string().into_bytes(),
        ];
        words.extend(self.make.into_iter().flatten());
        Call::of(Name::ChangeSchedule, words).on(Sets::Of(Set::Queue))
    }
}

fn ms_of(tick: u8) -> String {
    (u32::from(tick) * 1000).to_string()
}

fn id_of(time: u8) -> Vec<u8> {
    format!("{ID}@{:013}", u32::from(time) * 1000).into_bytes()
}

fn generation_of(generation: u8, time: u8) -> [u8; 8] {
    [0, 0, 0, 0, 0, 0, generation, time]
}

/// The record of a job whose body is a number.
fn record_of(generation: u8, time: u8, number: u8) -> Vec<u8> {
    let asked = request(0, number, 0, job(number, 1, Set::Queue, false));
    record::encode(&asked, generation_of(generation, time))
}

fn occurrence(generation: u8, time: u8, number: u8) -> [Vec<u8>; 3] {
    [id_of(time), record_of(generation, time, number), ms_of(time).into_bytes()]
}

/// By generation and time: the numbers of the occurrences that were made.
type OccurrenceNumbers = BTreeMap<(u8, u8), Vec<u8>>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Spawner {
    call: Option<Call>,
    /// Another job has the id of the next occurrence.
    is_taken: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Client {
    /// How many requests have their answers.
    answered: usize,
    call: Option<Call>,
    /// How many times the ids of other jobs have been met.
    taken: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    store: Store,
    now: u8,
    spawners: [Spawner; 2],
    client: Client,
    /// Calls that may still be carried out.
    late: Vec<Call>,
    made: OccurrenceNumbers,
    /// What the replica has, if it lags.
    replica: Option<(Store, OccurrenceNumbers)>,
    left: Left,
}

/// The worlds that may follow one, each by its step.
struct Steps<'a> {
    world: &'a World,
    next: Vec<(String, World)>,
}

impl Steps<'_> {
    fn add(&mut self, name: String, change: impl FnOnce(&mut World)) {
        let mut then = self.world.clone();
        change(&mut then);
        then.late.sort_by(|one, other| one.arguments.cmp(&other.arguments));
        self.next.push((name, then));
    }
}

struct Model {
    scripts: Scripts,
    keys: Keys,
}

impl Model {
    fn new(source: impl Fn(Name) -> String) -> Model {
        Model { scripts: Scripts::new(source), keys: keys() }
    }

    fn field(&self, store: &Store, key: &str, field: &[u8]) -> Option<Vec<u8>> {
        store.hash(key.as_bytes()).expect("a hash")?.get(field).cloned()
    }

    fn progress(&self, store: &Store) -> Option<Progress> {
        let bytes = self.field(store, self.keys.schedule_states(0), ID.as_bytes())?;
        Some(Progress::read(&bytes))
    }

    fn jobs(&self, store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
        store.hash(self.keys.jobs(0).as_bytes()).expect("a hash").cloned().unwrap_or_default()
    }

    /// The call of a spawner that reads the schedule now, if the schedule is due.
    fn spawn(&self, store: &Store, now: u8, is_taken: bool) -> Option<Call> {
        let was = self.progress(store).filter(|progress| progress.next <= now)?;
        let made = was.made + u8::from(!is_taken);
        let last = if is_taken { was.last } else { was.next };
        let then = Progress { next: was.next + 1, made, last, revision: was.revision + 1, ..was };
        let is_over = then.next > LAST;
        let change = Change {
            read: was.bytes(),
            state: if is_over { Vec::new() } else { then.bytes() },
            next: (!is_over).then_some(then.next),
            make: (!is_taken).then(|| occurrence(was.generation, was.next, made)),
            ..Change::default()
        };
        Some(change.call())
    }

    /// The call of a request that is planned now; `None`: there is nothing to change.
    fn ask(&self, world: &World, ask: Ask) -> Option<Call> {
        let number = u8::try_from(world.client.answered).expect("few requests") + 1;
        let was = self.progress(&world.store);
        let change = match (ask, was) {
            (Ask::Put(generation), None) => {
                let next = world.now.max(1);
                if next > LAST {
                    return None;
                }
                let first = Progress { generation, next, made: 0, last: 0, revision: 1 };
                let job = record_of(generation, 0, 0);
                let record = [&[1_u8][..], &[7; 16], &1_u32.to_be_bytes(), b"t", &job].concat();
                let asked = Some((number, "added"));
                Change {
                    state: first.bytes(),
                    record,
                    next: Some(next),
                    asked,
                    ..Change::default()
                }
            }
            (Ask::Put(_), Some(was)) => Change {
                read: was.bytes(),
                state: b"=".to_vec(),
                asked: Some((number, "duplicate")),
                ..Change::default()
            },
            (_, None) => return None,
            (Ask::Fire, Some(was)) => {
                let time = (FIRED + world.now).max(was.last + 1) + world.client.taken;
                let then =
                    Progress { made: was.made + 1, last: time, revision: was.revision + 1, ..was };
                Change {
                    read: was.bytes(),
                    state: then.bytes(),
                    next: Some(was.next),
                    asked: Some((number, "firing")),
                    make: Some(occurrence(was.generation, time, then.made)),
                    ..Change::default()
                }
            }
            (Ask::Cancel, Some(was)) => Change {
                read: was.bytes(),
                take: (was.last > 0).then_some((was.generation, was.last)),
                asked: Some((number, "cancelled")),
                ..Change::default()
            },
        };
        Some(change.call())
    }

    /// Carries a call out, and notes the jobs that are new.
    fn run(&self, world: &mut World, call: &Call) -> Reply {
        let before = self.jobs(&world.store);
        let moment = Moment { now_us: i64::from(world.now) * 1_000_000, info: MASTER };
        let (store, reply) = self.scripts.run(&world.store, &moment, call);
        for (id, record) in self.jobs(&store) {
            if before.get(&id) != Some(&record) {
                let number = *record.last().expect("a record has a body");
                world.made.entry((record[12], record[13])).or_default().push(number);
            }
        }
        world.store = store;
        reply
    }

    /// The worlds that may follow, each by its step.
    fn next(&self, world: &World, asks: &[Ask]) -> Vec<(String, World)> {
        let mut steps = Steps { world, next: Vec::new() };
        for (at, spawner) in world.spawners.iter().enumerate() {
            let Some(call) = &spawner.call else {
                if let Some(call) = self.spawn(&world.store, world.now, spawner.is_taken) {
                    steps.add(format!("spawner {at} reads"), |then| {
                        then.spawners[at].call = Some(call.clone());
                    });
                }
                continue;
            };
            steps.add(format!("spawner {at} calls"), |then| {
                let reply = self.run(then, call);
                let is_taken = reply.items().get(2).is_some_and(|word| word.text() == "exists");
                then.spawners[at] = Spawner { call: None, is_taken };
            });
            if world.left.late > 0 {
                for is_run in [false, true] {
                    steps.add(format!("spawner {at} calls, run: {is_run}, later too"), |then| {
                        if is_run {
                            self.run(then, call);
                        }
                        then.late.push(call.clone());
                        then.spawners[at] = Spawner::default();
                        then.left.late -= 1;
                    });
                }
            }
        }
        for (at, call) in world.late.iter().enumerate() {
            steps.add(format!("late call {at}"), |then| {
                then.late.remove(at);
                self.run(then, call);
            });
        }
        self.next_of_client(asks, &mut steps);
        if world.now <= LAST {
            steps.add("time passes".to_owned(), |then| then.now += 1);
        }
        for id in self.jobs(&world.store).into_keys().filter(|_| world.left.consumed > 0) {
            steps.add(format!("{} is done", id.escape_ascii()), |then| {
                let due = self.keys.due(0, Set::Queue.name()).into_bytes();
                let jobs = self.keys.jobs(0).as_bytes().to_vec();
                let moment = Moment { now_us: 0, info: MASTER };
                for words in
                    [[b"ZREM".to_vec(), due, id.clone()], [b"HDEL".to_vec(), jobs, id.clone()]]
                {
                    then.store.command(&moment, &words).expect("a command of the model");
                }
                then.left.consumed -= 1;
            });
        }
        if world.left.failovers > 0 {
            match &world.replica {
                None => steps.add("the replica lags".to_owned(), |then| {
                    then.replica = Some((then.store.clone(), then.made.clone()));
                }),
                Some((store, made)) => steps.add("failover".to_owned(), |then| {
                    (then.store, then.made) = (store.clone(), made.clone());
                    then.replica = None;
                    then.left.failovers -= 1;
                }),
            }
        }
        steps.next
    }

    fn next_of_client(&self, asks: &[Ask], steps: &mut Steps<'_>) {
        let world = steps.world;
        let Some(ask) = asks.get(world.client.answered) else { return };
        let answered = world.client.answered + 1;
        let Some(call) = &world.client.call else {
            match self.ask(world, *ask) {
                Some(call) => steps.add(format!("the client plans {ask:?}"), |then| {
                    then.client.call = Some(call.clone());
                }),
                None => steps.add(format!("{ask:?} changes nothing"), |then| {
                    then.client = Client { answered, ..Client::default() };
                }),
            }
            return;
        };
        steps.add(format!("the client calls {ask:?}"), |then| {
            let reply = self.run(then, call);
            then.client.call = None;
            match reply {
                Reply::Error(error) if error.starts_with("DWELL_AGAIN") => {}
                Reply::Error(error) if error.starts_with("DWELL_EXISTS") => then.client.taken += 1,
                Reply::Array(_) => then.client = Client { answered, ..Client::default() },
                other => panic!("the client is told {other:?}"),
            }
        });
        if world.left.lost > 0 {
            steps.add(format!("the answer to {ask:?} is lost"), |then| {
                self.run(then, call);
                then.client.call = None;
                then.left.lost -= 1;
            });
        }
    }

    /// The rule that this world breaks.
    fn broken(&self, world: &World, asks: &[Ask]) -> Option<String> {
        let World { store, made, now, client, .. } = world;
        let mut numbers: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        for ((generation, time), of_time) in made {
            if of_time.len() > 1 {
                return Some(format!("the occurrence of {time} was made again: {of_time:?}"));
            }
            numbers.entry(*generation).or_default().extend(of_time);
        }
        for (generation, numbers) in &numbers {
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq((1_u8..).take(sorted.len())) {
                return Some(format!("the numbers of {generation} have gaps: {numbers:?}"));
            }
        }
        let fires = asks.iter().take(client.answered + 1).filter(|ask| **ask == Ask::Fire).count();
        if made.keys().filter(|(_, time)| *time >= FIRED).count() > fires {
            return Some("a request fired twice".to_owned());
        }
        let progress = self.progress(store);
        let record = self.field(store, self.keys.schedules(0), ID.as_bytes());
        if progress.is_some() != record.is_some() {
            return Some(format!("{progress:?}, and the record {record:?}"));
        }
        let times = store.zset(self.keys.schedule_times(0).as_bytes()).expect("a sorted set");
        let next = times.and_then(|times| times.get(ID.as_bytes())).map(|score| score.0);
        if next != progress.map(|progress| i64::from(progress.next) * 1000) {
            return Some(format!("{progress:?}, and the next time {next:?}"));
        }
        let count = progress.map(|progress| numbers.get(&progress.generation).map_or(0, Vec::len));
        if count != progress.map(|progress| usize::from(progress.made)) {
            return Some(format!("{progress:?}, and {count:?} were made"));
        }
        // Whoever reads now makes what is due, or finds the id taken and goes on.
        for is_taken in [false, true] {
            let mut then = world.clone();
            let call = self.spawn(store, *now, is_taken)?;
            let reply = self.run(&mut then, &call);
            match reply.items().get(2).map(Reply::text) {
                Some("done") => return None,
                Some("exists") if !is_taken => {}
                _ => return Some(format!("a spawner is told {reply:?}")),
            }
        }
        None
    }

    /// Searches breadth first. Returns the number of states, and the first path that breaks a rule.
    fn explore(&self, scene: &Scene, most: usize) -> (usize, Option<String>) {
        let begin = World {
            store: Store::default(),
            now: 0,
            spawners: Default::default(),
            client: Client::default(),
            late: Vec::new(),
            made: OccurrenceNumbers::new(),
            replica: None,
            left: scene.left,
        };
        let begin = Rc::new(begin);
        let mut seen = HashSet::from([begin.clone()]);
        let mut states = vec![(begin, 0_usize, "begin".to_owned())];
        let mut at = 0;
        while at < states.len() && states.len() < most {
            let world = states[at].0.clone();
            for (step, then) in self.next(&world, scene.asks) {
                let then = Rc::new(then);
                if !seen.insert(then.clone()) {
                    continue;
                }
                let broken = self.broken(&then, scene.asks);
                states.push((then, at, step));
                if let Some(why) = broken {
                    return (states.len(), Some(format!("{why}\n{}", path(&states))));
                }
            }
            at += 1;
        }
        (states.len(), None)
    }
}

/// The steps to the last state.
fn path(states: &[(Rc<World>, usize, String)]) -> String {
    let (mut steps, mut at) = (Vec::new(), states.len() - 1);
    while at > 0 {
        steps.push(states[at].2.as_str());
        at = states[at].1;
    }
    steps.reverse();
    steps.join("\n")
}

#[test]
fn a_schedule_keeps_its_rules_on_every_path() {
    let model = Model::new(|name| name.source(1));
    for scene in &SCENES {
        let (states, broken) =
            model.explore(scene, if is_full() { MAX_STATES_FULL } else { MAX_STATES });
        println!("{}: {states} states", scene.name);
        assert!(states > 100, "{}: {states} states", scene.name);
        if let Some(why) = broken {
            panic!("{}: {why}", scene.name);
        }
    }
}

#[test]
fn without_any_comparison_a_schedule_breaks_a_rule() {
    for (scene, rule, without) in [
        ("late", "~= one.read then return 'stale' end", "== '-' then return 'stale' end"),
        ("fired", "(one.fingerprint == '' or is_lost(job.was))", "true"),
        ("fired", "if one.fingerprint ~= '' and has(one.bits, 1) then", "if false then"),
        (
            "put again",
            "generation_of(job.was.record) == generation_of(job.record)",
            "job.was.record ~= ''",
        ),
        ("put again", "call('ZREM', SCHEDULE_TIMES, id)\n    call('HDEL'", "call('HDEL'"),
    ] {
        let model = Model::new(|name| {
            let source = name.source(1);
            if name != Name::ChangeSchedule {
                return source;
            }
            assert!(source.contains(rule), "{rule}");
            source.replace(rule, without)
        });
        let scene = SCENES.iter().find(|known| known.name == scene).expect("a scene");
        let (states, broken) = model.explore(scene, 200_000);
        assert!(broken.is_some(), "{states} states without: {rule}");
    }
}
