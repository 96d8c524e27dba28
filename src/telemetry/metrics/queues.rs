//! The metrics of queues, by the name or pattern of the settings.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::buckets::LATENESS_SECONDS;
use super::family::{PerLabel, add, add_in, gauge_value, histogram, one};
use super::{Labels, Seconds};
use crate::config;
use crate::store::reader::queues::QueueCounts;
use crate::telemetry::labels::{Label, LeaseEnd, QueueState};

/// The metrics of one `[queues.NAME]`.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    jobs: PerLabel<Gauge>,
    oldest: Seconds,
    limited: Gauge,
    pub(super) pops: Counter,
    pub(super) popped: Counter,
    pub(super) ends: PerLabel<Counter>,
    pub(super) lateness: Histogram,
}

impl QueueMetrics {
    /// Sets the number of queues whose limit holds jobs back.
    pub fn limited(&self, queues: usize) {
        self.limited.set(i64::try_from(queues).unwrap_or(i64::MAX));
    }

    /// The jobs of the queues that the name or pattern fits, together. `now_ms`: when they were
    /// counted.
    pub fn jobs<'a>(&self, queues: impl Iterator<Item = &'a QueueCounts> + Clone, now_ms: i64) {
        let oldest_ms = queues
            .clone()
            .filter_map(|counts| counts.oldest_ready_ms)
            .min()
            .filter(|ms| *ms <= now_ms);
        let waited_ms =
            oldest_ms.map_or(0, |ms| u64::try_from(now_ms.saturating_sub(ms)).unwrap_or(0));
        self.oldest.set(Duration::from_millis(waited_ms).as_secs_f64());
        let sum = |of: fn(&QueueCounts) -> u64| gauge_value(queues.clone().map(of).sum());
        self.jobs.of(QueueState::Scheduled).set(sum(|counts| counts.scheduled));
        self.jobs.of(QueueState::Ready).set(sum(|counts| counts.ready));
        self.jobs.of(QueueState::Reserved).set(sum(|counts| counts.reserved));
        self.jobs.of(QueueState::Dead).set(sum(|counts| counts.dead));
    }
}

/// The families, and the handles of the queues in the settings.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    jobs: Family<Labels, Gauge>,
    oldest: Family<Labels, Seconds>,
    limited: Family<Labels, Gauge>,
    pops: Family<Labels, Counter>,
    popped: Family<Labels, Counter>,
    ends: Family<Labels, Counter>,
    lateness: Histogram,
    rules: Arc<config::Queues>,
    handles: Arc<[(String, QueueMetrics)]>,
}

impl Queues {
    pub(super) fn new(r: &mut Registry) -> Queues {
        Queues {
            jobs: add(r, "queue_jobs", "Jobs of queues, by state", Family::default()),
            oldest: add_in(
                r,
                Unit::Seconds,
                "queue_oldest_ready",
                "How long the oldest ready job has waited",
                Family::default(),
            ),
            limited: add(
                r,
                "queue_limited",
                "Queues whose limit holds jobs back",
                Family::default(),
            ),
            pops: add(
                r,
                "pop",
                "Calls that ask a queue for jobs, empty ones included",
                Family::default(),
            ),
            popped: add(
                r,
                "popped_jobs",
                "Jobs that were handed out to consumers",
                Family::default(),
            ),
            ends: add(r, "lease_ends", "Leases of consumers that ended, by how", Family::default()),
            lateness: add_in(
                r,
                Unit::Seconds,
                "pop_lateness",
                "Hand-out minus due time of first hand-outs",
                histogram(&LATENESS_SECONDS),
            ),
            rules: Arc::default(),
            handles: Arc::new([]),
        }
    }

    /// The same with the names and patterns of these rules, each at zero.
    pub(super) fn of(&self, rules: Arc<config::Queues>) -> Queues {
        let handle = |name: &str| {
            let with = |label: &'static str, word: &str| {
                vec![("queue", name.to_owned()), (label, word.to_owned())]
            };
            QueueMetrics {
                jobs: PerLabel::new(|state: QueueState| {
                    self.jobs.get_or_create_owned(&with("state", state.word()))
                }),
                oldest: self.oldest.get_or_create_owned(&one("queue", name)),
                limited: self.limited.get_or_create_owned(&one("queue", name)),
                pops: self.pops.get_or_create_owned(&one("queue", name)),
                popped: self.popped.get_or_create_owned(&one("queue", name)),
                ends: PerLabel::new(|end: LeaseEnd| {
                    self.ends.get_or_create_owned(&with("end", end.word()))
                }),
                lateness: self.lateness.clone(),
            }
        };
        Queues {
            handles: rules.iter().map(|rules| (rules.name.clone(), handle(&rules.name))).collect(),
            rules,
            ..self.clone()
        }
    }

    /// The handle of a name or pattern of the settings.
    pub(super) fn get(&self, name: &str) -> Option<&QueueMetrics> {
        self.handles.iter().find(|(known, _)| known == name).map(|(_, metrics)| metrics)
    }

    /// The handle of the rules that apply to this queue.
    pub(super) fn of_queue(&self, queue: &str) -> Option<&QueueMetrics> {
        self.get(&self.rules.get(queue)?.name)
    }
}
