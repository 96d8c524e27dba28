//! Every metric with its name and help text. Every series exists from the start, at zero.
//!
//! - `jobs`: the counts of the events of jobs. `handles`, `queues`: the metrics of a broker, an
//!   ingest and a queue. `given_back`: overdue jobs that the store has with a later time.
//! - `exemplar`: the traces that a histogram names.
//! - `registration`: names and help texts; `exposition`: the answer to a scrape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

mod buckets;
mod exemplar;
mod exposition;
mod family;
mod given_back;
mod handles;
mod jobs;
mod queues;
mod registration;
mod stranded;

use exemplar::TracedHistogram;
pub use exposition::Exposition;
use family::{PerLabel, gauge_value};
pub use given_back::{GivenBack, Waiting};
pub use handles::{BrokerMetrics, IngestMetrics, Paused};
pub use queues::QueueMetrics;
pub use stranded::Stranded;

use super::gauges::Gauges;
use super::labels::{
    DueWithin, IngestResult, JobState, PauseReason, RedisErrorClass, ScheduleState,
};
use super::recent::{Lateness, Reading};
use crate::config;
use crate::events::PublishOutcome;
use crate::job::{DeadReason, Verdict};
use crate::store::CallObserver;
use crate::store::error::Class;
use crate::store::reader::counts::Counts;
use crate::store::scripts::Name;

type Labels = Vec<(&'static str, String)>;
type Seconds = Gauge<f64, AtomicU64>;

/// Every metric. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    brokers: Arc<[(String, BrokerMetrics)]>,
    ingests: Arc<[(String, IngestMetrics)]>,
    jobs: PerLabel<Gauge>,
    schedules: PerLabel<Gauge>,
    oldest_overdue: Seconds,
    lateness: TracedHistogram,
    confirm: Histogram,
    dead: Arc<[(DeadReason, Counter)]>,
    late_dropped: Counter,
    possible_duplicates: PerLabel<Counter>,
    leases_lost: Counter,
    cancelled: Arc<[(Verdict, Counter)]>,
    occurrences: PerLabel<Counter>,
    events_dropped: Counter,
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
    /// The same with the queues of the settings.
    #[must_use]
    pub fn with_queues(self, rules: Arc<config::Queues>) -> Self {
        Metrics { queues: self.queues.of(rules), ..self }
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
        self.ingests
            .iter()
            .filter_map(|(name, ingest)| Some((name.as_str(), ingest.reading.get().1?)))
            .collect()
    }

    /// The totals of all brokers and ingests.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let published =
            |outcome| self.brokers.iter().map(|(_, broker)| broker.publish.of(outcome).get()).sum();
        let read =
            |result| self.ingests.iter().map(|(_, ingest)| ingest.results.of(result).get()).sum();
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

    /// Sets the number of recurring schedules in this state.
    pub fn schedules(&self, state: ScheduleState, count: u64) {
        self.schedules.of(state).set(gauge_value(count));
    }

    /// Jobs and schedules that no instance serves.
    #[must_use]
    pub fn stranded(&self) -> &Stranded {
        &self.stranded
    }

    /// Adds the overdue jobs that this instance gave back for later to counts of the store, which
    /// has them with the time of their next try.
    pub fn add_given_back(&self, counts: &mut Counts) {
        for ((name, scheduled), overdue) in counts.brokers.iter().zip(&counts.overdue_of) {
            let Some(broker) = self.broker(name) else { continue };
            let waiting = broker.given_back().waiting(counts.now_ms);
            // A job that was cancelled counts until its next try, but never as more than are there
            // besides those that the store has as overdue.
            let count = waiting.count.min(scheduled.saturating_sub(*overdue));
            if count > 0 {
                counts.overdue += count;
                counts.next_due_ms = counts.next_due_ms.into_iter().chain(waiting.oldest_ms).min();
            }
        }
    }

    /// Sets the number of jobs that are due within this horizon.
    pub fn due_within(&self, horizon: DueWithin, count: u64) {
        self.due_within.of(horizon).set(gauge_value(count));
    }

    /// Sets the wait of the oldest due job; zero if none is due.
    pub fn oldest_overdue(&self, overdue: Duration) {
        self.oldest_overdue.set(overdue.as_secs_f64());
    }

    /// Lateness within the last minute.
    #[must_use]
    pub fn recent_lateness(&self) -> &Lateness {
        &self.recent_lateness
    }

    /// An ingest is paused for this reason until the guard is dropped. `reading` records it, if
    /// given.
    #[must_use]
    pub fn ingest_paused(&self, reason: PauseReason, reading: Option<Reading>) -> Paused {
        Paused::new(self.ingest_paused.of(reason).clone(), reason, reading)
    }
}

impl CallObserver for Metrics {
    fn called(&self, script: Name, took: Duration) {
        self.redis_seconds.of(script).observe(took.as_secs_f64());
    }

    fn failed(&self, class: Class) {
        self.redis_errors.of(RedisErrorClass::from(class)).inc();
    }
}

#[cfg(test)]
mod tests;
