//! The places of targets that limit how many attempts are out: taken by a call beside the loop, for
//! the jobs that a claim brought, and given back when their attempts are over. A job without a place
//! goes back to due. A job that its consumer holds keeps its place until the end of the hold.
//!
//! - `line`: the jobs of one limit that wait in the store; `spares`: its places that are taken in
//!   advance; `limited`: all that is known of the limit.
//! - `calls`: the next call and its time; `work`: the calls to the store; `answers`: what follows
//!   from their answers.

mod answers;
mod calls;
mod limited;
mod line;
mod spares;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Allow, BrokerConfig, Destination};

pub(super) use self::answers::PlaceResults;
use self::limited::Limited;
use self::line::Parked;
pub(super) use self::work::PlaceWork;
use super::attempt::LastTurn;
use super::turns::MAX_TURN_WAIT;
use crate::clock::{self, Instant};
use crate::config::Broker;
use crate::job::Confirm;
use crate::policy::limit::Turn;
use crate::store::Store;
use crate::store::jobs::claim::ClaimedJob;
use crate::store::jobs::settle::ClaimToken;
use crate::store::limits::Limit;
use crate::store::places::LEASE_MARGIN;
use crate::store::places::place::Place;
use crate::store::record::Nonce;

/// The longest wait of a job for the answer of a call: jobs that wait hold room of the window.
const MAX_CALL_WAIT: Duration = Duration::from_millis(250);
/// The most jobs that wait for a call after one that failed or was late. Otherwise the window bounds
/// them: each call is answered soon, and a job that went back instead would be late although no limit
/// holds it.
const MAX_ASKING_WHILE_SLOW: usize = 512;
/// The most places that wait to be given back, of one limit: the others last until their leases end.
const MAX_BACK: usize = 10_000;

/// A claimed job by its claim and its position there.
pub(super) type Key = (Nonce, u8);

pub(super) fn key_of(token: &ClaimToken) -> Key {
    (token.lease.nonce, token.position)
}

/// A job that asks for a place.
#[derive(Debug)]
struct Asking {
    limit: usize,
    /// When the job was first ready to be published.
    since: Instant,
    /// The last time at which an attempt is of use to the job.
    last: Option<LastTurn>,
    lease: Box<ClaimedJob>,
}

/// The place of a job that this agent has.
enum Taken {
    /// Redis has the job's own place.
    Own(Place),
    /// The job has the spare place of this number.
    Spare(u32),
}

/// The places of the limited targets of one broker.
pub(super) struct Places {
    store: Arc<Store>,
    broker: Arc<str>,
    connector: BrokerConfig,
    /// The patterns of all limits: the first one that matches counts.
    patterns: Allow,
    /// The limit of each pattern: its place in `limits`. `None`: without `in_flight`.
    of_pattern: Vec<Option<usize>>,
    limits: Vec<Limited>,
    /// Names this agent among those who tell how many jobs wait.
    teller: String,
    /// The places of the jobs that this agent has, and their limits.
    taken: HashMap<Key, (usize, Taken)>,
    /// Jobs on their way back to the store, with their limits.
    leaving: HashMap<Key, (usize, Parked)>,
    /// Jobs for the next call.
    asking: Vec<Asking>,
    /// The jobs of the call without an answer, by limit. None of them is left once they waited too
    /// long.
    asked: Vec<Asking>,
    /// When the call without an answer began.
    begun: Option<Instant>,
    /// No call before: the last one failed.
    retry_at: Option<Instant>,
    /// When the last call was answered.
    answered: Instant,
    /// Jobs that are to be due at once.
    called: Vec<Parked>,
    /// The limits whose places are to be judged.
    to_judge: Vec<usize>,
    /// The log has that calls fail.
    is_told: bool,
    /// The last call was answered late.
    is_slow: bool,
}

impl Places {
    /// `None` if no limit of the broker says how many attempts may be out. `lease`: that of a claim.
    pub(super) fn new(
        store: &Arc<Store>,
        broker: &Arc<str>,
        settings: &Broker,
        lease: Duration,
    ) -> Option<Self> {
        let now = clock::now();
        let (mut patterns, mut of_pattern, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        for (pattern, limit) in settings.ordered_limits() {
            patterns.push(pattern.to_owned());
            of_pattern.push(limit.in_flight.map(|most| {
                let turns = limit.rate().map(|rate| Limit::of_targets(broker, pattern, rate));
                limits.push(Limited::new((broker, pattern), most, turns.as_ref(), lease, now));
                limits.len() - 1
            }));
        }
        if limits.is_empty() {
            return None;
        }
        Some(Places {
            store: store.clone(),
            broker: broker.clone(),
            connector: settings.connector.clone(),
            patterns: Allow::new(&*settings.connector, &patterns),
            of_pattern,
            limits,
            teller: format!("{:016x}", rand::random::<u64>()),
            taken: HashMap::new(),
            leaving: HashMap::new(),
            asking: Vec::new(),
            asked: Vec::new(),
            begun: None,
            retry_at: None,
            answered: now,
            called: Vec::new(),
            to_judge: Vec::new(),
            is_told: false,
            is_slow: false,
        })
    }

    /// The limit of which a publication of this job to this destination needs a place that the job
    /// does not have. Dead letters need none.
    pub(super) fn needed(&self, to: &Destination, lease: &ClaimedJob) -> Option<usize> {
        if lease.state.reason.is_some() || self.taken.contains_key(&key_of(&lease.token)) {
            return None;
        }
        self.of_pattern[self.patterns.find(&*self.connector, to)?]
    }

    /// A job that its consumer will hold needs its own place, whose name says whether the job is still
    /// held.
    fn can_have_spare(lease: &ClaimedJob) -> bool {
        lease.record.job.confirm == Confirm::Broker
    }

    /// Gives this job a spare place of the limit, if one is idle.
    pub(super) fn take_spare(&mut self, limit: usize, lease: &ClaimedJob, now: Instant) -> bool {
        let of = &mut self.limits[limit];
        if !Self::can_have_spare(lease) {
            return false;
        }
        // Jobs that wait come first.
        if of.full_since.is_some() || !of.line.is_empty(now) {
            return false;
        }
        let Some(number) = of.spares.give(lease.taken_us, lease.deadline) else { return false };
        if lease.state.turn != Turn::NONE {
            of.line.asked();
        }
        self.taken.insert(key_of(&lease.token), (limit, Taken::Spare(number)));
        true
    }

    /// Has the next call take a place for this job. Returns the job and its wait if it goes back to
    /// due at once.
    pub(super) fn ask(
        &mut self,
        limit: usize,
        since: Instant,
        last: Option<LastTurn>,
        lease: Box<ClaimedJob>,
        now: Instant,
    ) -> Option<(Box<ClaimedJob>, Duration)> {
        let asking = Asking { limit, since, last, lease };
        let of = &mut self.limits[limit];
        // Those that wait already come first. They have a turn in their states.
        let is_new = asking.lease.state.turn == Turn::NONE;
        let is_behind = is_new && of.full_since.is_some() && !of.line.is_empty(now);
        if !is_new {
            of.line.asked();
        }
        let is_full = of.full_until.is_some_and(|until| now < until);
        let is_no_call_soon = self.is_late(now) || self.retry_at.is_some_and(|at| now < at);
        if is_behind || is_full || is_no_call_soon || self.has_too_many() {
            return Some(self.park(asking, now));
        }
        self.asking.push(asking);
        None
    }

    /// A job goes back to due, at the end of the line of its limit.
    fn park(&mut self, asking: Asking, now: Instant) -> (Box<ClaimedJob>, Duration) {
        let Asking { limit, since, last, mut lease } = asking;
        let of = &mut self.limits[limit];
        let mut pause = of.line.next(now).min(MAX_TURN_WAIT);
        if let Some(last) = last {
            // It is judged as soon as it is over.
            let waited = now.saturating_duration_since(since).as_micros();
            let now_us = lease.taken_us.saturating_add(i64::try_from(waited).unwrap_or(i64::MAX));
            let left_us = last.at_ms.saturating_add(1).saturating_mul(1000).saturating_sub(now_us);
            pause = pause.min(clock::micros(left_us));
        }
        let (own, now_us) = (lease.state.turn, self.store.now_us());
        let has_turn = of.turns.is_some_and(|(mark, ttl)| own.is_good(mark, ttl, now_us / 1000));
        if !has_turn {
            let pause_us = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
            let turn = Turn::new(now_us.saturating_add(pause_us), now_us, of.mark);
            lease.state.turn = turn;
            lease.token.state.turn = turn;
        }
        let (bucket, id, turn) = (lease.bucket, lease.id.clone(), lease.token.state.turn);
        let parked = Parked { bucket, id, turn, at: now + pause };
        self.leaving.insert(key_of(&lease.token), (limit, parked));
        (lease, pause)
    }

    /// A job is back in the store. If it went for want of a place and one is free by now, it is due at
    /// once.
    pub(super) fn released(&mut self, token: &ClaimToken, now: Instant) {
        if let Some((limit, parked)) = self.leaving.remove(&key_of(token)) {
            let of = &mut self.limits[limit];
            of.line.add(parked);
            if of.free > 0 {
                self.called.extend(of.line.call(of.free, now));
            }
        }
    }

    /// The attempt of this job is over, or there was none.
    pub(super) fn ended(&mut self, key: Key) {
        if let Some((limit, taken)) = self.taken.remove(&key) {
            let of = &mut self.limits[limit];
            let place = match taken {
                Taken::Own(place) => Some(place),
                Taken::Spare(number) => of.spares.ended(number),
            };
            of.full_until = None;
            of.give_back(place);
        }
    }

    /// The consumer of this job holds it for so many ms, since now at the latest.
    pub(super) fn held(&mut self, key: Key, ttr_ms: u32, now: Instant) {
        match self.taken.remove(&key) {
            Some((limit, Taken::Own(place))) => {
                let until = now + Duration::from_millis(ttr_ms.into()) + LEASE_MARGIN;
                self.limits[limit].kept.push((place, until));
            }
            // No job that is held has one.
            Some((limit, Taken::Spare(number))) => {
                let of = &mut self.limits[limit];
                let place = of.spares.ended(number);
                of.give_back(place);
            }
            None => {}
        }
    }

    /// Whether no more jobs may wait for a call.
    fn has_too_many(&self) -> bool {
        (self.is_told || self.is_slow) && self.asking.len() >= MAX_ASKING_WHILE_SLOW
    }

    /// Whether the running call takes too long.
    fn is_late(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now >= begun + MAX_CALL_WAIT)
    }

    /// Whether no place is to be given back or kept.
    #[must_use]
    pub(super) fn is_idle(&self) -> bool {
        self.begun.is_none()
            && self.limits.iter().all(|of| of.back.is_empty() && of.kept.is_empty())
    }

    /// Takes the jobs that have waited too long for a call.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<(Box<ClaimedJob>, Duration)> {
        if !self.is_late(now) {
            return Vec::new();
        }
        self.is_slow = true;
        // Spare places last: the answer may still come.
        self.expect_no_free();
        let mut late = std::mem::take(&mut self.asked);
        late.append(&mut self.asking);
        late.into_iter().map(|asking| self.park(asking, now)).collect()
    }

    /// No call is answered: jobs that are called now would only ask in vain, and go back.
    fn expect_no_free(&mut self) {
        self.limits.iter_mut().for_each(|of| of.free = 0);
    }

    fn give_spares_back(&mut self) {
        for of in &mut self.limits {
            let spares = of.spares.close();
            of.back.extend(spares);
        }
    }

    /// Takes all jobs, and gives spare places back.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Box<ClaimedJob>> {
        self.give_spares_back();
        let mut jobs = std::mem::take(&mut self.asked);
        jobs.append(&mut self.asking);
        jobs.into_iter().map(|asking| asking.lease)
    }
}

/// The own place of a claimed job.
fn place_of(lease: &ClaimedJob) -> Place {
    Place::of_claim(lease.bucket, key_of(&lease.token), lease.state.attempt, &lease.id)
}

#[cfg(test)]
mod tests;
