//! Delivers the jobs of one broker: claims due jobs, publishes them, and settles them by the
//! outcome.
//!
//! One task owns the state; calls to the store and to the sink run beside it:
//!
//! - `ClaimScheduler` decides when to claim from which bucket.
//! - `InFlight` has the jobs from their claim to their settlement. Its window bounds the published
//!   jobs, the jobs that are claimed ahead, and the bytes of both; while the window is full,
//!   nothing is claimed.
//! - `Turns` has the jobs of limited targets until a call has taken their turns, and `Places` until a
//!   call has taken their places.
//! - `Settler` settles jobs in the store, in batches.

mod attempt;
mod bucket_timers;
mod claim_concurrency;
mod claim_scheduler;
mod destinations;
mod due_queue;
mod in_flight;
mod outcome;
mod pauses;
mod places;
mod settle_queue;
mod settler;
mod shares;
mod turns;
mod unreadable;
mod waiting;
mod window;

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::Destination;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::alarm::Alarm;
use crate::clock;
use crate::config::{Broker, Delivery};
use crate::fleet::Fleet;
use crate::publisher::{Publisher, Reports};
use crate::store::Store;
use crate::store::wake_up::WakeUp;
use crate::telemetry::Events;
use crate::telemetry::trace::Traces;
use claim_scheduler::{ClaimAnswer, ClaimScheduler};
use in_flight::InFlight;
use settle_queue::SettleCall;
use settler::{SettleAnswer, Settler};

/// The margin of a lease over the publish timeout: the time for the answer of the claim, and for
/// the settlement.
pub const LEASE_MARGIN: Duration = Duration::from_secs(5);
/// Batches of outcomes that are taken before anything else gets a turn.
const BATCHES_PER_TURN: usize = 64;

/// The agent that delivers to one broker.
pub struct Dispatch {
    publisher: Publisher,
    reports: Reports,
    fleet: watch::Receiver<Fleet>,
    wake_ups: mpsc::UnboundedReceiver<WakeUp>,
    scheduler: ClaimScheduler,
    in_flight: InFlight,
    settler: Settler,
}

/// The parts that [`Dispatch::new`] needs.
pub struct Parts {
    /// The store.
    pub store: Arc<Store>,
    /// The broker's name.
    pub broker: String,
    /// `[brokers.NAME]`
    pub settings: Broker,
    /// The publisher of that broker.
    pub publisher: Publisher,
    /// Where the publisher's outcomes arrive.
    pub reports: Reports,
    /// `[delivery]`
    pub rules: Delivery,
    /// Where dead letters go; `None`: they stay in Redis only.
    pub dead: Option<Destination>,
    /// The subscribers to what becomes of the jobs.
    pub events: Events,
    /// Where spans go.
    pub traces: Traces,
    /// The living instances.
    pub fleet: watch::Receiver<Fleet>,
    /// Wake-ups: jobs of this broker that others scheduled.
    pub wake_ups: mpsc::UnboundedReceiver<WakeUp>,
}

impl Dispatch {
    /// Makes an agent; [`Dispatch::run`] starts it.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let broker: Arc<str> = parts.broker.as_str().into();
        let lease = lease_of(&parts.rules);
        let in_flight = InFlight::new(&parts, broker.clone());
        Dispatch {
            scheduler: ClaimScheduler::new(parts.store.clone(), broker.clone(), lease),
            settler: Settler::new(
                parts.store,
                broker,
                lease,
                parts.publisher.clone(),
                parts.events,
            ),
            in_flight,
            publisher: parts.publisher,
            reports: parts.reports,
            fleet: parts.fleet,
            wake_ups: parts.wake_ups,
        }
    }

    /// Delivers until `stop`. Then claims nothing more, waits for confirms until `give_up`, and
    /// gives back the rest.
    pub async fn run(mut self, stop: CancellationToken, give_up: CancellationToken) {
        let mut claims = FuturesUnordered::new();
        let mut settles = FuturesUnordered::new();
        let mut turns = FuturesUnordered::new();
        let mut places = FuturesUnordered::new();
        let mut connected = self.publisher.connected();
        let mut batches = Vec::with_capacity(BATCHES_PER_TURN);
        let mut alarm = Alarm::default();
        self.scheduler.set_fleet(&self.fleet.borrow_and_update());
        loop {
            let stopping = stop.is_cancelled();
            let up = *connected.borrow_and_update();
            self.scheduler.follow_slots();
            if stopping || !up {
                self.in_flight.give_back_waiting(&mut self.settler);
            } else {
                while let Some(claim) = self.scheduler.next_claim(self.in_flight.window()) {
                    claims.push(claim);
                }
                self.in_flight.publish_ready(&mut self.settler).await;
            }
            turns.extend(self.in_flight.next_turns());
            while let Some(call) = self.in_flight.next_places() {
                places.push(call);
            }
            while let Some(call) = self.settler.next_call(&give_up) {
                settles.push(call);
            }
            let has_places = !self.in_flight.is_without_places() && !give_up.is_cancelled();
            if stopping
                && claims.is_empty()
                && settles.is_empty()
                && self.in_flight.is_confirmed()
                && !has_places
            {
                give_up.run_until_cancelled(Box::pin(self.scheduler.reclaim_lost())).await;
                return;
            }
            let may_claim = !stopping && up && self.in_flight.window().has_room();
            let claim_at =
                if may_claim { self.scheduler.next_at(self.in_flight.window()) } else { None };
            let wake_at = [claim_at, self.in_flight.next_at(), self.settler.next_at()]
                .into_iter()
                .flatten()
                .min();
            tokio::select! {
                biased;
                Some(answer) = claims.next(), if !claims.is_empty() => self.claimed(answer, stopping).await,
                Some(answer) = settles.next(), if !settles.is_empty() => self.settled(&answer),
                Some(answer) = places.next(), if !places.is_empty() => {
                    for bucket in self.in_flight.took_places(answer, &mut self.settler).await {
                        self.scheduler.job_due(bucket, clock::now());
                    }
                }
                Some(answer) = turns.next(), if !turns.is_empty() => self.in_flight.took_turns(answer, &mut self.settler).await,
                count = self.reports.recv_many(&mut batches, BATCHES_PER_TURN) => {
                    if count == 0 {
                        // Only at the end of the process does the publisher end first.
                        return;
                    }
                    for (token, outcome) in batches.drain(..).flatten() {
                        self.in_flight.concluded(token, outcome, &mut self.settler);
                    }
                }
                () = give_up.cancelled(), if stopping && !self.in_flight.is_confirmed() => self.in_flight.abandon(&mut self.settler),
                () = give_up.cancelled(), if stopping && has_places => {}
                Some(head) = self.wake_ups.recv(), if !stopping => self.scheduler.wake_up(&head),
                Ok(()) = self.fleet.changed(), if !stopping => self.scheduler.set_fleet(&self.fleet.borrow_and_update()),
                Ok(()) = connected.changed() => {
                    if *connected.borrow() {
                        self.in_flight.reconnected();
                    }
                    self.scheduler.all_due();
                }
                () = alarm.until(wake_at.unwrap_or_else(clock::now)), if wake_at.is_some() => {}
                () = stop.cancelled(), if !stopping => {}
            }
        }
    }

    async fn claimed(&mut self, claim: ClaimAnswer, stopping: bool) {
        let (bucket, reserved) = (claim.bucket, claim.reserved);
        let taken = self.scheduler.answered(claim, clock::now());
        self.in_flight.window().unreserve(reserved);
        if let Some(taken) = taken {
            self.in_flight.claimed(bucket, taken, stopping, &mut self.settler).await;
        }
    }

    fn settled(&mut self, answer: &SettleAnswer) {
        self.settler.answered(answer);
        self.in_flight.window().free_jobs(answer.call.len());
        if let SettleCall::Release(jobs) = &answer.call {
            self.in_flight.released(jobs);
        }
        self.in_flight.held(answer.held());
        let now = clock::now();
        for wait in answer.due_again() {
            self.scheduler.job_due(answer.bucket, now + wait);
        }
    }
}

/// Returns the lease of a claim: the same for every job, whatever its TTR.
#[must_use]
pub fn lease_of(rules: &Delivery) -> Duration {
    Duration::from_millis(rules.publish_timeout.ms()) + LEASE_MARGIN
}
