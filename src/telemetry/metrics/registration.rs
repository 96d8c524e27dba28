//! The registration of every metric: its name, its help text, and its series at zero.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::buckets::{CONFIRM_SECONDS, LATENESS_SECONDS, REDIS_SECONDS};
use super::exemplar::TracedHistogram;
use super::family::{PerLabel, add, add_in, histogram, one};
use super::given_back::GivenBack;
use super::handles::{BrokerMetrics, IngestMetrics};
use super::queues::Queues;
use super::stranded::Stranded;
use super::{Labels, Metrics, Seconds};
use crate::events::PublishOutcome;
use crate::job::DeadReason;
use crate::store::scripts::Name;
use crate::telemetry::gauges::Gauges;
use crate::telemetry::labels::{
    CANCEL_VERDICTS, DueWithin, DuplicateCause, IngestResult, JobState, Label, OccurrenceResult,
    PauseReason, RedisErrorClass, ScheduleState,
};
use crate::telemetry::recent::{LastError, Lateness, Reading};

impl Metrics {
    /// All metrics at zero, for these brokers and ingests.
    #[must_use]
    pub fn new<'a>(
        brokers: impl IntoIterator<Item = &'a str>,
        ingests: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut r = Registry::with_prefix("dwell");
        let jobs =
            add(&mut r, "jobs", "Jobs in the store, by state", Family::<Labels, Gauge>::default());
        let schedules = add(
            &mut r,
            "schedules",
            "Recurring schedules, by state",
            Family::<Labels, Gauge>::default(),
        );
        let oldest_overdue = add_in(
            &mut r,
            Unit::Seconds,
            "oldest_overdue",
            "Age of the oldest overdue job; 0 if none is overdue",
            Seconds::default(),
        );
        let ingest = add(
            &mut r,
            "ingest",
            "Inbound messages, by result",
            Family::<Labels, Counter>::default(),
        );
        let replies = add(
            &mut r,
            "replies",
            "Requested verdicts, by outcome",
            Family::<Labels, Counter>::default(),
        );
        let publish = add(
            &mut r,
            "publish",
            "Attempts to publish to a target, by outcome",
            Family::<Labels, Counter>::default(),
        );
        let lateness = TracedHistogram::new(LATENESS_SECONDS.into_iter());
        let lateness = add_in(
            &mut r,
            Unit::Seconds,
            "lateness",
            "Confirm time minus due time of first attempts",
            lateness,
        );
        let confirm = add_in(
            &mut r,
            Unit::Seconds,
            "confirm",
            "Time from publishing a message to its confirm",
            histogram(&CONFIRM_SECONDS),
        );
        let dead =
            add(&mut r, "dead", "Jobs that died, by reason", Family::<Labels, Counter>::default());
        let late_dropped = add(
            &mut r,
            "late_dropped",
            "Jobs dropped because they were overdue by more than max-late",
            Counter::default(),
        );
        let duplicates = add(
            &mut r,
            "possible_duplicates",
            "Attempts that may repeat a delivered one, by cause",
            Family::<Labels, Counter>::default(),
        );
        let leases_lost = add(
            &mut r,
            "leases_lost",
            "Settlements after the job was taken over, replaced, cancelled, finished or failed",
            Counter::default(),
        );
        let cancelled = add(
            &mut r,
            "cancelled",
            "Answers to cancel, by verdict",
            Family::<Labels, Counter>::default(),
        );
        let occurrences = add(
            &mut r,
            "schedule_occurrences",
            "Occurrences of recurring schedules, by result",
            Family::<Labels, Counter>::default(),
        );
        let events_dropped = add(
            &mut r,
            "events_dropped",
            "Events of jobs that were not published, or may not have been",
            Counter::default(),
        );
        let redis_buckets: fn() -> Histogram = || histogram(&REDIS_SECONDS);
        let redis_seconds =
            Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(redis_buckets);
        let redis_seconds = add_in(
            &mut r,
            Unit::Seconds,
            "redis",
            "Duration of calls to Redis, by script",
            redis_seconds,
        );
        let redis_errors = add(
            &mut r,
            "redis_errors",
            "Failed calls to Redis, by class",
            Family::<Labels, Counter>::default(),
        );
        let connected = add(
            &mut r,
            "broker_connected",
            "1 while the connection for publishing is up",
            Family::<Labels, Gauge>::default(),
        );
        let target_paused = add(
            &mut r,
            "target_paused",
            "Destinations of the broker that are paused",
            Family::<Labels, Gauge>::default(),
        );
        let target_limited = add(
            &mut r,
            "target_limited",
            "Limits of targets that hold jobs back",
            Family::<Labels, Gauge>::default(),
        );
        let ingest_paused = add(
            &mut r,
            "ingest_paused",
            "Ingests that do not read, by reason",
            Family::<Labels, Gauge>::default(),
        );
        let due_within = add(
            &mut r,
            "due_within_jobs",
            "Jobs due within this many seconds",
            Family::<Labels, Gauge>::default(),
        );
        let stranded = add(
            &mut r,
            "stranded_jobs",
            "Jobs and recurring schedules that wait for a broker or queue that no instance serves",
            Family::<Labels, Gauge>::default(),
        );
        let queues = Queues::new(&mut r);
        r.register(
            "build",
            "The running version",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );

        let names: Vec<&str> = brokers.into_iter().collect();
        let broker = |name: &str| BrokerMetrics {
            publish: PerLabel::new(|value: PublishOutcome| {
                publish.get_or_create_owned(&vec![
                    ("broker", name.to_owned()),
                    ("outcome", value.word().to_owned()),
                ])
            }),
            connected: connected.get_or_create_owned(&vec![("broker", name.to_owned())]),
            target_paused: target_paused.get_or_create_owned(&vec![("broker", name.to_owned())]),
            target_limited: target_limited.get_or_create_owned(&vec![("broker", name.to_owned())]),
            given_back: GivenBack::default(),
            last_error: LastError::default(),
        };
        let ingest = |name: &str| IngestMetrics {
            results: PerLabel::new(|value: IngestResult| {
                ingest.get_or_create_owned(&vec![
                    ("ingest", name.to_owned()),
                    ("result", value.word().to_owned()),
                ])
            }),
            reading: Reading::default(),
            last_error: LastError::default(),
            replies: PerLabel::new(|value: PublishOutcome| {
                replies.get_or_create_owned(&vec![
                    ("ingest", name.to_owned()),
                    ("outcome", value.word().to_owned()),
                ])
            }),
        };
        Metrics {
            brokers: names.iter().copied().map(|name| (name.to_owned(), broker(name))).collect(),
            ingests: ingests.into_iter().map(|name| (name.to_owned(), ingest(name))).collect(),
            jobs: PerLabel::new(|value: JobState| {
                jobs.get_or_create_owned(&one("state", value.word()))
            }),
            schedules: PerLabel::new(|value: ScheduleState| {
                schedules.get_or_create_owned(&one("state", value.word()))
            }),
            oldest_overdue,
            lateness,
            confirm,
            dead: DeadReason::ALL
                .iter()
                .map(|reason| (*reason, dead.get_or_create_owned(&one("reason", reason.as_str()))))
                .collect(),
            late_dropped,
            possible_duplicates: PerLabel::new(|value: DuplicateCause| {
                duplicates.get_or_create_owned(&one("cause", value.word()))
            }),
            leases_lost,
            cancelled: CANCEL_VERDICTS
                .iter()
                .map(|verdict| {
                    (*verdict, cancelled.get_or_create_owned(&one("verdict", verdict.as_str())))
                })
                .collect(),
            occurrences: PerLabel::new(|value: OccurrenceResult| {
                occurrences.get_or_create_owned(&one("result", value.word()))
            }),
            events_dropped,
            queues,
            redis_seconds: PerLabel::new(|value: Name| {
                redis_seconds.get_or_create_owned(&one("script", value.word()))
            }),
            redis_errors: PerLabel::new(|value: RedisErrorClass| {
                redis_errors.get_or_create_owned(&one("class", value.word()))
            }),
            ingest_paused: PerLabel::new(|value: PauseReason| {
                ingest_paused.get_or_create_owned(&one("reason", value.word()))
            }),
            due_within: PerLabel::new(|value: DueWithin| {
                due_within.get_or_create_owned(&one("seconds", value.word()))
            }),
            recent_lateness: Lateness::default(),
            gauges: Gauges::default(),
            stranded: Stranded::new(stranded, &names),
            registry: Arc::new(r),
        }
    }
}
