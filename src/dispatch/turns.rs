//! The turns of limited targets: taken by a call beside the loop, for the jobs that a claim
//! brought. A job whose turn lies ahead goes back to due for its turn. The turn stands in its state,
//! so that the job takes no other one at its next claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_connectors::{Allow, BrokerConfig, Destination};

use super::attempt::LastTurn;
use crate::clock::{self, Instant};
use crate::config::Broker;
use crate::policy::limit::Turn;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::jobs::claim::ClaimedJob;
use crate::store::limits::{AskedTurns, Limit, TakenTurns};

/// The longest wait of a job for the answer of a call: jobs that wait hold places of the window.
const MAX_CALL_WAIT: Duration = Duration::from_millis(250);
/// The most jobs that wait for a call after one that failed or was late. Otherwise the window bounds
/// them: each call is answered soon, and a job that went back instead would be late although no limit
/// holds it.
const MAX_ASKING_WHILE_SLOW: usize = 512;
/// How long a job goes back to due for that got no turn.
pub(super) const NO_TURN_PAUSE: Duration = Duration::from_secs(1);

/// The longest time for which a job goes back to due for its turn: after it the job sees whether its
/// limit is still the same, so that a limit that was too low does not hold jobs back for ever.
pub(super) const MAX_TURN_WAIT: Duration = Duration::from_secs(3600);

/// Whether a job may be published now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnState {
    /// No limit applies, or the job has its turn.
    Free,
    /// The turn comes then.
    At(Instant),
    /// The job needs a turn of this limit.
    Needed(usize),
    /// All turns within this time are taken, and later ones are of no use to the job: it expires
    /// before, or is too late.
    TooFar { within: Duration, expires: bool },
}

/// A job that waits for a turn.
#[derive(Debug)]
struct Asking {
    limit: usize,
    /// When the job was first ready to be published.
    since: Instant,
    /// The last turn that is of use to the job.
    last: Option<LastTurn>,
    lease: Box<ClaimedJob>,
}

impl Asking {
    /// How long the job may wait for its last turn, µs, by the clock of its own master.
    fn wait_us(&self, now: Instant) -> Option<i64> {
        let last_us = self.last?.at_ms.saturating_mul(1000);
        let waited = now.saturating_duration_since(self.since).as_micros();
        let waited_us = i64::try_from(waited).unwrap_or(i64::MAX);
        Some(last_us.saturating_sub(self.lease.taken_us.saturating_add(waited_us)).max(0))
    }
}

/// A call that was answered.
pub(super) struct TurnAnswer {
    taken: Result<TakenTurns, StoreError>,
}

/// Jobs, and since when each is ready to be published.
pub(super) type ReadyJobs = Vec<(Instant, Box<ClaimedJob>)>;
/// The same, and the turn of each.
pub(super) type JobsWithTurns = Vec<(Instant, Box<ClaimedJob>, TurnState)>;

/// The limited targets of one broker.
pub(super) struct Turns {
    store: Arc<Store>,
    broker: Arc<str>,
    connector: BrokerConfig,
    /// The patterns: the first one that matches counts.
    patterns: Allow,
    /// The limit of each pattern: its place in `limits`. `None`: without a rate.
    of_pattern: Vec<Option<usize>>,
    limits: Vec<Limit>,
    /// Jobs for the next call.
    asking: Vec<Asking>,
    /// The jobs of the call without an answer, by limit. None of them is left once they waited too
    /// long.
    asked: Vec<Asking>,
    /// When the call without an answer began.
    begun: Option<Instant>,
    /// No job waits any more for the answer of that call.
    is_given_up: Arc<AtomicBool>,
    /// The time of the last answer by the clock of the limits, µs, and here. Turns are times of that
    /// clock; the masters of a cluster need not agree.
    clock: Option<(i64, Instant)>,
    /// The log has that calls fail.
    is_told: bool,
    /// The last call was answered late.
    is_slow: bool,
}

impl Turns {
    /// `None` if no target of the broker has a rate.
    pub(super) fn new(store: &Arc<Store>, broker: &Arc<str>, settings: &Broker) -> Option<Self> {
        let (mut patterns, mut of_pattern, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        for (pattern, limit) in settings.ordered_limits() {
            patterns.push(pattern.to_owned());
            of_pattern.push(limit.rate().map(|rate| {
                limits.push(Limit::of_targets(broker, pattern, rate));
                limits.len() - 1
            }));
        }
        if limits.is_empty() {
            return None;
        }
        Some(Turns {
            store: store.clone(),
            broker: broker.clone(),
            connector: settings.connector.clone(),
            patterns: Allow::new(&*settings.connector, &patterns),
            of_pattern,
            limits,
            asking: Vec::new(),
            asked: Vec::new(),
            begun: None,
            is_given_up: Arc::default(),
            clock: None,
            is_told: false,
            is_slow: false,
        })
    }

    /// Whether the job may be published to this destination now. Dead letters need no turn.
    pub(super) fn state(&self, to: &Destination, lease: &ClaimedJob, now: Instant) -> TurnState {
        if lease.state.reason.is_some() {
            return TurnState::Free;
        }
        let pattern = self.patterns.find(&*self.connector, to);
        let Some(limit) = pattern.and_then(|pattern| self.of_pattern[pattern]) else {
            return TurnState::Free;
        };
        let (turn, now_us) = (lease.state.turn, self.now_us(now));
        let (mark, rate) = (self.limits[limit].mark(), self.limits[limit].rate());
        if !turn.is_good(mark, rate.turn_ttl_ms(), now_us / 1000) {
            return TurnState::Needed(limit);
        }
        let ahead_us = turn.at_ms().saturating_mul(1000).saturating_sub(now_us);
        if ahead_us > 0 { TurnState::At(now + clock::micros(ahead_us)) } else { TurnState::Free }
    }

    /// The clock of the limits, epoch µs.
    fn now_us(&self, now: Instant) -> i64 {
        match self.clock {
            Some((us, seen)) if self.store.is_cluster() => {
                let elapsed = now.saturating_duration_since(seen).as_micros();
                us.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
            }
            _ => self.store.now_us(),
        }
    }

    /// Has the next call take a turn for this job, if there is one by the last that is of use. Gives
    /// the job back if no answer is to be expected soon.
    pub(super) fn ask(
        &mut self,
        limit: usize,
        since: Instant,
        last: Option<LastTurn>,
        lease: Box<ClaimedJob>,
        now: Instant,
    ) -> Option<Box<ClaimedJob>> {
        if self.is_late(now) || self.has_too_many() {
            return Some(lease);
        }
        self.asking.push(Asking { limit, since, last, lease });
        None
    }

    /// Whether no more jobs may wait for a call.
    fn has_too_many(&self) -> bool {
        (self.is_told || self.is_slow) && self.asking.len() >= MAX_ASKING_WHILE_SLOW
    }

    /// Whether the running call takes too long.
    fn is_late(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now >= begun + MAX_CALL_WAIT)
    }

    /// The next call, not running yet. One runs at a time.
    pub(super) fn next_call(
        &mut self,
        now: Instant,
    ) -> Option<impl Future<Output = TurnAnswer> + use<>> {
        if self.asking.is_empty() || self.begun.is_some() {
            return None;
        }
        self.begun = Some(now);
        self.asked = std::mem::take(&mut self.asking);
        // The jobs of a limit keep their order.
        self.asked.sort_by_key(|asking| asking.limit);
        let call: Vec<AskedTurns> = self
            .asked
            .chunk_by(|one, other| one.limit == other.limit)
            .map(|jobs| AskedTurns {
                limit: self.limits[jobs[0].limit].clone(),
                waits_us: jobs.iter().map(|job| job.wait_us(now)).collect(),
            })
            .collect();
        let (store, is_given_up) = (self.store.clone(), Arc::<AtomicBool>::default());
        self.is_given_up = is_given_up.clone();
        Some(async move {
            let taken = store.take_turns(&call).await;
            if let Ok(taken) = &taken
                && is_given_up.load(Ordering::Relaxed)
                && let Err(error) = store.untake_turns(&call, taken).await
            {
                tracing::debug!(%error, "turns without jobs were not given back");
            }
            TurnAnswer { taken }
        })
    }

    /// The call was answered: its jobs with their turns, or without them. A turn counts from the
    /// answer: nobody judges it by another clock, and has its job ask again.
    pub(super) fn answered(
        &mut self,
        answer: TurnAnswer,
        now: Instant,
    ) -> Result<JobsWithTurns, ReadyJobs> {
        self.is_slow = self.is_late(now);
        self.begun = None;
        let jobs = std::mem::take(&mut self.asked);
        let TakenTurns { now_us, at_us, .. } = match answer.taken {
            Ok(taken) => taken,
            Err(error) => {
                if !self.is_told && !error.is_told() {
                    let (broker, hint) = (&*self.broker, error.hint.as_str());
                    tracing::warn!(broker, %error, hint, "turns of limited targets could not be taken, their jobs wait");
                }
                self.is_told = true;
                return Err(ready(jobs));
            }
        };
        self.is_told = false;
        self.clock = Some((now_us, now));
        let with_turn = |(job, at_us): (Asking, Option<i64>)| {
            let wait_us = job.wait_us(now);
            let Asking { limit, since, last, mut lease } = job;
            let turn = at_us
                .map_or(Turn::NONE, |at_us| Turn::new(at_us, now_us, self.limits[limit].mark()));
            lease.state.turn = turn;
            lease.token.state.turn = turn;
            let ahead_us = turn.at_ms().saturating_mul(1000).saturating_sub(now_us);
            let state = match (at_us, last, wait_us) {
                (None, Some(last), Some(wait_us)) => TurnState::TooFar {
                    within: clock::micros(wait_us.saturating_add(1000)),
                    expires: last.expires,
                },
                _ if ahead_us > 0 => TurnState::At(now + clock::micros(ahead_us)),
                _ => TurnState::Free,
            };
            (since, lease, state)
        };
        Ok(jobs.into_iter().zip(at_us).map(with_turn).collect())
    }

    /// When the jobs of the running call have waited too long.
    #[must_use]
    pub(super) fn next_at(&self) -> Option<Instant> {
        let has_jobs = !self.asked.is_empty() || !self.asking.is_empty();
        self.begun.filter(|_| has_jobs).map(|begun| begun + MAX_CALL_WAIT)
    }

    /// Takes the jobs that have waited too long for a call.
    pub(super) fn take_late(&mut self, now: Instant) -> ReadyJobs {
        if !self.is_late(now) {
            return ReadyJobs::new();
        }
        self.is_slow = true;
        self.drain()
    }

    /// Takes all jobs. The turns of the running call go back, if no other instance took turns behind
    /// them.
    pub(super) fn drain(&mut self) -> ReadyJobs {
        self.is_given_up.store(true, Ordering::Relaxed);
        let mut jobs = ready(std::mem::take(&mut self.asked));
        jobs.extend(ready(std::mem::take(&mut self.asking)));
        jobs
    }
}

fn ready(jobs: Vec<Asking>) -> ReadyJobs {
    jobs.into_iter().map(|Asking { since, lease, .. }| (since, lease)).collect()
}
