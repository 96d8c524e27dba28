//! The options of the maintenance without a sidecar.

use std::sync::Arc;
use std::time::Duration;

use dwell_store::clock::whole_ms;
use dwell_store::consumers::Consumers;
use dwell_store::events::{JobEvent, Observer, log};
use dwell_store::fleet::{Fleet, entry};
use dwell_store::maintenance::Maintenance;
use dwell_store::maintenance::counts::CountOptions;
use dwell_store::maintenance::expiry::{EXPIRY_INTERVAL, ExpiryOptions};
use dwell_store::maintenance::rescue::RescueOptions;
use dwell_store::maintenance::retention::RetentionOptions;
use dwell_store::maintenance::spawner::SpawnOptions;
use dwell_store::policy::late::LateRules;
use dwell_store::store::due_set::DueSet;
use dwell_store::store::wake_up::WakeUp;
use tokio::sync::watch;

use crate::client::Client;

/// The lease of a rescue, as a sidecar with the default settings has it.
const RESCUE_LEASE: Duration = Duration::from_secs(20);

/// The subscriber to the events of a worker: the log.
struct Logged;

impl Observer for Logged {
    fn observe(&self, event: &JobEvent<'_>) {
        log::write(event);
        if let JobEvent::TimedOut { queue, count } = *event {
            tracing::debug!(queue, jobs = count, "consumers did not finish jobs within the ttr");
        }
    }
}

/// The maintenance by a worker of these queues.
pub(super) fn maintenance(
    client: &Client,
    consumers: &Consumers,
    queues: Vec<String>,
    dead_retention: Duration,
) -> Maintenance {
    // A worker delivers to no broker. Its queues are not stranded.
    let sets: Vec<String> = queues.iter().map(|queue| DueSet::Queue(queue).to_string()).collect();
    let me = entry(&format!("worker-{}-{:08x}", std::process::id(), rand::random::<u32>()), &sets);
    let dead_retention_ms = whole_ms(dead_retention);
    let queues: Arc<[String]> = queues.into();
    let spawn = spawn_options(consumers, queues.clone());
    let of_queue =
        move |queue: &str| queues.iter().any(|own| own == queue).then_some(dead_retention_ms);
    Maintenance {
        store: client.store.clone(),
        fleet: watch::Sender::new(Fleet::alone(&me)),
        rescue: Some(RescueOptions {
            lease: RESCUE_LEASE,
            retry_ms: client.retry_ms.clone(),
            observer: Arc::new(Logged),
            readers: Arc::new(consumers.clone()),
        }),
        retention: RetentionOptions::Defaults,
        counts: Some(CountOptions { dead_retention_ms: Arc::new(of_queue), observer: None }),
        // Only the listeners of a sidecar give jobs an end of their own.
        expiry: Some(ExpiryOptions {
            interval: EXPIRY_INTERVAL,
            late: LateRules::default(),
            observer: Arc::new(Logged),
        }),
        spawn: Some(spawn),
    }
}

/// The options of the spawner: a worker makes the occurrences of the queues that it works. It knows
/// no limits of queues.
fn spawn_options(consumers: &Consumers, queues: Arc<[String]>) -> SpawnOptions {
    let readers = consumers.clone();
    SpawnOptions {
        serves: Arc::new(move |set: DueSet<'_>| {
            set.queue().is_some_and(|queue| queues.iter().any(|own| own == queue))
        }),
        is_full: Arc::new(|_: &str| false),
        wake: Arc::new(move |wake_ups: Vec<WakeUp>| {
            // A task: a master that hangs delays its wake-ups, and nothing else.
            let readers = readers.clone();
            tokio::spawn(async move { readers.wake_all(wake_ups).await });
        }),
        observer: Arc::new(Logged),
    }
}
