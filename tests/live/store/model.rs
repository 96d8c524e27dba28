//! The property: random lives of one or two ids over two instances, with redelivery, lost answers, crashes, leases that run out and a failover.
//! The real scripts and a reference of maps must agree at every step; every call is repeated at once and must change nothing.

mod reference;
mod world;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use dwell::job::{Action, Conflict};
use dwell::store::record::{State, decode};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use reference::{CLOCK, Fence, How, Place, Reference, Request, STEPS, Word};
use world::{World, name_of};

use super::bed::shared;

const PAST: [i64; 2] = [1_000_000_000_000, 1_000_000_000_001];
const FAR: i64 = 4_000_000_000_000;

#[derive(Debug, Clone)]
enum Op {
    /// A new inbound message; in both, 2 is a time far ahead.
    Schedule {
        id: u8,
        due: usize,
        body: u8,
        policy: u8,
    },
    Act {
        id: u8,
        action: usize,
        due: usize,
        seen_due: u8,
        seen_attempt: u8,
        wait_is_over: bool,
    },
    /// The last so many inbound messages come again, in order.
    Redeliver {
        last: usize,
    },
    Claim {
        by: usize,
        over: bool,
    },
    /// A claim whose answer is lost: the instance's next claim takes it back first.
    LoseClaim {
        by: usize,
    },
    Publish {
        by: usize,
        which: prop::sample::Index,
    },
    Settle {
        by: usize,
        which: prop::sample::Index,
        how: How,
    },
    Rescue {
        by: usize,
        over: bool,
    },
    Crash {
        by: usize,
    },
    /// The replica has everything.
    CatchUp,
    FailOver,
}

fn op(ids: u8) -> impl Strategy<Value = Op> {
    let how = prop_oneof![
        4 => Just(How::Complete),
        1 => Just(How::Drop),
        2 => any::<bool>().prop_map(|over| How::Hold { over }),
        2 => any::<bool>().prop_map(|ripe| How::Release { ripe }),
        3 => any::<bool>().prop_map(|ripe| How::Retry { ripe }),
        1 => Just(How::Die),
        2 => Just(How::Bury),
    ];
    prop_oneof![
        5 => (0..ids, 0..3_usize, 0..2_u8, 0..5_u8).prop_map(|(id, due, body, policy)| Op::Schedule { id, due, body, policy }),
        5 => (0..ids, 0..6_usize, 0..3_usize, 0..4_u8, 0..4_u8, any::<bool>())
            .prop_map(|(id, action, due, seen_due, seen_attempt, wait_is_over)| Op::Act { id, action, due, seen_due, seen_attempt, wait_is_over }),
        2 => (1..6_usize).prop_map(|last| Op::Redeliver { last }),
        6 => (0..2_usize, prop::bool::weighted(0.3)).prop_map(|(by, over)| Op::Claim { by, over }),
        1 => (0..2_usize).prop_map(|by| Op::LoseClaim { by }),
        5 => (0..2_usize, any::<prop::sample::Index>()).prop_map(|(by, which)| Op::Publish { by, which }),
        7 => (0..2_usize, any::<prop::sample::Index>(), how).prop_map(|(by, which, how)| Op::Settle { by, which, how }),
        3 => (0..2_usize, any::<bool>()).prop_map(|(by, over)| Op::Rescue { by, over }),
        1 => (0..2_usize).prop_map(|by| Op::Crash { by }),
        1 => Just(Op::CatchUp),
        1 => Just(Op::FailOver),
    ]
}

#[derive(Debug, Clone)]
enum Message {
    Schedule(Request),
    Act(Word),
}

/// A job in the hands of an instance.
#[derive(Debug, Clone)]
struct Held {
    id: u8,
    fence: Fence,
    attempt: u32,
    life: u64,
    published: bool,
    rescued: bool,
    dying: bool,
    /// Its lease is as good as over: it publishes only while it is sure that nobody took the job over.
    over: bool,
}

#[derive(Default)]
struct Instance {
    held: Vec<Held>,
    lost: Option<Fence>,
}

struct Run {
    world: World,
    reference: Reference,
    instances: [Instance; 2],
    log: Vec<(Message, bool)>,
    replica: (Vec<Option<Vec<u8>>>, Reference),
    failed_over: bool,
    fences: u64,
    /// What the consumers saw: life to attempts.
    published: BTreeMap<u64, Vec<u32>>,
    /// Lives of which `cancelled` was said.
    cancelled: BTreeSet<u64>,
    /// The schedule that stands, by id: its life; until a word ends it.
    standing: BTreeMap<u8, u64>,
}

impl Run {
    fn new(url: &str) -> Run {
        let mut world = World::new(url);
        let replica = (world.snapshot(), Reference::default());
        Run {
            world,
            reference: Reference::default(),
            instances: Default::default(),
            log: Vec::new(),
            replica,
            failed_over: false,
            fences: 0,
            published: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            standing: BTreeMap::new(),
        }
    }

    fn unique(&mut self) -> [u8; 8] {
        self.fences += 1;
        (self.fences | 1 << 63).to_be_bytes()
    }

    /// Delivers the message of this number, for the first time or again.
    fn deliver(&mut self, at: usize) {
        let (message, wait_is_over) = self.log[at].clone();
        // Fingerprints of 0 would look like no fingerprint in a failing test's output.
        let number = at as u64 + 1;
        let new = self.unique();
        match &message {
            Message::Schedule(request) => {
                let lives = self.reference.lives;
                let expected = self.reference.schedule(number, request, new);
                let told = self.world.schedule(number, request, new);
                assert_eq!((told.0.as_str(), told.1), expected);
                if self.reference.lives > lives {
                    self.standing.insert(request.id, self.reference.lives);
                }
            }
            Message::Act(word) => {
                let before = self.reference.jobs.get(&word.id).cloned();
                let again = self.reference.acts.contains_key(&number);
                let read = before.as_ref().map_or(([0; 8], 0), |job| (job.generation, job.step));
                let wait = match (read.1 < STEPS, wait_is_over) {
                    (false, _) => "",
                    (true, true) => "0",
                    (true, false) => "100000000",
                };
                let expected = self.reference.act(number, word, new, wait_is_over);
                let told = self.world.act(number, word, new, read, wait);
                assert_eq!(told.0, expected.0, "{word:?}");
                if expected.1 == Some(CLOCK) {
                    assert!(told.1.is_some());
                } else {
                    assert_eq!(told.1, expected.1, "{word:?}");
                }
                self.reference.learn(word.id, number, told.1);
                if let Some(before) = before.filter(|_| !again) {
                    self.ended(word, &before, &told.0);
                }
            }
        }
        // The gate: what was answered is on the replica.
        self.replica = (self.world.snapshot(), self.reference.clone());
    }

    fn ended(&mut self, word: &Word, before: &reference::Job, verdict: &str) {
        match (word.action, verdict) {
            (Action::Cancel, "cancelled") => {
                assert!(!self.published.contains_key(&before.life), "`cancelled`, and it was published before");
                self.cancelled.insert(before.life);
                self.standing.remove(&word.id);
            }
            (Action::Cancel, _) | (Action::Finish, "finished") => {
                self.standing.remove(&word.id);
            }
            (Action::Requeue, "requeued") => {
                self.standing.insert(word.id, self.reference.jobs[&word.id].life);
            }
            _ => {}
        }
    }

    fn take(&mut self, by: usize, ids: Vec<u8>, told: Vec<(u8, u32)>, fence: Fence, over: bool, rescued: bool) {
        let expected: Vec<(u8, u32)> = ids.iter().map(|id| (*id, self.reference.jobs[id].attempt)).collect();
        assert_eq!(told, expected);
        for id in ids {
            let job = &self.reference.jobs[&id];
            self.instances[by].held.push(Held {
                id,
                fence,
                attempt: job.attempt,
                life: job.life,
                published: rescued,
                rescued,
                dying: job.dying,
                over,
            });
        }
    }

    fn claim(&mut self, by: usize, over: bool) -> (Fence, Vec<u8>, Vec<(u8, u32)>) {
        if let Some(lost) = self.instances[by].lost.take() {
            let expected = self.reference.reclaim(lost);
            assert_eq!(self.world.reclaim(lost), i64::try_from(expected).unwrap());
        }
        let fence = self.unique();
        (fence, self.reference.claim(fence, over), self.world.claim(fence, over))
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Schedule { id, due, body, policy } => {
                let policy = match policy {
                    0..3 => Conflict::Replace,
                    3 => Conflict::Keep,
                    _ => Conflict::Reject,
                };
                let request = Request { id: *id, due: *PAST.get(*due).unwrap_or(&FAR), ripe: *due < 2, body: *body, policy };
                self.log.push((Message::Schedule(request), false));
                self.deliver(self.log.len() - 1);
            }
            Op::Act { id, action, due, seen_due, seen_attempt, wait_is_over } => {
                let action = [Action::Cancel, Action::Reschedule, Action::Fire, Action::Finish, Action::Fail, Action::Requeue][*action];
                let job = self.reference.jobs.get(id);
                let word = Word {
                    id: *id,
                    action,
                    due: *PAST.get(*due).unwrap_or(&FAR),
                    ripe: *due < 2,
                    seen_due: match seen_due {
                        0..2 => job.map(|job| job.due),
                        2 => Some(12_345),
                        _ => None,
                    },
                    seen_attempt: match seen_attempt {
                        0..2 => job.map(|job| job.attempt),
                        2 => Some(77),
                        _ => None,
                    },
                };
                self.log.push((Message::Act(word), *wait_is_over));
                self.deliver(self.log.len() - 1);
            }
            Op::Redeliver { last } => {
                for at in self.log.len().saturating_sub(*last)..self.log.len() {
                    self.deliver(at);
                }
            }
            Op::Claim { by, over } => {
                let (fence, ids, told) = self.claim(*by, *over);
                self.take(*by, ids, told, fence, *over, false);
            }
            Op::LoseClaim { by } => {
                let (fence, ..) = self.claim(*by, false);
                self.instances[*by].lost = Some(fence);
            }
            Op::Publish { by, which } => self.publish(*by, *which),
            Op::Settle { by, which, how } => self.settle(*by, *which, *how),
            Op::Rescue { by, over } => {
                let fence = self.unique();
                let ids = self.reference.rescue(fence, *over);
                let told = self.world.rescue(fence, *over);
                self.take(*by, ids, told, fence, *over, true);
            }
            Op::Crash { by } => self.instances[*by] = Instance::default(),
            Op::CatchUp => self.replica = (self.world.snapshot(), self.reference.clone()),
            Op::FailOver => {
                if !self.failed_over {
                    self.failed_over = true;
                    let lives = self.reference.lives;
                    self.world.fail_over(&self.replica.0);
                    self.reference = self.replica.1.clone();
                    self.reference.lives = lives;
                    self.reference.changed = self.world.sweep();
                }
            }
        }
        self.check();
    }

    fn publish(&mut self, by: usize, which: prop::sample::Index) {
        let ready: Vec<usize> = (0..self.instances[by].held.len())
            .filter(|at| {
                let held = &self.instances[by].held[*at];
                !held.published && !held.dying && (!held.over || self.reference.clone().leased(held.id, held.fence).is_some())
            })
            .collect();
        if ready.is_empty() {
            return;
        }
        let held = &mut self.instances[by].held[*which.get(&ready)];
        held.published = true;
        assert!(!self.cancelled.contains(&held.life), "`cancelled`, and it is published after");
        let attempts = self.published.entry(held.life).or_default();
        assert!(self.failed_over || attempts.iter().all(|attempt| *attempt < held.attempt), "attempt {} after {attempts:?}", held.attempt);
        attempts.push(held.attempt);
    }

    /// Ends a lease as its owner may: by what it published.
    fn settle(&mut self, by: usize, which: prop::sample::Index, how: How) {
        if self.instances[by].held.is_empty() {
            return;
        }
        let at = which.index(self.instances[by].held.len());
        let held = self.instances[by].held[at].clone();
        let how = match how {
            // Who took a job over does not know of a publish; what was not published is not confirmed.
            How::Complete | How::Hold { .. } | How::Drop if held.rescued => How::Release { ripe: true },
            How::Complete | How::Hold { .. } if !held.published => How::Release { ripe: true },
            How::Complete | How::Hold { .. } | How::Retry { .. } | How::Die | How::Drop if held.dying => How::Bury,
            How::Drop if held.published => How::Complete,
            how => how,
        };
        let unpublished = !held.published;
        let expected = self.reference.settle(held.id, held.fence, how, unpublished);
        assert_eq!(self.world.settle(held.id, held.fence, how, unpublished), expected, "{how:?}");
        // A drop is an end that was asked for, and is told by a metric.
        if expected && how == How::Drop {
            self.standing.remove(&held.id);
        }
        self.instances[by].held.remove(at);
    }

    /// The scripts and the reference hold the same, and nothing is lost.
    fn check(&mut self) {
        let dump = self.world.dump();
        let holds = |table: &str, id: u8| dump[table].get(name_of(id).as_bytes());
        for id in 0..2 {
            let places: Vec<&str> = ["due", "run", "dead"].into_iter().filter(|place| holds(place, id).is_some()).collect();
            let Some(job) = self.reference.jobs.get(&id) else {
                assert!(places.is_empty() && holds("jobs", id).is_none() && holds("state", id).is_none(), "{id} in {places:?}");
                if let Some(life) = self.standing.get(&id) {
                    assert!(self.published.contains_key(life), "{id} is neither here nor published, and nobody ended it");
                }
                continue;
            };
            let expected = match job.place {
                Place::Due { .. } => "due",
                Place::Run { .. } => "run",
                Place::Dead => "dead",
            };
            assert_eq!(places, [expected], "{job:?}");
            let record = decode(holds("jobs", id).unwrap().clone().into()).unwrap();
            assert_eq!((record.fingerprint, record.job.body.as_ref()), (job.message.to_be_bytes(), &[job.body][..]));
            let Some(state) = holds("state", id) else {
                assert_eq!((expected, job.attempt, job.step), ("due", 0, 0));
                continue;
            };
            let state = State::decode(state).unwrap();
            assert_eq!(
                (state.attempt, state.step, state.crashes, state.due_ms, state.held, state.taken_over, state.reason.is_some()),
                (job.attempt, job.step, job.crashes, job.due, job.held, job.taken_over, job.dying),
                "{job:?}"
            );
            assert_eq!((state.generation, state.fence), (job.generation, job.fence));
        }
        assert_eq!(dump["acts"].len(), self.reference.acts.len());
        assert_eq!(dump["gone"].len(), self.reference.gone.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/live/store/model.regressions"))),
        ..ProptestConfig::default()
    })]
    #[test]
    fn scripts_and_reference_agree_whatever_happens(ops in (1..=2_u8).prop_flat_map(|ids| proptest::collection::vec(op(ids), 1..60))) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(shared());
        World::load(&server.url());
        let mut run = Run::new(&server.url());
        for op in &ops {
            run.step(op);
        }
    }
}
