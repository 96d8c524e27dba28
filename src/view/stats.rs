//! Counts, and the state of an instance.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use crate::store::read::Counts;
use crate::telemetry::{Metrics, recent};

/// How many jobs there are, and how the instance that is asked fares.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Stats {
    /// Jobs that wait for their time or their next attempt.
    pub scheduled: u64,
    /// Jobs of which an attempt is out, or that wait for their consumer.
    pub reserved: u64,
    /// Dead letters that are kept.
    pub dead: u64,
    /// Scheduled, and due now or before.
    pub overdue: u64,
    /// The earliest due time, epoch ms; null where nothing is scheduled.
    pub next_due_ms: Option<i64>,
    /// Redis's clock when they were counted, epoch ms.
    pub now_ms: i64,
    /// Each bucket, in their order.
    pub buckets: Vec<Bucket>,
    /// Each broker of the namespace.
    pub brokers: BTreeMap<String, Broker>,
    /// Each ingest in the settings of the instance that is asked; empty where no instance is: the
    /// command asks Redis alone.
    pub ingests: BTreeMap<String, Ingest>,
    /// Per second over the last ten, of the instance: `scheduled` and `rejected` (requests),
    /// `confirmed` (attempts), `dead` (jobs).
    #[schema(value_type = BTreeMap<String, f64>)]
    pub rates: BTreeMap<&'static str, f64>,
    /// How late first attempts of the instance were within the last minute; null where there were
    /// none.
    pub lateness: Option<Lateness>,
    /// The instance that is asked; null where none is.
    pub instance: Option<Instance>,
}

/// The jobs of one bucket.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[allow(missing_docs, reason = "docs/reference/http.md explains the words")]
pub struct Bucket {
    pub scheduled: u64,
    pub reserved: u64,
    pub dead: u64,
}

/// The jobs for one broker, and the link of the instance to it. Null: the instance does not know
/// the broker, or none is asked.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Broker {
    /// Jobs that wait.
    pub scheduled: u64,
    /// `kafka`, `amqp` or `nats`.
    #[schema(value_type = Option<String>)]
    pub kind: Option<&'static str>,
    /// Whether the link for publishing is up.
    pub connected: Option<bool>,
    /// How many destinations are paused because they take nothing at present.
    pub paused: Option<u64>,
    /// What went wrong last with the link or a publication.
    pub last_error: Option<Met>,
    /// Whether no instance that lives delivers to it, and jobs wait; null where none is asked.
    pub stranded: Option<bool>,
}

/// One ingest of the instance.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Ingest {
    /// Its broker.
    pub broker: String,
    /// What it reads.
    pub topic: String,
    /// Whether its source is open, and has its share of what is there.
    pub reads: bool,
    /// Why it holds what it has read: `redis`, `redis_full`, `rejected`; null where it goes on.
    #[schema(value_type = Option<String>)]
    pub paused: Option<&'static str>,
    /// What went wrong last.
    pub last_error: Option<Met>,
}

/// An error and when it was met.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Met {
    /// What went wrong, and where.
    pub message: String,
    /// Epoch ms of the instance's host.
    pub at_ms: i64,
}

/// Confirm time minus due time of first attempts, ms.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Lateness {
    /// How many there were.
    pub count: u64,
    /// Half of them were no later.
    pub p50_ms: f64,
    /// 99 of 100 were no later.
    pub p99_ms: f64,
    /// None was later.
    pub max_ms: f64,
}

/// A running instance.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Instance {
    /// Its name among those of the namespace.
    pub name: String,
    /// Of Dwell.
    pub version: String,
    /// `redis.namespace`
    pub namespace: String,
    /// When it started, epoch ms of its host.
    pub started_ms: i64,
    /// Whether it reads requests.
    pub ingest: bool,
    /// Whether it delivers jobs.
    pub dispatch: bool,
    /// As `/readyz` says.
    pub ready: bool,
    /// What readiness waits for.
    pub waiting_for: Vec<String>,
}

/// Jobs due per step ahead.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Horizon {
    /// In their order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Step {
    /// Where it begins, epoch ms by Redis's clock; it ends where the next begins.
    pub from_ms: i64,
    /// Jobs that fall due in it.
    pub count: u64,
}

impl Stats {
    /// The counts without those of an instance.
    #[must_use]
    pub fn of(counts: &Counts) -> Self {
        let of_bucket =
            |((scheduled, reserved), dead): ((&u64, &u64), &u64)| Bucket { scheduled: *scheduled, reserved: *reserved, dead: *dead };
        let of_broker = |scheduled| Broker { scheduled, kind: None, connected: None, paused: None, last_error: None, stranded: None };
        Stats {
            scheduled: counts.scheduled.iter().sum(),
            reserved: counts.reserved.iter().sum(),
            dead: counts.dead.iter().sum(),
            overdue: counts.overdue,
            next_due_ms: counts.next_due_ms,
            now_ms: counts.now_ms,
            buckets: counts.scheduled.iter().zip(&counts.reserved).zip(&counts.dead).map(of_bucket).collect(),
            brokers: counts.brokers.iter().map(|(name, scheduled)| (name.clone(), of_broker(*scheduled))).collect(),
            ingests: BTreeMap::new(),
            rates: BTreeMap::new(),
            lateness: None,
            instance: None,
        }
    }

    /// Adds what an instance has counted for its brokers, and its lateness.
    pub fn add_counted(&mut self, metrics: &Metrics) {
        let stranded = metrics.stranded().get();
        for (name, broker) in &mut self.brokers {
            broker.stranded = Some(stranded.contains_key(name));
            if let Some(metrics) = metrics.broker(name) {
                broker.connected = Some(metrics.is_connected());
                broker.paused = Some(metrics.paused());
                broker.last_error = metrics.last_error().get().map(Met::from);
            }
        }
        self.lateness = metrics.recent_lateness().get().map(Lateness::from);
    }
}

impl From<recent::Met> for Met {
    fn from(met: recent::Met) -> Self {
        Met { message: met.message, at_ms: met.at_ms }
    }
}

impl From<recent::Percentiles> for Lateness {
    fn from(seen: recent::Percentiles) -> Self {
        Lateness { count: seen.count, p50_ms: seen.p50_ms, p99_ms: seen.p99_ms, max_ms: seen.max_ms }
    }
}
