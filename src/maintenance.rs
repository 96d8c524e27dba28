//! The tasks that keep a namespace in order, each with its intervals in its file:
//!
//! - `rescue`: takes over what a claim or a lease left at its deadline.
//! - `retention`: removes what is past its time, and updates the gauges.
//! - `queues`: counts the jobs of queues, for the gauges and for `max_jobs`, and removes their old
//!   dead.
//! - `expiry`: ends the jobs whose own end has come.
//!
//! The heartbeat, and the wake-ups of other instances, are tasks of `fleet`. `start` starts them all;
//! `queues` runs `expiry`.

mod expiry;
mod queues;
pub mod rescue;
pub mod retention;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::fleet::{self, Fleet, WakeUps};
use crate::request::FullQueues;
use crate::store::Store;
use crate::telemetry::Events;
use queues::QueueMaintenance;
use rescue::Rescue;
use retention::Retention;

/// The parts that the tasks need.
pub(crate) struct Parts<'a> {
    pub(crate) settings: &'a Settings,
    /// This instance delivers jobs.
    pub(crate) delivers: bool,
    pub(crate) events: &'a Events,
    pub(crate) fleet_sender: watch::Sender<Fleet>,
    pub(crate) fleet: watch::Receiver<Fleet>,
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
    let Parts { settings, delivers, events, fleet_sender, fleet, wake_ups } = parts;
    let metrics = events.metrics();
    let Tasks { store, full_queues, workers, stop, helpers, helpers_stop } = tasks;
    let retention =
        Retention::new(store.clone(), &settings.delivery, metrics.clone(), fleet.clone());
    let until = helpers_stop.clone();
    helpers.spawn(async move {
        retention.run(until).await;
        Ok("the retention")
    });
    // Queues that cannot be listed now may exist.
    let has_none = matches!(store.reader.queues().await, Ok(queues) if queues.is_empty());
    if !settings.queues.is_empty() || !has_none {
        let queues = QueueMaintenance::new(
            store.clone(),
            settings.queues.clone(),
            full_queues.clone(),
            metrics.clone(),
            fleet.clone(),
        );
        let until = helpers_stop.clone();
        helpers.spawn(async move {
            queues.run(until).await;
            Ok("the maintenance of queues")
        });
    }
    // Consumers wait for what an ended lease gives back, and for jobs of other instances, whether
    // this one delivers or not.
    if !delivers && settings.queues.is_empty() {
        return;
    }
    let rescue = Rescue::new(
        store.clone(),
        settings.delivery.clone(),
        events.clone(),
        fleet,
        wake_ups.clone(),
    );
    // The rescue settles what it takes over before the drain, so it stops with the workers.
    let until = stop.clone();
    workers.spawn(async move {
        rescue.run(until).await;
        Ok("the rescue")
    });
    let (of_heartbeat, until) = (store.clone(), stop.clone());
    workers.spawn(async move {
        fleet::heartbeat(of_heartbeat, fleet_sender, until).await;
        Ok("the heartbeat")
    });
    let (redis, channel, until) =
        (settings.redis.clone(), store.keys().wake(), helpers_stop.clone());
    helpers.spawn(async move {
        fleet::follow_wake_ups(redis, channel, wake_ups, until).await;
        Ok("the listener")
    });
}
