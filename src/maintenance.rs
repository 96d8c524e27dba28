//! The tasks that keep a namespace in order. Heartbeat, rescue, retention, counts, expiry and the
//! spawner are in `dwell_store::maintenance`, a file each. Here are their options by the settings, and what only
//! the sidecar has:
//!
//! - `gauges`: updates the gauges of the namespace.
//! - `declared`: the recurring schedules of the settings. `schedules`: the gauges of schedules.
//! - `queues`: what the counts of queues say.
//! - `max_jobs`: finds the queues that are full.
//!
//! `start` starts them all, with the listener for the wake-ups of other instances.

mod declared;
pub mod gauges;
mod max_jobs;
mod queues;
mod schedules;

use std::sync::Arc;

use dwell_store::maintenance::Maintenance;
use dwell_store::maintenance::counts::CountOptions;
use dwell_store::maintenance::expiry::{ENDS_INTERVAL, EXPIRY_INTERVAL, ExpiryOptions};
use dwell_store::maintenance::rescue::RescueOptions;
use dwell_store::maintenance::retention::RetentionOptions;
use dwell_store::maintenance::spawner::SpawnOptions;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::apply::Apply;
use crate::config::{Delivery, Queues, Settings};
use crate::dispatch::lease_of;
use crate::fleet::Fleet;
use crate::request::FullQueues;
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::meta::SweepRules;
use crate::store::wake_up::WakeUp;
use crate::telemetry::Events;
use crate::units::show_duration_ms;
use crate::wake_ups::{WakeUps, follow_wake_ups};
use declared::DeclaredSchedules;
use gauges::JobGauges;
use max_jobs::MaxJobs;
use queues::QueueGauges;

/// The parts that the tasks need.
pub(crate) struct Parts<'a> {
    pub(crate) settings: &'a Settings,
    /// This instance delivers jobs.
    pub(crate) delivers: bool,
    pub(crate) apply: Apply,
    pub(crate) events: &'a Events,
    pub(crate) fleet: watch::Sender<Fleet>,
    pub(crate) wake_ups: WakeUps,
}

/// Where the tasks run, and until when.
pub(crate) struct Tasks<'a, E> {
    pub(crate) store: &'a Arc<Store>,
    pub(crate) full_queues: &'a FullQueues,
    pub(crate) workers: &'a mut JoinSet<Result<&'static str, E>>,
    pub(crate) stop: &'a CancellationToken,
    /// Run until the workers have ended.
    pub(crate) helpers: &'a mut JoinSet<Result<&'static str, E>>,
    pub(crate) helpers_stop: &'a CancellationToken,
}

/// Starts the tasks of an instance. Each ends with its name.
pub(crate) async fn start<E: Send + 'static>(tasks: Tasks<'_, E>, parts: Parts<'_>) {
    let Parts { settings, delivers, apply, events, fleet, wake_ups } = parts;
    let metrics = events.metrics();
    let Tasks { store, full_queues, workers, stop, helpers, helpers_stop } = tasks;
    let gauges = JobGauges::new(store.clone(), metrics.clone(), fleet.subscribe())
        .with_queues(settings.queues.clone())
        .with_brokers(&settings.brokers);
    spawn(helpers, "the gauges", gauges.run(helpers_stop.clone()));
    keep_queue_limits(store, settings).await;
    // Queues that cannot be listed now may exist.
    let has_none = matches!(store.reader.queues().await, Ok(queues) if queues.is_empty());
    let has_queues = !settings.queues.is_empty() || !has_none;
    let counts = has_queues.then(|| {
        let (rules, dead) = (settings.queues.clone(), settings.queues.clone());
        CountOptions {
            dead_retention_ms: Arc::new(move |queue: &str| {
                Some(dead.get(queue)?.dead_retention.ms())
            }),
            observer: Some(Arc::new(QueueGauges::new(store.clone(), rules, metrics.clone()))),
        }
    });
    if has_queues {
        let max_jobs = MaxJobs::new(store.clone(), settings.queues.clone(), full_queues.clone());
        spawn(helpers, "the counts for max_jobs", max_jobs.run(helpers_stop.clone()));
    }
    // Consumers wait for what an ended lease gives back, and for jobs of other instances, whether
    // this one delivers or not.
    let is_in_fleet = delivers || !settings.queues.is_empty();
    let rescue =
        is_in_fleet.then(|| rescue_options(&settings.delivery, events.clone(), wake_ups.clone()));
    store.schedules.know_full_queues(is_full(full_queues.clone()));
    store.schedules.observe(Arc::new(events.clone()));
    let spawner = is_in_fleet.then(|| SpawnOptions {
        serves: served(store, settings, delivers),
        is_full: is_full(full_queues.clone()),
        wake: wake(wake_ups.clone()),
        observer: Arc::new(events.clone()),
    });
    if delivers || !settings.schedules.is_empty() {
        let declared = DeclaredSchedules::new(&apply, settings, delivers);
        let run = declared.run(fleet.subscribe(), stop.clone());
        spawn(workers, "the schedules of the settings", run);
    }
    let maintenance = Maintenance {
        store: store.clone(),
        fleet,
        rescue,
        retention: retention_options(&settings.delivery),
        counts,
        expiry: Some(ExpiryOptions {
            interval: if has_queues { ENDS_INTERVAL } else { EXPIRY_INTERVAL },
            late: settings.delivery.late_rules(),
            observer: Arc::new(events.clone()),
        }),
        spawn: spawner,
    };
    for task in maintenance.tasks(stop, helpers_stop) {
        spawn(if task.is_drained { &mut *workers } else { &mut *helpers }, task.name, task.run);
    }
    if is_in_fleet {
        let (redis, channel) = (settings.redis.clone(), store.keys().wake());
        let listener = follow_wake_ups(redis, channel, wake_ups, helpers_stop.clone());
        spawn(helpers, "the listener", listener);
    }
}

/// Has the namespace keep the limits of the queues of these settings.
async fn keep_queue_limits(store: &Store, settings: &Settings) {
    if let Err(error) = keep_limits_of(store, &settings.queues).await {
        let hint = "start the instance again when Redis takes writes; until then the limits of the namespace apply";
        tracing::warn!(%error, hint, "the limits of queues could not be kept");
    }
}

/// The same, with the error of a Redis that refuses.
async fn keep_limits_of(store: &Store, queues: &Queues) -> Result<(), StoreError> {
    store.keep_queue_limits(&queues.limits()).await?;
    store.keep_queue_in_flight(&queues.in_flight()).await
}

fn spawn<E: Send + 'static>(
    set: &mut JoinSet<Result<&'static str, E>>,
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) {
    set.spawn(async move {
        task.await;
        Ok(name)
    });
}

/// The options of the rescue by these settings.
#[must_use]
pub fn rescue_options(rules: &Delivery, events: Events, wake_ups: WakeUps) -> RescueOptions {
    RescueOptions {
        lease: lease_of(rules),
        retry_ms: rules.retry.as_slice().into(),
        observer: Arc::new(events),
        readers: Arc::new(wake_ups),
    }
}

type Serves = Arc<dyn Fn(DueSet<'_>) -> bool + Send + Sync>;

/// Whose schedules an instance makes: those of the brokers that it delivers to, and of the queues
/// that it declares.
fn served(store: &Store, settings: &Settings, delivers: bool) -> Serves {
    let brokers = if delivers { store.own_brokers().to_vec() } else { Vec::new() };
    let queues = settings.queues.clone();
    Arc::new(move |set: DueSet<'_>| match set {
        DueSet::Broker(broker) => brokers.iter().any(|own| own == broker),
        DueSet::Queue(queue) => queues.get(queue).is_some(),
    })
}

fn is_full(full_queues: FullQueues) -> Arc<dyn Fn(&str) -> bool + Send + Sync> {
    Arc::new(move |queue: &str| full_queues.is_full(queue))
}

/// Wakes the readers of what was made. A task: a master that hangs delays its wake-ups, and nothing
/// else.
fn wake(wake_ups: WakeUps) -> Arc<dyn Fn(Vec<WakeUp>) + Send + Sync> {
    Arc::new(move |heads: Vec<WakeUp>| {
        let wake_ups = wake_ups.clone();
        tokio::spawn(async move { wake_ups.wake(heads).await });
    })
}

/// The options of the retention by these settings.
#[must_use]
pub fn retention_options(rules: &Delivery) -> RetentionOptions {
    RetentionOptions::Settings { own: rules.into(), differ: warn_of_other_rules }
}

fn warn_of_other_rules(kept: SweepRules, own: SweepRules) {
    let show = |rules: SweepRules| {
        format!(
            "dead_retention {}, dedupe_window {}",
            show_duration_ms(rules.dead_retention_ms),
            show_duration_ms(rules.dedupe_window_ms)
        )
    };
    tracing::warn!(
        kept = show(kept),
        settings = show(own),
        hint = "make the settings of all instances the same; `dwell check --adopt` makes the namespace keep what the settings say",
        "delivery.dead_retention and delivery.dedupe_window of the namespace differ from the settings; the values of the namespace apply"
    );
}

#[cfg(test)]
mod tests;
