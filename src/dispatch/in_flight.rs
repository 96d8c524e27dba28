//! The jobs between their claim and their settlement: waiting ones, and published ones.

mod limited;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Outcome, Token};

use super::Parts;
use super::attempt::{AttemptRules, Attempts, Unconfirmed, give_back};
use super::destinations::{Admission, Destinations};
use super::outcome::Outcomes;
use super::places::{Places, key_of};
use super::settle_queue::Settlement;
use super::settler::Settler;
use super::turns::{TurnState, Turns};
use super::waiting::Waiting;
use super::window::Window;
use crate::clock::{self, Instant};
use crate::events::{JobEvent, Observer};
use crate::policy::UNREADABLE;
use crate::policy::attempt::ABANDONED;
use crate::publisher::{PublicationRequest, Publisher};
use crate::store::due_set::DueSet;
use crate::store::jobs::claim::{Claim, ClaimedJob};
use crate::store::jobs::settle::Bury;
use crate::telemetry::Events;

/// The jobs of one broker that are claimed and not settled.
pub(super) struct InFlight {
    broker: Arc<str>,
    publisher: Publisher,
    events: Events,
    attempts: Attempts,
    outcomes: Outcomes,
    destinations: Destinations,
    /// `None` if no target has a rate.
    turns: Option<Turns>,
    /// `None` if no target limits how many attempts are out.
    places: Option<Places>,
    window: Window,
    waiting: Waiting,
    unconfirmed: HashMap<Token, Unconfirmed>,
}

impl InFlight {
    pub(super) fn new(parts: &Parts, broker: Arc<str>) -> Self {
        let Parts { store, settings, publisher, rules, dead, events, traces, .. } = parts;
        let (jobs_max, bytes_max) = (rules.max_in_flight, rules.max_in_flight_bytes.bytes());
        let of_broker = events.metrics().broker(&broker);
        let lease = super::lease_of(rules);
        let rules = Arc::new(AttemptRules { delivery: rules.clone(), dead: dead.clone() });
        InFlight {
            attempts: Attempts::new(
                rules.clone(),
                publisher.clone(),
                traces.clone(),
                &settings.allow,
            ),
            outcomes: Outcomes::new(store.clone(), broker.clone(), rules, events.clone()),
            destinations: Destinations::new(
                broker.clone(),
                settings.clone(),
                of_broker,
                jobs_max,
                bytes_max,
            ),
            turns: Turns::new(store, &broker, settings),
            places: Places::new(store, &broker, settings, lease),
            broker,
            publisher: publisher.clone(),
            events: events.clone(),
            window: Window::new(jobs_max, bytes_max),
            waiting: Waiting::default(),
            unconfirmed: HashMap::new(),
        }
    }

    /// The bound on these jobs.
    pub(super) fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Whether no publication lacks an outcome.
    #[must_use]
    pub(super) fn is_confirmed(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// When a waiting job is due, or has waited too long.
    #[must_use]
    pub(super) fn next_at(&mut self) -> Option<Instant> {
        let latest = self.waiting.first_without_place().map(|lease| self.attempts.latest(lease));
        let turns = self.turns.as_ref().and_then(Turns::next_at);
        let places = self.places.as_mut().and_then(|places| places.next_at(clock::now()));
        [self.waiting.next_at(), latest, turns, places].into_iter().flatten().min()
    }

    /// The connection to the broker is a new one.
    pub(super) fn reconnected(&mut self) {
        self.destinations.reconnected();
    }

    /// Takes the jobs of a claim: publishes what is due, keeps what is not due yet. Gives all back
    /// when `stopping`.
    pub(super) async fn claimed(
        &mut self,
        bucket: u16,
        taken: Claim,
        stopping: bool,
        settler: &mut Settler,
    ) {
        let now = clock::now();
        self.destinations.forget(now);
        for broken in taken.broken {
            self.events.observe(&JobEvent::Unreadable { id: &broken.id, bucket, why: &broken.why });
            self.window.add(0);
            self.window.take_place();
            settler.push(
                bucket,
                Settlement::Bury(Bury {
                    job: broken.token(),
                    reason: UNREADABLE,
                    error: broken.why,
                }),
            );
        }
        let mut attempts = Vec::with_capacity(taken.jobs.len());
        // A lease has hundreds of bytes and moves many times until its outcome.
        for lease in taken.jobs.into_iter().map(Box::new) {
            self.window.add(lease.size);
            if stopping {
                self.settle(&lease, give_back(&lease, Duration::ZERO), settler);
            } else if lease.ready > now {
                self.waiting.until_due(lease);
            } else {
                attempts.extend(self.attempt(lease, now, now, settler));
            }
        }
        self.publish(attempts).await;
    }

    /// Publishes the waiting jobs that are due now or whose destination has a place now. Gives back
    /// those that waited too long.
    pub(super) async fn publish_ready(&mut self, settler: &mut Settler) {
        let now = clock::now();
        let mut attempts = Vec::new();
        // The jobs that waited longest come first.
        while self
            .waiting
            .first_without_place()
            .is_some_and(|lease| self.window.has_place() || now > self.attempts.latest(lease))
            && let Some((since, lease)) = self.waiting.pop_without_place()
        {
            attempts.extend(self.attempt(lease, since, now, settler));
        }
        while let Some(lease) = self.waiting.pop_due(now) {
            attempts.extend(self.attempt(lease, now, now, settler));
        }
        for (since, lease) in self.waiting.take_without_share(now) {
            attempts.extend(self.attempt(lease, since, now, settler));
        }
        self.publish(attempts).await;
        self.give_back_late(now, settler);
    }

    /// Gives back all jobs that wait.
    pub(super) fn give_back_waiting(&mut self, settler: &mut Settler) {
        let asking = self.turns.as_mut().map(Turns::drain).unwrap_or_default();
        let of_places: Vec<_> = self.places.iter_mut().flat_map(Places::drain).collect();
        for lease in asking.into_iter().map(|(_, lease)| lease).chain(of_places) {
            self.settle(&lease, give_back(&lease, Duration::ZERO), settler);
        }
        for lease in self.waiting.drain() {
            self.settle(&lease, give_back(&lease, Duration::ZERO), settler);
        }
    }

    async fn publish(&self, attempts: Vec<PublicationRequest>) {
        if !attempts.is_empty() {
            self.publisher.publish(attempts).await;
        }
    }

    /// The publication of a job; `None` if the job waits, or is settled without one. `since`: when
    /// the job was first ready to be published.
    fn attempt(
        &mut self,
        lease: Box<ClaimedJob>,
        since: Instant,
        now: Instant,
        settler: &mut Settler,
    ) -> Option<PublicationRequest> {
        self.attempt_at(lease, since, now, None, settler)
    }

    /// The same of a job whose turn at a limited target is known.
    fn attempt_at(
        &mut self,
        lease: Box<ClaimedJob>,
        since: Instant,
        now: Instant,
        turn: Option<TurnState>,
        settler: &mut Settler,
    ) -> Option<PublicationRequest> {
        match self.attempts.destination(&lease, now) {
            Ok(_) => {}
            Err(settlement) => {
                if let Settlement::Drop(_) = *settlement {
                    let (set, id) = (DueSet::Broker(&self.broker), &lease.id);
                    self.events.observe(&JobEvent::Dropped { set, id });
                }
                self.settle(&lease, *settlement, settler);
                return None;
            }
        }
        if !self.window.has_place() {
            self.waiting.for_place(since, lease);
            return None;
        }
        let lease = self.within_limits(lease, since, now, turn, settler)?;
        let to = self.attempts.target(&lease);
        match self.destinations.admit(to, lease.size, self.waiting.late(), since, now) {
            Admission::Granted => self.window.take_place(),
            Admission::Wait { late } => {
                self.waiting.for_share(since, late, lease);
                return None;
            }
            Admission::GiveBack(pause) => {
                self.settle(&lease, give_back(&lease, pause), settler);
                return None;
            }
        }
        let to = to.clone();
        // Before the headers are dropped.
        let facts = settler.facts_of(&lease, lease.state.attempt);
        let (attempt, unconfirmed) = self.attempts.start(lease, to, now);
        let unconfirmed = Unconfirmed { facts, ..unconfirmed };
        self.destinations.sent(&attempt.to, attempt.token);
        self.unconfirmed.insert(attempt.token, unconfirmed);
        Some(attempt)
    }

    /// Settles a job without a publication.
    fn settle(&mut self, lease: &ClaimedJob, settlement: Settlement, settler: &mut Settler) {
        self.window.take_place();
        let facts = settler.facts_of(lease, lease.token.state.attempt);
        settler.note(facts);
        settler.push(lease.bucket, settlement);
        self.window.free_bytes(lease.size);
        if let Some(places) = &mut self.places {
            places.ended(key_of(&lease.token));
        }
    }

    /// A publication has its outcome.
    pub(super) fn concluded(&mut self, token: Token, outcome: Outcome, settler: &mut Settler) {
        let Some(mut publication) = self.unconfirmed.remove(&token) else { return };
        let (bucket, size) = (publication.lease.bucket, publication.lease.size);
        let facts = publication.facts.take();
        let placed = key_of(&publication.lease.token);
        self.window.free_bytes(size);
        self.waiting.outcome_arrived();
        let now = clock::now();
        let settlement =
            self.outcomes.conclude(publication, token, outcome, now, &mut self.destinations);
        // The place of a held job lasts from the time of its hold, which its settlement begins.
        if let Some(places) = &mut self.places
            && !matches!(settlement, Some(Settlement::Hold(..)))
        {
            places.ended(placed);
        }
        match settlement {
            Some(settlement) => {
                settler.note(facts);
                settler.push(bucket, settlement);
            }
            None => self.window.free_jobs(1),
        }
    }

    /// The drain time is over: gives back the jobs without an outcome, at the same retry step. The
    /// broker may have their messages.
    pub(super) fn abandon(&mut self, settler: &mut Settler) {
        let count = self.unconfirmed.len() as u64;
        self.events.observe(&JobEvent::Abandoned { broker: &self.broker, count });
        for (_, publication) in std::mem::take(&mut self.unconfirmed) {
            let settlement = Settlement::of(ABANDONED, publication.lease.token(), 0);
            settler.push(publication.lease.bucket, settlement);
            self.window.free_bytes(publication.lease.size);
            if let Some(places) = &mut self.places {
                places.ended(key_of(&publication.lease.token));
            }
        }
    }
}
