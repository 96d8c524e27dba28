//! A random run: scripts and reference must give the same answer to each step.

use std::collections::{BTreeMap, BTreeSet};

use dwell::job::{Action, Conflict};

use super::op::Op;
use super::reference::{self, CLOCK, FAR, Fence, How, ModelAct, Reference, Request, STEPS, Taken};
use super::system::System;

/// Longer than any time here.
const FOREVER_MS: u64 = 1 << 50;
const PAST: [i64; 2] = [1_000_000_000_000, 1_000_000_000_001];

#[derive(Debug, Clone)]
pub(super) enum Message {
    Schedule(Request),
    Act(ModelAct),
}

/// A job in the hands of an instance.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) id: u8,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) life: u64,
    pub(super) published: bool,
    pub(super) rescued: bool,
    /// It was claimed before its time, which does not come: it is not published.
    pub(super) early: bool,
    pub(super) dying: bool,
    /// Its lease is as good as over: it publishes only while it is sure that nobody took the job
    /// over.
    pub(super) over: bool,
    /// Its consumer said `failed` before it was published: the next attempt may come first.
    pub(super) failed: bool,
}

#[derive(Default)]
pub(super) struct Instance {
    pub(super) held: Vec<Held>,
    pub(super) lost: Option<Fence>,
}

pub(super) struct Run {
    pub(super) system: System,
    pub(super) reference: Reference,
    pub(super) instances: [Instance; 2],
    pub(super) log: Vec<(Message, bool)>,
    /// Messages that were delivered: how many lives had begun by the first time.
    pub(super) delivered: BTreeMap<u64, u64>,
    pub(super) replica: (Vec<Option<Vec<u8>>>, Reference),
    pub(super) failed_over: bool,
    pub(super) fences: u64,
    /// Every claim's nonce, with the fence under which the reference knows the last lease of it.
    pub(super) claims: Vec<(Fence, Fence)>,
    /// Every settle.
    pub(super) settles: Vec<(u8, Fence, How, bool)>,
    /// The publications that the consumers saw: life to attempts.
    pub(super) published: BTreeMap<u64, Vec<u32>>,
    /// Lives of which `cancelled` was said.
    pub(super) cancelled: BTreeSet<u64>,
    /// The schedule that stands, by id: its life; until a word ends it.
    pub(super) standing: BTreeMap<u8, u64>,
}

impl Run {
    pub(super) fn new(url: &str) -> Run {
        let mut system = System::new(url);
        let replica = (system.snapshot(), Reference::default());
        Run {
            system,
            reference: Reference::default(),
            instances: Default::default(),
            log: Vec::new(),
            delivered: BTreeMap::new(),
            replica,
            failed_over: false,
            fences: 0,
            claims: Vec::new(),
            settles: Vec::new(),
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
                let told = self.system.schedule(number, request, new);
                assert_eq!((told.0.as_str(), told.1), expected);
                if self.reference.lives > lives {
                    self.standing.insert(request.id, self.reference.lives);
                }
            }
            Message::Act(action) => {
                let before = self.reference.jobs.get(&action.id).cloned();
                let again = self.reference.acts.contains_key(&number);
                let lives = *self.delivered.entry(number).or_insert(self.reference.lives);
                let read = before.as_ref().map_or(([0; 8], 0), |job| (job.generation, job.step));
                let wait = match (read.1 < STEPS, wait_is_over) {
                    (false, _) => "",
                    (true, true) => "+0",
                    (true, false) => "+100000000",
                };
                let expected = self.reference.act(number, action, new, wait_is_over);
                let told = self.system.act(number, action, new, read, wait);
                assert_eq!(told.0, expected.0, "{action:?}");
                if expected.1 == Some(CLOCK) {
                    assert!(told.1.is_some());
                } else {
                    assert_eq!(told.1, expected.1, "{action:?}");
                }
                self.reference.learn(action.id, number, told.1);
                // An action that names no schedule never changes one that is younger than its first
                // delivery.
                if let Some(younger) =
                    before.as_ref().filter(|job| job.life > lives && action.seen_due.is_none())
                {
                    assert_eq!(
                        self.reference.jobs.get(&action.id).map(|job| (job.life, &job.location)),
                        Some((younger.life, &younger.location))
                    );
                }
                if let Some(before) = before.filter(|_| !again) {
                    self.ended(action, &before, &told.0);
                }
            }
        }
        // The gate: answered writes are on the replica.
        self.replica = (self.system.snapshot(), self.reference.clone());
    }

    fn ended(&mut self, action: &ModelAct, before: &reference::Job, verdict: &str) {
        match (action.action, verdict) {
            (Action::Cancel, "cancelled") => {
                assert!(
                    !self.published.contains_key(&before.life),
                    "`cancelled`, and it was published before"
                );
                self.cancelled.insert(before.life);
                self.standing.remove(&action.id);
            }
            (Action::Cancel, _) | (Action::Finish, "finished") => {
                self.standing.remove(&action.id);
            }
            (Action::Fail, "failed") => {
                let held = self.instances.iter_mut().flat_map(|instance| &mut instance.held);
                held.filter(|held| held.life == before.life && !held.published)
                    .for_each(|held| held.failed = true);
            }
            (Action::Requeue, "requeued") => {
                self.standing.insert(action.id, self.reference.jobs[&action.id].life);
            }
            _ => {}
        }
    }

    fn take(
        &mut self,
        by: usize,
        ids: Taken,
        told: Vec<(u8, u32)>,
        fence: Fence,
        over: bool,
        rescued: bool,
    ) {
        let expected: Vec<(u8, u32)> =
            ids.iter().map(|(id, _)| (*id, self.reference.jobs[id].attempt)).collect();
        assert_eq!(told, expected);
        for (id, early) in ids {
            let job = &self.reference.jobs[&id];
            self.instances[by].held.push(Held {
                id,
                fence,
                attempt: job.attempt,
                life: job.life,
                published: rescued,
                rescued,
                early,
                dying: job.dying,
                over,
                failed: false,
            });
        }
    }

    fn claim(&mut self, by: usize, over: bool, early: bool) -> (Fence, Taken, Vec<(u8, u32)>) {
        if let Some(lost) = self.instances[by].lost.take() {
            assert_eq!(self.system.reclaim(lost), self.reference.reclaim(lost));
        }
        let fence = self.unique();
        self.claims.push((fence, fence));
        (fence, self.reference.claim(fence, over, early), self.system.claim(fence, over, early))
    }

    pub(super) fn step(&mut self, op: &Op) {
        match op {
            Op::Schedule { id, due, body, policy } => {
                let policy = match policy {
                    0..2 => Conflict::Replace,
                    2 => Conflict::Debounce { max_wait_ms: FOREVER_MS },
                    3 => Conflict::Keep,
                    _ => Conflict::Reject,
                };
                let request = Request {
                    id: *id,
                    due: *PAST.get(*due).unwrap_or(&FAR),
                    ripe: *due < 2,
                    body: *body,
                    policy,
                };
                self.log.push((Message::Schedule(request), false));
                self.deliver(self.log.len() - 1);
            }
            Op::Act { id, action, due, seen_due, seen_attempt, wait_is_over, is_call } => {
                let action = [
                    Action::Cancel,
                    Action::Reschedule,
                    Action::Fire,
                    Action::Finish,
                    Action::Fail,
                    Action::Requeue,
                ][*action];
                let job = self.reference.jobs.get(id);
                let action = ModelAct {
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
                    is_call: *is_call,
                };
                self.log.push((Message::Act(action), *wait_is_over));
                self.deliver(self.log.len() - 1);
            }
            Op::Redeliver { last } => {
                for at in self.log.len().saturating_sub(*last)..self.log.len() {
                    if !matches!(&self.log[at].0, Message::Act(action) if action.is_call) {
                        self.deliver(at);
                    }
                }
            }
            Op::Claim { by, over, early } => {
                let (fence, ids, told) = self.claim(*by, *over, *early);
                self.take(*by, ids, told, fence, *over, false);
            }
            Op::LoseClaim { by, early } => {
                let (fence, ..) = self.claim(*by, false, *early);
                self.instances[*by].lost = Some(fence);
            }
            Op::Publish { by, which } => self.publish(*by, *which),
            Op::Settle { by, which, how } => self.settle(*by, *which, *how),
            Op::Rescue { by, over } => {
                let fence = self.unique();
                let ids =
                    self.reference.rescue(fence, *over).into_iter().map(|id| (id, false)).collect();
                let told = self.system.rescue(fence, *over);
                self.take(*by, ids, told, fence, *over, true);
            }
            Op::RepeatClaim { which, early } if !self.claims.is_empty() => {
                let at = which.index(self.claims.len());
                let (nonce, fence) = self.claims[at];
                if !self.reference.has_lease(fence) {
                    // Its caller gives back what was claimed under the nonce. Without a caller,
                    // nobody knows of the lease: old tokens do not fit.
                    let is_lost =
                        self.instances.iter().any(|instance| instance.lost == Some(nonce));
                    let another = if is_lost { nonce } else { self.unique() };
                    self.claims[at].1 = another;
                    let ids = self.reference.claim(another, true, *early);
                    let expected: Vec<(u8, u32)> =
                        ids.iter().map(|(id, _)| (*id, self.reference.jobs[id].attempt)).collect();
                    assert_eq!(self.system.claim(nonce, true, *early), expected);
                } else {
                    let before = self.system.dump();
                    self.system.claim(nonce, true, *early);
                    assert_eq!(self.system.dump(), before);
                }
            }
            Op::RepeatSettle { which } if !self.settles.is_empty() => {
                let (id, fence, how, unpublished) = self.settles[which.index(self.settles.len())];
                assert_eq!(
                    self.reference.leased(id, fence).is_some(),
                    self.system.settle(id, fence, how, unpublished),
                    "{how:?}"
                );
                self.reference.settle(id, fence, how, unpublished);
            }
            Op::RepeatClaim { .. } | Op::RepeatSettle { .. } => {}
            Op::Crash { by } => self.instances[*by] = Instance::default(),
            Op::CatchUp => self.replica = (self.system.snapshot(), self.reference.clone()),
            Op::FailOver => {
                if !self.failed_over {
                    self.failed_over = true;
                    let lives = self.reference.lives;
                    self.system.fail_over(&self.replica.0);
                    self.reference = self.replica.1.clone();
                    self.reference.lives = lives;
                    self.reference.changed = self.system.sweep();
                }
            }
        }
        self.check();
    }
}
