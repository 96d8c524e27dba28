//! Delivers the jobs of one broker: claims what is due, publishes it, settles by the outcome.
//!
//! One task owns everything that is in flight; the store and the sink work beside it. The window (jobs and bytes) is counted from the claim to the
//! settled outcome: at its bound nothing more is claimed.

mod claimed;
mod early;
mod flight;
mod lanes;
mod outcome;
mod pause;
mod settle;
mod share;
mod unread;
mod wake;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Destination, Token};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::alarm::Alarm;
use crate::clock::{self, Instant, micros};
use crate::config::{Broker, Delivery};
use crate::fleet::Fleet;
use crate::publisher::{Publisher, Reports};
use crate::reconnect::Backoff;
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::store::inbound::Head;
use crate::store::lease::{AHEAD, Ask, Lease, Taken};
use crate::telemetry::trace::Traces;
use crate::telemetry::{BrokerMetrics, Metrics};
use early::{Early, LEAD};
use flight::{Flight, Window};
use lanes::Lanes;
use pause::Pauses;
use settle::{Gathered, Settler};
use share::Shares;
use unread::Unread;
use wake::Wakes;

/// What a lease has over the publish timeout: the time for the answer of the claim, and for the settle.
pub const LEASE_MARGIN: Duration = Duration::from_secs(5);
/// Batches of outcomes that are taken before the next look at the rest.
const REPORTS_AT_ONCE: usize = 64;

/// The agent that delivers to one broker.
pub struct Dispatch {
    store: Arc<Store>,
    broker: Arc<str>,
    settings: Broker,
    publisher: Publisher,
    rules: Delivery,
    dead: Option<Destination>,
    metrics: Metrics,
    traces: Traces,
    of_broker: Option<BrokerMetrics>,
    fleet: watch::Receiver<Fleet>,
    heads: mpsc::UnboundedReceiver<Head>,
    reports: Reports,
    lease: Duration,
    /// Claimed, and not due yet.
    early: Early<Lease>,
    flights: HashMap<Token, Flight>,
    window: Window,
    gathered: Gathered,
    pauses: Pauses,
    shares: Shares,
    /// Claimed and due, and waiting for their destination to have a place in the window; since when.
    parked: VecDeque<(Instant, Lease)>,
    /// An outcome came since they were looked at.
    moved: bool,
    wakes: Wakes,
    lanes: Lanes,
    /// After a claim that failed for all, nothing is claimed until then.
    rest_until: Option<Instant>,
    backoff: Backoff,
    /// Buckets whose last claim failed by what is their own.
    ailing: HashMap<u16, Backoff>,
    unread: Unread,
}

/// What a [`Dispatch`] is made of.
pub struct Parts {
    /// The store.
    pub store: Arc<Store>,
    /// Its name.
    pub broker: String,
    /// `[brokers.NAME]`
    pub settings: Broker,
    /// The link of that broker.
    pub publisher: Publisher,
    /// Where its outcomes arrive.
    pub reports: Reports,
    /// `[delivery]`
    pub rules: Delivery,
    /// Where dead letters go; `None`: Redis only.
    pub dead: Option<Destination>,
    /// Counts.
    pub metrics: Metrics,
    /// Spans.
    pub traces: Traces,
    /// The living instances.
    pub fleet: watch::Receiver<Fleet>,
    /// New heads of this broker's buckets.
    pub heads: mpsc::UnboundedReceiver<Head>,
}

/// A claim that came back.
struct ClaimAnswer {
    bucket: u16,
    lane: usize,
    /// What was reserved for it: jobs and bytes.
    reserved: (usize, usize),
    answer: Result<Taken, StoreError>,
}

impl Dispatch {
    /// An agent that is not running yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let lease = lease_of(&parts.rules);
        let wakes = Wakes::new(parts.store.keys().buckets(), clock::now());
        let lanes = Lanes::new(parts.store.keys().buckets());
        let window = Window::new(parts.rules.max_in_flight, parts.rules.max_in_flight_bytes);
        // What no pattern names has a place behind them: dead letters, and the target of an ingest.
        let shares = Shares::new(parts.rules.max_in_flight, parts.rules.max_in_flight_bytes, parts.settings.allow.len() + 1);
        Dispatch {
            of_broker: parts.metrics.broker(&parts.broker),
            store: parts.store,
            broker: parts.broker.into(),
            settings: parts.settings,
            publisher: parts.publisher,
            reports: parts.reports,
            rules: parts.rules,
            dead: parts.dead,
            metrics: parts.metrics,
            traces: parts.traces,
            fleet: parts.fleet,
            heads: parts.heads,
            lease,
            early: Early::default(),
            flights: HashMap::new(),
            window,
            gathered: Gathered::default(),
            pauses: Pauses::default(),
            shares,
            parked: VecDeque::new(),
            moved: false,
            wakes,
            lanes,
            rest_until: None,
            backoff: Backoff::link(),
            ailing: HashMap::new(),
            unread: Unread::default(),
        }
    }

    /// Delivers until `stop`; then claims nothing more, waits for confirms until `give_up`, and gives back what is left.
    pub async fn run(mut self, stop: CancellationToken, give_up: CancellationToken) {
        let mut claims = FuturesUnordered::new();
        let mut settles = FuturesUnordered::new();
        let mut connected = self.publisher.connected();
        let mut batches = Vec::with_capacity(REPORTS_AT_ONCE);
        let mut alarm = Alarm::default();
        self.join_fleet();
        loop {
            let stopping = stop.is_cancelled();
            let up = *connected.borrow_and_update();
            self.lanes.follow(&self.store);
            while !stopping && up && self.window.has_room() && self.rested() {
                let lanes = &self.lanes;
                let Some(bucket) = self.wakes.due(clock::now(), |bucket| lanes.is_free(bucket)) else { break };
                let (lane, only_tries) = self.lanes.begin(bucket);
                let (most, bytes) = self.window.reserve(only_tries);
                let (store, broker) = (self.store.clone(), self.broker.clone());
                let ask = Ask { lease: self.lease, most, most_bytes: bytes, ahead: AHEAD };
                claims.push(async move {
                    let answer = store.claim_ahead(bucket, &broker, ask).await;
                    ClaimAnswer { bucket, lane, reserved: (most, bytes), answer }
                });
            }
            if stopping || !up {
                self.give_back_waiting();
            } else {
                self.publish_due().await;
                self.publish_parked().await;
            }
            while let Some((bucket, settle)) = self.gathered.next() {
                let settler =
                    Settler { store: self.store.clone(), broker: self.broker.clone(), lease: self.lease, give_up: give_up.clone() };
                settles.push(settler.run(bucket, settle));
            }
            if stopping && claims.is_empty() && settles.is_empty() && self.flights.is_empty() {
                give_up.run_until_cancelled(Box::pin(self.give_back_lost())).await;
                return;
            }
            let look_at = (!stopping && up && self.window.has_room()).then(|| self.look_at()).flatten();
            let wake_at = [look_at, self.early.next(), self.parked_until()].into_iter().flatten().min();
            tokio::select! {
                biased;
                Some(answer) = claims.next(), if !claims.is_empty() => self.claimed(answer, stopping).await,
                Some((bucket, settle, stood)) = settles.next(), if !settles.is_empty() => self.settled(bucket, &settle, stood),
                count = self.reports.recv_many(&mut batches, REPORTS_AT_ONCE) => {
                    if count == 0 {
                        // The publisher is gone, and it outlives its dispatcher: only at the end of the process.
                        return;
                    }
                    for (token, outcome) in batches.drain(..).flatten() {
                        self.concluded(token, outcome);
                    }
                }
                () = give_up.cancelled(), if stopping && !self.flights.is_empty() => self.abandon(),
                Some(head) = self.heads.recv(), if !stopping => self.heard(&head),
                Ok(()) = self.fleet.changed(), if !stopping => self.join_fleet(),
                Ok(()) = connected.changed() => {
                    if *connected.borrow() && self.pauses.forgive() {
                        self.count_pauses();
                    }
                    self.wakes.all(clock::now());
                }
                () = alarm.until(wake_at.unwrap_or_else(clock::now)), if wake_at.is_some() => {}
                () = stop.cancelled(), if !stopping => {}
            }
        }
    }

    fn rested(&mut self) -> bool {
        if self.rest_until.is_some_and(|until| until > clock::now()) {
            return false;
        }
        self.rest_until = None;
        true
    }

    /// When the next bucket is to be read.
    fn look_at(&self) -> Option<Instant> {
        self.wakes.next(|bucket| self.lanes.is_free(bucket)).map(|at| self.rest_until.map_or(at, |until| until.max(at)))
    }

    fn join_fleet(&mut self) {
        let fleet = self.fleet.borrow_and_update().serving(&self.broker);
        self.wakes.fleet(fleet.preferred(self.store.keys().buckets()), fleet.floor_poll(), clock::now());
    }

    fn heard(&mut self, head: &Head) {
        let ahead_us = head.due_ms.saturating_mul(1000).saturating_sub(self.store.now_us());
        self.wakes.head(head.bucket, clock::now() + micros(ahead_us));
    }

    /// Gives back what claims took whose answers were lost: nobody claims after this, and their leases would have to run out.
    async fn give_back_lost(&mut self) {
        while let Err(error) = self.store.reclaim_all_lost(&self.broker).await {
            if error.class == Class::Script {
                tracing::error!(broker = &*self.broker, %error, hint = "run `dwell fsck --repair`", "claims of a damaged bucket were not given back");
                return;
            }
            tracing::warn!(broker = &*self.broker, %error, "giving back claims failed, trying again");
            clock::sleep(self.backoff.pause()).await;
        }
    }
}

/// How long a claim holds: the same for every job, whatever its TTR.
#[must_use]
pub fn lease_of(rules: &Delivery) -> Duration {
    Duration::from_millis(rules.publish_timeout_ms) + LEASE_MARGIN
}
