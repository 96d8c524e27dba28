//! Counts, and the state of an instance.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use utoipa::ToSchema;

use crate::store::due_set::DueSet;
use crate::store::limits;
use crate::store::reader::counts::Counts;
use crate::telemetry::{Metrics, recent};

/// The counts of jobs, and the state of the answering instance.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Stats {
    /// Jobs that wait for their due time or their next attempt.
    pub scheduled: u64,
    /// Jobs of queues that are due and not fetched.
    pub ready: u64,
    /// Jobs with an attempt in flight, or that wait for their consumer, or are fetched from a
    /// queue.
    pub reserved: u64,
    /// Dead letters in Redis.
    pub dead: u64,
    /// Those of them that died within the last hour.
    pub died: u64,
    /// Since when the oldest ready job of a queue that is not paused has been due, epoch ms; null
    /// if there is none.
    pub oldest_ready_ms: Option<i64>,
    /// The paused queues: their ready jobs wait.
    pub paused_queues: BTreeSet<String>,
    /// The limits that hold jobs back, where the answering instance has limits.
    pub limited: Vec<Limited>,
    /// Scheduled jobs whose due time has passed. Of those that wait because their destination takes
    /// none, the ones that the answering instance gave back.
    pub overdue: u64,
    /// The earliest due time, epoch ms; null if no job is scheduled.
    pub next_due_ms: Option<i64>,
    /// Redis's clock at the count, epoch ms.
    pub now_ms: i64,
    /// The buckets in their order.
    pub buckets: Vec<Bucket>,
    /// The brokers of the namespace, by name.
    pub brokers: BTreeMap<String, Broker>,
    /// The ingests of the instance, by name. Empty for the command `dwell stats`, which reads only
    /// Redis.
    pub ingests: BTreeMap<String, Ingest>,
    /// The rates of the instance per second over the last ten seconds: `scheduled` and `rejected`
    /// (requests), `confirmed` (attempts), `dead` (jobs).
    #[schema(value_type = BTreeMap<String, f64>)]
    pub rates: BTreeMap<&'static str, f64>,
    /// The lateness of the instance's first attempts within the last minute; null if there were
    /// none.
    pub lateness: Option<Lateness>,
    /// The answering instance; null for the command `dwell stats`.
    pub instance: Option<Instance>,
}

/// The jobs of one bucket.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[allow(missing_docs, reason = "docs/reference/http.md explains the words")]
pub struct Bucket {
    pub scheduled: u64,
    pub ready: u64,
    pub reserved: u64,
    pub dead: u64,
}

/// The jobs for one broker, and the instance's connection to it. Null: the instance does not have
/// the broker, or no instance answers.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Broker {
    /// Scheduled jobs for the broker.
    pub scheduled: u64,
    /// `kafka`, `amqp`, `nats` or `http`.
    #[schema(value_type = Option<String>)]
    pub kind: Option<&'static str>,
    /// Whether the connection for publishing is up.
    pub connected: Option<bool>,
    /// The number of paused destinations, which refuse messages or do not confirm.
    pub paused: Option<u64>,
    /// The last error of the connection or of a publication.
    pub last_error: Option<ErrorSeen>,
    /// Whether jobs wait for the broker and no living instance delivers to it; null if no instance
    /// answers.
    pub stranded: Option<bool>,
}

/// A limit that holds jobs back.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Limited {
    /// The broker of the limited targets.
    pub broker: Option<String>,
    /// The limited queue.
    pub queue: Option<String>,
    /// The pattern of the limit in the settings.
    pub pattern: String,
    /// How many jobs wait for their turns or places; those that were cancelled meanwhile are counted too.
    pub waiting: u64,
    /// Since when jobs wait without a break, epoch ms.
    pub since_ms: i64,
}

impl From<limits::Limited> for Limited {
    fn from(limited: limits::Limited) -> Self {
        let limits::Limited { set, pattern, waiting, since_ms } = limited;
        let queue = DueSet::named(&set).queue().map(str::to_owned);
        let broker = queue.is_none().then_some(set);
        Limited { broker, queue, pattern, waiting, since_ms }
    }
}

/// One ingest of the instance.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Ingest {
    /// The broker's name.
    pub broker: String,
    /// The topic, queue or subject.
    pub topic: String,
    /// Whether the source is open and reads its share of the messages.
    pub reads: bool,
    /// Why the ingest is paused: `redis`, `redis_full`, `rejected`; null if it is not.
    #[schema(value_type = Option<String>)]
    pub paused: Option<&'static str>,
    /// The last error.
    pub last_error: Option<ErrorSeen>,
}

/// An error and its time.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorSeen {
    /// What failed, and where.
    pub message: String,
    /// The time, epoch ms by the clock of the instance's host.
    pub at_ms: i64,
}

/// The lateness of first attempts: confirm time minus due time, ms.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Lateness {
    /// The number of first attempts.
    pub count: u64,
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The maximum.
    pub max_ms: f64,
}

/// A running instance.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Instance {
    /// The name of the instance in the namespace.
    pub name: String,
    /// The version of Dwell.
    pub version: String,
    /// `redis.namespace`
    pub namespace: String,
    /// The start time, epoch ms by the clock of its host.
    pub started_ms: i64,
    /// Whether the instance reads requests.
    pub ingest: bool,
    /// Whether the instance delivers jobs.
    pub dispatch: bool,
    /// Whether the instance is ready, as in `/readyz`.
    pub ready: bool,
    /// What readiness waits for.
    pub waiting_for: Vec<String>,
}

/// The number of due jobs in each step ahead.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Horizon {
    /// The steps in their order.
    pub steps: Vec<Step>,
    /// The limits that hold jobs back, where the answering instance has limits: what falls due there
    /// waits for its turn.
    pub limited: Vec<Limited>,
}

/// One step.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Step {
    /// The start of the step, epoch ms by Redis's clock. The step ends at the start of the next
    /// one.
    pub from_ms: i64,
    /// The number of jobs that fall due in the step, and of recurring schedules whose next time is
    /// in the step.
    pub count: u64,
}

impl Stats {
    /// The counts without those of an instance.
    #[must_use]
    pub fn of(counts: &Counts) -> Self {
        let of_bucket = |at: usize| {
            let count = |counts: &[u64]| counts.get(at).copied().unwrap_or(0);
            Bucket {
                scheduled: count(&counts.scheduled),
                ready: count(&counts.ready),
                reserved: count(&counts.reserved),
                dead: count(&counts.dead),
            }
        };
        let of_broker = |scheduled| Broker {
            scheduled,
            kind: None,
            connected: None,
            paused: None,
            last_error: None,
            stranded: None,
        };
        Stats {
            scheduled: counts.scheduled.iter().sum(),
            ready: counts.ready.iter().sum(),
            reserved: counts.reserved.iter().sum(),
            dead: counts.dead.iter().sum(),
            died: counts.died,
            oldest_ready_ms: counts.oldest_ready_ms,
            paused_queues: counts.paused_queues.clone(),
            limited: Vec::new(),
            overdue: counts.overdue,
            next_due_ms: counts.next_due_ms,
            now_ms: counts.now_ms,
            buckets: (0..counts.scheduled.len()).map(of_bucket).collect(),
            brokers: counts
                .brokers
                .iter()
                .map(|(name, scheduled)| (name.clone(), of_broker(*scheduled)))
                .collect(),
            ingests: BTreeMap::new(),
            rates: BTreeMap::new(),
            lateness: None,
            instance: None,
        }
    }

    /// Adds the instance's state of its brokers, and its lateness.
    pub fn add_counted(&mut self, metrics: &Metrics) {
        let stranded = metrics.stranded().get();
        for (name, broker) in &mut self.brokers {
            broker.stranded = Some(stranded.contains_key(name));
            if let Some(metrics) = metrics.broker(name) {
                broker.connected = Some(metrics.is_connected());
                broker.paused = Some(metrics.paused());
                broker.last_error = metrics.last_error().get().map(ErrorSeen::from);
            }
        }
        self.lateness = metrics.recent_lateness().get().map(Lateness::from);
    }
}

impl From<recent::ErrorSeen> for ErrorSeen {
    fn from(seen: recent::ErrorSeen) -> Self {
        ErrorSeen { message: seen.message, at_ms: seen.at_ms }
    }
}

impl From<recent::Percentiles> for Lateness {
    fn from(seen: recent::Percentiles) -> Self {
        Lateness {
            count: seen.count,
            p50_ms: seen.p50_ms,
            p99_ms: seen.p99_ms,
            max_ms: seen.max_ms,
        }
    }
}
