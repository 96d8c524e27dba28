//! Makes the occurrences of recurring schedules when they are due. The sidecar runs one for its
//! brokers and queues, and each worker of `dwell-engine` for its queues.
//!
//! The spawner decides, and one script applies: the script compares the state of the schedule with
//! the one that the decision was made on. So instances need no lock, and an occurrence is made once
//! at most, whatever dies.
//!
//! - `group`: the loop over the buckets of a master: when to look, and at which buckets.
//! - `bucket`: the work on the due schedules of a bucket; `known`: what is remembered of them;
//!   `unanswered`: the plans whose calls failed; `tell`: what the observer is told.
//! - `zone_data`: newer zone data may give other times.

mod bucket;
mod group;
mod known;
mod tell;
mod unanswered;
mod zone_data;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::group::Group;
use crate::events::Observer;
use crate::fleet::Fleet;
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::wake_up::WakeUp;

/// An occurrence is made this long before it is due: the job is there when its due time comes.
const LEAD: Duration = Duration::from_millis(10);

/// The options of a spawner.
#[derive(Clone)]
pub struct SpawnOptions {
    /// Whether the schedules of this broker or queue are this instance's to make. The others are
    /// left to other instances.
    pub serves: Arc<dyn Fn(DueSet<'_>) -> bool + Send + Sync>,
    /// Whether a queue has as many jobs as it may have.
    pub is_full: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Wakes the readers of what was made.
    pub wake: Arc<dyn Fn(Vec<WakeUp>) + Send + Sync>,
    /// Is told of the occurrences.
    pub observer: Arc<dyn Observer>,
}

/// The agent that makes occurrences.
pub struct Spawner {
    store: Arc<Store>,
    options: SpawnOptions,
    fleet: watch::Receiver<Fleet>,
    /// Is added to the revision of a state that this spawner writes: the state of the same plan of
    /// another spawner differs.
    mark: u64,
}

impl Spawner {
    /// Makes an agent; [`Spawner::run`] starts it.
    #[must_use]
    pub fn new(store: Arc<Store>, options: SpawnOptions, fleet: watch::Receiver<Fleet>) -> Self {
        Spawner { store, options, fleet, mark: u64::from(rand::random::<u16>()) }
    }

    /// Makes occurrences until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let buckets: Vec<u16> = (0..self.store.keys().buckets()).collect();
        // In a cluster each bucket by itself: a master that hangs must not delay the others.
        let at_once = if self.store.is_cluster() { 1 } else { buckets.len().max(1) };
        let puts = watch::Sender::new(());
        let groups = buckets
            .chunks(at_once)
            .map(|some| Group::new(&self, some).run(puts.subscribe(), &stop));
        let follow = async {
            loop {
                self.store.schedules.changed().await;
                puts.send_replace(());
            }
        };
        tokio::select! {
            _ = join_all(groups) => {}
            () = follow => {}
        }
    }
}

#[cfg(test)]
mod tests;
