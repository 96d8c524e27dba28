//! Every metric with its name and help text, and the handles that count. Every series exists from
//! the start, at zero.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

mod exposition;
mod family;
mod handles;
mod queues;
mod stranded;

pub use exposition::Exposition;
use family::{PerLabel, add, add_in, gauge_value, histogram, one};
pub use handles::{BrokerMetrics, IngestMetrics, Paused};
pub use queues::QueueMetrics;
pub use stranded::Stranded;

use super::gauges::Gauges;
use super::labels::{
    CANCEL_VERDICTS, DueWithin, DuplicateCause, IngestResult, JobState, Label, PauseReason, PublishOutcome, RedisErrorClass,
};
use super::recent::{LastError, Lateness, Reading};
use crate::consumers::ConsumersObserver;
use crate::job::{DeadReason, Verdict};
use crate::store::Observer;
use crate::store::error::Class;
use crate::store::scripts::Name;

/// From half a millisecond (an idle machine) to an hour (an outage).
const LATENESS_SECONDS: [f64; 20] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0];
/// Up to the longest sensible `publish_timeout`.
const CONFIRM_SECONDS: [f64; 15] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// From one script on loopback to a Redis that stalls.
const REDIS_SECONDS: [f64; 16] = [0.000_05, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

type Labels = Vec<(&'static str, String)>;
type Seconds = Gauge<f64, AtomicU64>;

/// Every metric. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    brokers: Arc<[(String, BrokerMetrics)]>,
    ingests: Arc<[(String, IngestMetrics)]>,
    jobs: PerLabel<Gauge>,
    oldest_overdue: Seconds,
    lateness: Histogram,
    confirm: Histogram,
    dead: Arc<[(DeadReason, Counter)]>,
    late_dropped: Counter,
    possible_duplicates: PerLabel<Counter>,
    leases_lost: Counter,
    cancelled: Arc<[(Verdict, Counter)]>,
    queues: queues::Queues,
    redis_seconds: PerLabel<Histogram>,
    redis_errors: PerLabel<Counter>,
    ingest_paused: PerLabel<Gauge>,
    due_within: PerLabel<Gauge>,
    stranded: Stranded,
    recent_lateness: Lateness,
    gauges: Gauges,
}

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that became jobs.
    pub scheduled: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Attempts that a broker confirmed.
    pub confirmed: u64,
    /// Jobs that died.
    pub dead: u64,
}

impl Metrics {
    /// All metrics at zero, for these brokers and ingests.
    #[must_use]
    pub fn new<'a>(brokers: impl IntoIterator<Item = &'a str>, ingests: impl IntoIterator<Item = &'a str>) -> Self {
        let mut r = Registry::with_prefix("dwell");
        let jobs = add(&mut r, "jobs", "Jobs in the store, by state", Family::<Labels, Gauge>::default());
        let oldest_overdue =
            add_in(&mut r, Unit::Seconds, "oldest_overdue", "Age of the oldest overdue job; 0 if none is overdue", Seconds::default());
        let ingest = add(&mut r, "ingest", "Inbound messages, by result", Family::<Labels, Counter>::default());
        let replies = add(&mut r, "replies", "Requested verdicts, by outcome", Family::<Labels, Counter>::default());
        let publish = add(&mut r, "publish", "Attempts to publish to a target, by outcome", Family::<Labels, Counter>::default());
        let lateness = histogram(&LATENESS_SECONDS);
        let lateness = add_in(&mut r, Unit::Seconds, "lateness", "Confirm time minus due time of first attempts", lateness);
        let confirm =
            add_in(&mut r, Unit::Seconds, "confirm", "Time from publishing a message to its confirm", histogram(&CONFIRM_SECONDS));
        let dead = add(&mut r, "dead", "Jobs that died, by reason", Family::<Labels, Counter>::default());
        let late_dropped = add(&mut r, "late_dropped", "Jobs dropped because they were overdue by more than max-late", Counter::default());
        let duplicates =
            add(&mut r, "possible_duplicates", "Attempts that may repeat a delivered one, by cause", Family::<Labels, Counter>::default());
        let leases_lost = add(
            &mut r,
            "leases_lost",
            "Settlements after the job was taken over, replaced, cancelled, finished or failed",
            Counter::default(),
        );
        let cancelled = add(&mut r, "cancelled", "Answers to cancel, by verdict", Family::<Labels, Counter>::default());
        let redis_buckets: fn() -> Histogram = || histogram(&REDIS_SECONDS);
        let redis_seconds = Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(redis_buckets);
        let redis_seconds = add_in(&mut r, Unit::Seconds, "redis", "Duration of calls to Redis, by script", redis_seconds);
        let redis_errors = add(&mut r, "redis_errors", "Failed calls to Redis, by class", Family::<Labels, Counter>::default());
        let connected = add(&mut r, "broker_connected", "1 while the connection for publishing is up", Family::<Labels, Gauge>::default());
        let target_paused = add(&mut r, "target_paused", "Destinations of the broker that are paused", Family::<Labels, Gauge>::default());
        let ingest_paused = add(&mut r, "ingest_paused", "Ingests that do not read, by reason", Family::<Labels, Gauge>::default());
        let due_within = add(&mut r, "due_within_jobs", "Jobs due within this many seconds", Family::<Labels, Gauge>::default());
        let stranded =
            add(&mut r, "stranded_jobs", "Jobs that wait for a broker that no instance delivers to", Family::<Labels, Gauge>::default());
        let queues = queues::Queues::new(&mut r);
        r.register("build", "The running version", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));

        let names: Vec<&str> = brokers.into_iter().collect();
        let broker = |name: &str| BrokerMetrics {
            publish: PerLabel::new(|value: PublishOutcome| {
                publish.get_or_create_owned(&vec![("broker", name.to_owned()), ("outcome", value.word().to_owned())])
            }),
            connected: connected.get_or_create_owned(&vec![("broker", name.to_owned())]),
            target_paused: target_paused.get_or_create_owned(&vec![("broker", name.to_owned())]),
            last_error: LastError::default(),
        };
        let ingest = |name: &str| IngestMetrics {
            results: PerLabel::new(|value: IngestResult| {
                ingest.get_or_create_owned(&vec![("ingest", name.to_owned()), ("result", value.word().to_owned())])
            }),
            reading: Reading::default(),
            last_error: LastError::default(),
            replies: PerLabel::new(|value: PublishOutcome| {
                replies.get_or_create_owned(&vec![("ingest", name.to_owned()), ("outcome", value.word().to_owned())])
            }),
        };
        Metrics {
            brokers: names.iter().copied().map(|name| (name.to_owned(), broker(name))).collect(),
            ingests: ingests.into_iter().map(|name| (name.to_owned(), ingest(name))).collect(),
            jobs: PerLabel::new(|value: JobState| jobs.get_or_create_owned(&one("state", value.word()))),
            oldest_overdue,
            lateness,
            confirm,
            dead: DeadReason::ALL.iter().map(|reason| (*reason, dead.get_or_create_owned(&one("reason", reason.as_str())))).collect(),
            late_dropped,
            possible_duplicates: PerLabel::new(|value: DuplicateCause| duplicates.get_or_create_owned(&one("cause", value.word()))),
            leases_lost,
            cancelled: CANCEL_VERDICTS
                .iter()
                .map(|verdict| (*verdict, cancelled.get_or_create_owned(&one("verdict", verdict.as_str()))))
                .collect(),
            queues,
            redis_seconds: PerLabel::new(|value: Name| redis_seconds.get_or_create_owned(&one("script", value.word()))),
            redis_errors: PerLabel::new(|value: RedisErrorClass| redis_errors.get_or_create_owned(&one("class", value.word()))),
            ingest_paused: PerLabel::new(|value: PauseReason| ingest_paused.get_or_create_owned(&one("reason", value.word()))),
            due_within: PerLabel::new(|value: DueWithin| due_within.get_or_create_owned(&one("seconds", value.word()))),
            recent_lateness: Lateness::default(),
            gauges: Gauges::default(),
            stranded: Stranded::new(stranded, &names),
            registry: Arc::new(r),
        }
    }

    /// The same with the queues of the settings, by these names and patterns.
    #[must_use]
    pub fn with_queues<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        Metrics { queues: self.queues.of(names), ..self }
    }

    /// The handle of a queue, by its name or pattern in the settings; `None` for one that
    /// `with_queues` did not get.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&QueueMetrics> {
        self.queues.get(name)
    }

    /// The handle of a broker, to be fetched once and kept; `None` for a name that `new` did not
    /// get.
    #[must_use]
    pub fn broker(&self, name: &str) -> Option<BrokerMetrics> {
        self.brokers.iter().find(|(known, _)| known == name).map(|(_, metrics)| metrics.clone())
    }

    /// The handle of an ingest, to be fetched once and kept; `None` for a name that `new` did not
    /// get.
    #[must_use]
    pub fn ingest(&self, name: &str) -> Option<IngestMetrics> {
        self.ingests.iter().find(|(known, _)| known == name).map(|(_, metrics)| metrics.clone())
    }

    /// The paused ingests, and why each is paused.
    #[must_use]
    pub fn paused_ingests(&self) -> BTreeMap<&str, PauseReason> {
        self.ingests.iter().filter_map(|(name, ingest)| Some((name.as_str(), ingest.reading.get().1?))).collect()
    }

    /// The totals of all brokers and ingests.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let published = |outcome| self.brokers.iter().map(|(_, broker)| broker.publish.of(outcome).get()).sum();
        let read = |result| self.ingests.iter().map(|(_, ingest)| ingest.results.of(result).get()).sum();
        Totals {
            scheduled: read(IngestResult::Scheduled),
            rejected: read(IngestResult::Rejected),
            confirmed: published(PublishOutcome::Confirmed),
            dead: self.dead.iter().map(|(_, counter)| counter.get()).sum(),
        }
    }

    /// The age of the gauges that are counted in the store.
    #[must_use]
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// Sets the number of jobs in this state.
    pub fn jobs(&self, state: JobState, count: u64) {
        self.jobs.of(state).set(gauge_value(count));
    }

    /// Jobs of brokers that no instance delivers to.
    #[must_use]
    pub fn stranded(&self) -> &Stranded {
        &self.stranded
    }

    /// Sets the number of jobs that are due within this horizon.
    pub fn due_within(&self, horizon: DueWithin, count: u64) {
        self.due_within.of(horizon).set(gauge_value(count));
    }

    /// Sets the wait of the oldest due job; zero if none is due.
    pub fn oldest_overdue(&self, overdue: Duration) {
        self.oldest_overdue.set(overdue.as_secs_f64());
    }

    /// A first attempt was confirmed this long after it was due.
    pub fn lateness(&self, late: Duration) {
        self.lateness.observe(late.as_secs_f64());
        self.recent_lateness.record(late);
    }

    /// Lateness within the last minute.
    #[must_use]
    pub fn recent_lateness(&self) -> &Lateness {
        &self.recent_lateness
    }

    /// A message was confirmed this long after its publication.
    pub fn confirm(&self, took: Duration) {
        self.confirm.observe(took.as_secs_f64());
    }

    /// A job died.
    pub fn dead(&self, reason: DeadReason) {
        if let Some((_, counter)) = self.dead.iter().find(|(known, _)| *known == reason) {
            counter.inc();
        }
    }

    /// Jobs were dropped as too late.
    pub fn late_dropped(&self, count: u64) {
        self.late_dropped.inc_by(count);
    }

    /// Attempts that may repeat a delivered one.
    pub fn possible_duplicates(&self, cause: DuplicateCause, count: u64) {
        self.possible_duplicates.of(cause).inc_by(count);
    }

    /// Settlements after the lease was lost.
    pub fn leases_lost(&self, count: u64) {
        self.leases_lost.inc_by(count);
    }

    /// A verdict of cancel. Verdicts that cancel never gives are not counted.
    pub fn cancelled(&self, verdict: Verdict) {
        if let Some((_, counter)) = self.cancelled.iter().find(|(known, _)| *known == verdict) {
            counter.inc();
        }
    }

    /// An ingest is paused for this reason until the guard is dropped. `reading` records it, if
    /// given.
    #[must_use]
    pub fn ingest_paused(&self, reason: PauseReason, reading: Option<Reading>) -> Paused {
        Paused::new(self.ingest_paused.of(reason).clone(), reason, reading)
    }
}

impl Observer for Metrics {
    fn called(&self, script: Name, took: Duration) {
        self.redis_seconds.of(script).observe(took.as_secs_f64());
    }

    fn failed(&self, class: Class) {
        self.redis_errors.of(RedisErrorClass::from(class)).inc();
    }
}

impl ConsumersObserver for Metrics {
    fn late(&self, _: &str, is_dead: bool) {
        if is_dead {
            self.dead(DeadReason::Late);
        } else {
            self.late_dropped(1);
        }
    }
}

#[cfg(test)]
mod tests;
