//! The tasks that keep a namespace in order, a file each with its options and its interval. The
//! sidecar and each `Worker` get them from [`Maintenance::tasks`].
//!
//! - [`heartbeat`]: tells the fleet that this instance lives.
//! - [`rescue`]: takes over what a claim or a lease left at its deadline.
//! - [`retention`]: removes what a bucket may forget.
//! - [`counts`]: counts the jobs of queues, and removes their old dead; [`counting`]: a round of counts.
//! - [`expiry`]: ends the jobs whose own end has come, and those that wait past their expiry.
//! - [`spawner`]: makes the occurrences of recurring schedules.

pub mod counting;
pub mod counts;
pub mod expiry;
pub mod heartbeat;
pub mod rescue;
pub mod retention;
pub mod spawner;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::counts::{CountOptions, QueueCounter};
use self::expiry::{Expiry, ExpiryOptions};
use self::rescue::{Rescue, RescueOptions};
use self::retention::{Retention, RetentionOptions};
use self::spawner::{SpawnOptions, Spawner};
use crate::fleet::Fleet;
use crate::store::Store;

/// The maintenance of a namespace by one instance: the options of each task. A task without options
/// does not run.
pub struct Maintenance {
    /// The namespace.
    pub store: Arc<Store>,
    /// The fleet as this instance knows it; the heartbeat updates it.
    pub fleet: watch::Sender<Fleet>,
    /// The rescue, and the heartbeat with it: instances share the buckets among those that live.
    pub rescue: Option<RescueOptions>,
    /// The retention.
    pub retention: RetentionOptions,
    /// The counts of queues.
    pub counts: Option<CountOptions>,
    /// The ends and the expiry of jobs.
    pub expiry: Option<ExpiryOptions>,
    /// The occurrences of recurring schedules.
    pub spawn: Option<SpawnOptions>,
}

/// A task of the maintenance, for the caller to spawn.
pub struct Task {
    /// The name of the task.
    pub name: &'static str,
    /// The task ends at the stop of the work, and the drain waits for it. The others end after it.
    pub is_drained: bool,
    /// The work of the task.
    pub run: BoxFuture<'static, ()>,
}

impl Task {
    fn new(name: &'static str, run: impl Future<Output = ()> + Send + 'static) -> Task {
        Task { name, is_drained: false, run: run.boxed() }
    }

    fn drained(self) -> Task {
        Task { is_drained: true, ..self }
    }
}

impl Maintenance {
    /// The tasks. Those that are drained run until `stop`, the others until `end`.
    #[must_use]
    pub fn tasks(self, stop: &CancellationToken, end: &CancellationToken) -> Vec<Task> {
        let Maintenance { store, fleet, rescue, retention, counts, expiry, spawn } = self;
        let follows = fleet.subscribe();
        let retention = Retention::new(store.clone(), retention, follows.clone());
        let mut tasks = vec![Task::new("the retention", retention.run(end.clone()))];
        if let Some(options) = counts {
            let counter = QueueCounter::new(store.clone(), options, follows.clone());
            tasks.push(Task::new("the maintenance of queues", counter.run(end.clone())));
        }
        if let Some(options) = expiry {
            let expiry = Expiry::new(store.clone(), options, follows.clone());
            tasks.push(Task::new("the expiry", expiry.run(end.clone())));
        }
        if let Some(options) = spawn {
            let spawner = Spawner::new(store.clone(), options, follows.clone());
            tasks.push(Task::new("the spawner", spawner.run(stop.clone())).drained());
        }
        if let Some(options) = rescue {
            // The rescue settles what it takes over before the drain.
            let rescue = Rescue::new(store.clone(), options, follows);
            tasks.push(Task::new("the rescue", rescue.run(stop.clone())).drained());
            let heartbeat = heartbeat::heartbeat(store, fleet, stop.clone());
            tasks.push(Task::new("the heartbeat", heartbeat).drained());
        }
        tasks
    }
}
